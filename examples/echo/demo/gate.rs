//! A protocol whose handlers wait for what a later request does: what a row lock is to a database.

use std::sync::Arc;
use std::sync::PoisonError;

use epoll_group::net::{Close, Connection, Input, Protocol};
use epoll_group::sync::{Condvar, Mutex};

/// The request that waits until the gate is open.
pub(super) const WAIT: u8 = b'w';
/// The request that opens it.
pub(super) const OPEN: u8 = b'o';

/// A gate that is closed until somebody opens it. A clone is the same gate.
///
/// Its lock and condition are those of the library: they announce a wait, and do nothing more than
/// std's.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(super) fn open(&self) {
        let (open, opened) = &*self.0;
        *open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        opened.notify_all();
    }

    fn pass(&self) {
        let (open, opened) = &*self.0;
        let open = open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(opened.wait_while(open, |open| !*open));
    }
}

impl Protocol for Gate {
    type State = ();

    fn opened(&self, _conn: &Connection) {}

    fn received(&self, conn: &Connection, _: &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        for &request in input.take_all() {
            match request {
                WAIT => self.pass(),
                OPEN => self.open(),
                other => return Err(Close::new(format!("request {other:#04x}"))),
            }
            conn.send([request]);
        }
        Ok(())
    }
}
