//! What is asked, and how it looks on the wire.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

use epoll_group::codec::dialect::Dialect;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::message::plan::{AnyPlan, ExecPlan, GetExpr, IndexInfo, TableInfo};
use epoll_group::codec::message::sql::StmtExecute;
use epoll_group::codec::message::value::{Any, Scalar, any};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `select 1`.
    SelectOne,
    /// One row by its id, the id in the text: a text that differs each time.
    Text,
    /// The same as a text that stays, under a digest, and an argument.
    Digest,
    /// The same as a plan under a digest.
    Plan,
    /// The same, the row as a chunk.
    PlanChunk,
}

/// Writes requests.
#[derive(Debug)]
pub(super) struct Asker {
    question: Question,
    rows: u32,
    /// What ids are drawn from (xorshift).
    dice: u64,
    /// The request of [`Question::SelectOne`], whole; the session is to be put in.
    select_one: Vec<u8>,
    digest: Vec<u8>,
    plan: AnyPlan,
}

/// Whether a text that the server may have goes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    DigestAlone,
    /// The server has answered that it does not have it.
    Whole,
}

const TABLE: &str = "sbtest1";
const SCHEMA: &str = "sbtest";
/// The flow control budget that the Java client asks for, in KiB.
pub(super) const TOKEN: i32 = 10_240;

const BY_ARGUMENT: &str = "select id, c from sbtest1 where id = ?";
/// utf8mb4, as the Java client tags the texts of a plan.
const COLLATION: Option<u64> = Some(45);

const NAMES: [(&str, Question); 5] = [
    ("select1", Question::SelectOne),
    ("text", Question::Text),
    ("digest", Question::Digest),
    ("plan", Question::Plan),
    ("plan-chunk", Question::PlanChunk),
];

impl Question {
    /// A row by its id, not `select 1`.
    pub fn is_point(self) -> bool {
        self != Self::SelectOne
    }
}

impl Asker {
    pub(super) fn new(question: Question, rows: u32, seed: u64) -> Self {
        let plan = point_plan();
        let mut select_one = Vec::new();
        encode(&ClientMessage::ExecSql(statement("select 1")), 0, &mut select_one);
        Self {
            question,
            rows,
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            select_one,
            digest: match question {
                Question::Plan | Question::PlanChunk => digest(format!("{plan:?}").as_bytes()),
                _ => digest(BY_ARGUMENT.as_bytes()),
            },
            plan,
        }
    }

    /// The id for the next request.
    pub(super) fn draw(&mut self) -> i64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % u64::from(self.rows)) as i64 + 1
    }

    pub(super) fn write(&self, session: u64, id: i64, form: Form, out: &mut Vec<u8>) {
        let message = match self.question {
            Question::SelectOne => {
                let start = out.len();
                out.extend_from_slice(&self.select_one);
                out[start..start + 8].copy_from_slice(&session.to_le_bytes());
                return;
            }
            Question::Text => {
                let sql = format!("select id, c from {TABLE} where id = {id}");
                ClientMessage::ExecSql(statement(&sql))
            }
            Question::Digest => ClientMessage::ExecSql(StmtExecute {
                stmt: (form == Form::Whole).then(|| BY_ARGUMENT.into()),
                stmt_digest: Some(self.digest.clone()),
                args: vec![Any {
                    r#type: any::Type::Scalar.into(),
                    scalar: Some(Scalar::signed(id)),
                    ..Any::default()
                }],
                ..statement("")
            }),
            Question::Plan | Question::PlanChunk => ClientMessage::ExecPlan(Box::new(ExecPlan {
                plan: (form == Form::Whole).then(|| self.plan.clone()),
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

/// As the Java client's request for a query.
fn statement(sql: &str) -> StmtExecute {
    StmtExecute {
        stmt: Some(sql.into()),
        hint: Some(Vec::new()),
        token: Some(TOKEN),
        reset_error: Some(true),
        ..StmtExecute::default()
    }
}

/// As the Java client's plan for `select id, c from sbtest1 where id = ?`: the names of table and
/// schema are parameters too.
fn point_plan() -> AnyPlan {
    let text = |text: &str| Scalar::string(text, COLLATION);
    let table = TableInfo::new(Scalar::placeholder(0), Some(Scalar::placeholder(1)));
    let index = IndexInfo { name: text("PRIMARY"), ..IndexInfo::default() };
    let key = GetExpr::new([(text("id"), Scalar::placeholder(2))]);
    AnyPlan::get(table, Some(index), [key]).table_project([text("id"), text("c")])
}

/// Clients take the MD5; the server takes any bytes.
fn digest(text: &[u8]) -> Vec<u8> {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        hasher.finish().to_le_bytes()
    };
    [half(0), half(1)].concat()
}

pub(super) fn encode(message: &ClientMessage, session: u64, out: &mut Vec<u8>) {
    message.encode(Dialect::Legacy, session, out).expect("requests are small");
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = NAMES.iter().find(|(_, question)| question == self);
        f.pad(entry.map_or("", |(name, _)| name))
    }
}

impl FromStr for Question {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entry = NAMES.iter().find(|(name, _)| *name == text);
        entry.map(|(_, question)| *question).ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("question {text} is none of {names}")
        })
    }
}
