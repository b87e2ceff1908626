//! [`WriteLock`]: the right to write, for one session at a time.
//!
//! SQLite lets one connection write at a time, and others poll until it has finished. Here sessions
//! stand in a line, in the order in which they came. Each waits on its own condition variable, as
//! an announced stall. The wait ends with its turn, a cancel or its time limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoll_group::session::SessionError;

use crate::node::errors::lock_wait;
use crate::node::interrupt::{Interrupt, Waited};

#[derive(Debug, Default)]
pub struct WriteLock {
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    held: bool,
    waiting: VecDeque<Arc<Interrupt>>,
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub struct WriteTurn {
    lock: Arc<WriteLock>,
}

impl WriteLock {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to write, at most `limit`.
    pub fn acquire(
        self: &Arc<Self>,
        session: &Arc<Interrupt>,
        limit: Duration,
    ) -> Result<WriteTurn, SessionError> {
        let turn = || WriteTurn { lock: Arc::clone(self) };
        {
            let mut line = self.line();
            if !line.held {
                line.held = true;
                return Ok(turn());
            }
            session.expect_grant();
            line.waiting.push_back(Arc::clone(session));
        }
        let waited = session.wait_for_grant(limit);
        if waited == Waited::Granted {
            return Ok(turn());
        }
        let mut line = self.line();
        let place = line.waiting.iter().position(|other| Arc::ptr_eq(other, session));
        let left = place.and_then(|place| line.waiting.remove(place));
        drop(line);
        match (left, waited) {
            // It was handed over in the last moment.
            (None, Waited::Cancelled) => {
                drop(turn());
                Err(SessionError::interrupted())
            }
            (None, _) => Ok(turn()),
            (Some(_), Waited::Cancelled) => Err(SessionError::interrupted()),
            (Some(_), _) => Err(lock_wait()),
        }
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        let mut line = self.lock.line();
        let next = line.waiting.pop_front();
        line.held = next.is_some();
        if let Some(next) = next {
            // The line stays locked. Otherwise a session that gives up now and waits again would
            // take this grant for its next one.
            next.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_has_its_turn_alone() {
        let lock = Arc::new(WriteLock::default());
        let inside = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let session = Arc::new(Interrupt::default());
                    for _ in 0..200 {
                        let turn = lock.acquire(&session, LONG).expect("nobody cancels");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert!(!lock.line().held);
    }

    /// A session that has left the line has its grant before any other session sees the line.
    #[test]
    fn a_turn_is_granted_while_the_line_is_locked() {
        let lock = Arc::new(WriteLock::default());
        let [first, second] = [(); 2].map(|()| Arc::new(Interrupt::default()));
        let turn = lock.acquire(&first, LONG).expect("it is free");
        let (seen, was_locked) = mpsc::channel();
        let line = Arc::clone(&lock);
        second.when_granted(move || {
            seen.send(line.line.try_lock().is_err()).expect("the test waits for it");
        });
        thread::scope(|scope| {
            scope.spawn(|| lock.acquire(&second, LONG).expect("nobody cancels"));
            while lock.line().waiting.is_empty() {
                thread::yield_now();
            }
            drop(turn);
        });
        assert_eq!(was_locked.recv(), Ok(true));
    }

    #[test]
    fn who_gives_up_is_passed_over() {
        let lock = Arc::new(WriteLock::default());
        let [first, late, cancelled] = [(); 3].map(|()| Arc::new(Interrupt::default()));
        let turn = lock.acquire(&first, LONG).expect("it is free");
        let error = lock.acquire(&late, Duration::from_millis(1)).expect_err("it is held");
        assert_eq!(error.code, 1205);
        cancelled.cancel();
        let error = lock.acquire(&cancelled, LONG).expect_err("it is cancelled");
        assert_eq!(error.code, 1317);
        drop(turn);
        assert!(lock.acquire(&late, LONG).is_ok());
    }
}
