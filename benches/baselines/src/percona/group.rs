//! A thread group: one epoll, one queue, and threads that change between three roles.
//!
//! ```text
//!  listener   waits in epoll ─▶ events ─▶ queue empty, no thread active: worker, with the first one
//!                                      ─▶ else queues them; no thread active: wakes or makes one
//!  worker     serves ─▶ takes from the queue ─▶ empty, no listener: listener
//!                                            ─▶ empty: looks at epoll once, then standby
//!  standby    sleeps ─▶ woken: worker
//!                    ─▶ a minute without that: ends
//! ```
//!
//! A worker is active, unless it has announced a wait; other threads are not. The thread that wakes or makes
//! another one counts it as active at once, so that no thread does so twice for the same reason.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::epoll::{self, Epoll};

pub(super) struct Group {
    epoll: Epoll,
    state: Mutex<State>,
}

/// Condition on which a thread sleeps when it stands by.
pub(super) struct Seat(Arc<Condvar>);

pub(super) struct State {
    connections: Connections,
    /// Connections with input that no thread has begun to read.
    pub(super) queue: VecDeque<Arc<TcpStream>>,
    standby: Vec<Arc<Condvar>>,
    pub(super) threads: usize,
    pub(super) active: usize,
    pub(super) listening: bool,
    /// Events were taken since the last look of the timer.
    polled: bool,
    /// A request was begun since then.
    dequeued: bool,
    /// The next request is taken even if too many threads are active.
    stalled: bool,
    last_made: Instant,
}

/// Connections, each at the place of its descriptor's number.
struct Connections(Vec<Option<Arc<TcpStream>>>);

/// Default of `thread_pool_oversubscribe`.
const OVERSUBSCRIBE: usize = 3;
/// Default of `thread_pool_max_threads`, here for each group.
const MAX_THREADS: usize = 65_536;
/// Default of `thread_pool_idle_timeout`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const EVENTS_PER_WAIT: usize = 64;
const ONCE_READABLE: i32 = libc::EPOLLIN | libc::EPOLLONESHOT;

impl Group {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let state = State {
            connections: Connections(Vec::new()),
            queue: VecDeque::new(),
            standby: Vec::new(),
            threads: 0,
            active: 0,
            listening: false,
            polled: false,
            dequeued: false,
            stalled: false,
            last_made: Instant::now(),
        };
        Ok(Arc::new(Self { epoll: Epoll::new()?, state: Mutex::new(state) }))
    }

    /// Makes the first thread, which listens.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        self.make_thread(self.state())
    }

    pub(super) fn seat(&self) -> Seat {
        Seat(Arc::default())
    }

    pub(super) fn add(&self, socket: TcpStream) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let socket = Arc::new(socket);
        self.state().connections.insert(&socket);
        let added = self.epoll.add(&*socket, ONCE_READABLE);
        if added.is_err() {
            self.close(&socket);
        }
        added
    }

    pub(super) fn rearm(&self, socket: &TcpStream) -> io::Result<()> {
        self.epoll.modify(socket, ONCE_READABLE)
    }

    /// Forgets a connection. Its descriptor is closed when the caller drops it.
    pub(super) fn close(&self, socket: &TcpStream) {
        let removed = self.state().connections.remove(socket);
        drop(removed);
    }

    /// Next connection for the calling thread, which has served the one before. `None`: the thread was idle
    /// for long and must end.
    pub(super) fn next(self: &Arc<Self>, seat: &Seat) -> Option<Arc<TcpStream>> {
        let mut state = self.state();
        loop {
            if let Some(socket) = state.take_from_queue() {
                return Some(socket);
            }
            if !state.listening {
                state.listening = true;
                state.active -= 1;
                drop(state);
                return Some(self.listen());
            }
            if !state.is_crowded() {
                drop(state);
                let socket = self.look();
                if socket.is_some() {
                    return socket;
                }
                state = self.state();
                if !state.queue.is_empty() || !state.listening {
                    continue;
                }
            }
            state = stand_by(state, seat)?;
        }
    }

    /// Runs a function that waits. Lets another thread work meanwhile if no other one is active.
    pub(super) fn waiting<T>(self: &Arc<Self>, wait: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        state.active -= 1;
        if state.active == 0 && !(state.queue.is_empty() && state.listening) {
            self.wake_or_make(state);
        } else {
            drop(state);
        }
        let value = wait();
        self.state().active += 1;
        value
    }

    /// Look of the timer: adds a thread if events or requests were left alone since the last one.
    pub(super) fn check_for_stall(self: &Arc<Self>) {
        let mut state = self.state();
        let unpolled = !state.listening && !state.polled;
        let unserved = !state.queue.is_empty() && !state.dequeued;
        state.polled = false;
        state.dequeued = false;
        state.stalled |= unserved;
        drop(state);
        if unpolled {
            self.wake_or_make(self.state());
        }
        if unserved {
            self.wake_or_make(self.state());
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Only handlers panic, and they hold no lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues events until the listener takes one itself and becomes a worker.
    fn listen(self: &Arc<Self>) -> Arc<TcpStream> {
        let mut events = epoll::events::<EVENTS_PER_WAIT>();
        loop {
            let count = self.wait(&mut events, -1);
            let mut state = self.state();
            let takes_part = state.queue.is_empty() && state.active == 0;
            for event in &events[..count] {
                let socket = state.connections.of(event);
                state.queue.extend(socket);
            }
            state.polled |= count > 0;
            if takes_part && let Some(socket) = state.take_from_queue() {
                state.listening = false;
                state.active += 1;
                return socket;
            }
            if state.active == 0 && !state.queue.is_empty() {
                self.wake_or_make(state);
            }
        }
    }

    /// One event of epoll, if there is one now.
    fn look(&self) -> Option<Arc<TcpStream>> {
        let mut events = epoll::events::<1>();
        let count = self.wait(&mut events, 0);
        if count == 0 {
            return None;
        }
        let mut state = self.state();
        state.polled = true;
        state.dequeued = true;
        state.connections.of(&events[0])
    }

    fn wait(&self, events: &mut [libc::epoll_event], timeout_ms: i32) -> usize {
        match self.epoll.wait(events, timeout_ms) {
            Ok(count) => count,
            Err(error) => panic!("epoll_wait: {error}"),
        }
    }

    fn wake_or_make(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if let Some(sleeper) = state.standby.pop() {
            state.active += 1;
            drop(state);
            sleeper.notify_one();
        } else if state.active == 0 || state.last_made.elapsed() >= throttle(state.threads) {
            // Without another thread the present ones go on.
            let _ = self.make_thread(state);
        }
    }

    fn make_thread(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> io::Result<()> {
        if state.threads == MAX_THREADS {
            return Ok(());
        }
        state.threads += 1;
        state.active += 1;
        state.last_made = Instant::now();
        drop(state);
        let group = Arc::clone(self);
        let made = thread::Builder::new().spawn(move || super::run(&group));
        if made.is_err() {
            let mut state = self.state();
            state.threads -= 1;
            state.active -= 1;
        }
        made.map(drop)
    }
}

impl State {
    fn take_from_queue(&mut self) -> Option<Arc<TcpStream>> {
        if self.is_crowded() {
            return None;
        }
        let socket = self.queue.pop_front()?;
        self.dequeued = true;
        self.stalled = false;
        Some(socket)
    }

    /// True if there are no connections and no work.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        let nothing_to_do = self.queue.is_empty() && self.active == 0 && self.listening;
        nothing_to_do && self.connections.0.iter().all(Option::is_none)
    }

    /// True if too many threads are active. The caller is one of them.
    fn is_crowded(&self) -> bool {
        self.active > 1 + OVERSUBSCRIBE && !self.stalled
    }
}

/// Sleeps until another thread takes this one off the list and counts it as active. `None`: that did not
/// happen for a long time.
fn stand_by<'a>(mut state: MutexGuard<'a, State>, seat: &Seat) -> Option<MutexGuard<'a, State>> {
    state.active -= 1;
    state.standby.push(Arc::clone(&seat.0));
    loop {
        let woken = seat.0.wait_timeout(state, IDLE_TIMEOUT);
        let (guard, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
        state = guard;
        let Some(place) = state.standby.iter().position(|other| Arc::ptr_eq(other, &seat.0)) else {
            return Some(state);
        };
        if timeout.timed_out() {
            state.standby.remove(place);
            state.threads -= 1;
            return None;
        }
    }
}

/// Time between two new threads of a group with this many.
fn throttle(threads: usize) -> Duration {
    Duration::from_millis(match threads {
        0..4 => 0,
        4..8 => 50,
        8..16 => 100,
        16.. => 200,
    })
}

impl Connections {
    fn insert(&mut self, socket: &Arc<TcpStream>) {
        let place = socket.as_raw_fd() as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        self.0[place] = Some(Arc::clone(socket));
    }

    fn remove(&mut self, socket: &TcpStream) -> Option<Arc<TcpStream>> {
        self.0[socket.as_raw_fd() as usize].take()
    }

    fn of(&self, event: &libc::epoll_event) -> Option<Arc<TcpStream>> {
        self.0.get(event.u64 as usize)?.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_threads_there_are_the_longer_until_the_next() {
        let ms = |threads| throttle(threads).as_millis();
        assert_eq!([1, 3, 4, 7, 8, 15, 16, 4096].map(ms), [0, 0, 50, 50, 100, 100, 200, 200]);
    }
}
