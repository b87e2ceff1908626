//! [`Class`]: urgency of work, by its effect on the progress of other work.

/// Class that a layer above gives to its work, so that the right work gets a thread when threads
/// are short.
///
/// Work of other classes than [`Ordinary`](Self::Ordinary) has queues of its own, one for logins
/// and one for the rest, which workers serve first. If all other threads of a group wait, its
/// reserve threads run such work. So the holder of a lock always gets a thread, however many
/// sessions wait for the lock. A client can always log in, and an operator can always inspect the
/// server.
///
/// A [`Handle`](crate::Handle) gives its class to the work that it spawns, sets, listens to,
/// connects and registers, see [`Handle::with_class`](crate::Handle::with_class). A connection can
/// change its own class with [`Connection::set_class`](crate::net::Connection::set_class).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// No other work depends on it. The default.
    #[default]
    Ordinary,
    /// It may hold locks that other sessions wait for: a session inside a transaction.
    InProgress,
    /// A login. A group's reserve runs at most `reserve_threads_per_group` of them at a time, so that a
    /// flood of logins cannot use it up.
    Login,
    /// Work of an operator. A connection of a session server keeps this class after its login.
    Admin,
}

impl Class {
    /// Name in snake case, for logs and spans.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::InProgress => "in_progress",
            Self::Login => "login",
            Self::Admin => "admin",
        }
    }

    /// Returns true if work of this class goes to its own lane.
    pub(crate) const fn is_urgent(self) -> bool {
        !matches!(self, Self::Ordinary)
    }

    /// Returns this class, or `other` if this one is ordinary.
    pub(crate) const fn or(self, other: Self) -> Self {
        match self {
            Self::Ordinary => other,
            urgent => urgent,
        }
    }

    pub(crate) const fn from_u8(class: u8) -> Self {
        match class {
            1 => Self::InProgress,
            2 => Self::Login,
            3 => Self::Admin,
            _ => Self::Ordinary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_survives_as_a_number() {
        for class in [Class::Ordinary, Class::InProgress, Class::Login, Class::Admin] {
            assert_eq!(Class::from_u8(class as u8), class);
            assert_eq!(class.is_urgent(), class != Class::Ordinary);
            assert_eq!(Class::Ordinary.or(class), class);
            assert_eq!(Class::Admin.or(class), Class::Admin);
        }
    }
}
