//! Over TCP, with clients of the library.

mod exits;
mod failing;
mod flow;
mod isolation;
mod spread;
mod transactions;

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::client::{self, Answer, Client, Request, Session};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::value::Value;
use epoll_group::pool::Limits;
use epoll_group::{Config, Runtime};

use crate::fleet::Fleet;
use crate::nodes::Patience;

/// Time limit that only a test that hangs reaches.
const LONG: Duration = Duration::from_secs(60);

/// Data nodes, a proxy and a client. One test at a time has them: each starts many threads.
struct World {
    client: Client,
    runtime: Runtime,
    fleet: Fleet,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Two nodes with the rows 1 to 8; `k` is ten times the id.
    fn new() -> Self {
        Self::with(|| Fleet::start(2, limits()).expect("they start"))
    }

    fn with(fleet: impl FnOnce() -> Fleet) -> Self {
        let alone = alone();
        let fleet = fleet();
        let runtime = Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
            .start();
        let runtime = runtime.expect("it starts");
        let client = fleet.client(&runtime).expect("its options are good");
        let world = Self { client, runtime, fleet, _alone: alone };
        let mut session = world.session();
        for id in 1..=8 {
            let text = format!("insert into sbtest1 (id, k) values ({id}, {})", id * 10);
            session.run(text).expect("it is inserted");
        }
        world
    }

    /// `nodes` data nodes, with one session each for all clients together.
    fn with_one_session(nodes: usize) -> Self {
        let patience = Patience { limits: limits().max(1), statement: LONG, silence: LONG };
        Self::with(|| {
            Fleet::start_with(nodes, patience, |endpoints| endpoints).expect("they start")
        })
    }

    /// A client whose answers wait in little memory.
    fn client_with_small_window(&self) -> Client {
        let options = self.fleet.options().window_bytes(64 << 10);
        Client::new(&self.runtime.handle(), options).expect("its options are good")
    }

    fn session(&self) -> Session {
        self.client.session().expect("the proxy is there")
    }

    /// Waits until no session of a data node is borrowed.
    fn settled(&self) {
        until("all sessions are back", || self.fleet.in_use() == 0);
    }
}

/// Number of sessions of data nodes that the proxy closed because of their state.
fn discarded(world: &World) -> u64 {
    world.fleet.nodes.status().iter().map(|status| status.totals.discarded).sum()
}

fn limits() -> Limits {
    Limits::default().max(512).unused_after(Duration::MAX)
}

/// Waits for something that happens soon.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        thread::yield_now();
    }
}

/// Length of the text in a long row.
const LONG_ROW_BYTES: usize = 32 << 10;

/// Inserts long rows with these ids. A few hundred take more bytes than wait on the way to a client.
fn insert_long_rows(session: &mut Session, ids: impl Iterator<Item = i64>) {
    for id in ids {
        let insert = Request::sql("insert into sbtest1 (id, c) values (?, ?)")
            .args([Scalar::signed(id), Scalar::string("x".repeat(LONG_ROW_BYTES), None)]);
        session.run(insert.cached()).expect("it is inserted");
    }
}

/// Rows of a statement as text: cells with `|` between them and `;` behind rows.
fn rows(session: &mut Session, request: impl Into<Request>) -> String {
    match session.execute(request).and_then(text) {
        Ok(text) => text,
        Err(error) => format!("{error}"),
    }
}

fn text(mut answer: Answer) -> Result<String, client::Error> {
    let mut text = String::new();
    while let Some(row) = answer.next_row()? {
        for (at, value) in row.values().enumerate() {
            text.push_str(if at == 0 { "" } else { "|" });
            let done = match value? {
                Value::Null => write!(text, "NULL"),
                Value::Signed(number) => write!(text, "{number}"),
                Value::Unsigned(number) => write!(text, "{number}u"),
                Value::Decimal(number) => write!(text, "{number}m"),
                Value::Bytes(bytes) => write!(text, "{}", String::from_utf8_lossy(bytes)),
                other => write!(text, "{other:?}"),
            };
            done.expect("a String takes everything");
        }
        text.push(';');
    }
    Ok(text)
}

/// Number and text of the error that a statement fails with.
fn refused(session: &mut Session, request: impl Into<Request>) -> (u32, String) {
    let error = session.run(request).expect_err("it is refused");
    let said = error.server_error().unwrap_or_else(|| panic!("the proxy is there: {error}"));
    (said.code, String::from_utf8_lossy(&said.msg).into_owned())
}
