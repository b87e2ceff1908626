//! Requests of a load, as bytes.

use std::fmt;

use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, GetExpr, IndexInfo, TableInfo};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::value::{Any, Scalar};

use crate::xrpc::request::{self, digest, plan_digest};

pub(super) use crate::xrpc::request::TOKEN;

/// Kind of statement that all sessions of a load ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `select 1`.
    SelectOne,
    /// One row by its id. The id is in the text, so each text is new to the server.
    Text,
    /// The same row as a text that stays, named by its digest, and an argument.
    Digest,
    /// The same row as a plan, named by its digest.
    Plan,
    /// The same row and plan, answered with a chunk.
    PlanChunk,
}

/// Writes requests.
#[derive(Debug)]
pub(super) struct Asker {
    question: Question,
    rows: u32,
    /// The whole request of [`Question::SelectOne`]; only the session is missing.
    select_one: Vec<u8>,
    digest: Vec<u8>,
    plan: AnyPlan,
}

/// Form of a request for a text or a plan that the server may have cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    DigestAlone,
    /// With the text, after the server has answered that it does not have it.
    Whole,
}

const TABLE: &str = "sbtest1";
const SCHEMA: &str = "sbtest";
const BY_ARGUMENT: &str = "select id, c from sbtest1 where id = ?";
/// utf8mb4, as the Java client tags the texts of a plan.
const COLLATION: Option<u64> = Some(45);

impl Question {
    /// True if it asks for a row by its id.
    pub fn is_point(self) -> bool {
        self != Self::SelectOne
    }
}

impl Asker {
    pub(super) fn new(question: Question, rows: u32) -> Self {
        let plan = point_plan();
        let mut select_one = Vec::new();
        encode(&ClientMessage::ExecSql(request::query("select 1")), 0, &mut select_one);
        Self {
            question,
            rows,
            select_one,
            digest: match question {
                Question::Plan | Question::PlanChunk => plan_digest(&plan),
                _ => digest(BY_ARGUMENT.as_bytes()),
            },
            plan,
        }
    }

    pub(super) fn question(&self) -> Question {
        self.question
    }

    /// Draws the id for the next request.
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> i64 {
        random.i64(1..=self.rows.into())
    }

    pub(super) fn write(&self, session: u64, id: i64, form: Form, out: &mut Vec<u8>) {
        let whole = form == Form::Whole;
        let message = match self.question {
            Question::SelectOne => {
                let start = out.len();
                out.extend_from_slice(&self.select_one);
                out[start..start + 8].copy_from_slice(&session.to_le_bytes());
                return;
            }
            Question::Text => {
                let sql = format!("select id, c from {TABLE} where id = {id}");
                ClientMessage::ExecSql(request::query(&sql))
            }
            Question::Digest => ClientMessage::ExecSql(StmtExecute {
                stmt: whole.then(|| BY_ARGUMENT.into()),
                stmt_digest: Some(self.digest.clone()),
                args: vec![Any::from(Scalar::signed(id))],
                ..request::query("")
            }),
            Question::Plan | Question::PlanChunk => ClientMessage::ExecPlan(Box::new(ExecPlan {
                plan: whole.then(|| self.plan.clone()),
                plan_digest: Some(self.digest.clone()),
                parameters: vec![
                    Scalar::plan_identifier(TABLE),
                    Scalar::plan_identifier(SCHEMA),
                    Scalar::signed(id),
                ],
                token: Some(TOKEN),
                reset_error: Some(true),
                chunk_result: (self.question == Question::PlanChunk).then_some(true),
                ..ExecPlan::default()
            })),
        };
        encode(&message, session, out);
    }
}

/// The Java client's plan for `select id, c from sbtest1 where id = ?`. The names of table and schema are
/// parameters too.
fn point_plan() -> AnyPlan {
    let text = |text: &str| Scalar::string(text, COLLATION);
    let table = TableInfo::new(Scalar::placeholder(0), Some(Scalar::placeholder(1)));
    let index = IndexInfo { name: text("PRIMARY"), ..IndexInfo::default() };
    let key = GetExpr::new([(text("id"), Scalar::placeholder(2))]);
    AnyPlan::get(table, Some(index), [key]).table_project([text("id"), text("c")])
}

pub(super) fn encode(message: &ClientMessage, session: u64, out: &mut Vec<u8>) {
    message.encode(Dialect::Legacy, session, out).expect("requests are small");
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SelectOne => "select1",
            Self::Text => "text",
            Self::Digest => "digest",
            Self::Plan => "plan",
            Self::PlanChunk => "plan-chunk",
        })
    }
}
