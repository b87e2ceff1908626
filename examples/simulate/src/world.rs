//! [`World`]: all connections of a seed, and what happens next.

use std::cell::RefMut;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use epoll_group::internal::simulated::set_wait;

use super::Coverage;
use super::later;
use super::peer::Peer;
use super::scene::{Scene, scene};

pub struct World {
    pub(super) scene: Rc<Scene>,
}

/// Result of a seed.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The first check that failed.
    pub failure: Option<String>,
    /// Fingerprint of all notes, the same for the same seed.
    pub trace: u64,
    pub coverage: Coverage,
    pub requests: u64,
    pub simulated: Duration,
}

impl World {
    /// Runs a seed.
    pub fn run(seed: u64, verbose: bool) -> Outcome {
        let (scene, _open) = Scene::open(seed, verbose);
        set_wait(Some(Self::go_on));
        Self { scene }.run_all()
    }

    fn run_all(self) -> Outcome {
        for _ in 0..self.scene.plan.peers {
            self.connect();
        }
        for step in 0..self.scene.plan.steps {
            self.step();
            if step % 64 == 0 {
                self.check_limits();
            }
            if self.scene.chance.one_in(300) {
                self.settle();
                self.check_stuck();
            }
            if self.scene.failure().is_some() {
                break;
            }
        }
        if self.scene.failure().is_none() {
            self.finish();
        }
        self.outcome()
    }

    /// Clients. They call nothing that runs the server.
    pub(super) fn peers(&self) -> RefMut<'_, Vec<Peer>> {
        self.scene.peers.borrow_mut()
    }

    /// Takes steps in place of a handler that waits for its peer.
    fn go_on() {
        let world = Self { scene: scene() };
        let scene = &world.scene;
        if scene.failure().is_some() {
            resume_unwind(Box::new("a check has failed"));
        }
        scene.count("server: a step within a handler that waits");
        scene.look_at_backlogs();
        scene.depth.set(scene.depth.get() + 1);
        if scene.resting.get().is_none() && !scene.chance.one_in(20) {
            world.step();
        } else if !world.move_all() {
            match world.next_time() {
                Some(next) => world.let_pass(next),
                None => world.cut_spoiled(),
            }
        }
        scene.depth.set(scene.depth.get() - 1);
    }

    /// Cuts peers whose credit may have been changed on its way: the wait of a handler for any other peer
    /// has an end.
    fn cut_spoiled(&self) {
        let scene = &self.scene;
        let mut any = false;
        for peer in &mut *self.peers() {
            if scene.is_spoiled(peer.index) && !peer.wire.is_cut() {
                peer.wire.cut();
                any = true;
            }
        }
        scene.check(any, || "a handler waits, and nothing comes that could wake it".into());
    }

    fn outcome(self) -> Outcome {
        let scene = &self.scene;
        let requests = scene.requests.borrow().len() as u64;
        Outcome {
            failure: scene.failure(),
            trace: scene.trace(),
            coverage: scene.coverage.borrow().clone(),
            requests,
            simulated: scene.elapsed(),
        }
    }

    // ---- steps ----

    fn connect(&self) {
        let (scene, index) = (&self.scene, self.scene.connected.get());
        if index < scene.plan.most_peers && !scene.drained.get() {
            scene.connected.set(index + 1);
            let peer = Peer::connect(scene, index);
            self.peers().push(peer);
        }
    }

    fn step(&self) {
        let scene = Rc::clone(&self.scene);
        let chance = &scene.chance;
        let fleet = if scene.fleet.is_some() { 20 } else { 0 };
        let what = chance.weighted(&[40, 14, 14, 12, 12, 4, 4, 4, 4, 1, 1, fleet]);
        match what {
            0 => drop(scene.serve()),
            6 => self.finish_one(),
            7 => self.wake_one(),
            8 => self.pass_some(),
            11 => scene.fleet.iter().for_each(|fleet| fleet.act(&scene)),
            10 => scene.reconfigure(),
            9 => {
                self.peers().retain(|peer| !peer.is_done());
                let few = self.peers().len() < scene.plan.peers;
                if few {
                    self.connect();
                }
            }
            _ => {
                let mut peers = self.peers();
                let index = chance.index(peers.len());
                let Some(peer) = peers.get_mut(index) else { return };
                let most = chance.pick(&[1, 7, 60, 1000, 5000, 65_536, 65_536]);
                match what {
                    1 => peer.act(&scene),
                    2 => drop(peer.push(&scene, most)),
                    3 => drop(peer.pull(&scene, most)),
                    4 => drop(peer.arrive(&scene, most)),
                    _ => peer.suffer(&scene),
                }
            }
        }
    }

    fn finish_one(&self) {
        let mut deferred = self.scene.deferred.borrow_mut();
        if !deferred.is_empty() {
            let which = self.scene.chance.index(deferred.len());
            let one = deferred.swap_remove(which);
            drop(deferred);
            self.scene.runs.within(|| later::finish(&self.scene, one));
        }
    }

    fn wake_one(&self) {
        let mut wakes = self.scene.wakes.borrow_mut();
        if !wakes.is_empty() {
            let which = self.scene.chance.index(wakes.len());
            let one = wakes.swap_remove(which);
            drop(wakes);
            self.scene.note("wake", &[]);
            one.wake();
        }
    }

    fn pass_some(&self) {
        if self.scene.plan.faults.are_none() {
            let scene = Rc::clone(&self.scene);
            // Without faults every client reads in time.
            self.peers().iter_mut().for_each(|peer| _ = peer.pull(&scene, usize::MAX));
        }
        let most = self.scene.chance.pick(&[20, 20, 100, 100, 1000, 1000, 10_000, 200_000]);
        self.scene.pass(Duration::from_micros(self.scene.chance.below(most)));
        self.look_at_clock();
    }

    /// Runs due client time-outs.
    fn look_at_clock(&self) -> bool {
        let now = self.scene.now();
        let mut any = false;
        for peer in &mut *self.peers() {
            if peer.client.poll_timeout().is_some_and(|due| due <= now) {
                // A time-out interrupts the statement, or the one behind it.
                for asked in peer.asked.iter().filter(|asked| asked.due <= now) {
                    peer.interrupted(&self.scene, asked.asking.session);
                }
                peer.client.timeout(now);
                peer.send();
                any = true;
            }
        }
        any
    }

    // ---- to rest ----

    /// Everything goes on until nothing is left to do but to wait for time-outs.
    fn settle(&self) {
        self.scene.note("settle", &[]);
        self.scene.resting.set(Some(self.scene.now()));
        self.come_to_rest();
        self.scene.resting.set(None);
    }

    fn come_to_rest(&self) {
        let scene = Rc::clone(&self.scene);
        for _ in 0..MOST_ROUNDS {
            if scene.failure().is_some() {
                return;
            }
            if self.move_all() {
                continue;
            }
            let Some(next) = self.next_time() else { return };
            self.check_slow(next);
            self.let_pass(next);
        }
        scene.fail("it does not come to rest");
    }

    /// Lets every peer and the server do all that they can. Returns true if anything moved.
    fn move_all(&self) -> bool {
        let scene = Rc::clone(&self.scene);
        let mut moved = self.look_at_clock();
        for peer in &mut *self.peers() {
            moved |= peer.pull(&scene, usize::MAX) + peer.arrive(&scene, usize::MAX) > 0;
            (0..peer.asked.len()).rev().for_each(|index| peer.take(&scene, index));
            peer.send();
            moved |= peer.push(&scene, usize::MAX) > 0;
        }
        moved |= self.serve_all();
        while !scene.wakes.borrow().is_empty() {
            moved = true;
            self.wake_one();
        }
        let now = scene.now();
        let due = scene.deferred.borrow().iter().position(|waiting| waiting.due <= now);
        if let Some(due) = due {
            let one = scene.deferred.borrow_mut().swap_remove(due);
            scene.runs.within(|| later::finish(&scene, one));
            moved = true;
        }
        moved
    }

    /// The server does what there is to do.
    fn serve_all(&self) -> bool {
        let scene = &self.scene;
        let mut moved = scene.fleet.as_ref().is_some_and(|fleet| fleet.admit(scene));
        for server in scene.runtimes() {
            while server.take_events() > 0 {
                moved = true;
            }
            if server.next_deadline().is_some_and(|due| due <= scene.now()) {
                server.fire_due();
                moved = true;
            }
            while server.take_task(false) {}
            while server.in_hands() > 0 {
                moved = true;
                scene.serve_on(server);
            }
        }
        moved
    }

    /// Time passes for a server that has nothing else to do: it looks at each of its timers in time.
    fn let_pass(&self, until: Instant) {
        while self.scene.now() < until {
            self.scene.pass_until(until.min(self.scene.now() + STEP));
            while self.serve_all() {}
        }
    }

    /// Checks that a peer that takes nothing for too long is closed.
    fn check_slow(&self, next: Instant) {
        let scene = Rc::clone(&self.scene);
        let limit = scene.plan.times.write + later::LATE;
        if next < scene.now() + limit * 4 {
            return;
        }
        let ends = scene.ends.borrow();
        let waits = ends.values().filter(|end| {
            let reads = |peer: &Peer| peer.index == end.peer && !peer.wire.reads(&scene);
            end.connection.pending_bytes() > 0 && self.peers().iter().any(reads)
        });
        let waits: Vec<_> = waits.map(|end| (end.peer, end.connection.clone())).collect();
        drop(ends);
        // A peer may have two periods more: one for bytes that were taken, one for a late look.
        for _ in 0..if waits.is_empty() { 0 } else { 3 } {
            self.let_pass(scene.now() + limit);
        }
        for (index, connection) in waits {
            // The rest may have fitted into the socket at the last look.
            let over = connection.is_closed() || connection.pending_bytes() == 0;
            scene.check(over, || {
                format!("peer {index} reads nothing for {:?}, and is not closed", limit * 3)
            });
            scene.count("server: a slow reader");
        }
    }

    /// Next time at which a wire, a deferred answer or a timer of the server is due.
    fn next_time(&self) -> Option<Instant> {
        let scene = &self.scene;
        let now = scene.now();
        let peers = self.peers();
        let ways = peers.iter().filter_map(|peer| peer.wire.next_time(now));
        let deferred = scene.deferred.borrow();
        let answers = deferred.iter().map(|waiting| waiting.due);
        let soon = scene.next_deadline().filter(|&due| due <= now + SOON);
        ways.chain(answers).chain(soon).min()
    }

    // ---- to its end ----

    fn finish(&self) {
        let scene = Rc::clone(&self.scene);
        scene.note("finish", &[]);
        for peer in &mut *self.peers() {
            peer.go_silent(&scene);
        }
        if scene.plan.drains {
            scene.count("server: drains");
            scene.drained.set(true);
            scene.server.start_draining();
            (0..scene.chance.below(200)).for_each(|_| self.step());
        }
        self.settle();
        self.check_stuck();
        let at_rest = scene.server.stats();
        if scene.plan.drains {
            let left = self.peers().iter().filter(|peer| !peer.is_over()).count();
            scene.check(left == 0 || !scene.spoiled.borrow().is_empty(), || {
                format!("the drain leaves {left} connections: {at_rest}")
            });
            scene.cut.set(true);
            scene.server.cut();
        } else if scene.chance.one_in(2) {
            for peer in &mut *self.peers() {
                let sessions = std::mem::take(&mut peer.sessions);
                sessions.into_iter().for_each(|session| peer.close(&scene, session));
            }
        }
        self.settle();
        self.check_closed();
        scene.cut.set(true);
        scene.fleet.iter().for_each(|fleet| fleet.close(&scene));
        for peer in &mut *self.peers() {
            peer.wire.cut();
        }
        self.settle();
        // The last timers find nothing.
        for _ in 0..MOST_TIMERS {
            let Some(due) = scene.next_deadline() else { break };
            self.let_pass(due);
            self.settle();
        }
        if scene.failure().is_none() {
            self.check_end();
        }
    }
}

/// Limit of rounds without rest.
const MOST_ROUNDS: u32 = 200_000;
/// Step of the clock. A timer this late still counts as on time.
const STEP: Duration = Duration::from_millis(20);
/// Limit of timers that are left when no peer is there any more.
const MOST_TIMERS: u32 = 1000;
/// Timers of the server up to this far ahead are waited for: they hold back an answer to a login.
const SOON: Duration = Duration::from_millis(150);
