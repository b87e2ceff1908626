//! [`Scene`]: shared state of one simulation: chance, time, the server, and a book of all requests.
//!
//! It belongs to the thread, because the library calls the service, and a service has only state that can
//! be sent between threads.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::rc::Rc;
use std::time::{Duration, Instant};

use epoll_group::internal::simulated::{Simulated, Step, set_random, set_time, set_wait};
use epoll_group::net::Connection;
use epoll_group::session::{Deferred, Wake};

use super::Coverage;
use super::chance::Chance;
use super::fleet::Fleet;
use super::peer::Peer;
use super::plan::Plan;
use super::service::Engine;
use super::statement::{Later, Task};
use super::time::{Outlet, Runs};

pub struct Scene {
    pub chance: Chance,
    pub plan: Plan,
    pub server: Simulated,
    pub fleet: Option<Fleet>,
    pub coverage: RefCell<Coverage>,
    pub peers: RefCell<Vec<Peer>>,
    /// Number of peers that have ever connected.
    pub connected: Cell<usize>,
    /// Set while a handler may wait for its peer. A wait within a wait would not begin with a flush.
    pub waits: Cell<bool>,
    /// Every request that was ever made, by its tag.
    pub requests: RefCell<Vec<Life>>,
    pub deferred: RefCell<Vec<Waiting>>,
    /// Relays that have said that there is nothing yet.
    pub wakes: RefCell<Vec<Wake>>,
    /// Peers by the number of their connection at the server.
    pub owners: RefCell<BTreeMap<u64, usize>>,
    /// Server ends that are open as far as the peer knows, by the same number.
    pub ends: RefCell<BTreeMap<u64, End>>,
    /// Timestamps that were given out: the first, how many, to which peer, and whether it has got them.
    pub times: RefCell<Vec<(u64, u64, usize, bool)>>,
    /// Values of the service's session that are alive, and how often it was called.
    pub alive: Cell<i64>,
    pub executed: Cell<u64>,
    pub panicked: Cell<u64>,
    /// Reasons for other outcomes than answers, by peer and session.
    pub causes: RefCell<BTreeMap<(usize, u64), Causes>>,
    /// Peers that the server has closed because they took nothing.
    pub slow: RefCell<BTreeSet<usize>>,
    pub runs: Runs,
    /// Calls of the service within which others go on.
    pub depth: Cell<u32>,
    /// Peers on whose way a byte was changed: what they ask and get may be anything.
    pub spoiled: RefCell<BTreeSet<usize>>,
    /// Begin of the rest, in which all is done that can be done before time passes.
    pub resting: Cell<Option<Instant>>,
    pub drained: Cell<bool>,
    pub cut: Cell<bool>,
    start: Instant,
    now: Cell<Instant>,
    trace: Cell<u64>,
    verbose: bool,
    failure: RefCell<Option<String>>,
}

/// A request, as known to the book.
#[derive(Clone, Debug)]
pub struct Life {
    pub peer: usize,
    /// Number of its session on the wire.
    pub session: u64,
    pub task: Task,
    pub executed: u32,
    pub said: Said,
    /// Rows are to come as chunks.
    pub chunks: bool,
    /// It is not to be executed behind a request of its session that failed.
    pub if_no_error: bool,
    /// Tag of the begin of its block, in which no request may fail.
    pub block: Option<u64>,
    /// It has succeeded, as far as the client knows.
    pub succeeded: bool,
    /// The client wants it to be interrupted: it killed the session, or no longer waits.
    pub interrupted: bool,
}

impl Life {
    pub const fn new(peer: usize, session: u64, task: Task) -> Self {
        Self {
            peer,
            session,
            task,
            executed: 0,
            said: Said::Nothing,
            chunks: false,
            if_no_error: false,
            block: None,
            succeeded: false,
            interrupted: false,
        }
    }
}

/// The server's end of a connection.
pub struct End {
    pub peer: usize,
    pub connection: Connection,
    pub outlet: Outlet,
}

/// Reasons for which requests of one session have other outcomes than answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Causes {
    /// The client has closed it.
    pub closed: bool,
    /// The service has panicked in it.
    pub panicked: bool,
}

/// The service's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Nothing,
    Fine,
    Failed,
}

/// A request that was put off.
pub struct Waiting {
    pub since: Instant,
    pub due: Instant,
    pub deferred: Deferred,
    pub tag: u64,
    pub peer: usize,
    pub later: Later,
}

thread_local! {
    static SCENE: RefCell<Option<Rc<Scene>>> = const { RefCell::new(None) };
}

/// Returns the scene of the calling thread.
pub fn scene() -> Rc<Scene> {
    open_scene().expect("a simulation runs")
}

/// Returns the scene of the calling thread. `None` while a seed that has failed is dropped.
pub fn open_scene() -> Option<Rc<Scene>> {
    SCENE.with_borrow(Clone::clone)
}

/// The scene of a thread while it is open.
pub struct Open;

impl Scene {
    /// Opens the scene of a seed.
    pub fn open(seed: u64, verbose: bool) -> (Rc<Self>, Open) {
        let chance = Chance::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5bd1_e995);
        let start = Instant::now();
        set_time(Some(start));
        set_random(Some(chance.next()));
        let plan = Plan::draw(&chance);
        let server = Simulated::new(plan.config.clone(), Engine).expect("its descriptors");
        let scene = Rc::new(Self {
            fleet: plan.fleet.then(|| Fleet::new(start, &chance)),
            chance,
            plan,
            server,
            coverage: RefCell::default(),
            peers: RefCell::default(),
            connected: Cell::new(0),
            waits: Cell::new(false),
            requests: RefCell::default(),
            deferred: RefCell::default(),
            wakes: RefCell::default(),
            owners: RefCell::default(),
            ends: RefCell::default(),
            times: RefCell::default(),
            alive: Cell::new(0),
            executed: Cell::new(0),
            panicked: Cell::new(0),
            causes: RefCell::default(),
            slow: RefCell::default(),
            runs: Runs::default(),
            depth: Cell::new(0),
            spoiled: RefCell::default(),
            resting: Cell::new(None),
            drained: Cell::new(false),
            cut: Cell::new(false),
            start,
            now: Cell::new(start),
            trace: Cell::new(0xcbf2_9ce4_8422_2325),
            verbose,
            failure: RefCell::default(),
        });
        SCENE.set(Some(Rc::clone(&scene)));
        (scene, Open)
    }

    // ---- time ----

    pub fn now(&self) -> Instant {
        self.now.get()
    }

    pub fn elapsed(&self) -> Duration {
        self.now() - self.start
    }

    pub fn pass(&self, time: Duration) {
        self.pass_until(self.now() + time);
    }

    pub fn pass_until(&self, then: Instant) {
        if then > self.now() {
            self.now.set(then);
            set_time(Some(then));
        }
    }

    // ---- the book ----

    /// Writes down what happens. Two runs of a seed write the same.
    pub fn note(&self, what: &'static str, numbers: &[u64]) {
        let mut trace = self.trace.get();
        let mut add = |number: u64| {
            trace = (trace ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        };
        what.bytes().for_each(|byte| add(u64::from(byte)));
        numbers.iter().for_each(|&number| add(number));
        add(self.elapsed().as_nanos() as u64);
        self.trace.set(trace);
        if self.verbose {
            let mut line = format!("{:>14.6?} {what}", self.elapsed());
            numbers.iter().for_each(|number| line.push_str(&format!(" {number}")));
            let _ = writeln!(io::stdout().lock(), "{line}");
        }
    }

    /// Fingerprint of the notes of this seed.
    pub fn trace(&self) -> u64 {
        self.trace.get()
    }

    pub fn count(&self, what: &'static str) {
        self.coverage.borrow_mut().add(what, 1);
    }

    /// Records a failed check. The first one counts.
    pub fn fail(&self, why: impl Into<String>) {
        self.failure.borrow_mut().get_or_insert_with(|| why.into());
    }

    pub fn check(&self, holds: bool, why: impl FnOnce() -> String) {
        if !holds {
            self.fail(why());
        }
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Enters a request into the book, and returns its tag.
    pub fn enter(&self, life: Life) -> u64 {
        let mut requests = self.requests.borrow_mut();
        requests.push(life);
        requests.len() as u64 - 1
    }

    /// The life of a request of this peer, to look at or to change.
    pub fn life<R>(&self, tag: u64, peer: usize, code: impl FnOnce(&mut Life) -> R) -> Option<R> {
        let mut requests = self.requests.borrow_mut();
        requests.get_mut(tag as usize).filter(|life| life.peer == peer).map(code)
    }

    /// A client knows that this request has succeeded.
    pub fn has_succeeded(&self, tag: u64) -> bool {
        self.requests.borrow()[tag as usize].succeeded
    }

    pub fn causes(&self, peer: usize, session: u64) -> Causes {
        self.causes.borrow().get(&(peer, session)).copied().unwrap_or_default()
    }

    /// Notes a reason for other outcomes than answers in a session.
    pub fn note_cause(&self, peer: usize, session: u64, note: impl FnOnce(&mut Causes)) {
        note(self.causes.borrow_mut().entry((peer, session)).or_default());
    }

    /// Returns the peer that a connection belongs to.
    pub fn owner(&self, connection: u64) -> Option<usize> {
        self.owners.borrow().get(&connection).copied()
    }

    pub fn is_spoiled(&self, peer: usize) -> bool {
        self.spoiled.borrow().contains(&peer)
    }

    // ---- the server ----

    /// An operator changes tunables. Turns and sessions that begin from now on use the new values.
    pub fn reconfigure(&self) {
        let budget = self.chance.pick(&[1, 3, 64]);
        let limits = &self.plan.limits;
        let sessions =
            if self.plan.narrow { self.chance.between(2, 12) as usize } else { NO_LIMIT };
        let changed =
            self.server.reconfigure(|config| config.session_budget(budget).max_sessions(sessions));
        self.check(changed.is_ok(), || format!("no change of tunables: {changed:?}"));
        self.plan.session_budget.set(budget);
        // Open sessions stay.
        limits.sessions.set(sessions.max(self.server.stats().sessions as usize));
        self.count("server: reconfigured");
        self.note("reconfigure", &[budget as u64, sessions as u64]);
    }

    /// The server, and the runtime of the fleet.
    pub fn runtimes(&self) -> impl Iterator<Item = &Simulated> {
        std::iter::once(&self.server).chain(self.fleet.iter().map(|fleet| &fleet.runtime))
    }

    /// The next time at which a timer is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.runtimes().filter_map(Simulated::next_deadline).min()
    }

    /// One step of the server or of the fleet; says whether there was anything to do.
    pub fn serve(&self) -> bool {
        let fleet = self.fleet.as_ref().filter(|_| self.chance.one_in(3));
        self.serve_on(fleet.map_or(&self.server, |fleet| &fleet.runtime))
    }

    pub fn serve_on(&self, server: &Simulated) -> bool {
        let hands = server.in_hands();
        let due = server.next_deadline().is_some_and(|due| due <= self.now());
        let room = if hands < WORKERS { 1 } else { 0 };
        let queued = if server.queued() > 0 { 4 * room } else { 0 };
        let weights = [if hands > 0 { 6 } else { 0 }, queued, 2 * room, u32::from(due)];
        match self.chance.weighted(&weights) {
            0 if hands > 0 => {
                let (which, turn) = (self.chance.index(hands), self.chance.index(3));
                self.note("run", &[which as u64, turn as u64]);
                let step = self.runs.within(|| server.run(which, turn));
                self.look_at_step();
                self.count(match step {
                    Step::Event => "server: event",
                    Step::Connection => "server: connection as a task",
                    Step::Session => "server: session as a task",
                    Step::Timer => "server: timer",
                    _ => "server: remains",
                });
                true
            }
            1 => server.take_task(self.chance.one_in(4)),
            2 => {
                let events = server.take_events();
                self.note("events", &[events as u64]);
                events > 0
            }
            3 => {
                server.fire_due();
                true
            }
            _ => false,
        }
    }

    /// Lets the server do other work while a handler takes its time.
    pub fn overlap(&self) {
        if self.depth.get() < DEEPEST && self.chance.below(1000) < u64::from(self.plan.overlap) {
            self.depth.set(self.depth.get() + 1);
            self.count("server: others go on within a handler");
            for _ in 0..self.chance.between(1, 12) {
                self.serve();
            }
            self.depth.set(self.depth.get() - 1);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        drop(SCENE.take());
        set_time(None);
        set_random(None);
        set_wait(None);
    }
}

/// Sessions at once where the limits are wide.
pub const NO_LIMIT: usize = 65_536;
/// Events and tasks that are taken at once.
const WORKERS: usize = 4;
/// Handlers within handlers.
const DEEPEST: u32 = 3;
