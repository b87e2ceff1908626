//! Requests as the existing client writes them.

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan};
use epoll_group::codec::proto::session::{
    AuthenticateContinue, AuthenticateStart, KillSession, KillSessionType,
};
use epoll_group::codec::proto::sql::{StmtExecute, TokenOffer};
use epoll_group::codec::proto::tso::{AutoSp, GetTso, Operation};
use epoll_group::codec::proto::value::{Any, Scalar};
use md5::{Digest, Md5};
use prost::Message;

/// KiB that the existing client grants.
pub const TOKEN: i32 = 10_240;

/// A query.
pub fn query(sql: &str) -> StmtExecute {
    StmtExecute { hint: Some(Vec::new()), token: Some(TOKEN), ..update(sql) }
}

/// A query with values for its question marks.
pub fn query_with(sql: &str, args: impl IntoIterator<Item = Scalar>) -> StmtExecute {
    StmtExecute { args: args.into_iter().map(Any::from).collect(), ..query(sql) }
}

/// A statement without flow control.
pub fn update(sql: &str) -> StmtExecute {
    StmtExecute { stmt: Some(sql.into()), reset_error: Some(true), ..StmtExecute::default() }
}

/// The key of a text in the server's cache.
pub fn digest(text: &[u8]) -> Vec<u8> {
    Md5::digest(text).to_vec()
}

/// A plan with its parameters.
pub fn plan(plan: AnyPlan, parameters: impl IntoIterator<Item = Scalar>) -> ExecPlan {
    ExecPlan {
        plan: Some(plan),
        parameters: parameters.into_iter().collect(),
        token: Some(TOKEN),
        reset_error: Some(true),
        ..ExecPlan::default()
    }
}

/// The key of a plan in the server's cache.
pub fn plan_digest(plan: &AnyPlan) -> Vec<u8> {
    digest(&plan.encode_to_vec())
}

/// The first frame of a login.
pub fn login_start() -> ClientMessage {
    login_start_with(None)
}

/// The same, of a client that names its user at once.
pub fn login_start_of(user: &str) -> ClientMessage {
    login_start_with(Some(user.as_bytes().to_vec()))
}

fn login_start_with(auth_data: Option<Vec<u8>>) -> ClientMessage {
    ClientMessage::AuthenticateStart(AuthenticateStart {
        mech_name: b"MYSQL41".to_vec(),
        auth_data,
        ..AuthenticateStart::default()
    })
}

/// A later frame of a login.
pub fn login_continue(data: impl Into<Vec<u8>>) -> ClientMessage {
    ClientMessage::AuthenticateContinue(AuthenticateContinue { auth_data: data.into() })
}

/// Ends the statement of a session, or the session.
pub fn kill(session: u64, what: KillSessionType) -> ClientMessage {
    ClientMessage::SessionKill(KillSession { r#type: what, x_session_id: session })
}

/// Grants a session more result.
pub fn offer(kib: i32) -> ClientMessage {
    ClientMessage::TokenOffer(TokenOffer { token: Some(kib) })
}

/// Asks for timestamps.
pub fn timestamps(count: i32) -> ClientMessage {
    ClientMessage::GetTso(GetTso { leader_name: Vec::new(), batch_count: count })
}

/// Sets, releases or goes back to a savepoint.
pub fn savepoint(op: Operation, name: &str) -> ClientMessage {
    let reset_error = Some(true);
    ClientMessage::AutoSavepoint(AutoSp { op, sp_name: name.into(), reset_error })
}
