//! One abuse against a server, beside well-behaved neighbours. The gauges are checked all the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::Config;
use epoll_group::stats::{Counter, Snapshot};

use super::{Course, Tally, Target, named};
use crate::child::descriptors;
use crate::engine::{Fixture, PASSWORD};
use crate::random::seed;
use crate::{LONG, eventually, eventually_or};

/// Default number of attackers. `ABUSE_PEERS` overrides it.
const PEERS: usize = 12;
/// Threads of a server under attack, of all kinds.
const MOST_THREADS: usize = 32;
/// Well-behaved connections, and sessions of each.
const NEIGHBOURS: usize = 4;
const SESSIONS: u64 = 4;
/// Least number of answers that the neighbours get during the attack.
const ANSWERS: u64 = 50;

/// Default for the bytes that a server may hold for each attacker: the backlog up to the high
/// watermark, and the answers to one turn of reading.
pub const BYTES_EACH: u64 = 4 << 20;

/// An abuse with the server's configuration and the limits that it must keep.
pub struct Bout<'a> {
    pub name: &'a str,
    pub config: Config,
    /// Bytes that the server may hold for each attacker.
    pub bytes_each: u64,
}

/// State during the attack. The counters count from its start.
pub struct Seen {
    pub peers: u64,
    pub stats: Snapshot,
}

impl Seen {
    pub fn count(&self, counter: Counter) -> u64 {
        self.stats.get(counter)
    }
}

/// Lock of a test that counts the descriptors of the process, or opens some beside such tests.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of attackers in this test.
fn peers(most: usize) -> usize {
    let asked = std::env::var("ABUSE_PEERS").ok();
    asked.map_or_else(|| PEERS.min(most), |text| text.parse().expect("ABUSE_PEERS is a number"))
}

fn target(server: &Fixture) -> Target {
    Target {
        address: server.addr(),
        logins: true,
        user: "root".into(),
        password: PASSWORD.into(),
        small: "one".into(),
        large: "source 100000 1000".into(),
    }
}

impl<'a> Bout<'a> {
    pub fn new(name: &'a str, config: Config) -> Self {
        let config =
            config.max_threads(MOST_THREADS).dynamic_threads_shrink_time(Duration::from_millis(50));
        Self { name, config, bytes_each: BYTES_EACH }
    }

    pub const fn bytes_each(mut self, bytes: u64) -> Self {
        self.bytes_each = bytes;
        self
    }

    /// Attacks until `told` is true and the neighbours have had their answers. Then waits until the
    /// server is as it was before.
    #[track_caller]
    pub fn run(self, told: impl Fn(&Seen) -> bool) -> Tally {
        let _alone = alone();
        let server = Fixture::start(self.config.clone());
        self.run_against(&server, told)
    }

    #[track_caller]
    pub fn run_against(&self, server: &Fixture, told: impl Fn(&Seen) -> bool) -> Tally {
        let abuse = named(self.name).expect("an abuse of that name");
        let (peers, seed) = (peers(abuse.peers), seed());
        let earlier = server.stats();
        let (stop, leave) = (AtomicBool::new(false), AtomicBool::new(false));
        let answers = AtomicU64::new(0);
        let ready = AtomicU64::new(0);
        let tally = thread::scope(|scope| {
            let _stop = [StopAtEnd(&stop), StopAtEnd(&leave)];
            for _ in 0..NEIGHBOURS {
                scope.spawn(|| behave(server, &ready, &answers, &leave));
            }
            eventually(LONG, || ready.load(Ordering::Relaxed) == NEIGHBOURS as u64);
            let before = descriptors();
            let answered = answers.load(Ordering::Relaxed);

            let (target, course) = (target(server), Course { peers, seed, stop: &stop });
            let attack = scope.spawn(move || abuse.run(&target, &course));
            let began = Instant::now();
            loop {
                let seen = Seen { peers: peers as u64, stats: server.stats().since(&earlier) };
                self.check(&seen, server.stats().since(&earlier).get(Counter::ConnectionsAccepted));
                let served = answers.load(Ordering::Relaxed) >= answered + ANSWERS;
                if served && told(&seen) {
                    break;
                }
                let late = began.elapsed() > LONG;
                assert!(!late, "{}: served {served}, seed {seed}:\n{}", self.name, seen.stats);
                thread::park_timeout(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            let tally = attack.join().expect("an attacker does not panic");
            assert!(tally.is_even(), "{}: {tally:?}", self.name);

            Self::wait_until_quiet(server, before);
            leave.store(true, Ordering::Relaxed);
            tally
        });
        eventually(LONG, || server.stats().connections == 0);
        server.wait_until_even();
        let stats = server.stats();
        let [accepted, closed] =
            [Counter::ConnectionsAccepted, Counter::ConnectionsClosed].map(|name| stats.get(name));
        assert_eq!(accepted, closed, "{}", self.name);
        let [opened, closed] =
            [Counter::SessionsOpened, Counter::SessionsClosed].map(|name| stats.get(name));
        assert_eq!(opened, closed, "{}", self.name);
        assert_eq!(stats.get(Counter::Panics), 0, "{}", self.name);
        tally
    }

    /// Checks that every gauge is within its limit. `accepted` is read after the gauges. Sessions
    /// of an ended connection count until each of them has been ended.
    fn check(&self, seen: &Seen, accepted: u64) {
        let (config, stats) = (&self.config, &seen.stats);
        let most = |name| config.get(name).expect("a tunable").parse::<u64>().expect("a number");
        assert!(stats.connections <= most("max_connections"), "{}:\n{stats}", self.name);
        let sessions = most("max_sessions_per_connection") * accepted;
        assert!(stats.sessions <= sessions.min(most("max_sessions")), "{}:\n{stats}", self.name);
        let bytes = self.bytes_each * (seen.peers + NEIGHBOURS as u64);
        assert!(stats.buffered_bytes <= bytes, "{}:\n{stats}", self.name);
        let threads = stats.base_threads + stats.dynamic_threads + stats.reserve_threads;
        assert!(threads <= MOST_THREADS as u64, "{}:\n{stats}", self.name);
    }

    /// Waits until only the neighbours are connected and nothing is left of the attackers.
    fn wait_until_quiet(server: &Fixture, descriptors_before: usize) {
        let neighbours = NEIGHBOURS as u64;
        let quiet = || {
            let stats = server.stats();
            stats.connections == neighbours
                && stats.sessions == neighbours * SESSIONS
                && stats.dynamic_threads == 0
                && stats.waiting_writers == 0
                && stats.deferred_requests == 0
                && stats.unauthenticated_connections == 0
                && stats.silent_connections == 0
                && stats.paused_connections == 0
                // The neighbours may have requests in flight.
                && stats.queued_requests <= neighbours * SESSIONS
                && stats.buffered_bytes <= neighbours << 13
                && descriptors() <= descriptors_before
        };
        eventually_or(LONG, quiet, || {
            let (now, stats) = (descriptors(), server.stats());
            format!("{now} descriptors, {descriptors_before} before:\n{stats}")
        });
    }
}

/// Runs a client that asks one thing after the other and checks each answer.
fn behave(server: &Fixture, ready: &AtomicU64, answers: &AtomicU64, leave: &AtomicBool) {
    let mut client = server.client_with_sessions(2..2 + SESSIONS);
    ready.fetch_add(1, Ordering::Relaxed);
    while !leave.load(Ordering::Relaxed) {
        for session in 2..2 + SESSIONS {
            let number = answers.fetch_add(1, Ordering::Relaxed);
            let reply = client.execute(session, &format!("echo {number}"));
            assert_eq!(reply.one().text(), Some(&*number.to_string()));
        }
    }
    for session in 2..2 + SESSIONS {
        client.close(session).good();
    }
}

/// Sets its flag when dropped, also if the test fails, so that the threads end.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
