//! [`Engine`]: the service of the simulation. It does what a statement says, and writes down what it did.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::message::{AnyValue, ScalarValue};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::row::Column;
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Row, Service, SessionError, SessionId,
};

use super::later::Pieces;
use super::scene::{Said, Scene, Waiting, open_scene, scene};
use super::statement::{ERROR, FATAL, Form, Task};

pub struct Engine;

/// A session of the engine.
pub struct Session {
    peer: usize,
    /// Number of its connection.
    connection: u64,
    wire: u64,
    in_transaction: bool,
    /// Tag of the last request, above which the next one has to be.
    last: Option<u64>,
    told: Arc<Told>,
    _alive: Alive,
}

/// Cancellations that the library has told a session of the service.
#[derive(Default)]
struct Told {
    /// Number of cancellations since the last call of `cancelled`.
    times: AtomicU32,
    /// Set if the session was told to stop since its last request began.
    stopped: AtomicBool,
}

struct Alive;

impl Alive {
    fn new() -> Self {
        let scene = scene();
        scene.alive.set(scene.alive.get() + 1);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let Some(scene) = open_scene() else { return };
        scene.alive.set(scene.alive.get() - 1);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (Some(scene), Some(tag)) = (open_scene(), self.last) else { return };
        let Some(life) = scene.life(tag, self.peer, |life| life.clone()) else { return };
        let undone = life.said == Said::Nothing && life.task.is_put_off();
        let stopped = self.told.stopped.load(Ordering::Relaxed);
        scene.check(!undone || stopped || scene.is_spoiled(self.peer), || {
            format!("request {tag} ends with its session, and nobody told it to: {life:?}")
        });
    }
}

impl Service for Engine {
    type Session = Session;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        let scene = scene();
        scene.overlap();
        let user = String::from_utf8_lossy(login.user).into_owned();
        let number = user.strip_prefix('u').and_then(|number| number.parse().ok());
        let stored = number.map(|number: usize| StoredPassword::of(password(number).as_bytes()));
        login.check(stored.as_ref())?;
        Ok(Account::new(&user))
    }

    fn open(&self, peer: &Peer, id: SessionId) -> Result<(Session, Cancel), SessionError> {
        let scene = scene();
        scene.overlap();
        let connection = peer.connection.number;
        let index = scene.owner(connection);
        let named = peer.account.name().get(1..).and_then(|number| number.parse().ok());
        scene.check(index.is_some() && index == named, || {
            format!("connection {connection} is of {index:?} and logged in as {named:?}")
        });
        let trouble = u64::from(scene.plan.trouble);
        if scene.chance.below(10_000) < trouble {
            scene.count("service: a session does not open");
            return Err(SessionError::new(ERROR, b"HY000", "no session"));
        }
        if scene.chance.below(20_000) < trouble {
            panic(&scene, index.unwrap_or(usize::MAX), id.wire);
        }
        let told = Arc::<Told>::default();
        let session = Session {
            peer: index.unwrap_or(usize::MAX),
            connection,
            wire: id.wire,
            in_transaction: false,
            last: None,
            told: Arc::clone(&told),
            _alive: Alive::new(),
        };
        let cancel = Cancel::new(move |_| {
            told.times.fetch_add(1, Ordering::Relaxed);
            told.stopped.store(true, Ordering::Relaxed);
            open_scene().inspect(|scene| scene.count("service: cancelled"));
        });
        Ok((session, cancel))
    }

    fn execute(
        &self,
        session: &mut Session,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let scene = scene();
        scene.executed.set(scene.executed.get() + 1);
        let (tag, task, window) =
            read(&request).ok_or_else(|| SessionError::unsupported("nobody has written this"))?;
        scene.note("execute", &[session.peer as u64, session.wire, tag]);
        scene.begins(session.peer, session.connection, session.wire);
        book(&scene, session, tag, task);
        if scene.chance.one_in(2) {
            let longest = scene.plan.longest.as_nanos() as u64;
            scene.pass(Duration::from_nanos(scene.chance.below(longest + 1)));
        }
        scene.overlap();
        Doing { scene: &scene, session, tag, window }.perform(task, reply)
    }

    fn in_transaction(&self, session: &Session) -> bool {
        session.in_transaction
    }

    fn cancelled(&self, session: &mut Session) {
        let calls = session.told.times.swap(0, Ordering::Relaxed);
        scene().check(calls <= 1, || format!("one request was cancelled {calls} times"));
    }

    fn timestamp(&self, peer: &Peer, count: u32) -> Result<u64, SessionError> {
        let scene = scene();
        scene.overlap();
        let index = scene.owner(peer.connection.number);
        if scene.chance.below(10_000) < u64::from(scene.plan.trouble) {
            panic(&scene, index.unwrap_or(usize::MAX), 0);
        }
        let mut times = scene.times.borrow_mut();
        let first = times.last().map_or(1, |(first, count, ..)| first + count);
        times.push((first, u64::from(count), index.unwrap_or(usize::MAX), false));
        Ok(first)
    }
}

/// The password of a user.
pub fn password(number: usize) -> String {
    format!("secret {number}")
}

/// Panics without printing anything on the terminal.
fn panic(scene: &Scene, peer: usize, session: u64) -> ! {
    scene.note_cause(peer, session, |causes| causes.panicked = true);
    scene.panicked.set(scene.panicked.get() + 1);
    scene.count("service: panicked");
    resume_unwind(Box::new("simulated"));
}

/// Parses a request: its tag, the task, and the bytes of rows that the client takes.
fn read(request: &Request<'_>) -> Option<(u64, Task, Option<u64>)> {
    match request {
        Request::Sql(sql) => {
            let Ok(AnyValue::Scalar(scalar)) = sql.args.first()?.value() else { return None };
            let window = sql.message.token.and_then(|kib| u64::try_from(kib).ok());
            Some((number(scalar)?, Task::parse(sql.text)?, window.map(|kib| kib << 10)))
        }
        Request::Plan(plan) => {
            let [tag, task] = plan.parameters else { return None };
            let Ok(ScalarValue::Octets(text)) = task.value() else { return None };
            let window = plan.message.token.and_then(|kib| u64::try_from(kib).ok());
            Some((number(tag)?, Task::parse(text)?, window.map(|kib| kib << 10)))
        }
        Request::Savepoint(savepoint) => {
            let tag = std::str::from_utf8(savepoint.name).ok()?.parse().ok()?;
            Some((tag, Task::Savepoint, None))
        }
        _ => None,
    }
}

fn number(scalar: &Scalar) -> Option<u64> {
    match scalar.value() {
        Ok(ScalarValue::Unsigned(number)) => Some(number),
        _ => None,
    }
}

/// Checks that a request is executed for the first time, in its session, and in its turn.
fn book(scene: &Scene, session: &mut Session, tag: u64, task: Task) {
    let known = scene.life(tag, session.peer, |life| {
        life.executed += 1;
        life.clone()
    });
    if scene.is_spoiled(session.peer) {
        return;
    }
    scene.check(known.is_some(), || format!("request {tag} is not of peer {}", session.peer));
    if let Some(life) = known {
        scene.check(life.executed == 1, || format!("request {tag} is executed again"));
        scene.check(life.task == task, || format!("request {tag} was {}, not {task}", life.task));
        scene.check(life.session == session.wire, || {
            format!(
                "request {tag} of session {:#x} is executed in {:#x}",
                life.session, session.wire
            )
        });
    }
    session.told.stopped.store(false, Ordering::Relaxed);
    let before = session.last.replace(tag);
    if let (Some(before), Some(true)) =
        (before, scene.life(tag, session.peer, |life| life.if_no_error))
    {
        let failed = scene.life(before, session.peer, |life| life.said == Said::Failed);
        scene.check(failed != Some(true), || format!("request {tag} runs though {before} failed"));
    }
    scene.check(before < Some(tag), || format!("request {tag} comes behind {before:?}"));
}

/// One request that is being done.
struct Doing<'a> {
    scene: &'a Scene,
    session: &'a mut Session,
    tag: u64,
    window: Option<u64>,
}

impl Doing<'_> {
    fn perform(self, task: Task, reply: &mut Reply<'_>) -> Result<(), SessionError> {
        let (scene, tag, peer) = (self.scene, self.tag, self.session.peer);
        match task {
            Task::Begin => self.session.in_transaction = true,
            Task::Commit => self.session.in_transaction = false,
            Task::Rows(form, rows, bytes) => return self.rows(form, rows, bytes, reply),
            Task::Later(later, micros) => {
                let since = scene.now();
                let due = since + Duration::from_micros(micros);
                let deferred = reply.defer();
                let waiting = Waiting { since, due, deferred, tag, peer, later };
                scene.deferred.borrow_mut().push(waiting);
                scene.overlap();
                return Ok(());
            }
            Task::Error | Task::Fatal => {
                return Err(failure(scene, tag, peer, task == Task::Fatal));
            }
            Task::Panic => panic(scene, peer, self.session.wire),
            Task::ExpectOpen | Task::ExpectClose => scene.fail("the service gets a block"),
            Task::Change | Task::Savepoint | Task::Time(_) => {}
        }
        let ending = reply.ending();
        ending.affected = tag;
        ending.insert_id = tag;
        said(scene, tag, peer, Said::Fine);
        scene.wrote(peer, self.session.wire, END);
        Ok(())
    }

    fn rows(
        self,
        form: Form,
        rows: u64,
        bytes: u64,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let (scene, tag, peer) = (self.scene, self.tag, self.session.peer);
        let session = self.session.wire;
        let ending = reply.ending();
        ending.affected = tag;
        ending.insert_id = tag;
        reply.columns(&columns())?;
        match form {
            Form::Handler if self.fits(rows * (bytes + 64)) || self.may_wait() => {
                let outer = scene.waits.replace(true);
                for index in 0..rows {
                    reply.row(|row| fill(row, tag, index, bytes))?;
                    scene.wrote_row(tag, (peer, session), bytes);
                    scene.pass(Duration::from_micros(scene.chance.below(20)));
                }
                scene.waits.set(outer);
                scene.wrote(peer, session, END);
                scene.count("service: rows of a handler");
                said(scene, tag, peer, Said::Fine);
            }
            Form::Relay => {
                reply.relay(Pieces { tag, peer, session, rows, bytes, index: 0, body: Vec::new() })
            }
            _ => source(tag, (peer, session), form, rows, bytes, reply),
        }
        Ok(())
    }

    /// True if handlers of this seed may wait, and no handler further out may.
    fn may_wait(&self) -> bool {
        !self.scene.waits.get() && self.scene.plan.waits
    }

    /// True if `bytes` can be written without a wait.
    fn fits(&self, bytes: u64) -> bool {
        let pending = self
            .scene
            .ends
            .borrow()
            .get(&self.session.connection)
            .map_or(usize::MAX, |end| end.connection.pending_bytes());
        let high = self.scene.plan.high_watermark as u64;
        (pending as u64).saturating_add(bytes + (64 << 10)) <= high
            && self.window.is_none_or(|window| bytes < window)
    }
}

/// Columns of every result.
pub(super) fn columns() -> [Column<'static>; 2] {
    [Column::text("tag", 45, 40), Column::text("filler", 45, 2000)]
}

pub(super) fn said(scene: &Scene, tag: u64, peer: usize, said: Said) {
    scene.note("said", &[tag, u64::from(said == Said::Fine)]);
    scene.life(tag, peer, |life| life.said = said);
}

pub(super) fn failure(scene: &Scene, tag: u64, peer: usize, fatal: bool) -> SessionError {
    said(scene, tag, peer, Said::Failed);
    let text = format!("{tag}");
    if fatal {
        SessionError::fatal(FATAL, b"HY000", text)
    } else {
        SessionError::new(ERROR, b"HY000", text)
    }
}

fn fill(row: &mut Row<'_>, tag: u64, index: u64, bytes: u64) {
    row.text(format!("{tag}:{index}"));
    row.text(vec![b'x'; bytes as usize]);
}

pub(super) fn source(
    tag: u64,
    (peer, session): (usize, u64),
    form: Form,
    rows: u64,
    bytes: u64,
    reply: &mut Reply<'_>,
) {
    let mut index = 0;
    reply.source(move |row: &mut Row<'_>| {
        let scene = scene();
        scene.pass(Duration::from_micros(scene.chance.below(20)));
        if index >= rows / 2 {
            match form {
                Form::Failing => return Err(failure(&scene, tag, peer, false)),
                Form::Panicking => panic(&scene, peer, session),
                _ => {}
            }
        }
        if index == rows {
            scene.count("service: rows of a source");
            said(&scene, tag, peer, Said::Fine);
            return Ok(false);
        }
        scene.wrote_row(tag, (peer, session), bytes);
        fill(row, tag, index, bytes);
        index += 1;
        Ok(true)
    });
}

/// Weight of the end of a reply among the bytes that are written.
const END: u64 = 1 << 10;
