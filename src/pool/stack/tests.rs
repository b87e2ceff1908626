use std::collections::BTreeSet;
use std::panic::Location;

use proptest::prelude::*;

use super::exercise::exercise;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_naive_twin(ops in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise(&ops);
    }
}

/// A stack with time of its own.
struct Bench {
    stack: Stack<u32, u32>,
    now: Instant,
    fx: Effects<u32, u32>,
    holder: Holder,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let holder = Holder::new(Location::caller());
        Self { stack: Stack::new(limits, 7, now), now, fx: Effects::default(), holder }
    }

    fn ask(&mut self, way: u32, has_thread: bool, deadline: Option<Instant>) -> Asked<u32> {
        let (holder, asked) = (self.holder.clone(), self.now);
        let ask = Ask { holder, asked, deadline, has_thread, again: false };
        self.stack.ask(self.now, &ask, || way, &mut self.fx)
    }

    fn connect(&mut self) -> Ticket {
        let Asked::Now(Grant::Connect(ticket)) = self.ask(0, true, None) else {
            panic!("it may connect")
        };
        ticket
    }

    fn wait(&mut self, way: u32, has_thread: bool, deadline: Option<Instant>) -> WaiterId {
        let Asked::Waits(id, _) = self.ask(way, has_thread, deadline) else {
            panic!("not refused")
        };
        id
    }

    /// Asserts that no connect may begin.
    fn assert_waits(&mut self) {
        let id = self.wait(0, true, None);
        self.stack.leave(self.now, id, &mut self.fx).expect("it waits");
    }

    fn fail(&mut self, ticket: Ticket) {
        self.stack.connect_failed(self.now, ticket, "refused".into(), false, &mut self.fx);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.stack.due(self.now, &mut self.fx);
    }
}

#[test]
fn a_pause_between_connects_doubles_and_one_tries_after_it() {
    let second = Duration::from_secs(1);
    let mut bench = Bench::new(Limits::default().backoff(second, second * 4));
    let round = [bench.connect(), bench.connect(), bench.connect(), bench.connect()];
    bench.pass(Duration::from_millis(1));
    for ticket in round {
        bench.fail(ticket);
    }
    // Four connects that fail together are one failure.
    assert_eq!(bench.stack.trouble.failures, 1);
    let text = bench.stack.status("SPT0").to_string();
    assert!(text.ends_with(": rounds of connects that failed: 1: refused"), "{text}");
    let cause = bench.stack.cause().to_string();
    assert_eq!(cause, "rounds of connects that failed in a row: 1");
    for (n, most) in [1, 2, 4, 4].into_iter().enumerate() {
        let pause = bench.stack.trouble.retry_at.expect("a pause") - bench.now;
        assert!(pause <= second * most && pause >= second * most / 2, "{pause:?} after {n}");
        bench.assert_waits();
        bench.pass(pause);
        let ticket = bench.connect();
        bench.assert_waits(); // one at a time
        bench.pass(Duration::from_millis(1));
        bench.fail(ticket);
    }
}

#[test]
fn a_permanent_error_is_told_whatever_other_connects_of_its_round_say() {
    let second = Duration::from_secs(1);
    for permanent_first in [true, false] {
        let mut bench = Bench::new(Limits::default().backoff(second, second));
        let (first, last) = (bench.connect(), bench.connect());
        bench.pass(Duration::from_millis(1));
        for (ticket, permanent) in [(first, permanent_first), (last, !permanent_first)] {
            bench.stack.connect_failed(bench.now, ticket, "no".into(), permanent, &mut bench.fx);
            if !permanent {
                bench.pass(second * u32::from(!permanent_first));
            }
        }
        let asked = bench.ask(0, true, None);
        let refused = matches!(asked, Asked::Now(Grant::Refused(GetError::ConnectFailed { .. })));
        assert!(refused, "permanent first: {permanent_first}");
    }
}

#[test]
fn a_connection_that_is_checked_counts_as_spare() {
    let mut bench = Bench::new(Limits::default().min_idle(1).max(3));
    bench.pass(Duration::ZERO);
    let tickets: Vec<_> = bench.fx.connect.drain(..).collect();
    assert_eq!(tickets.len(), 1);
    assert!(bench.stack.connected(bench.now, tickets[0], 7, &mut bench.fx).is_none());
    assert!(bench.stack.begin_check());
    let (conn, ticket) = bench.stack.take_unchecked().expect("it is idle");
    bench.pass(Duration::from_secs(1));
    assert!(bench.fx.connect.is_empty());
    bench.stack.checkin(bench.now, ticket, conn, &mut bench.fx);
    assert!(bench.stack.take_unchecked().is_none());
    assert!(bench.fx.connect.is_empty());
}

#[test]
fn a_pause_beyond_the_range_of_the_clock_is_a_pause() {
    let mut bench = Bench::new(Limits::default().backoff(Duration::MAX, Duration::MAX));
    let ticket = bench.connect();
    bench.fail(ticket);
    bench.assert_waits();
}

#[test]
fn the_end_of_all_work_is_told_to_callers_that_wait_for_it() {
    let mut bench = Bench::new(Limits::default());
    let told = [false, true].map(|awaited| {
        if awaited {
            bench.stack.await_quiet(true);
        }
        let ticket = bench.connect();
        bench.stack.connected(bench.now, ticket, 7, &mut bench.fx);
        bench.stack.discard(bench.now, ticket, &mut bench.fx);
        bench.fx.quiet
    });
    assert_eq!(told, [false, true]);
}

/// To find the next time costs a look at all idle connections.
#[test]
fn without_a_pause_the_end_of_a_connection_beside_another_asks_the_host_for_nothing() {
    let mut bench = Bench::new(Limits::default());
    let tickets = [bench.connect(), bench.connect()];
    for ticket in tickets {
        bench.stack.connected(bench.now, ticket, 7, &mut bench.fx);
    }
    bench.stack.discard(bench.now, tickets[0], &mut bench.fx);
    assert_eq!(bench.fx.arm, None);
}

/// A stack with one connection in use, and the ticket of that connection. The backend may be unused
/// for this time.
fn in_use(unused_after: Duration) -> (Bench, Ticket) {
    let mut bench = Bench::new(Limits::default().unused_after(unused_after));
    let ticket = bench.connect();
    bench.stack.connected(bench.now, ticket, 7, &mut bench.fx).expect("kept");
    (bench, ticket)
}

/// Runs the timers that are due within `time`, each at its time. Returns the number of timers, and
/// stops at the first report that the backend is unused if `to_report`.
fn run_timers(bench: &mut Bench, time: Duration, to_report: bool) -> usize {
    let (end, mut timers) = (bench.now + time, 0);
    while let Some(at) = bench.fx.arm.take().filter(|at| *at <= end) {
        timers += 1;
        bench.now = at;
        bench.stack.disarm(at);
        bench.pass(Duration::ZERO);
        if to_report && bench.fx.unused {
            break;
        }
    }
    timers
}

#[test]
fn a_backend_in_use_needs_no_timer_and_is_reported_unused_soon_after() {
    type End = fn(&mut Bench, Ticket);
    let returned: End = |bench, ticket| {
        bench.stack.checkin(bench.now, ticket, 7, &mut bench.fx);
    };
    let discarded: End = |bench, ticket| bench.stack.discard(bench.now, ticket, &mut bench.fx);
    let closed: End = |bench, ticket| {
        bench.now += Limits::default().max_age;
        bench.stack.checkin(bench.now, ticket, 7, &mut bench.fx);
    };
    for end in [returned, discarded, closed] {
        let (mut bench, ticket) = in_use(Duration::ZERO);
        bench.stack.due(bench.now, &mut bench.fx);
        for _ in 0..1000 {
            bench.pass(Duration::from_millis(1));
            assert_eq!(bench.fx.arm, None);
        }
        end(&mut bench, ticket);
        assert!(!bench.fx.unused);
        run_timers(&mut bench, Duration::from_millis(5), true);
        assert!(bench.fx.unused);
    }
}

#[test]
fn a_connect_or_a_wait_that_came_to_nothing_lets_a_backend_be_unused() {
    type Use = fn(&mut Bench);
    let failed: Use = |bench| {
        let ticket = bench.connect();
        bench.fail(ticket);
    };
    let abandoned: Use = |bench| {
        let ticket = bench.connect();
        bench.stack.connect_abandoned(bench.now, ticket, &mut bench.fx);
    };
    let left: Use = |bench| {
        let ticket = bench.connect();
        bench.fail(ticket);
        let id = bench.wait(0, true, None);
        bench.fx.arm = None;
        bench.pass(Duration::from_millis(1));
        bench.stack.leave(bench.now, id, &mut bench.fx);
    };
    for used in [failed, abandoned, left] {
        let mut bench = Bench::new(Limits::default().unused_after(Duration::ZERO));
        used(&mut bench);
        run_timers(&mut bench, Duration::from_millis(5), true);
        assert!(bench.fx.unused);
    }
}

/// A caller may keep the `Backend`, and with it the backend.
#[test]
fn a_backend_that_stays_although_it_is_unused_is_looked_at_once_a_second() {
    let (mut bench, ticket) = in_use(Duration::from_millis(1));
    bench.stack.checkin(bench.now, ticket, 7, &mut bench.fx);
    let timers = run_timers(&mut bench, Duration::from_secs(10), false);
    assert!((10..=12).contains(&timers), "{timers}");
}

#[test]
fn the_end_of_a_pause_serves_who_waits() {
    let mut bench = Bench::new(Limits::default());
    let ticket = bench.connect();
    bench.pass(Duration::from_millis(1));
    bench.fail(ticket);
    bench.wait(1, true, None);
    assert!(bench.fx.grants.is_empty());
    let at = bench.fx.arm.expect("the host is asked to come back");
    bench.pass(at - bench.now);
    assert!(matches!(bench.fx.grants[..], [(Waiter { way: 1, .. }, Grant::Connect(_))]));
}

#[test]
fn who_has_too_little_time_for_a_connect_leaves_it_to_the_host() {
    for timeout in [Duration::from_secs(3), Duration::MAX] {
        let mut bench = Bench::new(Limits::default().connect_timeout(timeout));
        let soon = Some(bench.now + Duration::from_millis(10));
        bench.wait(1, true, soon);
        assert!(bench.fx.grants.is_empty());
        let ticket = bench.fx.connect.pop().expect("the host connects");
        assert_eq!(bench.stack.connected(bench.now, ticket, 7, &mut bench.fx), None);
        assert!(matches!(bench.fx.grants[..], [(Waiter { way: 1, .. }, Grant::Conn(7, ..))]));
    }
}

#[test]
fn a_caller_may_wait_for_a_connect_although_no_caller_may_wait_for_others() {
    let mut bench = Bench::new(Limits::default().max(3).max_connecting(1).max_waiting(0));
    let ticket = bench.connect();
    bench.stack.connected(bench.now, ticket, 0, &mut bench.fx).expect("kept");
    for has_thread in [true, false] {
        bench.wait(1, has_thread, None);
        let ticket = bench.fx.connect.pop().expect("the host connects");
        let refused = bench.ask(2, has_thread, None);
        assert!(matches!(refused, Asked::Now(Grant::Refused(GetError::TooManyWaiting { max: 0 }))));
        bench.stack.connected(bench.now, ticket, 1, &mut bench.fx);
        assert!(matches!(bench.fx.grants.pop(), Some((Waiter { way: 1, .. }, Grant::Conn(1, ..)))));
    }
    let full = bench.ask(3, true, None);
    assert!(matches!(full, Asked::Now(Grant::Refused(GetError::TooManyWaiting { max: 0 }))));
}

#[test]
fn a_caller_that_waits_for_a_connect_does_not_count_as_waiting_for_a_return() {
    let mut bench = Bench::new(Limits::default().max(1));
    bench.wait(1, false, None);
    let ticket = bench.fx.connect.pop().expect("the host connects");
    bench.stack.connected(bench.now, ticket, 7, &mut bench.fx);
    assert_eq!((bench.stack.totals.handed_out, bench.stack.totals.waited), (1, 0));
    bench.wait(2, false, None);
    bench.stack.checkin(bench.now, ticket, 7, &mut bench.fx);
    assert_eq!((bench.stack.totals.handed_out, bench.stack.totals.waited), (2, 1));
}

#[test]
fn a_backend_is_unused_from_the_end_of_its_last_use() {
    let second = Duration::from_secs(1);
    for returned in [true, false] {
        let mut bench = Bench::new(Limits::default().unused_after(second * 300));
        let ticket = bench.connect();
        bench.stack.connected(bench.now, ticket, 7, &mut bench.fx).expect("kept");
        bench.pass(second * 400);
        if returned {
            bench.stack.checkin(bench.now, ticket, 7, &mut bench.fx);
        } else {
            bench.stack.discard(bench.now, ticket, &mut bench.fx);
        }
        bench.pass(second * 299);
        assert!(!bench.fx.unused);
        bench.pass(second);
        assert!(bench.fx.unused);
    }
}

#[test]
fn a_check_prolongs_neither_the_idle_time_nor_the_use_of_the_backend() {
    let second = Duration::from_secs(1);
    let (mut bench, ticket) = in_use(second * 300);
    bench.stack.checkin(bench.now, ticket, 7, &mut bench.fx);
    for (conn, broken) in [(7, false), (8, true)] {
        bench.pass(second * 100);
        assert!(bench.stack.begin_check());
        let (_, ticket) = bench.stack.take_unchecked().expect("it is idle");
        assert_eq!(bench.stack.held().count(), 0, "no caller uses it");
        if broken {
            bench.stack.discard(bench.now, ticket, &mut bench.fx);
        } else {
            bench.stack.checkin(bench.now, ticket, conn, &mut bench.fx);
            let idle = bench.now - bench.stack.slots[ticket.slot].since;
            assert_eq!(idle, second * 100);
        }
        assert!(bench.stack.take_unchecked().is_none());
    }
    bench.pass(second * 100);
    assert!(bench.fx.unused);
}

/// Callbacks that expire one after the other, beside the far timer for an unused backend.
#[test]
fn timers_do_not_pile_up_behind_earlier_ones() {
    let mut bench = Bench::new(Limits::default().max(1));
    let ticket = bench.connect();
    bench.stack.connected(bench.now, ticket, 7, &mut bench.fx).expect("kept");
    let mut timers = BTreeSet::new();
    for n in 0..1000 {
        bench.wait(n, false, Some(bench.now + Duration::from_millis(10)));
        timers.extend(bench.fx.arm.take());
        let at = timers.pop_first().expect("a timer for the deadline");
        bench.now = at;
        bench.stack.disarm(at);
        bench.pass(Duration::ZERO);
        timers.extend(bench.fx.arm.take());
        assert_eq!(bench.fx.grants.len(), n as usize + 1);
        assert!(timers.len() <= 1, "{} timers after {n} callbacks", timers.len());
    }
    assert_eq!(bench.stack.armed.len(), timers.len());
}

#[test]
fn a_timer_whose_time_has_passed_is_asked_for_again() {
    let mut bench = Bench::new(Limits::default().max(1));
    let ticket = bench.connect();
    bench.stack.connected(bench.now, ticket, 7, &mut bench.fx).expect("kept");
    let step = Duration::from_millis(10);
    bench.wait(0, false, Some(bench.now + step));
    assert_eq!(bench.fx.arm.take(), Some(bench.now + step));
    bench.now += step;
    bench.wait(1, false, Some(bench.now + step));
    assert_eq!(bench.fx.arm.take(), Some(bench.now + Duration::from_millis(1)));
    // Until then the host is late, and is not asked again.
    bench.wait(2, false, Some(bench.now + step));
    assert_eq!(bench.fx.arm.take(), None);
}

#[test]
fn a_return_does_not_rely_on_a_timer_whose_time_has_passed() {
    let limits = Limits::default().max_age(Duration::MAX).unused_after(Duration::MAX);
    let mut bench = Bench::new(limits);
    let tickets = [bench.connect(), bench.connect()];
    for ticket in tickets {
        bench.stack.connected(bench.now, ticket, 7, &mut bench.fx).expect("kept");
    }
    for ticket in tickets {
        bench.stack.checkin(bench.now, ticket, 7, &mut bench.fx);
        let at = bench.fx.arm.take().expect("a timer for the end of the idle time");
        bench.now = at;
    }
}

#[test]
fn deadlines_of_who_has_no_thread_are_kept_and_forgotten() {
    let mut bench = Bench::new(Limits::default().max(1));
    bench.connect();
    let at = |seconds| Some(bench.now + Duration::from_secs(seconds));
    let deadlines: Vec<_> = (0..20_000).map(|n| at(5 + n % 7)).collect();
    let ids: Vec<_> = (0_u32..).zip(deadlines).map(|(n, at)| bench.wait(n, false, at)).collect();
    for id in ids.iter().rev().step_by(2) {
        assert!(bench.stack.leave(bench.now, *id, &mut bench.fx).is_some());
        assert!(bench.stack.leave(bench.now, *id, &mut bench.fx).is_none());
    }
    assert_eq!(bench.stack.waiters.expiries.len(), 10_000);
    bench.pass(Duration::from_secs(4));
    assert!(bench.fx.grants.is_empty());
    bench.pass(Duration::from_secs(8));
    assert_eq!(bench.fx.grants.len(), 10_000);
    assert!(bench.stack.waiters.is_empty() && bench.stack.waiters.expiries.is_empty());
}

#[test]
fn a_connection_beyond_a_lowered_limit_is_closed_when_it_comes_back() {
    let mut bench = Bench::new(Limits::default().max(2).max_connecting(2));
    let tickets = [bench.connect(), bench.connect()];
    for ticket in tickets {
        bench.stack.connected(bench.now, ticket, 0, &mut bench.fx).expect("kept");
    }
    let limits = Limits::default().max(1).max_connecting(2);
    bench.stack.set_limits(bench.now, limits, false, &mut bench.fx);
    for (ticket, conn) in tickets.into_iter().zip([1, 2]) {
        bench.stack.checkin(bench.now, ticket, conn, &mut bench.fx);
    }
    let closed = bench.fx.close.iter().map(|(conn, _, why)| (*conn, *why));
    assert_eq!(closed.collect::<Vec<_>>(), [(1, Discard::Resized)]);
}

/// A hundred connections that were made now.
fn hundred(bench: &mut Bench) -> Vec<Ticket> {
    let tickets: Vec<_> = (0..100).map(|_| bench.connect()).collect();
    for &ticket in &tickets {
        bench.stack.connected(bench.now, ticket, 0, &mut bench.fx).expect("kept");
    }
    tickets
}

#[test]
fn connections_are_idle_for_nine_tenths_of_the_time_at_least_and_end_at_different_times() {
    let mut bench = Bench::new(Limits::default().max(100).max_connecting(100));
    let tickets = hundred(&mut bench);
    let timeout = bench.stack.limits.idle_timeout;
    for (conn, &ticket) in (0..).zip(&tickets) {
        bench.stack.checkin(bench.now, ticket, conn, &mut bench.fx);
    }
    let times = tickets.iter().map(|&ticket| bench.stack.slots[ticket.slot].idle_timeout);
    let times: BTreeSet<_> = times.collect();
    assert!(times.len() > 90, "{}", times.len());
    let step = timeout / 100;
    bench.pass(step * 90 - Duration::from_nanos(1));
    assert_eq!(bench.fx.close.len(), 0);
    let mut closed = BTreeSet::new();
    for _ in 0..10 {
        bench.pass(step);
        closed.insert(bench.fx.close.len());
    }
    bench.pass(Duration::from_nanos(1));
    assert_eq!(bench.fx.close.len(), 100);
    assert!(closed.len() > 2, "they do not end at once: {closed:?}");
}

#[test]
fn new_times_of_life_hold_for_connections_that_exist() {
    let minute = Duration::from_secs(60);
    for (limits, why) in [
        (Limits::default().max_age(minute), Discard::TooOld),
        (Limits::default().idle_timeout(minute), Discard::Idle),
    ] {
        let mut bench = Bench::new(Limits::default());
        let tickets = [bench.connect(), bench.connect()];
        for ticket in tickets {
            bench.stack.connected(bench.now, ticket, 0, &mut bench.fx).expect("kept");
        }
        bench.stack.checkin(bench.now, tickets[0], 1, &mut bench.fx);
        bench.pass(minute / 2);
        bench.fx = Effects::default();
        bench.stack.set_limits(bench.now, limits, false, &mut bench.fx);
        let at = bench.fx.arm.take().expect("an earlier timer");
        assert!(bench.fx.close.is_empty() && at - bench.now <= minute / 2);
        bench.pass(at - bench.now);
        // A connection in use has an age, and is not idle.
        bench.now += minute;
        bench.stack.checkin(bench.now, tickets[1], 2, &mut bench.fx);
        let closed: Vec<_> = bench.fx.close.iter().map(|(conn, _, why)| (*conn, *why)).collect();
        let both = [(1, why), (2, why)];
        let expected = if why == Discard::TooOld { &both[..] } else { &both[..1] };
        assert_eq!(closed, expected);

        // Longer times hold as well.
        bench.stack.set_limits(bench.now, Limits::default(), false, &mut bench.fx);
        bench.pass(minute * 2);
        assert_eq!(bench.stack.idle.len(), 2 - expected.len());
    }
}

#[test]
fn times_of_life_differ() {
    let mut bench = Bench::new(Limits::default().max(100).max_connecting(100));
    let tickets = hundred(&mut bench);
    let limits = bench.stack.limits.clone();
    let ages = tickets.iter().map(|&ticket| bench.stack.slots[ticket.slot].expires.unwrap());
    let ages: BTreeSet<_> = ages.map(|at| at - bench.now).collect();
    assert!(ages.len() > 90, "{}", ages.len());
    assert!(*ages.last().unwrap() <= limits.max_age);
    assert!(*ages.first().unwrap() >= limits.max_age / 10 * 9);
}
