//! A database server beside tokio, both ways.
//!
//! ```text
//! cargo run --release -p tokio_beside
//!
//!   tokio: 1 thread                                epoll-group: 4 base workers
//!   future ── session.execute_then(..) ─────────────▶ execute(): a handler, which blocks
//!     ▲                                                 │ asks        ▲ answers
//!     └── oneshot ◀── callback, on a worker             ▼             │
//!   actor, a task of tokio ◀────────── mpsc ────────────┘── oneshot ──┘
//! ```
//!
//! The actor answers only when all handlers have asked. So the program ends only if no handler
//! blocks another handler, and no future blocks another future.

use std::error::Error;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{self, Client, Options};
use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Server, Service, SessionError,
    SessionId,
};
use epoll_group::stall::{self, Wait};
use epoll_group::stats::Counter;
use tokio::sync::{mpsc, oneshot};

/// Futures that ask the server at the same time, and handlers that ask the actor.
const CALLERS: usize = 32;
/// Questions that the actor has not taken. A handler that asks one more waits.
const QUEUED: usize = 8;

type Failure = Box<dyn Error + Send + Sync>;

/// A number to square, and the way back.
struct Question {
    number: i64,
    answer: oneshot::Sender<i64>,
}

fn main() -> Result<(), Failure> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let (ask, questions) = mpsc::channel(QUEUED);
    tokio.spawn(actor(questions));

    let runtime = Runtime::builder().start()?;
    let password = StoredPassword::of(b"secret");
    let listener = runtime.listen("127.0.0.1:0", Server::new(Squares { password, ask }))?;
    let options = Options::new(listener.local_addr().to_string(), "app").password("secret");
    let client = Client::new(&runtime.handle(), options)?;

    let callers: Vec<_> =
        (0..CALLERS as i64).map(|n| tokio.spawn(square(client.clone(), n))).collect();
    for (n, caller) in (0..).zip(callers) {
        let squared = tokio.block_on(caller)??;
        if squared != n * n {
            return Err(format!("{n} squared is not {squared}").into());
        }
    }
    let stats = runtime.stats();
    println!("{CALLERS} futures awaited {CALLERS} handlers, which waited for a task of tokio");
    println!("tokio had 1 thread; epoll-group added {}", stats.get(Counter::ThreadsStartedStall));
    drop(client);
    let report = runtime.drain(Duration::from_secs(5));
    if report.cut > 0 {
        return Err(format!("{report}").into());
    }
    Ok(())
}

/// Asks the server from async code: no thread waits for the session, nor for the answer.
async fn square(client: Client, number: i64) -> Result<i64, Failure> {
    let (give, given) = oneshot::channel();
    // If this future is dropped, no one takes the result, which is fine.
    client.session_then(move |session| drop(give.send(session)));
    let mut session = given.await??;
    let (give, given) = oneshot::channel();
    session.execute_then(number.to_string(), move |answer| {
        // The callback runs on a worker, where it may wait for the rest of the answer.
        drop(give.send(answer.and_then(first_number)));
    });
    given.await??.ok_or_else(|| "an answer without a number".into())
}

fn first_number(mut answer: client::Answer) -> Result<Option<i64>, client::Error> {
    let row = answer.next_row()?;
    match row.map(|row| row.get(0)).transpose()? {
        Some(Value::Signed(number)) => Ok(Some(number)),
        _ => Ok(None),
    }
}

/// Another service, in async code.
async fn actor(mut questions: mpsc::Receiver<Question>) {
    let mut asked = Vec::new();
    while let Some(question) = questions.recv().await {
        asked.push(question);
        if asked.len() == CALLERS {
            for Question { number, answer } in asked.drain(..) {
                // A handler that has given up takes no answer.
                let _ = answer.send(number * number);
            }
        }
    }
}

/// Database that knows the squares of numbers, from the actor.
struct Squares {
    password: StoredPassword,
    ask: mpsc::Sender<Question>,
}

impl Squares {
    /// Asks the actor from a handler, which blocks and announces that. Another worker takes over
    /// its place meanwhile.
    fn ask(&self, number: i64) -> Option<i64> {
        let (answer, answered) = oneshot::channel();
        stall::run_as(Wait::Reply, || {
            self.ask.blocking_send(Question { number, answer }).ok()?;
            answered.blocking_recv().ok()
        })
    }
}

impl Service for Squares {
    type Session = ();

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check((login.user == b"app").then_some(&self.password))?;
        Ok(Account::new("app"))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(
        &self,
        (): &mut (),
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let number = match request {
            Request::Sql(sql) => str::from_utf8(sql.text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        let number = number.ok_or_else(|| SessionError::unsupported("numbers only"))?;
        let square = self.ask(number).ok_or_else(SessionError::interrupted)?;
        reply.columns(&[Column::signed("square")])?;
        reply.row(|row| row.int(square))
    }
}
