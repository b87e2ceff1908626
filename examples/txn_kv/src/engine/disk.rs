//! [`Disk`]: records in a file, by the embedded database redb.
//!
//! ```text
//!  table "revisions"   (main: u64, sub: u32)  ->  a record
//!  table "head"        ()                     ->  the head, where the revisions do not tell it
//! ```
//!
//! Their bytes are drawn in `disk/format.rs`. A commit is one transaction of the database and one
//! `fdatasync`; what the records tell is not written a second time, so that the commit of a put changes
//! one table.
//!
//! # After a failure
//!
//! * A write or sync fails: a [layer](Retry) below the database keeps what was to be written, and
//!   the commit is an error. Snapshots go on from the last good commit. The next commit begins with
//!   writing the kept data again. As long as that fails, every commit fails. When it succeeds, the
//!   failed batch is in the file, and the transaction of the next batch takes it out.
//! * A read fails: the database refuses everything. The next commit or snapshot opens it again, when no
//!   snapshot is left, and takes out what a failed commit may have left, before anything else. If that
//!   fails, the layer is kept, and the next try begins with writing again what it keeps. A try reads the
//!   whole file, so the next one waits for a [second](DiskOptions::reopen_after). Until then, commits and
//!   snapshots return the error of the last try.

mod file;
mod format;
mod retry;
mod view;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

use epoll_group::stall::{self, Wait};
use epoll_group::sync::{Mutex, RwLock};
use redb::{Database, StorageBackend, TableDefinition};

use super::{Batch, Engine, EngineError, Head, Snapshot};
use crate::record::{Record, Revision};
use retry::Retry;
use view::View;

/// Options of a [`Disk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Memory for pages of the file; 256 MiB. What does not fit is read from the file again, mostly from
    /// the memory of the system.
    pub cache_bytes: usize,
    /// Time between two tries to open a failed database again; 1 s. A try may read the whole file.
    pub reopen_after: Duration,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { cache_bytes: 256 << 20, reopen_after: Duration::from_secs(1) }
    }
}

/// Keeps records in a file.
///
/// *Shape*: one commit at a time, beside any number of snapshots. A thread does not commit, and does
/// not take another snapshot, while it holds one.
pub struct Disk {
    open_file: Box<OpenFile>,
    options: DiskOptions,
    /// One commit at a time. Locked before `open`.
    writer: Mutex<Writer>,
    /// Read-locked by snapshots and commits, write-locked to open the database again.
    open: RwLock<Result<Open, Closed>>,
    /// True if the database refuses everything. The thread that notices sets it. It is cleared with
    /// `writer` and `open` locked.
    broken: AtomicBool,
}

/// State that the next commit needs.
#[derive(Default)]
struct Writer {
    /// Head of the last good commit.
    head: Head,
    /// Undo of the commits that failed since the last good one; `None` if none failed.
    undo: Option<Undo>,
    /// File of the database that was closed last, while none is open. It keeps what is not on the disk.
    unsettled: Option<Retry>,
}

/// Records that a commit found at its revisions (`None`: no record), in the order of its writes.
type Undo = Vec<(Revision, Option<Box<[u8]>>)>;

/// State after a failed try to open the database again.
struct Closed {
    error: EngineError,
    /// Earliest time of the next try.
    until: Instant,
}

struct Open {
    /// View that snapshots get; locked for a moment.
    view: Mutex<Arc<View>>,
    database: Database,
    file: Retry,
}

impl Disk {
    /// Opens the file in this folder, and makes both if they are not there. While it is open, no other
    /// process can open it.
    ///
    /// # Errors
    ///
    /// The system refused it, it is open already, or it is no file of ours.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, EngineError> {
        let options = DiskOptions::default();
        let path = file::make(folder.as_ref(), options)?;
        Self::with(options, move || file::open(&path))
    }

    /// Opens the file that `open` returns, which may be a replacement. `open` is called again when
    /// the database has to be opened again, after the file before was closed.
    ///
    /// # Errors
    ///
    /// As of [`open`](Self::open).
    pub fn with<B: StorageBackend>(
        options: DiskOptions,
        open: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> Result<Self, EngineError> {
        let open_file: Box<OpenFile> = Box::new(move || Ok(Box::new(open()?) as File));
        let open = Open::new(open_retry(&open_file)?, options)?;
        let writer = Writer { head: open.view().head, ..Writer::default() };
        let (writer, open) = (Mutex::new(writer), RwLock::new(Ok(open)));
        Ok(Self { open_file, options, writer, open, broken: AtomicBool::new(false) })
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Notes an error of the database itself, which must be opened again. Returns the error.
    fn broke(&self, action: &'static str, error: impl Into<redb::Error>) -> EngineError {
        self.broken.store(true, Ordering::Release);
        EngineError::new(action, error.into())
    }

    fn opened(&self) -> RwLockReadGuard<'_, Result<Open, Closed>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a broken database again when no snapshot is left, unless a try has failed a moment ago.
    fn mend(&self, writer: &mut Writer) -> Result<(), EngineError> {
        if !self.is_broken() {
            return Ok(());
        }
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        match &*open {
            // Before the database is closed: that writes as well.
            Ok(before) => writer.unsettled = Some(before.file.clone()),
            Err(closed) if Instant::now() < closed.until => return Err(closed.error.clone()),
            Err(_) => {}
        }
        // Closes the database. The error stays if the try panics.
        *open = Err(self.closed(EngineError::new("open the database again", "it panicked")));
        match self.open_again(writer) {
            Ok(again) => *open = Ok(again),
            Err(error) => {
                *open = Err(self.closed(error.clone()));
                return Err(error);
            }
        }
        self.broken.store(false, Ordering::Release);
        Ok(())
    }

    fn closed(&self, error: EngineError) -> Closed {
        Closed { error, until: Instant::now() + self.options.reopen_after }
    }

    /// Opens the database, which is closed, and takes out what a failed commit has left.
    fn open_again(&self, writer: &mut Writer) -> Result<Open, EngineError> {
        if let Some(before) = &writer.unsettled {
            // Else what the system shows of the file may differ from what is on the disk.
            settle(before)?;
        }
        // Closes the file before it is opened again.
        writer.unsettled = None;
        let file = open_retry(&self.open_file)?;
        writer.unsettled = Some(file.clone());
        let again = Open::new(file, self.options)?;
        let (found, head) = (again.view().head, writer.head);
        let has_all = found.revision >= head.revision && found.compacted >= head.compacted;
        // Only a failed commit may have left more than was acknowledged.
        if !has_all || (writer.undo.is_none() && found != head) {
            let lost = format!("it ends at {found}, and {head} was acknowledged");
            return Err(EngineError::new("open the database again", lost));
        }
        if writer.undo.is_some() {
            let batch = Batch { head, ..Batch::default() };
            // If this fails, the database is closed: the same is to be taken out next time.
            let written = again.write(&batch, &mut writer.undo.clone());
            written.map_err(|error| self.broke("take out a failed commit", error))?;
            again.check()?;
            again.show(head).map_err(|error| self.broke("read the database", error))?;
            writer.undo = None;
        }
        writer.unsettled = None;
        Ok(again)
    }

    /// Mends unless another thread mends or commits: for readers.
    fn try_mend(&self) {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // If it fails, reads tell: they find no database, or a broken one.
        let _ = self.mend(&mut writer);
    }
}

impl Engine for Disk {
    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.mend(&mut writer)?;
        let open = self.opened();
        let open = open.as_ref().map_err(|closed| closed.error.clone())?;
        settle(&open.file)?;
        open.write(batch, &mut writer.undo).map_err(|error| self.broke("commit", error))?;
        open.check()?;
        open.show(batch.head).map_err(|error| self.broke("read what was committed", error))?;
        writer.head = batch.head;
        writer.undo = None;
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        if self.is_broken() {
            self.try_mend();
        }
        let open = self.opened();
        let view = open.as_ref().map_err(|closed| closed.error.clone())?.view();
        Ok(Box::new(Held { disk: self, view, _open: open }))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        if writer.undo.is_some() || writer.unsettled.is_some() {
            // The next process that opens the file must not find a commit that failed, nor data
            // that is not on the disk. If this commit fails as well, that process may find them, as
            // after a crash.
            let batch = Batch { head: writer.head, ..Batch::default() };
            // Whatever failed a moment ago, this is the last try.
            if let Err(closed) = self.open.get_mut().unwrap_or_else(PoisonError::into_inner) {
                closed.until = Instant::now();
            }
            let _ = self.commit(&batch);
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken = self.is_broken();
        f.debug_struct("Disk").field("options", &self.options).field("broken", &broken).finish()
    }
}

impl Open {
    fn new(file: Retry, options: DiskOptions) -> Result<Self, EngineError> {
        let action = "open the database";
        let open = || -> Result<_, redb::Error> {
            let database = Database::builder()
                .set_cache_size(options.cache_bytes)
                .create_with_backend(file.clone())?;
            view::create_tables(&database)?;
            Ok(database)
        };
        let database = open().map_err(|error| EngineError::new(action, error))?;
        let view = View::open(&database)?;
        let open = Self { view: Mutex::new(Arc::new(view)), database, file };
        open.check()?;
        Ok(open)
    }

    fn view(&self) -> Arc<View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Snapshots see from now on what was committed last.
    fn show(&self, head: Head) -> Result<(), redb::Error> {
        let view = Arc::new(View::at(&self.database, head)?);
        let before =
            std::mem::replace(&mut *self.view.lock().unwrap_or_else(PoisonError::into_inner), view);
        drop(before);
        Ok(())
    }

    /// Checks that all writes are on the disk.
    fn check(&self) -> Result<(), EngineError> {
        self.file.failure().map_or(Ok(()), |error| Err(EngineError::new("write", error)))
    }

    /// One transaction: takes out what a failed one has left, and writes the batch. Whether it is on the
    /// disk, `check` tells.
    ///
    /// On success, `undo` holds how this batch is taken out. If the commit of the database fails,
    /// this is added to what `undo` held before.
    fn write(&self, batch: &Batch, undo: &mut Option<Undo>) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        // One sync: the checksums of the pages tell whether the commit was whole. A second one, between
        // pages and header, would only help against values made to collide with them.
        transaction.set_two_phase_commit(false);
        let mut before = Vec::with_capacity(batch.records.len() + batch.removed.len());
        {
            let mut revisions = transaction.open_table(REVISIONS)?;
            for (revision, bytes) in undo.iter().flatten().rev() {
                match bytes {
                    Some(bytes) => revisions.insert(key(*revision), &**bytes)?,
                    None => revisions.remove(key(*revision))?,
                };
            }
            let mut bytes = Vec::new();
            for (revision, record) in &batch.records {
                format::encode_record(record, &mut bytes);
                let there = revisions.insert(key(*revision), &*bytes)?;
                before.push((*revision, there.map(|there| there.value().into())));
            }
            for revision in &batch.removed {
                let there = revisions.remove(key(*revision))?;
                before.push((*revision, there.map(|there| there.value().into())));
            }
            view::write_head(&transaction, &revisions, batch.head)?;
        }
        match stall::run_as(Wait::Sync, || transaction.commit()) {
            Ok(()) => {
                *undo = Some(before);
                Ok(())
            }
            Err(error) => {
                undo.get_or_insert_default().append(&mut before);
                Err(error.into())
            }
        }
    }
}

/// Snapshot of the records. As long as it lives, the database is not opened again.
struct Held<'a> {
    disk: &'a Disk,
    view: Arc<View>,
    _open: RwLockReadGuard<'a, Result<Open, Closed>>,
}

impl Snapshot for Held<'_> {
    fn get(&self, revision: Revision) -> Result<Option<Arc<Record>>, EngineError> {
        let action = "read a record";
        let bytes = self.view.revisions.get(key(revision));
        let bytes = bytes.map_err(|error| self.disk.broke(action, error))?;
        let record = bytes.map(|bytes| format::decode_record(bytes.value()).map(Arc::new));
        record.transpose().map_err(|error| EngineError::new(action, error))
    }

    fn head(&self) -> Result<Head, EngineError> {
        Ok(self.view.head)
    }

    fn scan(&self, visit: &mut dyn FnMut(Revision, Record)) -> Result<(), EngineError> {
        let action = "read all records";
        let broke = |error| self.disk.broke(action, error);
        for entry in self.view.revisions.range::<Key>(..).map_err(broke)? {
            let (key, bytes) = entry.map_err(broke)?;
            let record = format::decode_record(bytes.value());
            let record = record.map_err(|error| EngineError::new(action, error))?;
            let (main, sub) = key.value();
            visit(Revision { main, sub }, record);
        }
        Ok(())
    }
}

/// Opens the file below the database.
type OpenFile = dyn Fn() -> io::Result<File> + Send + Sync;

/// File below the database.
type File = Box<dyn StorageBackend>;

type Key = (u64, u32);

const REVISIONS: TableDefinition<'_, Key, &[u8]> = TableDefinition::new("revisions");
const HEAD: TableDefinition<'_, (), &[u8]> = TableDefinition::new("head");

fn key(revision: Revision) -> Key {
    (revision.main, revision.sub)
}

fn open_retry(open_file: &OpenFile) -> Result<Retry, EngineError> {
    let file = open_file().map_err(|error| EngineError::new("open the database", error))?;
    Ok(Retry::new(file))
}

/// Writes again what could not be written.
fn settle(file: &Retry) -> Result<(), EngineError> {
    let settled = stall::run_as(Wait::Sync, || file.settle());
    settled.map_err(|error| EngineError::new("write again", error))
}
