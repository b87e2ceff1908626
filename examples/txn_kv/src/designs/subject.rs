//! [`Subject`]: a store of one design, what it holds, and its load.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use txn_kv::Design;
use txn_kv::load::{Keys, Lines, Load, Options, Progress, Shape, Until, Workload};
use txn_kv::serve::{self, Kind, Server};

use super::comparison::{Case, Level, Window};
use super::direct;
use crate::args::Designs as Args;
use crate::cpu;
use tempfile::TempDir;

/// A store of one design, what it holds, and its load.
#[derive(Debug)]
pub(crate) struct Subject {
    case: Case,
    server: Server,
    load: Load,
    shape: Shape,
    clients: usize,
    /// The number of the next put.
    next: AtomicU64,
    /// Goes last: the server has a file in it.
    _folder: Option<TempDir>,
}

const USER: &str = "root";
const PASSWORD: &str = "secret";
const KEY_BYTES: usize = 8;
/// Sessions share them.
const CONNECTIONS: usize = 4;
/// Puts of a transaction while a store is filled.
const AT_ONCE: u64 = 100;
/// Such transactions on their way.
const UNDER_WAY: u64 = 64;

impl Subject {
    /// A store without anything.
    pub(crate) fn start(args: &Args, case: Case, design: Design) -> Result<Self, Box<dyn Error>> {
        let folder = args.disk.then(TempDir::new).transpose()?;
        let kind = match &folder {
            Some(folder) => Kind::Disk(folder.path().to_owned()),
            None => Kind::Memory,
        };
        let server = serve::Options::new(USER, PASSWORD).engine(kind).design(design);
        let server = Server::start(&server)?;
        let keys = Keys::new(KEY_BYTES, case.keys)?;
        let shape = Shape { keys, value_bytes: args.value_bytes, seed: 1 };
        let options = Options {
            address: server.address().to_string(),
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            clients: args.clients,
            connections: args.clients.min(CONNECTIONS),
        };
        let load = Load::new(&options, shape)?;
        let (clients, next) = (args.clients, AtomicU64::new(0));
        Ok(Self { case, server, load, shape, clients, next, _folder: folder })
    }

    pub(super) const fn case(&self) -> Case {
        self.case
    }

    pub(super) fn design(&self) -> Design {
        self.server.store().design()
    }

    /// Puts every key as often as the case says, many in a transaction.
    pub(super) fn preload(&self, progress: &mut Progress) -> Result<(), Box<dyn Error>> {
        let (tell, told) = mpsc::channel();
        let mut under_way = 0;
        for revision in 0..self.case.revisions {
            for first in (0..self.case.keys).step_by(AT_ONCE as usize) {
                let count = AT_ONCE.min(self.case.keys - first);
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let tell = tell.clone();
                let txn = self.shape.puts(number, first, count);
                // Who is told waits until it is.
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

    /// Puts to drawn keys.
    pub(crate) fn window(&self, level: Level, until: Until) -> Result<Window, Box<dyn Error>> {
        let cpu = cpu::of_process();
        let (puts, time) = match level {
            Level::Store => {
                let store = self.server.store();
                direct::run(store, &self.shape, self.clients, until, &self.next)?
            }
            Level::Network => {
                let put = Workload::Put { operations: 1 };
                let summary = self.load.run(put, until, Progress::new("", Lines::None))?;
                summary.verdict()?;
                (summary.writes(), summary.time())
            }
        };
        Ok(Window { puts, time, cpu: cpu::of_process().saturating_sub(cpu) })
    }

    /// Forgets the oldest, so that about as much is left as in the beginning: of each key the one that
    /// could be read then, and what came later.
    pub(super) fn forget(&self) -> Result<(), Box<dyn Error>> {
        let store = self.server.store();
        let (newest, preloaded) = (store.revision(), self.preloaded());
        let later = (self.case.revisions - 1) * self.case.keys;
        let at = match later.checked_sub(newest - preloaded) {
            None => newest - later,
            // Of those that were put before, so many are still wanted.
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

    /// Transactions that it began with.
    const fn preloaded(&self) -> u64 {
        self.case.revisions * self.case.keys.div_ceil(AT_ONCE)
    }

    /// How many records there are, if index and engine agree.
    pub(crate) fn records(&self) -> Result<u64, Box<dyn Error>> {
        let design = self.design();
        let records = self.server.store().check();
        Ok(records.map_err(|error| format!("{design}: {error}"))?)
    }
}
