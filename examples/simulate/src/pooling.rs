//! [`Pooling`]: a pool, maintained by the runtime of the fleet. Its connections are numbers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use epoll_group::Handle;
use epoll_group::pool::{
    BackendState, Cause, GetError, Limits, Manage, Pool, Pooled, Target, Version,
};

use super::chance::Chance;
use super::fleet::scene_of;
use super::later::LATE;
use super::plan::MILLIS;
use super::scene::{Scene, scene};

pub struct Pooling {
    pool: Pool<Backend>,
    /// Connections that exist, with their versions; and those in use.
    alive: RefCell<BTreeMap<u64, Version>>,
    held: RefCell<BTreeMap<u64, Pooled<Backend>>>,
    /// Callers that wait, with their deadlines.
    waiting: RefCell<BTreeMap<u64, Instant>>,
    /// Idle connections are checked. A caller whose connection is checked may come behind later ones.
    checks: bool,
    connections: Cell<u64>,
    callers: Cell<u64>,
}

pub struct Backend;

/// A connection.
pub struct Conn(u64);

/// Connections at once.
const MOST: usize = 2;

impl Manage for Backend {
    type Key = u8;
    type Connection = Conn;
    type Error = &'static str;

    fn connect(&self, target: &Target<'_, u8>, _: Instant) -> Result<Conn, &'static str> {
        let fails = takes_time_and_fails(&scene());
        let mut conn = Err("the simulation refuses it");
        scene_of(|scene, fleet| {
            scene.note("connect", &[u64::from(fails)]);
            if fails {
                scene.count("pool: a connect fails");
            } else {
                conn = Ok(fleet.pool.connected(scene, target.version));
            }
        });
        conn
    }

    fn is_valid(&self, _: &Target<'_, u8>, conn: &mut Conn) -> Result<(), &'static str> {
        let scene = scene();
        scene.count("pool: a connection is checked");
        scene.note("check", &[conn.0]);
        if takes_time_and_fails(&scene) { Err("the simulation breaks it") } else { Ok(()) }
    }

    fn has_broken(&self, _: &Target<'_, u8>, _: &mut Conn) -> bool {
        scene().chance.one_in(10)
    }
}

fn takes_time_and_fails(scene: &Scene) -> bool {
    scene.pass(Duration::from_micros(scene.chance.below(1000)));
    scene.overlap();
    scene.chance.happens(scene.plan.faults.cut * 50)
}

impl Drop for Conn {
    fn drop(&mut self) {
        scene_of(|scene, fleet| {
            let known = fleet.pool.alive.borrow_mut().remove(&self.0).is_some();
            scene.check(known, || format!("pool: connection {} ends twice", self.0));
        });
    }
}

impl Pooling {
    pub fn new(host: &Handle, chance: &Chance) -> Self {
        let checks = chance.one_in(2);
        let limits = Limits::default()
            .max(MOST)
            .max_connecting(chance.pick(&[1, MOST]))
            .check_after(if checks { MILLIS(1) } else { Duration::MAX })
            .idle_timeout(MILLIS(1000))
            .max_age(MILLIS(3000))
            .unused_after(MILLIS(5000))
            .backoff(MILLIS(20), MILLIS(100));
        let pool = Pool::builder(Backend).limits(limits).maintained_by(host.clone()).build();
        Self {
            pool: pool.expect("limits within their ranges"),
            alive: RefCell::default(),
            held: RefCell::default(),
            waiting: RefCell::default(),
            checks,
            connections: Cell::new(0),
            callers: Cell::new(0),
        }
    }

    fn connected(&self, scene: &Scene, version: Version) -> Conn {
        let number = self.connections.replace(self.connections.get() + 1);
        let mut alive = self.alive.borrow_mut();
        alive.insert(number, version);
        let count = alive.values().filter(|&&one| one == version).count();
        scene.check(count <= MOST, || format!("pool: {count} connections, of {MOST}"));
        Conn(number)
    }

    /// Takes a random step: a caller asks, a connection goes back, or an operator does something.
    pub fn act(&self, scene: &Scene) {
        match scene.chance.below(20) {
            0 => _ = self.pool.pause(&0, scene.now()),
            1 | 2 => _ = self.pool.resume(&0),
            3 => {
                let version = self.pool.status_of(&0).map(|status| status.version);
                let done = version.map(|version| self.pool.fail_over(&0, version).is_ok());
                scene.check(done != Some(false), || "pool: no fail-over".into());
            }
            4 => {
                if let Some(conn) = self.pool.backend(&0).ok().and_then(|backend| backend.try_get())
                {
                    self.lent(scene, conn);
                }
            }
            5..12 => self.call(scene),
            _ => self.give_back(scene),
        }
    }

    fn call(&self, scene: &Scene) {
        let caller = self.callers.replace(self.callers.get() + 1);
        let deadline = scene.now() + MILLIS(scene.chance.pick(&[1, 2000, 2000]));
        self.waiting.borrow_mut().insert(caller, deadline);
        scene.note("get", &[caller]);
        let then = move |result| {
            scene_of(|scene, fleet| fleet.pool.called(scene, caller, result));
        };
        match self.pool.backend(&0) {
            Ok(backend) => backend.get_then(deadline, then),
            Err(error) => then(Err(error)),
        }
    }

    fn give_back(&self, scene: &Scene) {
        let mut held = self.held.borrow_mut();
        let which = scene.chance.index(held.len());
        let number = held.keys().nth(which).copied();
        let conn = number.and_then(|number| held.remove(&number));
        drop(held);
        scene.note("give back", &[number.unwrap_or(u64::MAX)]);
        drop(conn);
    }

    fn called(&self, scene: &Scene, caller: u64, result: Result<Pooled<Backend>, GetError>) {
        scene.note("got", &[caller, u64::from(result.is_ok())]);
        let mut waiting = self.waiting.borrow_mut();
        let Some(deadline) = waiting.remove(&caller) else {
            return scene.fail(format!("pool: caller {caller} is told twice"));
        };
        match result {
            Ok(conn) => {
                let first = waiting.keys().next().copied();
                scene.check(self.checks || first.is_none_or(|first| first > caller), || {
                    format!("pool: caller {caller} goes before {first:?}")
                });
                drop(waiting);
                self.lent(scene, conn);
                scene.count("pool: a caller gets a connection");
            }
            Err(error) => {
                let fits = match &error {
                    GetError::Timeout { cause: Cause::AllBusy { in_use, .. }, .. } => {
                        *in_use == MOST && scene.now() >= deadline
                    }
                    GetError::Timeout { .. } => scene.now() >= deadline,
                    GetError::Closed => scene.cut.get(),
                    _ => false,
                };
                scene.check(fits, || format!("pool: caller {caller} is told {error}"));
                scene.count("pool: a caller gets an error");
            }
        }
    }

    fn lent(&self, scene: &Scene, conn: Pooled<Backend>) {
        let number = conn.0;
        let known = self.alive.borrow().contains_key(&number);
        let before = self.held.borrow_mut().insert(number, conn);
        scene.check(known && before.is_none(), || format!("pool: {number} is lent twice"));
    }

    /// At rest callers wait only if the pool is paused or all its connections are in use, and not for too
    /// long. The pool knows all connections and callers.
    pub fn check_stuck(&self, scene: &Scene) {
        let (alive, held, waiting) =
            (self.alive.borrow(), self.held.borrow(), self.waiting.borrow());
        let late = |deadline: &Instant| scene.now() > *deadline + LATE;
        scene.check(!waiting.values().any(late), || format!("pool: {waiting:?} wait for too long"));
        let Some(status) = self.pool.status_of(&0) else {
            return scene.check(alive.len() + waiting.len() == 0, || {
                format!("pool: no backend has {alive:?}, and {waiting:?} wait")
            });
        };
        let busy = status.in_use == MOST || status.state == BackendState::Paused;
        scene.check(waiting.is_empty() || busy, || {
            format!("pool: {waiting:?} wait for nothing: {status:?}")
        });
        let leaving: usize = status.leaving.iter().map(|leaving| leaving.in_use).sum();
        let known = status.in_use + leaving == held.len()
            && status.idle + held.len() == alive.len()
            && status.waiting == waiting.len();
        scene.check(known, || {
            format!("pool: {alive:?} exist, {waiting:?} wait, and {held:?} are in use: {status:?}")
        });
    }

    /// Closes the pool. Callers that wait are told, and connections in use end when they go back.
    pub fn close(&self, scene: &Scene) {
        let report = self.pool.close(scene.now());
        let held = self.held.take();
        scene.check(report.held.len() == held.len(), || format!("pool: {held:?}, {report:?}"));
    }

    pub fn check_end(&self, scene: &Scene) {
        let (alive, waiting) = (self.alive.borrow(), self.waiting.borrow());
        scene.check(alive.len() + waiting.len() == 0, || {
            format!("pool: {alive:?} and {waiting:?} are left")
        });
    }
}
