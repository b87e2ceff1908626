//! Checks during a simulation, at rest, and at the end.

use epoll_group::stats::{Counter, Snapshot};

use super::world::World;

/// Bytes of requests that each connection may have waiting whatever others have.
const EVERYBODYS: u64 = 8 << 10;

impl World {
    pub(super) fn check_limits(&self) {
        let (scene, stats) = (&self.scene, self.scene.server.stats());
        let config = &scene.plan.limits;
        scene.check(stats.sessions <= config.sessions.get() as u64, || format!("{stats}"));
        scene.check(stats.connections <= config.connections as u64, || format!("{stats}"));
        let waiting = config.queued_bytes as u64 + stats.connections * EVERYBODYS;
        scene.check(stats.queued_request_bytes <= waiting, || format!("{stats}"));
        let (overtakes, queued) = (scene.server.most_overtakes() as u64, stats.queue_high_water);
        scene.check(overtakes <= ROUND * (queued + 1), || {
            format!("a task waits for {overtakes} later ones, and {queued} were queued at most")
        });
        for end in scene.ends.borrow().values() {
            let (pending, limit) =
                (end.connection.pending_bytes(), scene.plan.high_watermark + TURN);
            scene.check(pending <= limit, || {
                let index = end.peer;
                format!("peer {index} has not taken {pending} bytes, more than {limit}")
            });
        }
    }

    /// At rest, every live peer has all its answers.
    pub(super) fn check_stuck(&self) {
        let scene = &self.scene;
        scene.fleet.iter().for_each(|fleet| fleet.check_stuck(scene));
        for peer in self.peers().iter().filter(|peer| !scene.is_spoiled(peer.index)) {
            let index = peer.index;
            scene.check(peer.asked.is_empty(), || {
                let tags: Vec<_> = peer.asked.iter().map(|asked| asked.tag).collect();
                let requests = scene.requests.borrow();
                let lives: Vec<_> = tags.iter().map(|&tag| &requests[tag as usize]).collect();
                format!("peer {index}: nothing comes of requests {tags:?}: {lives:?}")
            });
            let finished = peer.half_closed.is_none() || peer.is_over();
            scene.check(finished, || format!("peer {index} has finished, and is not closed"));
        }
    }

    /// Without faults the server has no reason to close a connection before its drain.
    pub(super) fn check_closed(&self) {
        let scene = &self.scene;
        if !scene.plan.faults.are_none() {
            return;
        }
        let stats = scene.server.stats();
        let closed = Counter::ALL.iter().filter(|counter| counter.name().starts_with("closed_"));
        for &counter in closed {
            let count = stats.get(counter);
            let may = match counter {
                Counter::ClosedByPeer | Counter::ClosedDraining => u64::MAX,
                // The limits of the scene are so low that logins reach them.
                Counter::ClosedLoginDisplaced => u64::MAX,
                Counter::ClosedByHandler => {
                    stats.get(Counter::LoginsRefused) + stats.get(Counter::ClosedLoginDisplaced)
                }
                _ => 0,
            };
            let name = counter.name();
            scene.check(count <= may, || format!("{name} is {count} without faults"));
        }
    }

    /// Nothing is left.
    pub(super) fn check_end(&self) {
        let (scene, stats) = (&self.scene, self.scene.server.stats());
        let left = [
            ("connections", stats.connections),
            ("silent connections", stats.silent_connections),
            ("paused connections", stats.paused_connections),
            ("closing connections", stats.closing_connections),
            ("contexts", stats.slots_allocated - stats.slots_free),
            ("buffered bytes", stats.buffered_bytes),
            ("connections without a login", stats.unauthenticated_connections),
            ("sessions", stats.sessions),
            ("queued requests", stats.queued_requests),
            ("queued bytes", stats.queued_request_bytes),
            ("deferred requests", stats.deferred_requests),
            ("waiting writers", stats.waiting_writers),
            ("timers", stats.timers_pending),
            ("tasks", stats.queue_len + stats.overflow_len + stats.urgent_queue_len),
            ("closures", stats.tasks_in_progress),
            ("urgent units", scene.server.urgent_units() as u64),
            ("sessions of the service", scene.alive.get().unsigned_abs()),
            ("connections of the book", scene.ends.borrow().len() as u64),
        ];
        for (what, count) in left {
            scene.check(count == 0, || format!("{count} {what} are left"));
        }
        let count = |counter| stats.get(counter);
        let same = [
            ("connections", count(Counter::ConnectionsAccepted), count(Counter::ConnectionsClosed)),
            ("sessions", count(Counter::SessionsOpened), count(Counter::SessionsClosed)),
            ("requests", count(Counter::RequestsExecuted), scene.executed.get()),
            ("panics", count(Counter::Panics), scene.panicked.get()),
            ("panics of connections", count(Counter::ClosedPanic), 0),
        ];
        for (what, one, other) in same {
            scene.check(one == other, || format!("{what}: {one} are not {other}"));
        }
        if scene.spoiled.borrow().is_empty() {
            let errors = count(Counter::ProtocolErrors) + count(Counter::ClosedFrameTooLong);
            scene.check(errors == 0, || {
                format!("{errors} protocol errors, though no byte was changed")
            });
        }
        scene.fleet.iter().for_each(|fleet| fleet.check_end(scene));
        self.note_counters(&stats);
    }

    fn note_counters(&self, stats: &Snapshot) {
        let mut coverage = self.scene.coverage.borrow_mut();
        for (what, counter) in [
            ("counter: connections accepted", Counter::ConnectionsAccepted),
            ("counter: closed by a reset", Counter::ClosedReset),
            ("counter: closed by a write time-out", Counter::ClosedWriteTimeout),
            ("counter: closed by a login time-out", Counter::ClosedLoginTimeout),
            ("counter: logins displaced", Counter::ClosedLoginDisplaced),
            ("counter: logins failed", Counter::LoginsFailed),
            ("counter: logins refused", Counter::LoginsRefused),
            ("counter: protocol errors", Counter::ProtocolErrors),
            ("counter: reads paused", Counter::ReadsPaused),
            ("counter: waits for credit", Counter::TokenWaits),
            ("counter: frames of dead sessions", Counter::FramesOfDeadSessionsDropped),
            ("counter: texts known", Counter::SqlHit),
            ("counter: plans known", Counter::PlanHit),
            ("counter: stale events", Counter::StaleEvents),
        ] {
            coverage.add(what, stats.get(counter));
        }
    }
}

/// Tasks of a round. One of them is taken from the queue that comes last.
const ROUND: u64 = 32;

/// Bytes that the server may make for one connection beyond the high watermark: the turn of a source for
/// each session, and answers.
const TURN: usize = 2 << 20;
