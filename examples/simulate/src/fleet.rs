//! [`Fleet`]: a real client with its connections, which it makes again after each loss.
//!
//! It runs on a simulated runtime of its own, and its sockets reach the server through a listener of the
//! simulation. Its requests are in the book like those of the peers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use epoll_group::client::{
    Answer, Client, ConnectionPhase, Error, ErrorKind, Fate, Options, Request, Session,
};
use epoll_group::codec::error::Scope;
use epoll_group::codec::proto::value::Scalar;
use epoll_group::internal::simulated::Simulated;
use epoll_group::net::{Address, Connection};
use epoll_group::{Config, client};

use super::chance::Chance;
use super::later::LATE;
use super::pooling::Pooling;
use super::scene::{Life, Said, Scene, open_scene};
use super::service::{Engine, password};
use super::statement::{Later, Task};

pub struct Fleet {
    pub runtime: Simulated,
    pub pool: Pooling,
    client: Client,
    listener: UnixListener,
    /// Server ends of its connections.
    ends: RefCell<Vec<Connection>>,
    sessions: RefCell<Vec<Session>>,
    /// Callers that wait for a session: when they have asked.
    waiting: RefCell<BTreeMap<u64, Instant>>,
    callers: Cell<u64>,
    /// Last caller that got a session of each connection, and the number of that session.
    served: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// Requests without an outcome, by tag.
    asked: RefCell<BTreeMap<u64, Instant>>,
    /// Time of the last check, and the attempts to connect that had failed before.
    failed: Cell<(Instant, u64)>,
    /// A connection was cut or refused.
    troubled: Cell<bool>,
}

/// Number of its user, and of its requests in the book.
pub const FLEET: usize = 1000;
/// Connections, and sessions on each.
const CONNECTIONS: usize = 2;
const SESSIONS: usize = 2;
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// Pauses between two attempts to connect. A settled simulation waits for them.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(100);

impl Fleet {
    pub fn new(now: Instant, chance: &Chance) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("simulate-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("a listener");
        listener.set_nonblocking(true).expect("a socket");
        let runtime = Simulated::new(Config::default(), Engine).expect("its descriptors");
        let options = Options::new(format!("unix:@{name}"), format!("u{FLEET}"))
            .password(password(FLEET))
            .connections(CONNECTIONS)
            .sessions_per_connection(SESSIONS)
            .session_timeout(SESSION_TIMEOUT)
            .request_timeout(REQUEST_TIMEOUT)
            .reconnect_min(PAUSE_MIN)
            .reconnect_max(PAUSE_MAX);
        let client = Client::new(runtime.handle(), options).expect("options within their ranges");
        Self {
            pool: Pooling::new(runtime.handle(), chance),
            runtime,
            client,
            listener,
            ends: RefCell::default(),
            sessions: RefCell::default(),
            waiting: RefCell::default(),
            callers: Cell::new(0),
            served: RefCell::default(),
            asked: RefCell::default(),
            failed: Cell::new((now, 0)),
            troubled: Cell::new(false),
        }
    }

    /// Takes a random step.
    pub fn act(&self, scene: &Scene) {
        let chance = &scene.chance;
        if chance.happens(scene.plan.faults.cut * 10) {
            let ends = self.ends.borrow();
            if let Some(end) = ends.get(chance.index(ends.len().max(1))) {
                end.close("the simulation cuts it");
                self.troubled.set(true);
                scene.count("fleet: a connection is cut");
            }
        }
        match chance.below(12) {
            8.. => self.pool.act(scene),
            0..2 => self.call(scene),
            2 => drop(self.take_session(scene)),
            3 => _ = self.admit(scene),
            _ => self.ask(scene),
        }
    }

    fn take_session(&self, scene: &Scene) -> Option<Session> {
        let mut sessions = self.sessions.borrow_mut();
        let which = scene.chance.index(sessions.len());
        (!sessions.is_empty()).then(|| sessions.swap_remove(which))
    }

    /// Lets the next connection in, or refuses it. Returns true if there was one.
    pub fn admit(&self, scene: &Scene) -> bool {
        let Ok((socket, _)) = self.listener.accept() else { return false };
        socket.set_nonblocking(true).expect("a socket");
        let refused = scene.chance.happens(scene.plan.faults.cut * 50);
        let end =
            if refused { None } else { scene.server.accept(socket, Address::Unix("".into())) };
        scene.note("admit", &[u64::from(end.is_some())]);
        if let Some(end) = end {
            scene.owners.borrow_mut().insert(end.id().number, FLEET);
            self.ends.borrow_mut().push(end);
        } else {
            self.troubled.set(true);
            scene.count("fleet: a connection is refused");
        }
        true
    }

    /// A caller asks for a session.
    fn call(&self, scene: &Scene) {
        let caller = self.callers.replace(self.callers.get() + 1);
        self.waiting.borrow_mut().insert(caller, scene.now());
        self.client.session_then(move |result| {
            scene_of(|scene, fleet| fleet.called(scene, caller, result))
        });
    }

    fn called(&self, scene: &Scene, caller: u64, result: Result<Session, Error>) {
        scene.note("called", &[caller, u64::from(result.is_ok())]);
        let Some(since) = self.waiting.borrow_mut().remove(&caller) else {
            return scene.fail(format!("caller {caller} is told twice"));
        };
        match result {
            Ok(session) => {
                let now = (caller, session.id());
                let before = self.served.borrow_mut().insert(session.connection(), now);
                let behind = before.is_none_or(|before| (before.0 < now.0) == (before.1 < now.1));
                scene.check(behind, || format!("caller {caller} and {before:?} change places"));
                self.sessions.borrow_mut().push(session);
                scene.count("fleet: a caller gets a session");
            }
            Err(error) => {
                let late = scene.now() >= since + SESSION_TIMEOUT;
                let excused = late && matches!(error.kind(), ErrorKind::Deadline(_))
                    || self.troubled.get()
                    || scene.plan.narrow
                    || scene.drained.get()
                    || scene.cut.get();
                scene.check(excused, || format!("caller {caller} is told {error}"));
                scene.count("fleet: a caller gets an error");
            }
        }
    }

    /// Makes a request in one of the sessions, and drops the session if it has ended.
    fn ask(&self, scene: &Scene) {
        let Some(mut session) = self.take_session(scene) else { return };
        let task = match scene.chance.below(4) {
            0 => Task::Error,
            1 => Task::Later(Later::Change, scene.chance.below(30_000)),
            _ => Task::Change,
        };
        let tag = scene.enter(Life::new(FLEET, session.id(), task));
        self.asked.borrow_mut().insert(tag, scene.now());
        let request = Request::sql(task.to_string()).arg(Scalar::unsigned(tag));
        session.execute_then(request, move |answer| {
            scene_of(|scene, fleet| fleet.judge(scene, tag, answer.and_then(Answer::finish)));
        });
        if session.is_alive() {
            self.sessions.borrow_mut().push(session);
        }
    }

    fn judge(&self, scene: &Scene, tag: u64, result: Result<client::Summary, Error>) {
        scene.note("answered", &[tag, u64::from(result.is_ok())]);
        let once = self.asked.borrow_mut().remove(&tag).is_some();
        let Some(life) = scene.life(tag, FLEET, |life| life.clone()) else { return };
        let legal = match &result {
            Ok(summary) => life.executed == 1 && life.said == Said::Fine && summary.affected == tag,
            Err(error) if error.fate() == Fate::NotSent => life.executed == 0,
            Err(error) => match error.kind() {
                ErrorKind::Server(error) => {
                    error.scope() == Scope::Session || life.said != Said::Fine
                }
                ErrorKind::SessionEnded => true,
                _ => self.troubled.get() || scene.drained.get() || scene.cut.get(),
            },
        };
        scene.check(once && legal, || format!("fleet, request {tag}: {result:?}; {life:?}"));
        scene.count(if result.is_ok() { "fleet: answered" } else { "fleet: an error" });
    }

    /// Checks at rest: all requests have outcomes, and callers wait only while no session is free.
    pub fn check_stuck(&self, scene: &Scene) {
        let (status, asked, waiting) =
            (self.client.status(), self.asked.borrow(), self.waiting.borrow());
        self.pool.check_stuck(scene);
        scene.check(asked.is_empty(), || format!("fleet: nothing comes of {asked:?}"));
        let is_full = |one: &client::ConnectionStatus| {
            one.phase == ConnectionPhase::Ready && one.sessions >= SESSIONS
        };
        let full = status.connections.iter().all(is_full);
        scene.check(waiting.is_empty() || full, || {
            format!("fleet: {waiting:?} wait for nothing: {status:?}")
        });
        let late = |since: &&Instant| scene.now() > **since + SESSION_TIMEOUT + LATE;
        scene.check(!waiting.values().any(|since| late(&since)), || {
            format!("fleet: {waiting:?} wait for too long")
        });
        scene.check(status.waiting == waiting.len(), || format!("fleet: {status:?}"));
        // After a failure it tries one connection at a time, and waits before.
        let (then, failed) = self.failed.replace((scene.now(), status.failed));
        let pauses = (scene.now() - then).as_nanos() / (PAUSE_MIN / 2).as_nanos();
        let (most, failed) = (pauses + 1 + CONNECTIONS as u128, status.failed - failed);
        scene.check(u128::from(failed) <= most, || {
            format!("fleet: {failed} attempts failed, of {most}: {status:?}")
        });
    }

    /// Closes the client and the pool.
    pub fn close(&self, scene: &Scene) {
        self.client.close();
        self.sessions.take();
        self.pool.close(scene);
    }

    /// Checks that nothing is left.
    pub fn check_end(&self, scene: &Scene) {
        let stats = self.runtime.stats();
        let left = stats.connections + stats.timers_pending + self.waiting.borrow().len() as u64;
        let left = left + self.asked.borrow().len() as u64;
        self.pool.check_end(scene);
        scene.check(left == 0, || format!("{left} things of the fleet are left: {stats}"));
    }
}

/// Calls `code` in the scene of this thread.
pub fn scene_of(code: impl FnOnce(&Scene, &Fleet)) {
    if let Some(scene) = open_scene()
        && let Some(fleet) = &scene.fleet
    {
        code(&scene, fleet);
    }
}
