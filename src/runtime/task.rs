//! [`Task`]: entry in the queue of a group. [`Due`]: what becomes runnable at a deadline.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::class::Class;
use super::slots::Token;
use super::work::Work;

/// Piece of work. A source is named by its token, with a reference to its slot. So queueing it
/// allocates nothing.
pub(crate) enum Task {
    /// Queued source. Owns a reference.
    Source(Token),
    /// Work of a layer above.
    Work(Arc<dyn Work>),
    /// Code of the user: a spawned closure or the callback of a timer.
    Run(Class, Box<dyn FnOnce() + Send>),
    /// Slot whose last reference was released.
    Reclaim(Token),
    /// Value whose destructor must run as a task, not where the value was dropped.
    Discard(Box<dyn Any + Send>),
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(token) => write!(f, "Source({token:?})"),
            Self::Work(_) => f.write_str("Work"),
            Self::Run(..) => f.write_str("Run"),
            Self::Reclaim(token) => write!(f, "Reclaim({token:?})"),
            Self::Discard(_) => f.write_str("Discard"),
        }
    }
}

/// Purpose of a deadline.
pub(crate) enum Due {
    /// A registered source set it for itself.
    Source(Token),
    /// A callback of the user.
    Callback(Class, Box<dyn FnOnce() + Send>),
}
