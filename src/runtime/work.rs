//! [`Work`]: queued work of a layer above that is neither a source nor a closure.

use std::sync::Arc;

use super::class::Class;
use super::cost::Cost;
use super::source::WorkerContext;

/// Work that becomes runnable again and again, such as a session with messages in its mailbox.
///
/// The queue holds a cloned reference, so a run allocates nothing. The caller that pushes it must
/// ensure that it does not run twice at once: it calls `queue` of a
/// [`Runner`](crate::sync::runner::Runner), and then pushes. The work may be dropped without a run when
/// the runtime ends.
///
/// Work does not count towards the number of threads of a group. The layer above counts its sessions,
/// each of which could use a thread, with [`Group::session_opened`](super::Group::session_opened).
pub(crate) trait Work: Send + Sync + 'static {
    /// Runs the work. It times itself, see [`WorkerContext::charge`]. A panic ends in the worker, which lives.
    /// The layer above decides what the panic means for the session.
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>);

    /// Class of the work. Read when it is queued, and again before it runs.
    fn class(&self) -> Class;

    /// Estimated time of a run.
    fn cost(&self) -> &Cost;
}

#[cfg(test)]
mod tests;
