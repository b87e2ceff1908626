//! [`Subject`]: a store of one design, its content, and its load.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use txn_kv::Design;
use txn_kv::load::{Keys, Lines, Load, Options, Progress, Shape, Summary, Until, Workload};
use txn_kv::serve::{self, Kind, Server};

use lab::cpu;
use tempfile::TempDir;

use super::{Case, Level, Window, direct};

/// A store of one design, its content, and its load.
#[derive(Debug)]
pub(crate) struct Subject {
    case: Case,
    server: Server,
    load: Load,
    shape: Shape,
    clients: usize,
    /// Number of the next put.
    next: AtomicU64,
    /// Dropped last, because the server has a file in it.
    _folder: Option<TempDir>,
}

/// Load of a store, and where its records are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) clients: usize,
    pub(crate) value_bytes: usize,
    /// In files, not in memory.
    pub(crate) disk: bool,
}

const USER: &str = "root";
const PASSWORD: &str = "secret";
const KEY_BYTES: usize = 8;
/// Connections that the sessions share.
const CONNECTIONS: usize = 4;
/// Puts of a transaction while a store is filled.
const AT_ONCE: u64 = 100;
/// Transactions that wait for their flush while a store is filled.
const UNDER_WAY: u64 = 64;

impl Subject {
    /// Starts an empty store.
    pub(crate) fn start(setup: Setup, case: Case, design: Design) -> Result<Self, Box<dyn Error>> {
        let Setup { clients, value_bytes, disk } = setup;
        let folder = disk.then(TempDir::new).transpose()?;
        let kind = match &folder {
            Some(folder) => Kind::Disk(folder.path().to_owned()),
            None => Kind::Memory,
        };
        let server = serve::Options::new(USER, PASSWORD).engine(kind).design(design);
        let server = Server::start(&server)?;
        let keys = Keys::new(KEY_BYTES, case.keys)?;
        let shape = Shape { keys, value_bytes, seed: 1 };
        let options = Options {
            address: server.address().to_string(),
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            clients,
            connections: clients.min(CONNECTIONS),
        };
        let load = Load::new(&options, shape)?;
        let next = AtomicU64::new(0);
        Ok(Self { case, server, load, shape, clients, next, _folder: folder })
    }

    pub(super) const fn case(&self) -> Case {
        self.case
    }

    pub(super) fn design(&self) -> Design {
        self.server.store().design()
    }

    /// Puts every key as often as the case says, many keys in a transaction.
    pub(super) fn preload(&self, progress: &mut Progress) -> Result<(), Box<dyn Error>> {
        let (tell, told) = mpsc::channel();
        let mut under_way = 0;
        for revision in 0..self.case.revisions {
            for first in (0..self.case.keys).step_by(AT_ONCE as usize) {
                let count = AT_ONCE.min(self.case.keys - first);
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let tell = tell.clone();
                let txn = self.shape.puts(number, first, count);
                // The receiver waits for all outcomes.
                self.server.store().txn(txn, move |outcome| drop(tell.send(outcome)));
                under_way += 1;
                if under_way == UNDER_WAY {
                    told.recv()??;
                    under_way -= 1;
                }
            }
            progress.update(revision as f64 / self.case.revisions as f64, "");
        }
        for _ in 0..under_way {
            told.recv()??;
        }
        Ok(())
    }

    /// Puts to random keys.
    pub(crate) fn window(&self, level: Level, until: Until) -> Result<Window, Box<dyn Error>> {
        let cpu = cpu::of_process();
        let (mut puts, mut time) = (0, Duration::ZERO);
        // On a busy machine a window of some milliseconds may end before the first put.
        while puts == 0 {
            let (more, passed) = match level {
                Level::Store => {
                    let store = self.server.store();
                    direct::run(store, &self.shape, self.clients, until, &self.next)?
                }
                Level::Network => {
                    let summary = self.put(until)?;
                    (summary.writes(), summary.time())
                }
            };
            puts += more;
            time += passed;
        }
        let cpu = cpu::of_process().saturating_sub(cpu);
        Ok(Window { puts, seconds: time.as_secs_f64(), cpu_seconds: cpu.as_secs_f64() })
    }

    /// Puts to random keys over the network. Every answer is right.
    pub(crate) fn put(&self, until: Until) -> Result<Summary, Box<dyn Error>> {
        let put = Workload::Put { operations: 1 };
        let summary = self.load.run(put, until, Progress::new("", Lines::None))?;
        summary.verdict()?;
        Ok(summary)
    }

    /// Forgets the oldest revisions, so that about as many are left as in the beginning. Of each
    /// key, the newest revision up to `at` stays, and all later ones.
    pub(super) fn forget(&self) -> Result<(), Box<dyn Error>> {
        let store = self.server.store();
        let (newest, preloaded) = (store.revision(), self.preloaded());
        let later = (self.case.revisions - 1) * self.case.keys;
        let at = match later.checked_sub(newest - preloaded) {
            None => newest - later,
            // Part of the preloaded revisions is still wanted.
            Some(wanted) => {
                let puts = self.case.revisions * self.case.keys;
                preloaded - (wanted * preloaded).div_ceil(puts)
            }
        };
        if at > store.compacted() {
            store.compact(at)?;
        }
        Ok(())
    }

    /// Number of transactions that filled the store.
    const fn preloaded(&self) -> u64 {
        self.case.revisions * self.case.keys.div_ceil(AT_ONCE)
    }

    /// Returns the number of records.
    ///
    /// # Errors
    ///
    /// Index and engine do not agree.
    pub(crate) fn records(&self) -> Result<u64, Box<dyn Error>> {
        let design = self.design();
        let records = self.server.store().check();
        Ok(records.map_err(|error| format!("{design}: {error}"))?)
    }
}
