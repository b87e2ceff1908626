//! [`ThreadKind`]: purpose of a thread.

/// Purpose of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadKind {
    /// Worker for the life of the runtime.
    Base,
    /// Worker that was added because handlers wait or seem to, or because the queue is long.
    Worker,
    /// Thread that stands by until all others wait, and then runs only urgent work.
    Reserve,
}

impl ThreadKind {
    pub(super) const fn from_u8(kind: u8) -> Option<Self> {
        match kind {
            0 => Some(Self::Base),
            1 => Some(Self::Worker),
            2 => Some(Self::Reserve),
            _ => None,
        }
    }

    /// Letter before the number in the thread's name.
    pub(super) const fn letter(self) -> &'static str {
        match self {
            Self::Base => "",
            Self::Worker => "w",
            Self::Reserve => "r",
        }
    }
}
