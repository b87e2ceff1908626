//! [`Work`]: what a layer above has in the queue that is neither registered nor a closure.

use std::sync::Arc;

use super::class::Class;
use super::cost::Cost;
use super::source::Lent;

/// Something that becomes runnable again and again: a session with messages in its mailbox.
///
/// In the queue it is a cloned reference, so that a run costs no allocation. Who pushes it sees to it
/// that it does not run twice at once (by a [`Runner`](crate::sync::runner::Runner), whose `queue` is
/// followed by the push). It may be dropped without having run, when the runtime ends.
///
/// It does not count towards the threads that a group may have: a layer above tells of those who could
/// use one by [`Group::session_opened`](super::Group::session_opened).
pub(crate) trait Work: Send + Sync + 'static {
    /// Runs it. It times itself, see [`Lent::charge`]. A panic ends in the worker, which lives; what
    /// the panic means for whom it is about is theirs to see.
    fn run(self: Arc<Self>, lent: &mut Lent<'_>);

    /// Whose work it is: asked when it is queued, and again before it runs.
    fn class(&self) -> Class;

    /// How long a run takes, as far as known.
    fn cost(&self) -> &Cost;
}

#[cfg(test)]
mod tests;
