//! Code shared by the tests, benches and examples of `epoll-group`: servers, peers, load, waiting
//! without sleeping, and the output of programs.

pub mod abuse;
pub mod allocator;
pub mod both;
pub mod child;
pub mod drive;
pub mod engine;
pub mod environment;
pub mod faults;
#[cfg(feature = "whole")]
pub mod fuzzed;
pub mod helper;
pub mod meter;
pub mod peer;
pub mod ports;
pub mod protocol;
pub mod random;
pub mod ratio;
pub mod rows;
pub mod scripted;
pub mod sessions;
pub mod tagged;
pub mod threads;
pub mod workers;
pub mod xrpc;

use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Address, Listener, Protocol, ToAddress};
use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Config, DrainReport, Runtime};

pub use lab_core::{
    address, args, cpu, load, progress, prometheus, report, signals, table, terminal, units,
};
pub use peer::Peer;

/// Generous deadline. An event that does not happen within it never will.
pub const LONG: Duration = Duration::from_secs(if cfg!(sanitized) { 120 } else { 60 });

/// Number of repetitions. `EG_TEST_DIVISOR` reduces it, for runs under slow tools and for many
/// runs.
pub fn often(times: u32) -> u32 {
    let divisor = std::env::var("EG_TEST_DIVISOR").ok();
    let divisor = divisor.map_or(1, |text| text.parse().expect("a number"));
    (times / divisor).max(1)
}

/// Waits until `condition` holds.
#[track_caller]
pub fn eventually(deadline: Duration, condition: impl FnMut() -> bool) {
    eventually_or(deadline, condition, || "the condition does not hold");
}

/// Waits until `condition` holds, and panics with what `describe` returns if it does not. For
/// conditions that no channel reports.
#[track_caller]
pub fn eventually_or<T: fmt::Display>(
    deadline: Duration,
    mut condition: impl FnMut() -> bool,
    describe: impl FnOnce() -> T,
) {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() >= deadline {
            panic!("not within {deadline:?}: {}", describe());
        }
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// Checks that a drain cut no connection and left no thread behind.
#[track_caller]
pub fn assert_clean(report: &DrainReport) {
    assert!(report.cut == 0 && report.stuck.is_empty(), "{report}");
}

/// Raises the limit on descriptors as far as it goes. As many tests run at once as there are CPUs,
/// and the usual 1 024 descriptors are not enough for all tests of a program.
pub fn make_room() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| drop(load::raise_descriptor_limit()));
}

/// Returns true if this machine has IPv6. Reports a skipped test otherwise.
pub fn has_ipv6() -> bool {
    let bound = TcpListener::bind((Ipv6Addr::LOCALHOST, 0));
    if let Err(error) = &bound {
        let text = format!("SKIPPED: {} needs IPv6: {error}", child::test_name());
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    bound.is_ok()
}

/// Returns true if an IPv6 socket of this system serves IPv4 peers, too.
pub fn is_dual_stack() -> bool {
    let v6_only = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    v6_only.is_ok_and(|text| text.trim() == "0")
}

/// The two kinds of stream socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tcp,
    Unix,
}

pub const BOTH: [Kind; 2] = [Kind::Tcp, Kind::Unix];

/// One group of four workers.
pub fn config() -> Config {
    Config::default().epoll_groups(1)
}

/// A runtime with one listener.
pub struct Server {
    pub runtime: Runtime,
    pub listener: Listener,
    _dir: Option<TempDir>,
}

impl Server {
    pub fn start(kind: Kind, config: Config, protocol: impl Protocol) -> Self {
        let dir = (kind == Kind::Unix).then(TempDir::new);
        let at = dir.as_ref().map(|dir| Address::Unix(dir.socket()));
        let at = at.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into());
        Self { _dir: dir, ..Self::start_at(at, config, protocol) }
    }

    pub fn start_at(at: impl ToAddress, config: Config, protocol: impl Protocol) -> Self {
        make_room();
        let runtime = Runtime::builder().config(config).start().expect("a runtime");
        let listener = runtime.listen(at, protocol).expect("a listener");
        Self { runtime, listener, _dir: None }
    }

    pub fn drain(self, deadline: Duration) -> DrainReport {
        self.runtime.drain(deadline)
    }

    pub fn address(&self) -> &Address {
        self.listener.local_addr()
    }

    pub fn peer(&self) -> Peer {
        Peer::connect(self.address())
    }

    pub fn stats(&self) -> Snapshot {
        self.runtime.stats()
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.stats().get(counter)
    }

    /// Waits until the counter has reached `count`.
    #[track_caller]
    pub fn wait_for(&self, counter: Counter, count: u64) {
        eventually_or(
            LONG,
            || self.count(counter) >= count,
            || format!("{count} {counter:?}:\n{}", self.stats()),
        );
    }

    /// Waits until no connection is left.
    #[track_caller]
    pub fn wait_until_empty(&self) {
        eventually_or(LONG, || self.stats().connections == 0, || self.stats());
    }
}

/// A directory of its own, removed at the end.
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory for a test"))
    }

    /// Path for a socket in the directory.
    pub fn socket(&self) -> PathBuf {
        self.0.path().join("socket")
    }
}

/// Bytes that differ from place to place, so that a shift or a swap shows.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 65_521) as u8).collect()
}
