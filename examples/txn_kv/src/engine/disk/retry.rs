//! [`Retry`]: a file layer that can do again what failed.
//!
//! The database refuses all work once a write has failed. After a failed sync the content of the
//! disk is unknown: the system may forget the pages that it could not write. So the layer keeps all
//! requests since the last sync, and from the first failure on it does nothing else with them:
//!
//! ```text
//!             writes, lengths, syncs go                 reads see
//!   whole     to the file, and are kept until a sync    the file
//!   failed    nowhere, and are kept                     the file, and over it what is kept
//! ```
//!
//! The database gets no error, and goes on reading. The committer has to [ask](Retry::failure) for
//! a failure. Before it commits again, the layer [does it all once more](Retry::settle), in the
//! same order.

use std::fmt;
use std::io;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use epoll_group::stall::{self, Wait};
use epoll_group::sync::Mutex;
use redb::{BackendError, StorageBackend};

/// The layer above a file; its clones are one layer.
///
/// *Shape*: it keeps what one commit writes, in memory. Reads of the file are announced stalls.
#[derive(Clone)]
pub(super) struct Retry(Arc<Inner>);

struct Inner {
    file: Box<dyn StorageBackend>,
    /// Set by the writer, cleared by `settle`, with `unsynced` locked. A reader that does not see it
    /// set reads what was synced before, and that is in the file.
    failed: AtomicBool,
    unsynced: Mutex<Unsynced>,
}

/// Requests since the last sync.
#[derive(Default)]
struct Unsynced {
    asked: Vec<Asked>,
    /// Bytes of the writes, one after the other.
    bytes: Vec<u8>,
    /// The first failure.
    failure: Option<Arc<io::Error>>,
}

enum Asked {
    Write { offset: u64, bytes: Range<usize> },
    SetLen(u64),
    Sync,
}

impl Retry {
    pub(super) fn new(file: Box<dyn StorageBackend>) -> Self {
        let (failed, unsynced) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(Inner { file, failed, unsynced }))
    }

    /// Returns the reason if a request is not in the file.
    pub(super) fn failure(&self) -> Option<Arc<io::Error>> {
        if self.0.is_failed() { self.0.unsynced().failure.clone() } else { None }
    }

    /// Does again what failed, if something did. When it returns, the file has all.
    ///
    /// # Errors
    ///
    /// It fails again; nothing is lost.
    pub(super) fn settle(&self) -> Result<(), Arc<io::Error>> {
        let inner = &*self.0;
        if !inner.is_failed() {
            return Ok(());
        }
        let mut unsynced = inner.unsynced();
        let again = unsynced.asked.iter().try_for_each(|asked| inner.act(asked, &unsynced.bytes));
        if let Err(error) = again.and_then(|()| inner.file.sync_data()) {
            let error = Arc::new(error);
            unsynced.failure = Some(error.clone());
            return Err(error);
        }
        unsynced.clear();
        inner.failed.store(false, Ordering::Release);
        Ok(())
    }
}

impl Inner {
    /// Pairs with the stores in `settle` and `ask`.
    fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act(&self, asked: &Asked, bytes: &[u8]) -> io::Result<()> {
        match asked {
            Asked::Write { offset, bytes: range } => {
                self.file.write(*offset, &bytes[range.clone()])
            }
            Asked::SetLen(len) => self.file.set_len(*len),
            Asked::Sync => self.file.sync_data(),
        }
    }

    /// Keeps a request, and executes it if nothing has failed yet.
    fn ask(&self, unsynced: &mut Unsynced, asked: Asked) {
        if unsynced.failure.is_none() {
            match self.act(&asked, &unsynced.bytes) {
                Ok(()) if matches!(asked, Asked::Sync) => return unsynced.clear(),
                Ok(()) => {}
                Err(error) => {
                    unsynced.failure = Some(Arc::new(error));
                    self.failed.store(true, Ordering::Release);
                }
            }
        }
        unsynced.asked.push(asked);
    }
}

impl Unsynced {
    /// Forgets the requests, and keeps memory for a commit of ordinary size.
    fn clear(&mut self) {
        self.asked.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.failure = None;
    }

    /// Returns the length that the file would have.
    fn len(&self, file: u64) -> u64 {
        self.asked.iter().fold(file, |len, asked| match asked {
            Asked::Write { offset, bytes } => len.max(offset + bytes.len() as u64),
            Asked::SetLen(len) => *len,
            Asked::Sync => len,
        })
    }

    /// Puts the kept requests over bytes of the file.
    fn lay_over(&self, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        // Index in `out` of a place of the file, clamped to the ends of `out`.
        let at = |place: u64| usize::try_from(place.clamp(offset, end) - offset).unwrap_or(0);
        for asked in &self.asked {
            match asked {
                Asked::Write { offset: from, bytes: range } => {
                    let to = from + range.len() as u64;
                    let (first, last) = (at(*from), at(to));
                    if first < last {
                        let skipped = usize::try_from(offset.saturating_sub(*from)).unwrap_or(0);
                        let bytes = &self.bytes[range.clone()][skipped..];
                        out[first..last].copy_from_slice(&bytes[..last - first]);
                    }
                }
                Asked::SetLen(len) => out[at(*len)..].fill(0),
                Asked::Sync => {}
            }
        }
    }
}

impl StorageBackend for Retry {
    fn len(&self) -> io::Result<u64> {
        let len = self.0.file.len()?;
        if self.0.is_failed() { Ok(self.0.unsynced().len(len)) } else { Ok(len) }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let inner = &*self.0;
        stall::run_as(Wait::Disk, || {
            if !inner.is_failed() {
                return inner.file.read(offset, out);
            }
            let unsynced = inner.unsynced();
            let len = inner.file.len()?;
            if offset + out.len() as u64 > unsynced.len(len) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let there = len.saturating_sub(offset).min(out.len() as u64);
            let (there, beyond) = out.split_at_mut(usize::try_from(there).unwrap_or(0));
            if !there.is_empty() {
                inner.file.read(offset, there)?;
            }
            beyond.fill(0);
            unsynced.lay_over(offset, out);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.ask(&mut self.0.unsynced(), Asked::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.ask(&mut self.0.unsynced(), Asked::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut unsynced = self.0.unsynced();
        let from = unsynced.bytes.len();
        unsynced.bytes.extend_from_slice(data);
        let bytes = from..unsynced.bytes.len();
        self.0.ask(&mut unsynced, Asked::Write { offset, bytes });
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        // Closing releases the lock of the file, and more is to be written.
        if self.0.is_failed() { Ok(()) } else { self.0.file.close() }
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = self.failure();
        f.debug_struct("Retry").field("file", &self.0.file).field("failure", &failure).finish()
    }
}

/// Memory that is not given back after a commit.
const KEPT_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
