//! How much of a peer's bytes is believed.

/// Upper bounds for what a peer sends, checked before memory is spent on it.
///
/// *Shape*: a small `Copy` value, to be handed to every call that reads bytes of a peer. The
/// defaults accept all that the existing peers send in earnest.
///
/// ```
/// use epoll_group::codec::limits::Limits;
///
/// let mut limits = Limits::default();
/// limits.frame_bytes = 1 << 20;
/// assert_eq!(limits.before_login().frame_bytes, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Limits {
    /// Largest length of a frame as it stands on the wire: the body and one byte for the kind.
    ///
    /// Default 64 MiB, as both existing peers have it. Raising it lets each connection hold that
    /// much of a frame that is not complete, if the peer really sends it.
    pub frame_bytes: u32,
    /// The same for a peer that has not logged in, see [`Self::before_login`].
    ///
    /// Default 4 KiB: no message of the login is longer than a few hundred bytes.
    pub login_frame_bytes: u32,
    /// How deep messages may lie inside one another; a message whose fields are all plain has
    /// depth 0.
    ///
    /// Default 99, about what protobuf decoders are used to. It can be lowered but not raised: more
    /// counts as 99. A plan needs two levels per node.
    pub depth: u32,
    /// Most arguments of a statement and parameters of a plan.
    ///
    /// Default 65535, the most placeholders that MySQL counts in a statement.
    pub parameters: u32,
    /// Most fields of a row and columns of a chunk.
    ///
    /// Default 4096, the most columns that a MySQL table has.
    pub columns: u32,
    /// Most elements of any other list: operands, keys, capabilities and so on, each list by itself.
    ///
    /// Default 65535.
    pub elements: u32,
    /// Most bytes of a text that is no payload: names of methods, schemas, variables and operators,
    /// SQL states, the words of an error.
    ///
    /// Default 64 KiB. Statements and values are bounded by [`Self::frame_bytes`] alone.
    pub text_bytes: u32,
    /// Memory that a decoded message may take beyond four times its body.
    ///
    /// An element of a list takes a few bytes on the wire and up to some hundred in memory, so
    /// that short bodies could be made to cost much. What a message will cost is added up before
    /// it is decoded, growing lists included.
    ///
    /// Default 32 MiB: enough for the largest number of [`Self::parameters`].
    pub overhead_bytes: u32,
}

impl Limits {
    /// These limits for a peer that has not logged in: frames are limited to
    /// [`Self::login_frame_bytes`].
    #[must_use]
    pub const fn before_login(self) -> Self {
        let mut limits = self;
        if limits.login_frame_bytes < limits.frame_bytes {
            limits.frame_bytes = limits.login_frame_bytes;
        }
        limits
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 64 << 20,
            login_frame_bytes: 4 << 10,
            depth: Self::MAX_DEPTH,
            parameters: 65_535,
            columns: 4_096,
            elements: 65_535,
            text_bytes: 64 << 10,
            overhead_bytes: 32 << 20,
        }
    }
}

impl Limits {
    /// The decoder behind the check counts to this and no further.
    pub(super) const MAX_DEPTH: u32 = 99;
}
