//! [`Request`]: what a session is asked to do.

use std::time::Duration;

use md5::{Digest as _, Md5};
use prost::Message as _;

use crate::codec::message::ClientMessage;
use crate::codec::message::plan::{AnyPlan, ExecPlan};
use crate::codec::message::sql::StmtExecute;
use crate::codec::message::tso::AutoSp;
use crate::codec::message::tso::auto_sp::Operation;
use crate::codec::message::value::{Any, Scalar, any};

/// What a session is asked to do: a statement, a plan, a savepoint.
///
/// ```
/// use std::time::Duration;
///
/// use epoll_group::client::Request;
/// use epoll_group::codec::message::value::Scalar;
///
/// let request = Request::sql("select c from sbtest1 where id = ?")
///     .arg(Scalar::signed(7))
///     .cached()
///     .timeout(Duration::from_secs(1));
/// # let _ = request;
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is nothing until a session runs it"]
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

/// A request as it is sent, and as it is sent again when the server does not know its digest.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) message: ClientMessage,
    pub(super) again: Option<Box<ClientMessage>>,
    /// Rows may come, in a window.
    pub(super) has_rows: bool,
}

impl Request {
    /// A statement in text form.
    pub fn sql(text: impl Into<Vec<u8>>) -> Self {
        Self::statement(StmtExecute {
            stmt: Some(text.into()),
            reset_error: Some(true),
            ..StmtExecute::default()
        })
    }

    /// A statement with all that its message can say; what a proxy passes on. The window of its rows is
    /// the client's own.
    pub fn statement(message: StmtExecute) -> Self {
        Self { body: Body::Sql(Box::new(message)), cached: false, timeout: None }
    }

    /// An execution plan.
    pub fn plan(plan: AnyPlan) -> Self {
        Self::exec_plan(ExecPlan {
            plan: Some(plan),
            reset_error: Some(true),
            ..ExecPlan::default()
        })
    }

    /// An execution plan with all that its message can say; what a proxy passes on.
    pub fn exec_plan(message: ExecPlan) -> Self {
        Self { body: Body::Plan(Box::new(message)), cached: false, timeout: None }
    }

    /// Sets, releases or goes back to a savepoint.
    pub fn savepoint(operation: Operation, name: impl Into<Vec<u8>>) -> Self {
        let savepoint = AutoSp { op: operation.into(), sp_name: name.into(), ..AutoSp::default() };
        Self { body: Body::Savepoint(savepoint), cached: false, timeout: None }
    }

    /// A value for the next `?` of the statement, or the next placeholder of the plan.
    pub fn arg(mut self, value: Scalar) -> Self {
        match &mut self.body {
            Body::Sql(sql) => sql.args.push(Any {
                r#type: any::Type::Scalar.into(),
                scalar: Some(value),
                ..Any::default()
            }),
            Body::Plan(plan) => plan.parameters.push(value),
            Body::Savepoint(_) => {}
        }
        self
    }

    /// Values, one after the other.
    pub fn args(self, values: impl IntoIterator<Item = Scalar>) -> Self {
        values.into_iter().fold(self, Self::arg)
    }

    /// Sends a digest in place of the text or plan, and those only where the server does not know
    /// them: less to send and to parse for what runs often. No effect on auto-commit statements, for
    /// which servers do not do it.
    ///
    /// It is sent again by itself, unless another request was sent behind it by then, or it was
    /// cancelled: then it ends in error 8000 and was not executed.
    pub const fn cached(mut self) -> Self {
        self.cached = true;
        self
    }

    /// Asks for columns in place of rows: less to send for many rows of numbers.
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

    /// It is not run when the one before it on the session failed; it then fails the same way.
    pub fn if_no_error(mut self) -> Self {
        match &mut self.body {
            Body::Sql(sql) => sql.reset_error = Some(false),
            Body::Plan(plan) => plan.reset_error = Some(false),
            Body::Savepoint(savepoint) => savepoint.reset_error = Some(false),
        }
        self
    }

    /// How long it may take, in place of `request_timeout`.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// With a window of so many KiB for its rows; without, for an auto-commit session.
    pub(super) fn into_wire(self, window_kib: Option<i32>) -> Wire {
        let cached = self.cached && window_kib.is_some();
        match self.body {
            Body::Sql(mut sql) => {
                sql.token = window_kib;
                let mut again = None;
                if let (true, Some(text)) = (cached, &sql.stmt) {
                    let digest = sql.stmt_digest.get_or_insert_with(|| Md5::digest(text).to_vec());
                    let digest = digest.clone();
                    let known =
                        StmtExecute { stmt: None, stmt_digest: Some(digest), ..(*sql).clone() };
                    again = Some(Box::new(ClientMessage::ExecSql(*sql)));
                    return Wire { message: ClientMessage::ExecSql(known), again, has_rows: true };
                }
                Wire { message: ClientMessage::ExecSql(*sql), again, has_rows: true }
            }
            Body::Plan(mut plan) => {
                plan.token = window_kib;
                let template = if cached { plan.plan.as_ref() } else { None };
                let Some(template) = template else {
                    let message = ClientMessage::ExecPlan(plan);
                    return Wire { message, again: None, has_rows: true };
                };
                let digest = match &plan.plan_digest {
                    Some(digest) => digest.clone(),
                    None => Md5::digest(template.encode_to_vec()).to_vec(),
                };
                let known = Box::new(plan.cached(digest.clone()));
                plan.plan_digest = Some(digest);
                let again = Some(Box::new(ClientMessage::ExecPlan(plan)));
                Wire { message: ClientMessage::ExecPlan(known), again, has_rows: true }
            }
            Body::Savepoint(savepoint) => {
                let message = ClientMessage::AutoSavepoint(savepoint);
                Wire { message, again: None, has_rows: false }
            }
        }
    }
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
