//! What tests, benches and examples of `epoll-group` share: servers, peers, load, waiting without
//! sleeping, and what programs print.

pub mod abuse;
pub mod allocator;
pub mod args;
pub mod both;
pub mod child;
pub mod cpu;
pub mod engine;
pub mod environment;
pub mod faults;
pub mod fuzzed;
pub mod helper;
pub mod load;
pub mod meter;
pub mod peer;
pub mod protocol;
pub mod random;
pub mod ratio;
pub mod report;
pub mod rows;
pub mod scripted;
pub mod sessions;
pub mod settings;
pub mod signals;
pub mod table;
pub mod tagged;
pub mod terminal;
pub mod threads;
pub mod units;
pub mod usage;
pub mod workers;
pub mod xrpc;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Address, Listener, Protocol};
use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Config, DrainReport, Runtime};

pub use peer::Peer;

/// Generous: what does not happen within this will not happen.
pub const LONG: Duration = Duration::from_secs(if cfg!(sanitized) { 120 } else { 60 });

/// How often something is done that is done often: `EG_TEST_DIVISOR` makes it less, for runs
/// under tools that make everything slow, and for many runs.
pub fn often(times: u32) -> u32 {
    let divisor = std::env::var("EG_TEST_DIVISOR").ok();
    let divisor = divisor.map_or(1, |text| text.parse().expect("a number"));
    (times / divisor).max(1)
}

/// Waits until `condition` holds. The only place where tests wait for something that no channel
/// tells.
#[track_caller]
pub fn eventually(deadline: Duration, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < deadline, "not within {deadline:?}");
        thread::park_timeout(Duration::from_millis(1));
    }
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
    Config::default().epoll_groups(1).tcp_listen_queue(4096)
}

/// A runtime with one listener.
pub struct Server {
    pub runtime: Runtime,
    pub listener: Listener,
    _dir: Option<TempDir>,
}

impl Server {
    pub fn start(kind: Kind, config: Config, protocol: impl Protocol) -> Self {
        let runtime = Runtime::builder().config(config).start().expect("a runtime");
        let (listener, dir) = match kind {
            Kind::Tcp => (runtime.listen("127.0.0.1:0", protocol), None),
            Kind::Unix => {
                let dir = TempDir::new();
                (runtime.listen(dir.socket().as_path(), protocol), Some(dir))
            }
        };
        let listener = listener.expect("a listener");
        Self { runtime, listener, _dir: dir }
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

    /// Waits until so many were counted.
    #[track_caller]
    pub fn wait_for(&self, counter: Counter, count: u64) {
        let began = Instant::now();
        while self.count(counter) < count {
            let stats = self.stats();
            assert!(began.elapsed() < LONG, "{count} {counter:?} did not come:\n{stats}");
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Waits until no connection is left.
    #[track_caller]
    pub fn wait_until_empty(&self) {
        let began = Instant::now();
        while self.stats().connections > 0 {
            let stats = self.stats();
            assert!(began.elapsed() < LONG, "connections are left:\n{stats}");
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// A directory of its own, removed at the end.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("epoll-group-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory for a test");
        Self(path)
    }

    /// Where a socket may be bound.
    pub fn socket(&self) -> PathBuf {
        self.path().join("socket")
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.path());
    }
}

/// Bytes that differ from place to place, so that a shift or a swap shows.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 65_521) as u8).collect()
}
