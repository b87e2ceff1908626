//! Limits for bytes of a peer.

/// Upper bounds for the input of a peer, checked before memory is spent on it.
///
/// *Shape*: a small `Copy` value, to be handed to every call that reads bytes of a peer. The
/// defaults accept all legitimate traffic of the existing peers.
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
    /// Largest length of a frame on the wire: the body and one byte for the kind.
    ///
    /// Default 64 MiB, as in both existing peers. If it is raised, each connection can hold that
    /// much of an incomplete frame, provided the peer really sends it.
    pub frame_bytes: u32,
    /// Largest length of a frame from a peer that has not logged in, see [`Self::before_login`].
    ///
    /// Default 4 KiB: no message of the login is longer than a few hundred bytes.
    pub login_frame_bytes: u32,
    /// Greatest nesting depth of messages. A message whose fields are all plain has depth 0.
    ///
    /// Default 99, close to the usual limit of protobuf decoders. It can be lowered but not raised:
    /// a larger value counts as 99. A plan needs two levels per node.
    pub depth: u32,
    /// Greatest number of arguments of a statement and of parameters of a plan.
    ///
    /// Default 65535, the most placeholders that MySQL counts in a statement.
    pub parameters: u32,
    /// Greatest number of fields of a row and of columns of a chunk.
    ///
    /// Default 4096, the most columns that a MySQL table has.
    pub columns: u32,
    /// Greatest number of elements of any other list: operands, keys, capabilities and so on, each
    /// list by itself.
    ///
    /// Default 65535.
    pub elements: u32,
    /// Greatest length in bytes of a text that is no payload: names of methods, schemas, variables
    /// and operators, SQL states, the text of an error.
    ///
    /// Default 64 KiB. Statements and values are bounded by [`Self::frame_bytes`] alone.
    pub text_bytes: u32,
    /// Memory that a decoded message may take beyond four times its body.
    ///
    /// An element of a list takes a few bytes on the wire and up to some hundred in memory, so a
    /// short body could cost much memory. The memory of a message is added up before it is decoded,
    /// growing lists included.
    ///
    /// Default 32 MiB: enough for the largest number of [`Self::parameters`].
    pub overhead_bytes: u32,
}

impl Limits {
    /// Returns these limits for a peer that has not logged in. Frames are limited to
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
    /// Depth that prost, which decodes after the check, accepts.
    pub(super) const MAX_DEPTH: u32 = 99;
}
