//! [`Faulty`]: a file layer that fails on command.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::forgetful::Forgetful;

/// Actions that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write,
    SetLen,
    Sync,
}

/// Commands to faulty files. Clones command the same files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<(Mutex<Orders>, Condvar)>);

#[derive(Debug, Default)]
struct Orders {
    failing: Vec<Failing>,
    /// The disk is full: nothing is written, not even in place.
    full: bool,
    /// The next read loses its place.
    loses: bool,
    /// First byte of the place that cannot be read.
    lost: Option<u64>,
    /// Syncs wait while this is set.
    held: bool,
    /// Number of syncs that wait.
    waiting: u64,
    failed: u64,
    done: u64,
}

/// Order to fail.
#[derive(Debug)]
struct Failing {
    action: Action,
    /// Number of actions that succeed before.
    skip: u64,
    /// Number of failures left.
    times: u64,
    errno: i32,
}

impl Faults {
    /// Makes the next `times` of these actions fail with this errno.
    pub(crate) fn fail(&self, action: Action, times: u64, errno: i32) {
        self.fail_after(action, 0, times, errno);
    }

    /// Makes `times` of these actions fail with this errno, after `skip` others.
    pub(crate) fn fail_after(&self, action: Action, skip: u64, times: u64, errno: i32) {
        self.orders().failing.push(Failing { action, skip, times, errno });
    }

    /// Fills the disk: no write and no change of length succeeds until there is room again.
    pub(crate) fn fill(&self) {
        self.orders().full = true;
    }

    /// Loses the place that is read next: reads of its first byte fail from then on.
    pub(crate) fn lose_place(&self) {
        self.orders().loses = true;
    }

    /// Makes room, and ends all failures but those of a lost place.
    pub(crate) fn clear(&self) {
        let mut orders = self.orders();
        orders.failing.clear();
        orders.full = false;
    }

    /// Makes syncs wait from now on.
    pub(crate) fn hold_syncs(&self) {
        self.orders().held = true;
    }

    /// Waits until a sync waits.
    pub(crate) fn wait_for_sync(&self) {
        let waits = self.0.1.wait_while(self.orders(), |orders| orders.waiting == 0);
        drop(waits.expect("nobody panics"));
    }

    /// Lets syncs go on.
    pub(crate) fn release_syncs(&self) {
        self.orders().held = false;
        self.0.1.notify_all();
    }

    /// Number of actions that have failed.
    pub(crate) fn failed(&self) -> u64 {
        self.orders().failed
    }

    /// Number of reads, writes, changes of length and syncs so far, failed ones included.
    pub(crate) fn actions(&self) -> u64 {
        self.orders().done
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.0.0.lock().expect("nobody panics")
    }

    fn meet(&self, action: Action) -> io::Result<()> {
        let mut orders = self.orders();
        orders.done += 1;
        if action == Action::Sync && orders.held {
            orders.waiting += 1;
            self.0.1.notify_all();
            let released = self.0.1.wait_while(orders, |orders| orders.held);
            orders = released.expect("nobody panics");
            orders.waiting -= 1;
        }
        let takes_room = matches!(action, Action::Write | Action::SetLen);
        let errno =
            if takes_room && orders.full { Some(libc::ENOSPC) } else { orders.take(action) };
        orders.failed += u64::from(errno.is_some());
        errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn find(&self, place: Range<u64>) -> io::Result<()> {
        let mut orders = self.orders();
        if std::mem::take(&mut orders.loses) {
            orders.lost = Some(place.start);
        }
        let is_lost = orders.lost.is_some_and(|lost| place.contains(&lost));
        if is_lost { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }
}

impl Orders {
    fn take(&mut self, action: Action) -> Option<i32> {
        let mut orders = self.failing.iter_mut();
        let order = orders.find(|order| order.action == action && order.times > 0)?;
        if order.skip > 0 {
            order.skip -= 1;
            return None;
        }
        order.times -= 1;
        Some(order.errno)
    }
}

/// File below a [`Faulty`].
pub(crate) trait File: StorageBackend {
    /// Called when a sync has failed.
    fn lose_unsynced(&self) {}
}

impl File for FileBackend {}

impl File for Forgetful {
    fn lose_unsynced(&self) {
        self.lose();
    }
}

/// A file that obeys the commands. If it is in memory, data whose sync has failed is not made
/// durable by any later sync.
#[derive(Debug)]
pub(crate) struct Faulty<B> {
    file: B,
    faults: Faults,
}

impl<B> Faulty<B> {
    pub(crate) fn new(file: B, faults: Faults) -> Self {
        Self { file, faults }
    }
}

impl<B: File> StorageBackend for Faulty<B> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.faults.meet(Action::Read)?;
        self.faults.find(offset..offset + out.len() as u64)?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.meet(Action::SetLen)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.meet(Action::Sync).inspect_err(|_| self.file.lose_unsynced())?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.meet(Action::Write)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
