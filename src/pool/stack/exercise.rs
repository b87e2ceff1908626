//! [`Stack`] beside a naive twin: lists, searched from end to end, that know its permitted
//! behaviour.
//!
//! Operations come as bytes, from a fuzzer or at random. After each operation the test compares the
//! states of both, and checks the rules that [`Stack`] states.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::time::Duration;

use super::{Ask, Asked, Effects, Fitness, Grant, Holder, Stack, Ticket, WaiterId};
use crate::pool::config::Limits;
use crate::pool::error::GetError;
use crate::pool::manage::Version;
use crate::pool::status::{BackendState, BackendStatus, Discard};
use crate::sys::clock::Instant;

/// Runs the operations of the bytes, two bytes each.
///
/// # Panics
///
/// The stack breaks a rule.
pub(crate) fn exercise(bytes: &[u8]) {
    let mut world = World::new();
    for op in bytes.chunks_exact(2) {
        world.step(op[0], usize::from(op[1]));
        world.look();
    }
    world.end();
}

const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
const CHECK_AFTER: Duration = Duration::from_secs(5);

struct World {
    stack: Stack<u32, u32>,
    now: Instant,
    holder: Holder,
    limits: Limits,
    state: BackendState,
    version: Version,
    /// Timers of the host.
    timers: BTreeSet<Instant>,
    /// Idle connections, the hottest last, and connections in use.
    idle: Vec<u32>,
    used: Vec<(u32, Ticket)>,
    /// Idle connection that is being checked.
    checked: Option<(u32, Ticket)>,
    /// Start of the idle time of each connection.
    since: BTreeMap<u32, Instant>,
    /// Connects, each with its maker: a waiter, a new caller, or the host.
    connecting: Vec<(Ticket, By)>,
    /// Waiters in order.
    waiting: Vec<Waiting>,
    /// Every closed connection, and every answered waiter.
    closed: BTreeSet<u32>,
    answered: BTreeSet<u32>,
    conns: u32,
    callers: u32,
    /// True if the kept error of the version is permanent.
    permanent: bool,
}

struct Waiting {
    caller: u32,
    id: Option<WaiterId>,
    asked: Instant,
    deadline: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Caller,
    Host,
}

impl World {
    fn new() -> Self {
        let limits = Limits::default()
            .max(3)
            .max_connecting(2)
            .max_waiting(6)
            .wait_timeout(WAIT_TIMEOUT)
            .idle_timeout(Duration::from_secs(20))
            .max_age(Duration::from_secs(60))
            .check_after(CHECK_AFTER)
            .unused_after(Duration::from_secs(90))
            .backoff(Duration::from_secs(1), Duration::from_secs(4));
        let now = Instant::now();
        Self {
            stack: Stack::new(limits.clone(), 7, now),
            now,
            holder: Holder::new(Location::caller()),
            limits,
            state: BackendState::Open,
            version: Version::default(),
            timers: BTreeSet::new(),
            idle: Vec::new(),
            used: Vec::new(),
            checked: None,
            since: BTreeMap::new(),
            connecting: Vec::new(),
            waiting: Vec::new(),
            closed: BTreeSet::new(),
            answered: BTreeSet::new(),
            conns: 0,
            callers: 0,
            permanent: false,
        }
    }

    fn step(&mut self, op: u8, n: usize) {
        let mut fx = Effects::default();
        match op % 16 {
            0..=2 => self.ask(n, &mut fx),
            3 | 4 => self.give_back(n, &mut fx),
            5 => self.discard(n, &mut fx),
            6 | 7 => self.end_connect(n, false, &mut fx),
            8 => self.end_connect(n, true, &mut fx),
            9 => self.leave(n, &mut fx),
            10 | 11 => self.pass(n),
            12 => self.set_state(n, &mut fx),
            13 if n.is_multiple_of(4) => self.fail_over(n, &mut fx),
            14 => self.resize(n, &mut fx),
            15 if !n.is_multiple_of(4) => self.check(n, &mut fx),
            _ => self.lose_timers(&mut fx),
        }
        self.take(fx);
    }

    fn ask(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        self.callers += 1;
        let caller = self.callers;
        let own = (!n.is_multiple_of(4)).then(|| self.now + Duration::from_secs(n as u64 % 8));
        let (holder, has_thread) = (self.holder.clone(), !n.is_multiple_of(3));
        let again = n.is_multiple_of(7);
        let ago = if again { n as u64 % 5 } else { 0 };
        let asked = self.now - Duration::from_secs(ago);
        let ask = Ask { holder, asked, deadline: own, has_thread, again };
        let deadline = own.unwrap_or(asked + WAIT_TIMEOUT);
        // A caller that is served in the same call first counts as waiting.
        let waiting = self.waiting.len();
        let connects = self.host_connects() >= waiting && self.stack.may_connect(self.now);
        let full = !again && !connects && waiting >= self.limits.max_waiting;
        let at = self.waiting.iter().take_while(|waiting| waiting.asked <= asked).count();
        self.waiting.insert(at, Waiting { caller, id: None, asked, deadline });
        match self.stack.ask(self.now, &ask, || caller, fx) {
            Asked::Waits(id, until) => {
                assert!(!full && until == Some(deadline) && deadline > self.now);
                self.waiting[at].id = Some(id);
            }
            Asked::Now(grant) => {
                self.waiting.remove(at);
                match grant {
                    Grant::Conn(conn, ticket, fitness) => {
                        assert_eq!(at, 0, "nobody overtakes");
                        self.got(conn, ticket, fitness);
                    }
                    Grant::Connect(ticket) => {
                        assert!(at == 0 && has_thread, "nobody overtakes");
                        self.connecting.push((ticket, By::Caller));
                        assert!(self.mine().0 + self.mine().1 + self.idle.len() <= self.limits.max);
                    }
                    Grant::Refused(GetError::TooManyWaiting { .. }) => assert!(full),
                    Grant::Refused(error) => self.assert_refused(&error, deadline),
                }
            }
        }
    }

    fn assert_refused(&self, error: &GetError, deadline: Instant) {
        match error {
            GetError::Disabled => assert_eq!(self.state, BackendState::Disabled),
            GetError::Timeout { .. } => assert!(deadline <= self.now, "not early"),
            GetError::ConnectFailed { .. } => assert!(self.is_in_vain(), "it may wait"),
            other => panic!("{other}"),
        }
    }

    /// Returns true if callers get a permanent error instead of waiting.
    fn is_in_vain(&self) -> bool {
        let pauses = self.stack.trouble.retry_at.is_some_and(|retry_at| self.now < retry_at);
        self.state == BackendState::Open && self.permanent && pauses
    }

    fn got(&mut self, conn: u32, ticket: Ticket, fitness: Fitness) {
        assert_eq!(Some(conn), self.idle.pop(), "last in, first out");
        assert_eq!((self.state, ticket.version), (BackendState::Open, self.version));
        self.used.push((conn, ticket));
        if fitness == Fitness::TooOld {
            let mut fx = Effects::default();
            self.discard(self.used.len() - 1, &mut fx);
            self.take(fx);
        }
    }

    fn give_back(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        if self.used.is_empty() {
            return;
        }
        let (conn, ticket) = self.used.remove(n % self.used.len());
        self.idle.push(conn);
        self.since.insert(conn, self.now);
        self.stack.checkin(self.now, ticket, conn, fx);
        if ticket.version != self.version || self.state != BackendState::Open {
            assert!(fx.close.iter().any(|(closed, ..)| *closed == conn), "not used again");
        }
    }

    fn discard(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        if self.used.is_empty() {
            return;
        }
        let (conn, ticket) = self.used.remove(n % self.used.len());
        self.stack.discard(self.now, ticket, fx);
        self.closed.insert(conn);
    }

    /// Ends the check of an idle connection, or begins the next one. At times another thread wants a
    /// check meanwhile.
    fn check(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        if n.is_multiple_of(3) {
            self.stack.begin_check();
        }
        let Some((conn, ticket)) = self.checked.take() else {
            self.checked = self.stack.take_unchecked();
            if let Some((conn, _)) = self.checked {
                let at = self.idle.iter().position(|idle| *idle == conn).expect("it was idle");
                self.idle.remove(at);
            }
            return;
        };
        if n.is_multiple_of(5) {
            self.stack.discard(self.now, ticket, fx);
            self.closed.insert(conn);
            return;
        }
        self.stack.checkin(self.now, ticket, conn, fx);
        let colder = |idle: &&u32| self.since[*idle] <= self.since[&conn];
        let is_closed = fx.close.iter().any(|(closed, ..)| *closed == conn);
        let colder = self.idle.iter().take_while(|idle| is_closed || colder(idle)).count();
        self.idle.insert(colder, conn);
    }

    fn end_connect(&mut self, n: usize, fails: bool, fx: &mut Effects<u32, u32>) {
        if self.connecting.is_empty() {
            return;
        }
        let (ticket, by) = self.connecting.remove(n % self.connecting.len());
        if fails {
            return match by {
                By::Caller if n.is_multiple_of(5) => {
                    self.stack.connect_abandoned(self.now, ticket, fx)
                }
                _ => {
                    let permanent = n.is_multiple_of(3);
                    let refused = self.stack.connect_failed(
                        self.now,
                        ticket,
                        "refused".into(),
                        permanent,
                        fx,
                    );
                    if ticket.version == self.version {
                        // A passing error of an older connect does not replace a permanent one.
                        self.permanent = self.stack.trouble.is_permanent;
                        assert!(self.permanent || !permanent);
                    }
                    if let Some(refused) = refused {
                        assert_eq!(ticket.version, self.version);
                        self.assert_refused(&refused, self.now + WAIT_TIMEOUT);
                    }
                }
            };
        }
        self.conns += 1;
        let conn = self.conns;
        self.idle.push(conn);
        self.since.insert(conn, self.now);
        let kept = self.stack.connected(self.now, ticket, conn, fx);
        if kept.is_some() {
            assert_eq!((kept, by), (Some(conn), By::Caller));
            self.idle.pop();
            self.used.push((conn, ticket));
        }
    }

    /// A waiter with a thread leaves, possibly a waiter that has left before.
    fn leave(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        if self.waiting.is_empty() {
            return;
        }
        let Waiting { caller, id, .. } = self.waiting.remove(n % self.waiting.len());
        let id = id.expect("it waits");
        assert!(self.stack.leave(self.now, id, fx).is_some());
        assert!(self.stack.leave(self.now, id, fx).is_none());
        self.answered.insert(caller);
    }

    /// Time passes, and timers run that are due.
    fn pass(&mut self, n: usize) {
        self.now += Duration::from_millis(n as u64 * 50);
        while let Some(&at) = self.timers.first().filter(|at| **at <= self.now) {
            self.timers.remove(&at);
            let mut fx = Effects::default();
            self.stack.disarm(at);
            self.stack.due(self.now, &mut fx);
            self.take(fx);
        }
    }

    /// The host drops all timers. The next call asks for what is needed.
    fn lose_timers(&mut self, fx: &mut Effects<u32, u32>) {
        for at in std::mem::take(&mut self.timers) {
            self.stack.disarm(at);
        }
        self.stack.due(self.now, fx);
    }

    fn set_state(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        self.state =
            [BackendState::Open, BackendState::Open, BackendState::Paused, BackendState::Disabled]
                [n % 4];
        self.stack.set_state(self.now, self.state, fx);
    }

    fn fail_over(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        let wrong = self.version.next();
        assert_eq!(self.stack.fail_over(self.now, wrong, fx), Err(self.version));
        if n.is_multiple_of(8) {
            assert_eq!(self.stack.fail_over(self.now, self.version, fx), Ok(wrong));
            (self.version, self.permanent) = (wrong, false);
        }
    }

    fn resize(&mut self, n: usize, fx: &mut Effects<u32, u32>) {
        let max = 1 + n % 5;
        let limits = self.limits.clone().max_waiting(n / 32);
        self.limits = limits.max(max).min_idle((n / 8) % (max + 1));
        self.stack.set_limits(self.now, self.limits.clone(), false, fx);
    }

    /// Compares the effects with those of the twin.
    fn take(&mut self, fx: Effects<u32, u32>) {
        for (conn, _, why) in fx.close {
            assert!(self.closed.insert(conn), "closed once");
            let at = self.idle.iter().position(|idle| *idle == conn).expect("nobody uses it");
            self.idle.remove(at);
            // The connection that was just returned was pushed last.
            assert!(at == 0 || at == self.idle.len() || why == Discard::TooOld, "coldest first");
        }
        for (waiter, grant) in fx.grants {
            let caller = waiter.way;
            let at = self.waiting.iter().position(|waiting| waiting.caller == caller);
            let at = at.expect("answered once");
            let deadline = self.waiting.remove(at).deadline;
            assert!(self.answered.insert(caller), "answered once");
            match grant {
                Grant::Conn(conn, ticket, fitness) => {
                    // A connection that was checked has been idle.
                    let right = match self.now - self.since[&conn] {
                        Duration::ZERO if fitness == Fitness::Fit => Fitness::Fit,
                        idle if idle >= CHECK_AFTER => Fitness::Check,
                        _ => Fitness::Look,
                    };
                    let state = (at, ticket.version, self.state, fitness);
                    let right = (0, self.version, BackendState::Open, right);
                    assert_eq!(state, right, "in order");
                    let at = self.idle.iter().position(|idle| *idle == conn).expect("came back");
                    self.idle.remove(at);
                    self.used.push((conn, ticket));
                }
                Grant::Connect(ticket) => {
                    assert!(waiter.ask.has_thread, "a callback does not connect");
                    assert_eq!((at, ticket.version), (0, self.version), "in order");
                    self.connecting.push((ticket, By::Caller));
                }
                Grant::Refused(error) => self.assert_refused(&error, deadline),
            }
        }
        if let Some(at) = fx.arm {
            assert!(at > self.now, "a timer is later than now");
            let first = |timer: &Instant| *timer <= self.now || at < *timer;
            assert!(self.timers.iter().all(first), "no timer is asked for beside an earlier one");
            self.timers.insert(at);
        }
        let connects = fx.connect.into_iter().map(|ticket| (ticket, By::Host));
        self.connecting.extend(connects);
    }

    /// Numbers of connections in use and of connects, of this version.
    fn mine(&self) -> (usize, usize) {
        let mine = |ticket: &Ticket| ticket.version == self.version;
        let used = self.used.iter().chain(&self.checked).filter(|(_, ticket)| mine(ticket)).count();
        (used, self.connecting.iter().filter(|(ticket, _)| mine(ticket)).count())
    }

    /// Connects by the host, of this version.
    fn host_connects(&self) -> usize {
        let mine =
            |connect: &&(Ticket, By)| connect.1 == By::Host && connect.0.version == self.version;
        self.connecting.iter().filter(mine).count()
    }

    fn status(&self) -> BackendStatus<()> {
        self.stack.status(())
    }

    fn look(&self) {
        let status = self.status();
        let (used, connecting) = self.mine();
        assert_eq!(
            (status.idle, status.in_use, status.connecting),
            (self.idle.len(), used, connecting)
        );
        assert_eq!(status.waiting, self.waiting.len());
        let left = status.leaving.iter().map(|left| left.in_use + left.connecting);
        assert!(left.clone().all(|left| left > 0));
        let taken = self.used.len() + usize::from(self.checked.is_some());
        let others = taken + self.connecting.len() - used - connecting;
        assert_eq!(left.sum::<usize>(), others);
        let all = self.idle.len() + taken + self.closed.len();
        assert_eq!(all, self.conns as usize, "every connection is somewhere");
        assert_eq!(self.stack.held().count(), self.used.len());
        let expiry = self.stack.waiters.next_expiry();
        let timer =
            self.timers.first().is_some_and(|at| expiry.is_some_and(|expiry| *at <= expiry));
        assert!(expiry.is_none() || timer, "a timer for each deadline without a thread");
        let is_used = used + connecting + self.waiting.len() > 0 || self.callers == 0;
        let may_vanish = self.state == BackendState::Open && self.version == Version::default();
        let forgotten = may_vanish && !is_used && self.timers.is_empty();
        assert!(!forgotten, "a timer for the end of an unused backend");
        assert_eq!(self.stack.is_quiet(), taken == 0);
        if self.state != BackendState::Open {
            assert!(self.idle.is_empty());
        } else {
            let nobody = self.waiting.is_empty() || self.idle.is_empty();
            assert!(nobody, "nobody waits beside an idle connection");
            assert!(self.waiting.is_empty() || !self.is_in_vain(), "nobody waits in vain");
            let by_host = self.host_connects();
            let spare = self.idle.len() + by_host.saturating_sub(self.waiting.len());
            let spare = spare + usize::from(self.checked.is_some());
            let wanted = by_host < self.waiting.len() || spare < self.limits.min_idle;
            let could = wanted && self.stack.may_connect(self.now);
            assert!(!could, "nobody waits who could connect");
        }
    }

    /// Returns all connections, and checks that all are gone in the end.
    fn end(mut self) {
        while !self.used.is_empty() {
            self.step(3, 0);
        }
        if self.checked.is_some() {
            self.step(15, 1);
        }
        let mut fx = Effects::default();
        self.state = BackendState::Disabled;
        self.stack.set_state(self.now, BackendState::Disabled, &mut fx);
        self.take(fx);
        while !self.connecting.is_empty() {
            self.step(6, 0);
        }
        while !self.used.is_empty() {
            self.step(3, 0);
        }
        self.look();
        assert!(self.waiting.is_empty() && self.status().leaving.is_empty());
        assert_eq!(self.closed.len(), self.conns as usize);
    }
}
