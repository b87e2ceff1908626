//! What the tests over real sockets share: servers, peers, frames, and waiting without sleeping.

#![allow(dead_code, reason = "each test file is a crate of its own and uses a part of this")]

#[cfg(feature = "client")]
pub(crate) mod both;
pub(crate) mod child;
pub(crate) mod engine;
pub(crate) mod peer;
pub(crate) mod protocol;
pub(crate) mod random;
pub(crate) mod rows;
pub(crate) mod scripted;
pub(crate) mod tagged;
pub(crate) mod threads;
pub(crate) mod workers;
pub(crate) mod xrpc;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Address, Listener, Protocol};
use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Config, DrainReport, Runtime};

pub(crate) use peer::Peer;

/// Generous: what does not happen within this will not happen.
pub(crate) const LONG: Duration = Duration::from_secs(if cfg!(sanitized) { 120 } else { 60 });

/// How often something is done that is done often: `EG_TEST_DIVISOR` makes it less, for runs
/// under tools that make everything slow, and for many runs.
pub(crate) fn often(times: u32) -> u32 {
    let divisor = std::env::var("EG_TEST_DIVISOR").ok();
    let divisor = divisor.map_or(1, |text| text.parse().expect("a number"));
    (times / divisor).max(1)
}

/// Waits until `condition` holds. The only place where tests wait for something that no channel
/// tells.
#[track_caller]
pub(crate) fn eventually(deadline: Duration, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < deadline, "not within {deadline:?}");
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// The two kinds of stream socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Unix,
}

pub(crate) const BOTH: [Kind; 2] = [Kind::Tcp, Kind::Unix];

/// One group of four workers.
pub(crate) fn config() -> Config {
    Config::default().epoll_groups(1).tcp_listen_queue(4096)
}

/// A runtime with one listener.
pub(crate) struct Server {
    pub(crate) runtime: Runtime,
    pub(crate) listener: Listener,
    _dir: Option<TempDir>,
}

impl Server {
    pub(crate) fn start(kind: Kind, config: Config, protocol: impl Protocol) -> Self {
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

    pub(crate) fn drain(self, deadline: Duration) -> DrainReport {
        self.runtime.drain(deadline)
    }

    pub(crate) fn address(&self) -> &Address {
        self.listener.local_addr()
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::connect(self.address())
    }

    pub(crate) fn stats(&self) -> Snapshot {
        self.runtime.stats()
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.stats().get(counter)
    }

    /// Waits until so many were counted.
    #[track_caller]
    pub(crate) fn wait_for(&self, counter: Counter, count: u64) {
        let began = Instant::now();
        while self.count(counter) < count {
            let stats = self.stats();
            assert!(began.elapsed() < LONG, "{count} {counter:?} did not come:\n{stats}");
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Waits until no connection is left.
    #[track_caller]
    pub(crate) fn wait_until_empty(&self) {
        let began = Instant::now();
        while self.stats().connections > 0 {
            let stats = self.stats();
            assert!(began.elapsed() < LONG, "connections are left:\n{stats}");
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// A directory of its own, removed at the end.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("epoll-group-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory for a test");
        Self(path)
    }

    /// Where a socket may be bound.
    pub(crate) fn socket(&self) -> PathBuf {
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
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 65_521) as u8).collect()
}
