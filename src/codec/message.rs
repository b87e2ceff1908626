//! Messages in the bodies of frames, per direction.
//!
//! [`ClientMessage`] and [`ServerMessage`] have a variant for every kind. Their contents are types
//! generated from `.proto` files, one module per concern.
//!
//! The files say `string` where the protocol does, but the types hold `Vec<u8>` there. Text is in
//! the character set of the database, and neither existing peer checks it.
//!
//! ```
//! use epoll_group::codec::dialect::Dialect;
//! use epoll_group::codec::message::{ServerMessage, generic::OkReply};
//!
//! let mut out = Vec::new();
//! ServerMessage::Ok(OkReply::default()).encode(Dialect::Legacy, 2, &mut out)?;
//! assert_eq!(out, [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
//! # Ok::<(), epoll_group::codec::error::TooLarge>(())
//! ```

use prost::Message;

use super::check::{Schema, check};
use super::dialect::Dialect;
use super::error::{MessageError, TooLarge};
use super::header::Header;
use super::kind::{ClientKind, ServerKind};
use super::limits::Limits;
use super::statement;

macro_rules! generated {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[allow(
                missing_docs,
                clippy::all,
                clippy::exhaustive_enums,
                clippy::exhaustive_structs,
                reason = "generated"
            )]
            #[rustfmt::skip]
            pub mod $name;
        )*
    };
}

generated! {
    /// Messages about the connection and no session.
    connection;
    /// Expectations: conditions for the requests of a block. The older server line only.
    expect;
    /// Transfer of tablespace files.
    file;
    /// Answers that any request can get.
    generic;
    /// Notices: messages of a server beside the results.
    notice;
    /// Execution plans: reads without a statement to parse.
    plan;
    /// Results: metadata, rows, chunks, ends.
    resultset;
    /// Login; start and end of sessions.
    session;
    /// Statements in text form and the flow control of their results.
    sql;
    /// Timestamps and savepoints of distributed transactions.
    tso;
    /// Values with their type: statement arguments, plan literals, capabilities.
    value;
}

macro_rules! messages {
    (
        $(#[$doc:meta])* $name:ident, $kinds:ident;
        empty { $($empty:ident $empty_schema:ident;)* }
        full { $($full:ident($ty:ty) $schema:ident;)* }
        more { $($(#[$more_doc:meta])* $more:ident($more_ty:ty) $more_kind:ident $more_schema:ident;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum $name {
            $(
                #[doc = concat!("[`", stringify!($kinds), "::", stringify!($empty), "`].")]
                $empty,
            )*
            $(
                #[doc = concat!("[`", stringify!($kinds), "::", stringify!($full), "`].")]
                $full($ty),
            )*
            $($(#[$more_doc])* $more($more_ty),)*
            /// Kind that is not known, or whose body is not described: its number and its body.
            Unknown(u8, Vec<u8>),
        }

        impl $name {
            /// Number of the kind in the header.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self {
                    $(Self::$empty => $kinds::$empty.number(),)*
                    $(Self::$full(_) => $kinds::$full.number(),)*
                    $(Self::$more(_) => $kinds::$more_kind.number(),)*
                    Self::Unknown(kind, _) => *kind,
                }
            }

            /// Bytes of the body.
            #[must_use]
            pub fn body_bytes(&self) -> usize {
                match self {
                    $(Self::$empty => 0,)*
                    $(Self::$full(message) => message.encoded_len(),)*
                    $(Self::$more(message) => message.encoded_len(),)*
                    Self::Unknown(_, body) => body.len(),
                }
            }

            /// Appends the body to `out`, with the fields in the order of their numbers.
            pub fn encode_body(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$empty => {})*
                    $(Self::$full(message) => message.encode_raw(out),)*
                    $(Self::$more(message) => message.encode_raw(out),)*
                    Self::Unknown(_, body) => out.extend_from_slice(body),
                }
            }

            /// Appends the whole frame to `out`.
            ///
            /// # Errors
            ///
            /// [`TooLarge`] when no frame can hold the body; nothing is appended. Most peers refuse
            /// frames above 64 MiB already.
            pub fn encode(
                &self,
                dialect: Dialect,
                session: u64,
                out: &mut Vec<u8>,
            ) -> Result<(), TooLarge> {
                let header = header(session, self.kind(), self.body_bytes())?;
                out.reserve(dialect.frame_bytes(&header));
                dialect.encode(&header, out);
                self.encode_body(out);
                Ok(())
            }

            fn decode_kind(
                kind: $kinds,
                body: &[u8],
                limits: &Limits,
            ) -> Result<Self, MessageError> {
                Ok(match kind {
                    $($kinds::$empty => {
                        check(body, &schema::$empty_schema, limits)?;
                        Self::$empty
                    })*
                    $($kinds::$full => Self::$full(decode(body, &schema::$schema, limits)?),)*
                    #[allow(unreachable_patterns, reason = "in one direction all are described")]
                    other => Self::Unknown(other.number(), body.to_vec()),
                })
            }

            /// Schema of the body of this kind, if it is described.
            #[allow(dead_code, reason = "one direction has no use for it")]
            const fn schema_of(kind: $kinds) -> Option<&'static Schema> {
                match kind {
                    $($kinds::$empty => Some(&schema::$empty_schema),)*
                    $($kinds::$full => Some(&schema::$schema),)*
                    #[allow(unreachable_patterns, reason = "in one direction all are described")]
                    _ => None,
                }
            }
        }
    };
}

messages! {
    /// Message of a client.
    ///
    /// *Shape*: owns its contents. Unknown fields are not in it: a proxy passes on the bytes of the
    /// frame ([`Frame::bytes`](super::decoder::Frame::bytes)).
    ClientMessage, ClientKind;
    empty {
        CapabilitiesGet CONNECTION_CAPABILITIES_GET;
        Close CONNECTION_CLOSE;
        SessionReset SESSION_RESET;
        SessionClose SESSION_CLOSE;
        ExpectClose EXPECT_CLOSE;
        SessionNew SESSION_NEW_SESSION;
    }
    full {
        CapabilitiesSet(connection::CapabilitiesSet) CONNECTION_CAPABILITIES_SET;
        AuthenticateStart(session::AuthenticateStart) SESSION_AUTHENTICATE_START;
        AuthenticateContinue(session::AuthenticateContinue) SESSION_AUTHENTICATE_CONTINUE;
        StmtExecute(sql::StmtExecute) SQL_STMT_EXECUTE;
        ExpectOpen(expect::Open) EXPECT_OPEN;
        ExecPlan(Box<plan::ExecPlan>) PLAN_EXEC_PLAN;
        ExecSql(sql::StmtExecute) SQL_STMT_EXECUTE;
        PrepareExecute(sql::GalaxyPrepareExecute) SQL_GALAXY_PREPARE_EXECUTE;
        SessionKill(session::KillSession) SESSION_KILL_SESSION;
        TokenOffer(sql::TokenOffer) SQL_TOKEN_OFFER;
        GetTso(tso::GetTso) TSO_GET_TSO;
        AutoSavepoint(tso::AutoSp) TSO_AUTO_SP;
        GetFileInfo(file::GetFileInfoOperator) FILE_GET_FILE_INFO_OPERATOR;
        TransferFileData(file::TransferFileDataOperator) FILE_TRANSFER_FILE_DATA_OPERATOR;
        ManageFile(file::FileManageOperator) FILE_FILE_MANAGE_OPERATOR;
    }
    more {}
}

messages! {
    /// Message of a server.
    ///
    /// *Shape*: owns its contents. Unknown fields are not in it: a proxy passes on the bytes of the
    /// frame ([`Frame::bytes`](super::decoder::Frame::bytes)).
    ServerMessage, ServerKind;
    empty {
        FetchSuspended RESULTSET_FETCH_SUSPENDED;
        FetchDoneMoreResultsets RESULTSET_FETCH_DONE_MORE_RESULTSETS;
        StmtExecuteOk SQL_STMT_EXECUTE_OK;
        FetchDoneMoreOutParams RESULTSET_FETCH_DONE_MORE_OUT_PARAMS;
    }
    full {
        Ok(generic::OkReply) GENERIC_OK_REPLY;
        Error(generic::ErrorReply) GENERIC_ERROR_REPLY;
        Capabilities(connection::Capabilities) CONNECTION_CAPABILITIES;
        AuthenticateContinue(session::AuthenticateContinue) SESSION_AUTHENTICATE_CONTINUE;
        AuthenticateOk(session::AuthenticateOk) SESSION_AUTHENTICATE_OK;
        Notice(notice::Frame) NOTICE_FRAME;
        ColumnMetaData(resultset::ColumnMetaData) RESULTSET_COLUMN_META_DATA;
        Row(resultset::Row) RESULTSET_ROW;
        FetchDone(resultset::FetchDone) RESULTSET_FETCH_DONE;
        TokenDone(resultset::TokenDone) RESULTSET_TOKEN_DONE;
        Tso(tso::ResultTso) TSO_RESULT_TSO;
        Chunk(resultset::Chunk) RESULTSET_CHUNK;
        FileInfo(file::GetFileInfoOperator) FILE_GET_FILE_INFO_OPERATOR;
        FileData(file::TransferFileDataOperator) FILE_TRANSFER_FILE_DATA_OPERATOR;
        FileManaged(file::FileManageOperatorResponse) FILE_FILE_MANAGE_OPERATOR_RESPONSE;
    }
    more {
        /// [`ServerKind::ColumnMetaData`] in the galaxy dialect, which numbers the fields
        /// differently.
        ColumnMetaDataGalaxy(resultset::ColumnMetaDataCompatible) ColumnMetaData
            RESULTSET_COLUMN_META_DATA_COMPATIBLE;
    }
}

impl ClientMessage {
    /// Decodes the message of this kind in `body`.
    ///
    /// # Errors
    ///
    /// If the body is malformed, the connection ends. If it is beyond `limits`, only the request
    /// ends: see [`MessageError::scope`]. An unknown kind is no error here.
    #[inline(always)]
    pub fn decode(kind: u8, body: &[u8], limits: &Limits) -> Result<Self, MessageError> {
        if kind == ClientKind::ExecSql.number()
            && let Some(statement) = statement::decode(body, limits)
        {
            return Ok(Self::ExecSql(statement));
        }
        // Decoding out of line lets the compiler write the message above where the caller wants it.
        #[expect(clippy::needless_question_mark, reason = "15 ns a statement less")]
        Ok(Self::decode_long(kind, body, limits)?)
    }

    #[inline(never)]
    fn decode_long(kind: u8, body: &[u8], limits: &Limits) -> Result<Self, MessageError> {
        match ClientKind::from_number(kind) {
            Some(known) => Self::decode_kind(known, body, limits),
            None => Ok(Self::Unknown(kind, body.to_vec())),
        }
    }
}

impl ClientMessage {
    /// Upper bound of the memory beyond the message itself that decoding this `body` takes. Queues
    /// of messages are bounded by it, because an element of a list may take a hundred times as much
    /// in memory as on the wire.
    ///
    /// # Errors
    ///
    /// Those of [`Self::decode`].
    pub fn memory_bytes(kind: u8, body: &[u8], limits: &Limits) -> Result<u64, MessageError> {
        match ClientKind::from_number(kind).and_then(Self::schema_of) {
            Some(schema) => check(body, schema, limits),
            None => Ok(u64::try_from(body.len()).unwrap_or(u64::MAX)),
        }
    }
}

impl ServerMessage {
    /// Decodes the message of this kind in `body`. The dialect matters for the description of
    /// columns.
    ///
    /// Accepts the second numbers of some kinds ([`ServerKind::from_number_or_alias`]); encoding
    /// writes the first.
    ///
    /// # Errors
    ///
    /// Those of [`ClientMessage::decode`].
    pub fn decode(
        dialect: Dialect,
        kind: u8,
        body: &[u8],
        limits: &Limits,
    ) -> Result<Self, MessageError> {
        match (ServerKind::from_number_or_alias(kind), dialect) {
            (Some(ServerKind::ColumnMetaData), Dialect::Galaxy { .. }) => {
                let schema = &schema::RESULTSET_COLUMN_META_DATA_COMPATIBLE;
                decode(body, schema, limits).map(Self::ColumnMetaDataGalaxy)
            }
            (Some(known), _) => Self::decode_kind(known, body, limits),
            (None, _) => Ok(Self::Unknown(kind, body.to_vec())),
        }
    }
}

/// Checks `body` and decodes it.
pub(super) fn decode<M: Message + Default>(
    body: &[u8],
    schema: &'static Schema,
    limits: &Limits,
) -> Result<M, MessageError> {
    check(body, schema, limits)?;
    // A body that passes the check can be decoded. Only a different depth limit could make the
    // decoder fail.
    M::decode(body).map_err(|_| MessageError::Depth { limit: limits.depth.min(Limits::MAX_DEPTH) })
}

fn header(session: u64, kind: u8, body_bytes: usize) -> Result<Header, TooLarge> {
    match u32::try_from(body_bytes) {
        Ok(bytes) if bytes <= Header::MAX_BODY_BYTES => Ok(Header::new(session, kind, bytes)),
        _ => {
            let bytes = u64::try_from(body_bytes).unwrap_or(u64::MAX);
            Err(TooLarge { bytes, limit: Header::MAX_BODY_BYTES })
        }
    }
}

#[rustfmt::skip]
#[allow(dead_code, reason = "generated for every message")]
pub(super) mod schema;
