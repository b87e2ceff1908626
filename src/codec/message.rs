//! Messages in the bodies of frames, per direction.
//!
//! [`ClientMessage`] and [`ServerMessage`] have a variant for every kind. Their contents are the
//! generated types of [`proto`]. The other types here tell the meaning of a content: a [`Notice`],
//! the [`Node`] of a plan, the [`ScalarValue`] of an argument.
//!
//! ```
//! use epoll_group::codec::frame::Dialect;
//! use epoll_group::codec::message::ServerMessage;
//! use epoll_group::codec::proto::generic::OkReply;
//!
//! let mut out = Vec::new();
//! ServerMessage::Ok(OkReply::default()).encode(Dialect::Legacy, 2, &mut out)?;
//! assert_eq!(out, [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
//! # Ok::<(), epoll_group::codec::error::EncodeError>(())
//! ```
//!
//! # Notices
//!
//! ```
//! use epoll_group::codec::limits::Limits;
//! use epoll_group::codec::message::{Notice, ServerMessage};
//!
//! let message = ServerMessage::Notice(Notice::RowsAffected(3).to_frame());
//! let ServerMessage::Notice(frame) = message else { unreachable!() };
//! assert_eq!(Notice::read(&frame, &Limits::default())?, Notice::RowsAffected(3));
//! # Ok::<(), epoll_group::codec::error::MessageError>(())
//! ```
//!
//! # Requests that name their text by a key
//!
//! A request names its work by a text or a plan, by a key under which the server may have it, or by
//! both. Keys are usually MD5 sums of 16 bytes, but any bytes will do.
//!
//! | `stmt` or `plan` | `stmt_digest` or `plan_digest` | the server |
//! | --- | --- | --- |
//! | is there | is absent | runs it |
//! | is there | is there | keeps it under the key, and runs it |
//! | is absent | is there | runs the entry of the key, or answers that there is none |
//! | is absent | is absent | fails the request |
//!
//! A client that wants caching sends the key alone. A server that does not have it answers with
//! [`CACHE_MISS`](crate::codec::error::code::CACHE_MISS), and the client sends the same request with
//! the text added, which the server then keeps.
//!
//! # Arguments
//!
//! Scalars by their meaning: arguments of statements, names and literals of plans.
//!
//! On the wire a [`Scalar`](proto::value::Scalar) is a type and a dozen optional members. Its method
//! `value` returns the member that the type names, and the constructors set both.
//!
//! ```
//! use epoll_group::codec::message::ScalarValue;
//! use epoll_group::codec::proto::value::{Any, Scalar};
//!
//! let argument = Any::from(Scalar::signed(-7));
//! let scalar = argument.scalar.as_ref().map(Scalar::value);
//! assert_eq!(scalar, Some(Ok(ScalarValue::Signed(-7))));
//! ```
//!
//! # Plans
//!
//! Execution plans: building them, and reading them node by node.
//!
//! On the wire a node is a type and one optional member per type.
//! [`AnyPlan::node`](proto::plan::AnyPlan::node) and [`Expr::node`](proto::plan::Expr::node) return
//! the member that the type names; the constructors set both.
//!
//! ```
//! use epoll_group::codec::message::Node;
//! use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, Expr, GetExpr, TableInfo};
//! use epoll_group::codec::proto::value::Scalar;
//!
//! // select id from db.t where id = ? and the first column is above 5
//! let table = TableInfo::new(Scalar::string("t", None), Some(Scalar::string("db", None)));
//! let key = GetExpr::new([(Scalar::string("id", None), Scalar::placeholder(0))]);
//! let above = Expr::operator(">", [Expr::reference(0), Expr::literal(Scalar::signed(5))]);
//! let plan = AnyPlan::get(table, None, [key])
//!     .filter(above)
//!     .table_project([Scalar::string("id", None)]);
//!
//! let request = ExecPlan {
//!     plan: Some(plan),
//!     parameters: vec![Scalar::signed(7)],
//!     ..ExecPlan::default()
//! };
//! let Some(Node::TableProject(project)) = request.plan.as_ref().map(AnyPlan::node).transpose()?
//! else {
//!     unreachable!();
//! };
//! assert!(matches!(project.sub_read_plan.node()?, Node::Filter(_)));
//! # Ok::<(), epoll_group::codec::message::PlanError>(())
//! ```
//!
//! # Expect blocks
//!
//! Requests that run only if all earlier requests of the block succeeded. Only the older server
//! line knows them; the engine of today has `reset_error` in the requests instead.
//!
//! ```text
//! EXPECT_OPEN no error │ request │ request │ … │ EXPECT_CLOSE
//! ```
//!
//! Each request is answered. After a failure every further request of the block fails with
//! [`EXPECT_FAILED`](crate::codec::error::code::EXPECT_FAILED), and so does the end of the block.

mod expect;
mod kind;
mod notice;
mod plan;
mod scalar;
mod statement;

pub use kind::{ClientKind, ServerKind};
pub use notice::Notice;
pub use plan::{ExprNode, Node, PlanError};
use prost::Message;
pub use scalar::{AnyValue, ScalarError, ScalarValue};

use crate::codec::check::{Schema, check};
use crate::codec::error::{EncodeError, MessageError};
use crate::codec::frame::{Dialect, Header};
use crate::codec::limits::Limits;
use crate::codec::proto::resultset::ColumnMetaDataCompatible;
use crate::codec::proto::{self, schema};

macro_rules! messages {
    (
        $(#[$doc:meta])* $name:ident, $kinds:ident, $vis:vis $body_bytes:ident $encode_body:ident;
        empty { $($empty:ident;)* }
        full { $($full:ident($ty:ty) $schema:ident;)* }
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
                    Self::Unknown(kind, _) => *kind,
                }
            }

            /// Bytes of the body.
            #[must_use]
            $vis fn $body_bytes(&self) -> usize {
                match self {
                    $(Self::$empty => 0,)*
                    $(Self::$full(message) => message.encoded_len(),)*
                    Self::Unknown(_, body) => body.len(),
                }
            }

            /// Appends the body to `out`, with the fields in the order of their numbers.
            $vis fn $encode_body(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$empty => {})*
                    $(Self::$full(message) => message.encode_raw(out),)*
                    Self::Unknown(_, body) => out.extend_from_slice(body),
                }
            }

            fn decode_kind(
                kind: $kinds,
                body: &[u8],
                limits: &Limits,
            ) -> Result<Self, MessageError> {
                Ok(match kind {
                    $($kinds::$empty => {
                        check(body, &schema::EMPTY, limits)?;
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
                    $($kinds::$empty => Some(&schema::EMPTY),)*
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
    /// frame ([`Frame::bytes`](crate::codec::frame::Frame::bytes)).
    ClientMessage, ClientKind, pub body_bytes encode_body;
    empty {
        CapabilitiesGet;
        Close;
        SessionReset;
        SessionClose;
        ExpectClose;
        SessionNew;
    }
    full {
        CapabilitiesSet(proto::connection::CapabilitiesSet) CONNECTION_CAPABILITIES_SET;
        AuthenticateStart(proto::session::AuthenticateStart) SESSION_AUTHENTICATE_START;
        AuthenticateContinue(proto::session::AuthenticateContinue) SESSION_AUTHENTICATE_CONTINUE;
        StmtExecute(proto::sql::StmtExecute) SQL_STMT_EXECUTE;
        ExpectOpen(proto::expect::Open) EXPECT_OPEN;
        ExecPlan(Box<proto::plan::ExecPlan>) PLAN_EXEC_PLAN;
        ExecSql(proto::sql::StmtExecute) SQL_STMT_EXECUTE;
        PrepareExecute(proto::sql::GalaxyPrepareExecute) SQL_GALAXY_PREPARE_EXECUTE;
        SessionKill(proto::session::KillSession) SESSION_KILL_SESSION;
        TokenOffer(proto::sql::TokenOffer) SQL_TOKEN_OFFER;
        GetTso(proto::tso::GetTso) TSO_GET_TSO;
        AutoSavepoint(proto::tso::AutoSp) TSO_AUTO_SP;
        GetFileInfo(proto::file::GetFileInfoOperator) FILE_GET_FILE_INFO_OPERATOR;
        TransferFileData(proto::file::TransferFileDataOperator) FILE_TRANSFER_FILE_DATA_OPERATOR;
        ManageFile(proto::file::FileManageOperator) FILE_FILE_MANAGE_OPERATOR;
    }
}

messages! {
    /// Message of a server.
    ///
    /// *Shape*: owns its contents. Unknown fields are not in it: a proxy passes on the bytes of the
    /// frame ([`Frame::bytes`](crate::codec::frame::Frame::bytes)).
    ServerMessage, ServerKind, newer_body_bytes encode_newer_body;
    empty {
        FetchSuspended;
        FetchDoneMoreResultsets;
        StmtExecuteOk;
        FetchDoneMoreOutParams;
    }
    full {
        Ok(proto::generic::OkReply) GENERIC_OK_REPLY;
        Error(proto::generic::ErrorReply) GENERIC_ERROR_REPLY;
        Capabilities(proto::connection::Capabilities) CONNECTION_CAPABILITIES;
        AuthenticateContinue(proto::session::AuthenticateContinue) SESSION_AUTHENTICATE_CONTINUE;
        AuthenticateOk(proto::session::AuthenticateOk) SESSION_AUTHENTICATE_OK;
        Notice(proto::notice::Frame) NOTICE_FRAME;
        ColumnMetaData(proto::resultset::ColumnMetaData) RESULTSET_COLUMN_META_DATA;
        Row(proto::resultset::Row) RESULTSET_ROW;
        FetchDone(proto::resultset::FetchDone) RESULTSET_FETCH_DONE;
        TokenDone(proto::resultset::TokenDone) RESULTSET_TOKEN_DONE;
        Tso(proto::tso::ResultTso) TSO_RESULT_TSO;
        Chunk(proto::resultset::Chunk) RESULTSET_CHUNK;
        FileInfo(proto::file::GetFileInfoOperator) FILE_GET_FILE_INFO_OPERATOR;
        FileData(proto::file::TransferFileDataOperator) FILE_TRANSFER_FILE_DATA_OPERATOR;
        FileManaged(proto::file::FileManageOperatorResponse) FILE_FILE_MANAGE_OPERATOR_RESPONSE;
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

    /// Appends the whole frame to `out`.
    ///
    /// # Errors
    ///
    /// [`EncodeError::TooLong`] when no frame can hold the body; nothing is appended. Most peers
    /// refuse frames above 64 MiB already.
    pub fn encode(
        &self,
        dialect: Dialect,
        session: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        put_header(dialect, session, self.kind(), self.body_bytes(), out)?;
        self.encode_body(out);
        Ok(())
    }

    #[inline(never)]
    fn decode_long(kind: u8, body: &[u8], limits: &Limits) -> Result<Self, MessageError> {
        match ClientKind::from_number(kind) {
            Some(known) => Self::decode_kind(known, body, limits),
            None => Ok(Self::Unknown(kind, body.to_vec())),
        }
    }
}

#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
impl ClientMessage {
    /// Upper bound of the memory beyond the message itself that the message of this `body` keeps.
    /// Queues of messages are bounded by it, because an element of a list may take a hundred times
    /// as much in memory as on the wire. During decoding, one byte string may exist twice.
    ///
    /// # Errors
    ///
    /// Those of [`Self::decode`].
    pub(crate) fn memory_bytes(
        kind: u8,
        body: &[u8],
        limits: &Limits,
    ) -> Result<u64, MessageError> {
        match ClientKind::from_number(kind).and_then(Self::schema_of) {
            Some(schema) => check(body, schema, limits),
            None => Ok(u64::try_from(body.len()).unwrap_or(u64::MAX)),
        }
    }
}

/// Upper bound of the memory that the plan in the body of an [`ExecPlan`](proto::plan::ExecPlan)
/// keeps beyond [`AnyPlan`](proto::plan::AnyPlan) itself. The other fields do not count.
///
/// # Errors
///
/// Those of [`ClientMessage::decode`].
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub(crate) fn plan_memory_bytes(body: &[u8], limits: &Limits) -> Result<u64, MessageError> {
    use crate::codec::check::{Field, Kind};

    static PLAN_ALONE: Schema = Schema::of::<proto::plan::ExecPlan>(
        "plan.ExecPlan",
        0,
        &[Field::GAP, Field::one(Kind::Message(&schema::PLAN_ANY_PLAN))],
    );
    check(body, &PLAN_ALONE, limits)
}

impl ServerMessage {
    /// Decodes the message of this kind in `body`. The dialect matters for the description of
    /// columns.
    ///
    /// Accepts the second numbers of some kinds ([`ServerKind`]); encoding writes the first.
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
        match (ServerKind::from_number(kind), dialect) {
            (Some(ServerKind::ColumnMetaData), Dialect::Galaxy { .. }) => {
                let schema = &schema::RESULTSET_COLUMN_META_DATA_COMPATIBLE;
                let older: ColumnMetaDataCompatible = decode(body, schema, limits)?;
                Ok(Self::ColumnMetaData(older.into_newer()))
            }
            (Some(known), _) => Self::decode_kind(known, body, limits),
            (None, _) => Ok(Self::Unknown(kind, body.to_vec())),
        }
    }

    /// Bytes of the body. The dialect matters for the description of columns: that of the galaxy
    /// dialect has no `original_flags`.
    #[must_use]
    pub fn body_bytes(&self, dialect: Dialect) -> usize {
        match self.older(dialect) {
            Some(older) => older.encoded_len(),
            None => self.newer_body_bytes(),
        }
    }

    /// Appends the body to `out`, with the fields in the order of their numbers. Of a column, the
    /// galaxy dialect leaves out `original_flags`.
    pub fn encode_body(&self, dialect: Dialect, out: &mut Vec<u8>) {
        match self.older(dialect) {
            Some(older) => older.encode_raw(out),
            None => self.encode_newer_body(out),
        }
    }

    /// Appends the whole frame to `out`.
    ///
    /// # Errors
    ///
    /// Those of [`ClientMessage::encode`].
    pub fn encode(
        &self,
        dialect: Dialect,
        session: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        put_header(dialect, session, self.kind(), self.body_bytes(dialect), out)?;
        self.encode_body(dialect, out);
        Ok(())
    }

    /// Description of a column in the form of the older dialect. `None` for other messages, and in
    /// today's dialect.
    fn older(&self, dialect: Dialect) -> Option<ColumnMetaDataCompatible> {
        match (self, dialect) {
            (Self::ColumnMetaData(column), Dialect::Galaxy { .. }) => {
                Some(ColumnMetaDataCompatible::of(column.clone()))
            }
            _ => None,
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

/// Appends a header, and reserves memory for the body.
fn put_header(
    dialect: Dialect,
    session: u64,
    kind: u8,
    body_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let header = match u32::try_from(body_bytes) {
        Ok(bytes) if bytes <= Header::MAX_BODY_BYTES => Header::new(session, kind, bytes),
        _ => {
            let length = body_bytes.saturating_add(1);
            return Err(EncodeError::TooLong { length, limit: u32::MAX });
        }
    };
    out.reserve(dialect.frame_bytes(&header));
    dialect.encode(&header, out);
    Ok(())
}
