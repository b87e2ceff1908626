//! [`Request`]: a request to a session.

use std::time::Duration;

use md5::{Digest as _, Md5};
use prost::Message as _;

use super::slot::Asked;
use crate::codec::message::ClientMessage;
use crate::codec::proto::plan::{AnyPlan, ExecPlan};
use crate::codec::proto::sql::StmtExecute;
use crate::codec::proto::tso::AutoSp;
use crate::codec::proto::tso::Operation;
use crate::codec::proto::value::Scalar;

/// Request to a session: a statement, a plan or a savepoint.
///
/// ```
/// use std::time::Duration;
///
/// use epoll_group::client::Request;
/// use epoll_group::codec::proto::value::Scalar;
///
/// let request = Request::sql("select c from sbtest1 where id = ?")
///     .arg(Scalar::signed(7))
///     .cached()
///     .timeout(Duration::from_secs(1));
/// # let _ = request;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Request {
    pub(super) body: Body,
    pub(super) cached: bool,
    pub(super) timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Sql(Box<StmtExecute>),
    Plan(Box<ExecPlan>),
    Savepoint(AutoSp),
}

/// Encoded form of a request. It is sent with the text again if the server does not know its
/// digest.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) message: ClientMessage,
    pub(super) again: Option<Box<ClientMessage>>,
    pub(super) asked: Asked,
}

impl Wire {
    pub(super) const fn new(asked: Asked, message: ClientMessage) -> Self {
        Self { message, again: None, asked }
    }
}

impl Request {
    /// Creates a statement in text form.
    pub fn sql(text: impl Into<Vec<u8>>) -> Self {
        Self::statement(StmtExecute {
            stmt: Some(text.into()),
            reset_error: Some(true),
            ..StmtExecute::default()
        })
    }

    /// Creates a statement from a message, for proxies. The client sets the window of its rows.
    pub fn statement(message: StmtExecute) -> Self {
        Self { body: Body::Sql(Box::new(message)), cached: false, timeout: None }
    }

    /// Creates an execution plan.
    pub fn plan(plan: AnyPlan) -> Self {
        Self::exec_plan(ExecPlan {
            plan: Some(plan),
            reset_error: Some(true),
            ..ExecPlan::default()
        })
    }

    /// Creates an execution plan from a message, for proxies.
    pub fn exec_plan(message: ExecPlan) -> Self {
        Self { body: Body::Plan(Box::new(message)), cached: false, timeout: None }
    }

    /// Creates an action on a savepoint.
    pub fn savepoint(operation: Operation, name: impl Into<Vec<u8>>) -> Self {
        let savepoint = AutoSp { op: operation, sp_name: name.into(), ..AutoSp::default() };
        Self { body: Body::Savepoint(savepoint), cached: false, timeout: None }
    }

    /// Adds a value for the next `?` of the statement, or the next placeholder of the plan.
    pub fn arg(mut self, value: Scalar) -> Self {
        match &mut self.body {
            Body::Sql(sql) => sql.args.push(value.into()),
            Body::Plan(plan) => plan.parameters.push(value),
            Body::Savepoint(_) => {}
        }
        self
    }

    /// Adds values, one after the other.
    pub fn args(self, values: impl IntoIterator<Item = Scalar>) -> Self {
        values.into_iter().fold(self, Self::arg)
    }

    /// Sends a digest in place of the text or plan, and sends these only if the server does not
    /// know the digest. It saves bytes and parsing for frequent requests. It has no effect on
    /// auto-commit statements, because some servers do not support it there.
    ///
    /// The client sends the request again by itself. If it cannot do so, the request was not
    /// executed: it ends in error 8000 if another request was sent behind it, and in error 1317 if
    /// it was cancelled.
    pub const fn cached(mut self) -> Self {
        self.cached = true;
        self
    }

    /// Asks for columns in place of rows, which saves bytes for many rows of numbers.
    pub fn chunks(mut self) -> Self {
        match &mut self.body {
            Body::Sql(sql) => sql.chunk_result = Some(true),
            Body::Plan(plan) => plan.chunk_result = Some(true),
            Body::Savepoint(_) => {}
        }
        self
    }

    /// Asks for columns without names.
    pub fn compact(mut self) -> Self {
        match &mut self.body {
            Body::Sql(sql) => sql.compact_metadata = Some(true),
            Body::Plan(plan) => plan.compact_metadata = Some(true),
            Body::Savepoint(_) => {}
        }
        self
    }

    /// Skips the request if the previous one of the session failed. It then fails with the same
    /// error. A request that ended in error 8000 (see [`cached`](Self::cached)) does not count as
    /// failed.
    pub fn if_no_error(mut self) -> Self {
        match &mut self.body {
            Body::Sql(sql) => sql.reset_error = Some(false),
            Body::Plan(plan) => plan.reset_error = Some(false),
            Body::Savepoint(savepoint) => savepoint.reset_error = Some(false),
        }
        self
    }

    /// Sets the time for the request, in place of `request_timeout`.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Encodes the request. `window_kib` is the window of its rows; `None` for an auto-commit
    /// session.
    pub(super) fn into_wire(self, window_kib: Option<i32>) -> Wire {
        let cached = self.cached && window_kib.is_some();
        let (whole, digest_alone) = match self.body {
            Body::Sql(mut sql) => {
                sql.token = window_kib;
                let text = sql.stmt.as_ref().filter(|_| cached);
                let digest = text.map(|text| digest_of(sql.stmt_digest.take(), text));
                let digest_alone = digest.map(|digest| {
                    sql.stmt_digest = Some(digest);
                    // The copy is made without the text, which may be long.
                    let text = sql.stmt.take();
                    let alone = (*sql).clone();
                    sql.stmt = text;
                    ClientMessage::ExecSql(alone)
                });
                (ClientMessage::ExecSql(*sql), digest_alone)
            }
            Body::Plan(mut plan) => {
                plan.token = window_kib;
                let template = plan.plan.as_ref().filter(|_| cached);
                let text = template.map(AnyPlan::encode_to_vec);
                let digest = text.map(|text| digest_of(plan.plan_digest.take(), &text));
                let digest_alone = digest.map(|digest| {
                    plan.plan_digest = Some(digest.clone());
                    ClientMessage::ExecPlan(Box::new(plan.cached(digest)))
                });
                (ClientMessage::ExecPlan(plan), digest_alone)
            }
            Body::Savepoint(savepoint) => {
                return Wire::new(Asked::Plain, ClientMessage::AutoSavepoint(savepoint));
            }
        };
        match digest_alone {
            Some(message) => {
                Wire { again: Some(Box::new(whole)), ..Wire::new(Asked::Statement, message) }
            }
            None => Wire::new(Asked::Statement, whole),
        }
    }
}

/// Digest that the user gave, or that of the text.
fn digest_of(given: Option<Vec<u8>>, text: &[u8]) -> Vec<u8> {
    given.unwrap_or_else(|| Md5::digest(text).to_vec())
}

impl From<&str> for Request {
    fn from(text: &str) -> Self {
        Self::sql(text)
    }
}

impl From<String> for Request {
    fn from(text: String) -> Self {
        Self::sql(text)
    }
}
