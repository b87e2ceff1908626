//! [`Design`]: in which order data and index are written.

use std::fmt;
use std::str::FromStr;

/// Order in which data and index are written, and the way in which a reader knows that the data is
/// there. All designs use the same structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// Data first, then the index. What a reader finds in the index is in the store.
    #[default]
    Publish,
    /// Index first, with a flag that is set when the data is there. To set it, the store goes
    /// through the revisions of the key from the oldest on. Readers skip revisions without the
    /// flag.
    MarkAvailable,
    /// The same, but the revision is found by binary search. The published form, Xline's, did not
    /// search this way.
    MarkByHalving,
    /// The same, but the revision is looked for in the whole index, key by key.
    MarkByTraversal,
    /// Marked by halving, and the mark is written to the engine by a second flush before the answer.
    MarkPersisted,
    /// Index first, without a flag. Readers that miss the data take the revision before. For a
    /// moment, a read at the revision that a read of the newest returned may be refused as in the
    /// future.
    Compensate,
}

impl Design {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Publish,
        Self::MarkAvailable,
        Self::MarkByHalving,
        Self::MarkByTraversal,
        Self::MarkPersisted,
        Self::Compensate,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::MarkAvailable => "mark-available",
            Self::MarkByHalving => "mark-by-halving",
            Self::MarkByTraversal => "mark-by-traversal",
            Self::MarkPersisted => "mark-persisted",
            Self::Compensate => "compensate",
        }
    }

    /// True if a revision is in the index before its data is in the store.
    pub(crate) const fn indexes_first(self) -> bool {
        !matches!(self, Self::Publish)
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Design {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|design| design.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no design is called {text:?}; there are {names}")
        })
    }
}
