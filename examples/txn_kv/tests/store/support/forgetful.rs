//! [`Forgetful`]: a file in memory that forgets what was not synced when the power is cut.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use lab::random::Random;
use redb::StorageBackend;
use txn_kv::Design;
use txn_kv::engine::{Disk, DiskOptions};
use txn_kv::store::{Limits, Store};

/// A file in memory. Its clones are the same file.
///
/// ```text
///  synced     what the last sync has made sure of
///  unsynced   what was done since, in order
///  cut        synced + of each thing done since: all, nothing, or some sectors of 512 bytes
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Forgetful(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    synced: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Done>,
    /// Writes, changes of length and syncs until the power is cut. `None`: it stays on.
    left: Option<u64>,
    random: Random,
    /// Bytes that are found after the cut. From the cut on, every action is an error.
    image: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Done {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Forgetful {
    /// A file with these bytes, all synced.
    pub(crate) fn new(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State {
            current: image.clone(),
            synced: image,
            unsynced: Vec::new(),
            left: None,
            random: Random(0),
            image: None,
        })))
    }

    /// Returns the bytes of a database without records. Cuts begin with a whole database, because
    /// its file has another name while it is made.
    pub(crate) fn database() -> Vec<u8> {
        let file = Self::new(Vec::new());
        drop(file.disk().expect("no cut"));
        file.cut()
    }

    /// Opens the engine on this file. `None`: the power was cut meanwhile.
    pub(crate) fn disk(&self) -> Option<Disk> {
        let below = self.clone();
        let disk = Disk::with(DiskOptions::default(), move || Ok(below.clone()));
        disk.map_err(|error| assert!(self.is_cut(), "{error}")).ok()
    }

    /// Opens the store on this file. `None`: the power was cut meanwhile.
    pub(crate) fn store(&self) -> Option<Store> {
        let store = Store::open(self.disk()?, Design::Publish, Limits::default(), None);
        store.map_err(|error| assert!(self.is_cut(), "{error}")).ok()
    }

    /// Cuts the power during the action after `actions` others: writes, changes of length and
    /// syncs.
    pub(crate) fn cut_after(&self, actions: u64, seed: u64) {
        let mut state = self.state();
        state.left = Some(actions);
        state.random = Random(seed);
    }

    /// Cuts the power now, if it is not cut already. Returns the bytes that are found then.
    pub(crate) fn cut(&self) -> Vec<u8> {
        let mut state = self.state();
        if state.image.is_none() {
            state.cut();
        }
        state.image.clone().expect("it was cut")
    }

    /// Gives up unsynced data: it can still be read, but no later sync makes it durable. A system
    /// does the same after a failed sync.
    pub(crate) fn lose(&self) {
        self.state().unsynced.clear();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state().image.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics")
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        if self.image.is_none() { Ok(()) } else { Err(io::Error::other("the power is cut")) }
    }

    /// Counts an action before it takes effect. A write may be cut while it takes effect.
    fn count(&mut self, during: Option<Done>) -> io::Result<()> {
        self.check()?;
        match &mut self.left {
            Some(0) => {
                self.unsynced.extend(during);
                self.cut();
                self.check()
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn cut(&mut self) {
        let mut image = self.synced.clone();
        // Sometimes nearly all is there, sometimes nearly nothing.
        let whole = self.random.pick(&[0, 20, 50, 80, 98, 100]);
        for done in &self.unsynced {
            match done {
                Done::SetLen(len) if self.random.percent(whole) => image.resize(*len, 0),
                Done::SetLen(_) => {}
                Done::Write { offset, bytes } if self.random.percent(whole) => {
                    put(&mut image, *offset, bytes);
                }
                Done::Write { offset, bytes } => {
                    let sectors = self.random.pick(&[0, 30, 90]);
                    for (sector, torn) in bytes.chunks(SECTOR).enumerate() {
                        if self.random.percent(sectors) {
                            put(&mut image, offset + sector * SECTOR, torn);
                        }
                    }
                }
            }
        }
        self.image = Some(image);
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

impl StorageBackend for Forgetful {
    fn len(&self) -> io::Result<u64> {
        let state = self.state();
        state.check()?;
        Ok(state.current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        state.check()?;
        let from = index(offset);
        let bytes = state.current.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (mut state, len) = (self.state(), index(len));
        state.count(Some(Done::SetLen(len)))?;
        state.current.resize(len, 0);
        state.unsynced.push(Done::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.count(None)?;
        let State { synced, unsynced, .. } = &mut *state;
        for done in unsynced.drain(..) {
            match done {
                Done::SetLen(len) => synced.resize(len, 0),
                Done::Write { offset, bytes } => put(synced, offset, &bytes),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut state, offset) = (self.state(), index(offset));
        state.count(Some(Done::Write { offset, bytes: data.to_vec() }))?;
        put(&mut state.current, offset, data);
        state.unsynced.push(Done::Write { offset, bytes: data.to_vec() });
        Ok(())
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a file in memory")
}

const SECTOR: usize = 512;
