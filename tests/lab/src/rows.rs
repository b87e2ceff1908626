//! A server with locks that are held from one request to another, as those of a database are.
//!
//! A request is two bytes: what to do, and with which lock. The answer is the request.

use std::sync::{Arc, Condvar, PoisonError};

use epoll_group::net::{Close, CloseReason, Connection, Input, Listener, Protocol};
use epoll_group::{Class, Config, Runtime, sync};

use super::{LONG, Peer};

/// Takes the lock and keeps it; from then on the session is in progress.
pub const LOCK: u8 = b'l';
/// Gives back every lock that the session has.
pub const COMMIT: u8 = b'c';
/// Takes the lock, and gives back every lock that the session has.
pub const LOCK_AND_COMMIT: u8 = b'w';
/// Takes the lock and gives it back at once.
pub const TOUCH: u8 = b't';
/// Does nothing.
pub const PING: u8 = b'p';

/// Locks that belong to sessions and not to threads.
pub struct Rows {
    state: sync::Mutex<State>,
    /// One of the two is used, depending on whether waiting is announced.
    announced: sync::Condvar,
    unannounced: Condvar,
    announces: bool,
}

struct State {
    /// Session that holds each lock.
    owners: Vec<Option<u64>>,
    waiting: usize,
}

impl Rows {
    pub fn new(count: usize, announces: bool) -> Arc<Self> {
        let state = State { owners: vec![None; count], waiting: 0 };
        let (announced, unannounced) = (sync::Condvar::new(), Condvar::new());
        Arc::new(Self { state: sync::Mutex::new(state), announced, unannounced, announces })
    }

    /// Returns false after [`LONG`], so that a test that fails ends.
    fn lock(&self, row: usize, session: u64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        let taken = |state: &mut State| state.owners[row].is_some_and(|owner| owner != session);
        let mut state = if self.announces {
            let waited = self.announced.wait_timeout_while(state, LONG, taken);
            waited.unwrap_or_else(PoisonError::into_inner).0
        } else {
            let waited = self.unannounced.wait_timeout_while(state, LONG, taken);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        state.waiting -= 1;
        let free = !taken(&mut state);
        if free {
            state.owners[row] = Some(session);
        }
        free
    }

    fn unlock_all(&self, session: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for owner in &mut state.owners {
            if *owner == Some(session) {
                *owner = None;
            }
        }
        drop(state);
        self.announced.notify_all();
        self.unannounced.notify_all();
    }

    /// Number of sessions that wait at the moment.
    pub fn waiting(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting
    }
}

struct Database(Arc<Rows>);

impl Protocol for Database {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let session = conn.id().number;
        while input.len() >= 2 {
            let request = input.take(2);
            let (op, row, usual) = (request[0], usize::from(request[1]), conn.class());
            let locked = match op {
                LOCK | LOCK_AND_COMMIT | TOUCH => self.0.lock(row, session),
                _ => true,
            };
            match op {
                LOCK => conn.set_class(Class::InProgress),
                TOUCH => self.0.unlock_all(session),
                COMMIT | LOCK_AND_COMMIT => {
                    self.0.unlock_all(session);
                    if usual == Class::InProgress {
                        conn.set_class(Class::Ordinary);
                    }
                }
                _ => {}
            }
            if locked {
                conn.send([op, row as u8]);
            } else {
                return Err("no lock".into());
            }
        }
        Ok(())
    }

    fn closed(&self, conn: &Connection, (): (), _: &CloseReason) {
        self.0.unlock_all(conn.id().number);
    }
}

/// A runtime with a listener for each kind of work.
pub struct Served {
    pub runtime: Runtime,
    pub rows: Arc<Rows>,
    ordinary: Listener,
    login: Listener,
    admin: Listener,
}

impl Served {
    pub fn start(name: &str, config: Config, rows: &Arc<Rows>) -> Self {
        let runtime = Runtime::builder().config(config).name(name).start().expect("a runtime");
        let listen = |class| {
            let listener = runtime.handle().with_class(class);
            listener.listen("127.0.0.1:0", Database(Arc::clone(rows))).expect("a listener")
        };
        let (ordinary, login) = (listen(Class::Ordinary), listen(Class::Login));
        let (admin, rows) = (listen(Class::Admin), Arc::clone(rows));
        Self { runtime, rows, ordinary, login, admin }
    }

    pub fn ordinary(&self) -> Peer {
        Peer::connect(self.ordinary.local_addr())
    }

    pub fn login(&self) -> Peer {
        Peer::connect(self.login.local_addr())
    }

    pub fn admin(&self) -> Peer {
        Peer::connect(self.admin.local_addr())
    }
}
