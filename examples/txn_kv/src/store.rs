//! [`Store`]: transactions, reads at a revision, compaction.

mod check;
mod limits;
mod look;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, mpsc};
use std::thread;

use epoll_group::{Handle, stall};

use crate::commit::{Queue, Turn, Waiting};
use crate::design::Design;
use crate::engine::{Engine, EngineError, Head, Snapshot};
use crate::error::StoreError;
use crate::evaluate::{Evaluation, read};
use crate::index::{Candidate, Index};
use crate::rows::{Held, Rows};
use crate::txn::{Entry, Found, KeyRange, Outcome, Txn};

pub use limits::Limits;

/// A multi-version store: every write has a revision, and reads see the state of one.
///
/// *Shape*: cheap to clone, used from any thread.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

/// Work of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that were done, those included that wrote nothing.
    pub transactions: u64,
    /// Batches that were written.
    pub flushes: u64,
    /// Flushes that failed.
    pub failed_flushes: u64,
    /// Revisions that reads found in the index.
    pub indexed: u64,
    /// Values of these revisions that reads found in the store. The number equals `indexed`, unless a
    /// read failed or the design is [`Design::Compensate`].
    pub read: u64,
}

impl Stats {
    /// Number of transactions for each flush, on average.
    #[must_use]
    pub fn per_flush(&self) -> f64 {
        self.transactions as f64 / self.flushes.max(1) as f64
    }

    /// Returns the work since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            transactions: self.transactions - earlier.transactions,
            flushes: self.flushes - earlier.flushes,
            failed_flushes: self.failed_flushes - earlier.failed_flushes,
            indexed: self.indexed - earlier.indexed,
            read: self.read - earlier.read,
        }
    }
}

pub(crate) struct Shared {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) index: Index,
    pub(crate) rows: Rows,
    pub(crate) queue: Queue,
    pub(crate) limits: Limits,
    pub(crate) handle: Option<Handle>,
    pub(crate) counts: Counts,
}

/// Statistics, as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    transactions: AtomicU64,
    flushes: AtomicU64,
    failed_flushes: AtomicU64,
    indexed: AtomicU64,
    read: AtomicU64,
}

/// Keys that a compaction looks at while it has the write lock of the index, or revisions that it takes out.
const COMPACTED_AT_ONCE: usize = 1_000;

impl Store {
    /// Opens what the engine holds and builds the index of it. With a handle, flushes that follow one
    /// another are spread over the workers of its runtime.
    ///
    /// # Errors
    ///
    /// The engine cannot be read, or a compaction that was interrupted cannot be finished.
    pub fn open(
        engine: impl Engine,
        design: Design,
        limits: Limits,
        handle: Option<Handle>,
    ) -> Result<Self, StoreError> {
        let (head, index) = recover(&engine, design)?;
        let store = Self(Arc::new(Shared {
            engine: Box::new(engine),
            index,
            rows: Rows::new(),
            queue: Queue::new(head),
            limits,
            handle,
            counts: Counts::default(),
        }));
        // Finishes a compaction that a crash interrupted.
        store.0.remove_compacted(head.compacted)?;
        Ok(store)
    }

    /// Does a transaction. `done` is called once, perhaps on another thread and perhaps before this
    /// returns: when what it wrote is durable and visible, or when it failed. In `done` the next
    /// transaction can be begun, but not waited for. A panic of `done` affects nothing else.
    ///
    /// Waits, as an announced stall, for rows that other transactions hold and for values that it
    /// compares or reads. It waits for a flush only if this thread leads that flush. A transaction
    /// without puts and deletions reads the last durable revision and waits for no row, except with
    /// [`Design::Compensate`], or if a compaction passes the revision meanwhile.
    pub fn txn(&self, txn: Txn, done: impl FnOnce(Result<Outcome, StoreError>) + Send + 'static) {
        // Readers of this design see flushed revisions before the head of the index names them. A
        // transaction without writes must not go back behind such a reader.
        let compensates = self.0.index.design() == Design::Compensate;
        match self.0.limits.check(&txn) {
            Ok(()) if compensates || txn.writes() => self.0.run(txn, Box::new(done)),
            Ok(()) => self.look(txn, Box::new(done)),
            Err(error) => look::answer(Box::new(done), Err(error)),
        }
    }

    /// Reads keys, at most `limit`, as of a revision; of the newest if there is none given.
    ///
    /// # Errors
    ///
    /// The revision is compacted or in the future, there is too much to be returned at once, or the engine
    /// cannot be read.
    pub fn read(
        &self,
        range: &KeyRange,
        at: Option<u64>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        let Shared { engine, index, limits, counts, .. } = &*self.0;
        let limit = limit.min(limits.found);
        let snapshot = || engine.snapshot().map_err(StoreError::Read);
        let view = index.view(range, at, limit, snapshot)?;
        let mut entries = Vec::with_capacity(view.candidates.len());
        let mut bytes = 0;
        if index.design() != Design::Compensate {
            counts.indexed(view.candidates.len() as u64);
            for candidate in view.candidates {
                let entry = read(&*view.snapshot, candidate.newest.revision)?;
                limits.count_found(&mut bytes, entry.record.bytes())?;
                entries.push(entry);
            }
            counts.read(entries.len() as u64);
            return Ok(Found { revision: view.revision, entries });
        }
        for candidate in &view.candidates {
            if entries.len() == limit {
                break;
            }
            if let Some(entry) = self.compensate(candidate, &*view.snapshot)? {
                limits.count_found(&mut bytes, entry.record.bytes())?;
                entries.push(entry);
            }
        }
        let revision = match at {
            Some(at) => at,
            None => view.snapshot.head().map_err(StoreError::Read)?.revision,
        };
        Ok(Found { revision, entries })
    }

    /// Newest entry with data, unless it is a deletion.
    fn compensate(
        &self,
        candidate: &Candidate,
        snapshot: &dyn Snapshot,
    ) -> Result<Option<Entry>, StoreError> {
        for entry in std::iter::once(&candidate.newest).chain(&candidate.older) {
            self.0.counts.indexed(1);
            let revision = entry.revision;
            if let Some(record) = snapshot.get(revision).map_err(StoreError::Read)? {
                self.0.counts.read(1);
                return Ok(record.value.is_some().then_some(Entry { revision, record }));
            }
        }
        Ok(None)
    }

    /// Forgets what was overwritten or deleted up to this revision, and says how many records that
    /// were. Reads at earlier revisions are refused before the first record is removed. Waits for
    /// its flushes, as an announced stall; other requests go on.
    ///
    /// # Errors
    ///
    /// The revision was compacted before or is in the future, or a flush failed; the rest is then done
    /// by the next compaction.
    pub fn compact(&self, at: u64) -> Result<u64, StoreError> {
        let Head { revision: newest, compacted } = self.0.index.head();
        if at > newest {
            return Err(StoreError::Future { asked: at, newest });
        }
        if at <= compacted {
            return Err(StoreError::Compacted { asked: at, compacted });
        }
        self.0.flush(at)?;
        self.0.remove_compacted(at)
    }

    /// The newest revision that can be read.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.index.head().revision
    }

    /// The first revision that can be read.
    #[must_use]
    pub fn compacted(&self) -> u64 {
        self.0.index.head().compacted
    }

    /// Number of keys in the index, with those that were deleted and not compacted yet.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.0.index.keys()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Order in which the store writes data and index.
    #[must_use]
    pub fn design(&self) -> Design {
        self.0.index.design()
    }

    /// Returns the work since the store was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.counts.read_all()
    }
}

impl Shared {
    fn run(self: &Arc<Self>, txn: Txn, done: Box<dyn FnOnce(Result<Outcome, StoreError>) + Send>) {
        let mut held = self.hold(&txn);
        let evaluation = Evaluation::new(&*self.engine, &self.index, &self.limits, &held);
        let evaluated = match evaluation.run(txn) {
            Ok(evaluated) => evaluated,
            Err(error) => {
                drop(held);
                return look::answer(done, Err(error));
            }
        };
        let (mut done, found_bytes) = (Some(done), evaluated.found_bytes);
        let pushed = self.queue.push(!evaluated.writes.is_empty(), &self.limits, |main| {
            let (records, outcome) = evaluated.numbered(main);
            self.index.announce(&records);
            held.stage(&records);
            let (shared, done) = (Arc::clone(self), done.take());
            let told = Box::new(move |result: Result<(), StoreError>| {
                shared.counts.transaction(result.is_ok());
                if let Some(done) = done {
                    done(result.map(|()| outcome));
                }
            });
            Waiting { records, found_bytes, compacted: 0, told }
        });
        drop(held);
        match pushed {
            Ok(Turn::Lead) => self.lead(),
            Ok(Turn::Led) => {}
            Err(error) => {
                if let Some(done) = done {
                    look::answer(done, Err(error));
                }
            }
        }
    }

    /// Takes the rows that a transaction may touch: all of them if it has a range.
    fn hold(&self, txn: &Txn) -> Held<'_> {
        let operations = || txn.then.iter().chain(&txn.otherwise);
        let mut keys = Vec::with_capacity(txn.compares.len() + txn.then.len());
        keys.extend(txn.compares.iter().map(|compare| &*compare.key));
        for operation in operations() {
            match operation.key() {
                Some(key) => keys.push(key),
                None => return self.rows.hold_all(),
            }
        }
        self.rows.hold(&keys)
    }

    /// Refuses reads before `compacted`. Waits for a flush that makes this durable and removes
    /// records, as many as fit.
    fn flush(self: &Arc<Self>, compacted: u64) -> Result<(), StoreError> {
        let (tell, told) = mpsc::channel();
        let shared = Arc::clone(self);
        let tell = Box::new(move |result| {
            drop(tell.send(result));
            shared.queue.wake();
        });
        let (records, found_bytes) = (Vec::new(), 0);
        self.queue.push_small(Waiting { records, found_bytes, compacted, told: tell });
        loop {
            while self.lead_now() {
                if let Ok(result) = told.try_recv() {
                    return result;
                }
            }
            match stall::run(|| self.queue.wait(&told)) {
                Ok(result) => return result,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    let error = EngineError::new("flush", "the leader has ended");
                    return Err(StoreError::Write(error));
                }
            }
        }
    }

    fn remove_compacted(self: &Arc<Self>, at: u64) -> Result<u64, StoreError> {
        let (mut count, mut from) = (0, None);
        loop {
            let mut removed = 0;
            self.queue.remove(|| {
                let compacted = self.index.compact(from.as_ref(), at, COMPACTED_AT_ONCE);
                removed = compacted.removed.len();
                from = compacted.next;
                compacted.removed
            });
            count += removed as u64;
            while removed > 0 {
                self.flush(0)?;
                removed *= usize::from(self.queue.removes());
            }
            if from.is_none() {
                return Ok(count);
            }
            // This gives waiting readers a chance before the next part.
            thread::yield_now();
        }
    }
}

/// The index of what the engine holds.
fn recover(engine: &dyn Engine, design: Design) -> Result<(Head, Index), StoreError> {
    let snapshot = engine.snapshot().map_err(StoreError::Read)?;
    let head = snapshot.head().map_err(StoreError::Read)?;
    let index = Index::new(design, head);
    snapshot
        .scan(&mut |revision, record| index.recover(revision, &record))
        .map_err(StoreError::Read)?;
    Ok((head, index))
}

impl Counts {
    pub(crate) fn flushed(&self, is_ok: bool) {
        let count = if is_ok { &self.flushes } else { &self.failed_flushes };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn transaction(&self, is_ok: bool) {
        self.transactions.fetch_add(u64::from(is_ok), Ordering::Relaxed);
    }

    fn indexed(&self, revisions: u64) {
        self.indexed.fetch_add(revisions, Ordering::Relaxed);
    }

    fn read(&self, values: u64) {
        self.read.fetch_add(values, Ordering::Relaxed);
    }

    fn read_all(&self) -> Stats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            transactions: of(&self.transactions),
            flushes: of(&self.flushes),
            failed_flushes: of(&self.failed_flushes),
            indexed: of(&self.indexed),
            read: of(&self.read),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("head", &self.0.index.head()).finish_non_exhaustive()
    }
}
