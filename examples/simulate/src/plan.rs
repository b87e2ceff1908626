//! [`Plan`]: what one seed is like: calm or wild, with wide limits or narrow ones.

use std::cell::Cell;
use std::time::Duration;

use epoll_group::Config;

use super::chance::Chance;
use super::scene::NO_LIMIT;

/// Choices drawn once for a seed.
#[derive(Debug)]
pub struct Plan {
    pub config: Config,
    pub session_budget: Cell<usize>,
    pub high_watermark: usize,
    pub times: Times,
    /// Its limits are small.
    pub narrow: bool,
    pub limits: Limits,
    /// Steps before everything comes to its end.
    pub steps: u64,
    /// Connections at once, and in all.
    pub peers: usize,
    pub most_peers: usize,
    /// Sessions at once on each connection.
    pub sessions: usize,
    pub window_bytes: usize,
    pub max_pipelined: usize,
    /// Room in the kernel for each direction, 0 for as much as it likes.
    pub socket_bytes: usize,
    /// True if all peers are on Unix sockets, as far as the server knows. Otherwise each has an
    /// address of its own.
    pub local: bool,
    pub faults: Faults,
    /// Requests that do something else than to answer well, of a thousand.
    pub trouble: u32,
    /// Calls of the service within which the server does other work, of a thousand.
    pub overlap: u32,
    /// Handlers may take this long.
    pub longest: Duration,
    pub drains: bool,
    /// Handlers write rows for which there is neither room nor credit, and wait.
    pub waits: bool,
    /// There is a client that makes connections by itself.
    pub fleet: bool,
}

/// Time limits of the server, which the checks of outcomes need.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub request: Duration,
    pub half_close: Duration,
    pub write: Duration,
}

/// Limits of the server, which the checks need.
#[derive(Clone, Debug)]
pub struct Limits {
    pub sessions: Cell<usize>,
    pub connections: usize,
    pub queued_bytes: usize,
}

/// How often each fault happens, in a million chances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub delay: u32,
    pub corrupt: u32,
    pub cut: u32,
    pub half_close: u32,
    pub stop_reading: u32,
    pub wrong_password: u32,
    pub cancel: u32,
    pub abandon: u32,
    pub close: u32,
    pub short_deadline: u32,
}

impl Faults {
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

pub const MILLIS: fn(u64) -> Duration = Duration::from_millis;

impl Plan {
    pub fn draw(chance: &Chance) -> Self {
        let wild = chance.pick(&[0, 0, 1, 1, 5, 25]);
        let rate = |most: u32| {
            if chance.one_in(3) { 0 } else { chance.below(u64::from(most * wild + 1)) as u32 }
        };
        let faults = Faults {
            delay: rate(20_000),
            corrupt: rate(150),
            cut: rate(2000),
            half_close: rate(2000),
            stop_reading: rate(8000),
            wrong_password: rate(20_000),
            cancel: rate(20_000),
            abandon: rate(20_000),
            close: rate(10_000),
            short_deadline: rate(20_000),
        };
        let write = chance.pick(&[MILLIS(200), MILLIS(10_000)]);
        let times = Times {
            request: chance.pick(&[MILLIS(0), MILLIS(500), MILLIS(20_000), MILLIS(900_000)]),
            half_close: chance.pick(&[MILLIS(0), MILLIS(100), MILLIS(5000)]),
            // Without faults no client may be closed, and handlers may keep the server busy for
            // longer than the short limit.
            write: if faults.are_none() { MILLIS(10_000) } else { write },
        };
        let marks = [(256 << 10, 1 << 20), (2048, 8192), (0, 4096), (16 << 10, 64 << 10)];
        let marks = chance.pick(&marks);
        let narrow = chance.one_in(3);
        let limits = if narrow {
            Limits {
                sessions: Cell::new(chance.between(2, 12) as usize),
                connections: chance.between(2, 4) as usize,
                queued_bytes: chance.pick(&[8192, 65_536]),
            }
        } else {
            Limits { sessions: Cell::new(NO_LIMIT), connections: 65_536, queued_bytes: 1 << 30 }
        };
        let session_budget = chance.pick(&[1, 3, 64]);
        let config = config(chance, times, marks).session_budget(session_budget);
        Self {
            config: if narrow { self::narrow(config, chance, &limits) } else { config },
            session_budget: Cell::new(session_budget),
            narrow,
            limits,
            high_watermark: marks.1,
            times,
            steps: chance.between(300, 2500),
            peers: chance.between(1, 4) as usize,
            most_peers: chance.between(4, 12) as usize,
            sessions: chance.between(1, 6) as usize,
            window_bytes: chance.pick(&[1 << 10, 2 << 10, 8 << 10, 1 << 20]),
            max_pipelined: chance.pick(&[1, 2, 8, 64]),
            socket_bytes: chance.pick(&[0, 4608, 4608, 16 << 10]),
            local: chance.one_in(2),
            faults,
            trouble: chance.pick(&[0, 50, 300]),
            overlap: chance.pick(&[0, 100, 600]),
            longest: chance.pick(&[
                Duration::ZERO,
                Duration::from_micros(50),
                MILLIS(2),
                MILLIS(40),
            ]),
            drains: chance.one_in(4),
            waits: chance.one_in(2),
            fleet: chance.one_in(3),
        }
    }
}

fn config(chance: &Chance, times: Times, (low, high): (usize, usize)) -> Config {
    Config::default()
        .request_cache_instances(1)
        .epoll_groups(chance.pick(&[1, 1, 2, 3]))
        .epoll_work_queue_capacity(128)
        .worker_read_buf_bytes(chance.pick(&[4096, 65_536]))
        .read_budget_bytes(chance.pick(&[4096, 262_144]))
        .write_low_watermark_bytes(low)
        .write_high_watermark_bytes(high)
        .request_timeout(times.request)
        .net_write_timeout(times.write)
        .half_close_timeout(times.half_close)
        .linger_timeout(chance.pick(&[MILLIS(0), MILLIS(1000)]))
        .login_failure_delay(chance.pick(&[MILLIS(0), MILLIS(100)]))
        .authenticate_ok_delay(chance.pick(&[MILLIS(0), MILLIS(0), MILLIS(5)]))
        .big_buf_release_after(chance.pick(&[MILLIS(1), MILLIS(10_000)]))
}

fn narrow(config: Config, chance: &Chance, limits: &Limits) -> Config {
    config
        .max_queued_messages(16)
        .max_sessions_per_connection(chance.between(1, 4) as usize)
        .max_sessions(limits.sessions.get())
        .max_queued_bytes_per_connection(chance.pick(&[4096, 16_384]))
        .max_queued_bytes(limits.queued_bytes)
        .request_cache_number(128)
        .request_cache_bytes(4096)
        .max_unauthenticated_connections(chance.between(1, 3) as usize)
        .max_login_failures_per_address(chance.between(1, 3) as usize)
        .max_connections(limits.connections)
}
