//! [`Fleet`]: the connections of a client, and the callers that wait for a session.
//!
//! A session goes to the connection with the fewest sessions. While there are fewer connections
//! than sessions, more are made, up to the limit. After a failure, one connection is tried at a
//! time, with growing pauses, until one has lasted. Waiting callers are served in order. If an
//! attempt fails and no other connection is ready or being made, they all get its error.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::error::{Error, ErrorKind, Stage};
use super::link::Link;
use super::options::Options;
use super::retry::Retry;
use super::session::Session;
use super::status::{ConnectionPhase, ConnectionStatus, Status};
use crate::runtime::{Class, Handle, Timer, after};
use crate::sync::shim::lock;
use crate::sys::{clock, random};

/// Receiver of a session or of an error.
pub(super) enum Receiver {
    /// A thread that waits for the result.
    Thread(SyncSender<Result<Session, Error>>),
    /// A callback of the user.
    Call(Box<dyn FnOnce(Result<Session, Error>) + Send>),
}

/// The connections of a client.
pub(super) struct Fleet {
    pub(super) handle: Handle,
    pub(super) options: Arc<Options>,
    calls: Arc<Calls>,
    places: Mutex<Places>,
}

struct Places {
    places: Vec<Place>,
    /// Connections whose servers shut down, until they end. They have no place, so the client makes
    /// others.
    leaving: Vec<Arc<Link>>,
    /// Waiting callers by ticket, in order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Lower bound of the deadlines of waiting callers.
    next_due: Option<Instant>,
    closed: bool,
    retry: Retry,
    /// Set while the last attempt to connect has failed.
    failing: bool,
    last_error: Option<Error>,
    timer: Option<Armed>,
    connected: u64,
    failed: u64,
    /// Number of callers refused at `max_waiting`.
    refused: u64,
}

enum Place {
    Empty,
    /// The connection with this number is being made.
    Connecting(u64),
    Ready(Arc<Link>),
}

struct Waiting {
    since: Instant,
    deadline: Instant,
    receiver: Receiver,
}

/// The timer, and its time.
struct Armed {
    at: Instant,
    _timer: Timer,
    done: Arc<AtomicBool>,
}

/// Actions to take after the lock was released.
#[derive(Default)]
struct Todo {
    served: Vec<(u64, Receiver, Result<Session, Error>)>,
    connect: Vec<u64>,
    /// Time of the next timeout.
    due: Option<Instant>,
}

impl Fleet {
    pub(super) fn new(handle: Handle, options: Options) -> Arc<Self> {
        let places = (0..options.connections).map(|_| Place::Empty).collect();
        let places = Places {
            places,
            leaving: Vec::new(),
            waiting: BTreeMap::new(),
            next: 0,
            next_due: None,
            closed: false,
            retry: Retry::default(),
            failing: false,
            last_error: None,
            timer: None,
            connected: 0,
            failed: 0,
            refused: 0,
        };
        let (options, calls) = (Arc::new(options), Calls::new());
        Arc::new(Self { handle, options, calls, places: Mutex::new(places) })
    }

    /// Gives `receiver` a session as soon as there is one, if possible before this call returns.
    /// Returns the ticket of the caller.
    pub(super) fn open(self: &Arc<Self>, deadline: Instant, receiver: Receiver) -> u64 {
        let now = clock::now();
        let mut places = lock(&self.places);
        let ticket = places.next;
        places.next += 1;
        places.waiting.insert(ticket, Waiting { since: now, deadline, receiver });
        places.next_due = Some(places.next_due.map_or(deadline, |due| due.min(deadline)));
        let mut todo = self.settle(&mut places, now);
        let limit = self.options.max_waiting;
        if places.waiting.len() > limit
            && let Some(waiting) = places.waiting.remove(&ticket)
        {
            places.refused += 1;
            let error = Error::not_sent(ErrorKind::TooManyWait(limit));
            todo.served.push((ticket, waiting.receiver, Err(error)));
        }
        drop(places);
        self.follow(todo, Some(ticket));
        ticket
    }

    /// Ends the wait of a caller, unless it was served before.
    pub(super) fn expire(self: &Arc<Self>, ticket: u64) {
        let mut places = lock(&self.places);
        let mut todo = Todo::default();
        if let Some(waiting) = places.waiting.remove(&ticket) {
            let error = places.too_late(&waiting, clock::now());
            todo.served.push((ticket, waiting.receiver, Err(error)));
        }
        drop(places);
        self.follow(todo, None);
    }

    /// Returns the ready connection with the fewest sessions, for a request without a session of
    /// its own.
    pub(super) fn least_loaded(&self) -> Option<Arc<Link>> {
        lock(&self.places).least_loaded(usize::MAX)
    }

    /// Serves waiting callers after a session was closed.
    pub(super) fn session_closed(self: &Arc<Self>) {
        let mut places = lock(&self.places);
        if places.waiting.is_empty() {
            return;
        }
        let todo = self.settle(&mut places, clock::now());
        drop(places);
        self.follow(todo, None);
    }

    pub(super) fn link_ready(self: &Arc<Self>, link: &Arc<Link>) {
        let mut places = lock(&self.places);
        places.failing = false;
        places.connected += 1;
        if let Some(place) = places.place_of(link.number) {
            *place = Place::Ready(Arc::clone(link));
        }
        let closed = places.closed;
        let todo = self.settle(&mut places, clock::now());
        drop(places);
        self.follow(todo, None);
        if closed {
            link.end(&Error::unknown(ErrorKind::Closed));
        }
    }

    pub(super) fn link_lost(self: &Arc<Self>, link: &Arc<Link>) {
        let now = clock::now();
        let error = link.lost();
        let mut places = lock(&self.places);
        places.see(now, &self.options);
        places.leaving.retain(|other| other.number != link.number);
        let was_ready = match places.place_of(link.number) {
            Some(place) => matches!(std::mem::replace(place, Place::Empty), Place::Ready(_)),
            None => return,
        };
        if !was_ready || !Retry::has_lasted(link.since, now, &self.options) {
            places.retry.fail(now, &self.options, random());
        }
        let mut todo = Todo::default();
        if !was_ready {
            places.failing = true;
            places.failed += 1;
            let reason = error.unwrap_or_else(|| Error::not_sent(ErrorKind::Closed));
            if places.places.iter().all(|place| matches!(place, Place::Empty)) {
                // No connection is left to wait for.
                let waiting = std::mem::take(&mut places.waiting);
                let tell = |(ticket, waiting): (u64, Waiting)| {
                    (ticket, waiting.receiver, Err(as_connect(&reason)))
                };
                todo.served.extend(waiting.into_iter().map(tell));
            }
            places.last_error = Some(reason);
        }
        todo.add(self.settle(&mut places, now));
        drop(places);
        self.follow(todo, None);
    }

    /// Serves waiting callers while there is room, and decides which connections to make.
    fn settle(self: &Arc<Self>, places: &mut Places, now: Instant) -> Todo {
        let mut todo = Todo::default();
        places.let_go(now, &self.options);
        while let Some(entry) = places.waiting.first_entry() {
            let ticket = *entry.key();
            if places.closed {
                let Some(waiting) = places.waiting.remove(&ticket) else { break };
                let closed = Err(Error::not_sent(ErrorKind::Closed));
                todo.served.push((ticket, waiting.receiver, closed));
                continue;
            }
            let Some(link) = places.least_loaded(self.options.sessions_per_connection) else {
                break;
            };
            let Some(id) = link.open() else { continue };
            let Some(waiting) = places.waiting.remove(&ticket) else { break };
            let session = Session::new(Arc::clone(self), link, id);
            todo.served.push((ticket, waiting.receiver, Ok(session)));
        }
        places.see(now, &self.options);
        self.plan_connects(places, now, &mut todo);
        todo.due = Self::next_look(places, now);
        todo
    }

    fn plan_connects(&self, places: &mut Places, now: Instant, todo: &mut Todo) {
        if places.closed || places.retry.due(now).is_some() {
            return;
        }
        let (mut connecting, mut links, mut sessions) = (0, 0, 0);
        for place in &places.places {
            match place {
                Place::Empty => {}
                Place::Connecting(_) => (connecting, links) = (connecting + 1, links + 1),
                Place::Ready(link) => {
                    links += 1;
                    sessions += link.open_sessions();
                }
            }
        }
        let demand = sessions + places.waiting.len();
        let at_a_time = if places.retry.is_failing() { 1 } else { self.options.max_connecting };
        let Places { places, next, .. } = places;
        let empty = places.iter_mut().filter(|place| matches!(place, Place::Empty));
        for place in empty {
            if links >= demand || connecting >= at_a_time {
                break;
            }
            *place = Place::Connecting(*next);
            todo.connect.push(*next);
            *next += 1;
            (connecting, links) = (connecting + 1, links + 1);
        }
    }

    /// Time of the next timeout: a caller's deadline, or the next attempt to connect. `None` if the
    /// timer fires early enough.
    fn next_look(places: &mut Places, now: Instant) -> Option<Instant> {
        if places.waiting.is_empty() {
            places.next_due = None;
            return None;
        }
        let due = places.next_due.into_iter().chain(places.retry.due(now)).min()?;
        let armed = places.timer.as_ref().is_some_and(|armed| armed.at <= due);
        (!armed).then_some(due)
    }

    /// Sets the timer. Called without the lock: if the runtime has ended, this serves the waiting
    /// callers.
    fn arm(self: &Arc<Self>, due: Instant) {
        let now = clock::now();
        let done = Arc::new(AtomicBool::new(false));
        let look = Look { fleet: Arc::downgrade(self), done: Arc::clone(&done) };
        let delay = due.saturating_duration_since(now).max(Duration::from_millis(1));
        let group = self.handle.group_here();
        let timer = after(group, Class::InProgress, delay, Box::new(move || look.fire()));
        let mut armed = Some(Armed { at: now + delay, _timer: timer, done: Arc::clone(&done) });
        let mut places = lock(&self.places);
        let earlier = places.timer.as_ref().is_some_and(|other| other.at <= now + delay);
        // If the timer is done already, its owner takes the lock before or after this, and acts on
        // the time.
        if !earlier && !done.load(Ordering::Relaxed) {
            armed = std::mem::replace(&mut places.timer, armed);
        }
        drop(places);
        drop(armed);
    }

    /// Fails all waiting callers: after the end of the runtime no connection can be made, and no
    /// timer fires.
    fn runtime_ended(self: &Arc<Self>) {
        let mut places = lock(&self.places);
        places.timer = None;
        let mut todo = Todo::default();
        for (ticket, waiting) in std::mem::take(&mut places.waiting) {
            let closed = Err(Error::not_sent(ErrorKind::Closed));
            todo.served.push((ticket, waiting.receiver, closed));
        }
        drop(places);
        self.follow(todo, None);
    }

    fn handle_timeout(self: &Arc<Self>) {
        let now = clock::now();
        let mut places = lock(&self.places);
        places.timer = None;
        let mut todo = Todo::default();
        if places.next_due.is_some_and(|due| due <= now) {
            let late = places.waiting.iter().filter(|(_, waiting)| waiting.deadline <= now);
            let late: Vec<u64> = late.map(|(&ticket, _)| ticket).collect();
            for ticket in late {
                let Some(waiting) = places.waiting.remove(&ticket) else { continue };
                let error = places.too_late(&waiting, now);
                todo.served.push((ticket, waiting.receiver, Err(error)));
            }
            places.next_due = places.waiting.values().map(|waiting| waiting.deadline).min();
        }
        todo.add(self.settle(&mut places, now));
        drop(places);
        self.follow(todo, None);
    }

    /// Takes the actions, without the lock. The callback of the caller `here` may run on this
    /// thread. It runs last, because it is foreign code.
    fn follow(self: &Arc<Self>, todo: Todo, here: Option<u64>) {
        let mut own = None;
        let mut calls = false;
        for (ticket, receiver, result) in todo.served {
            match receiver {
                // The thread waits until it gets a result, so the send succeeds.
                Receiver::Thread(sender) => drop(sender.send(result)),
                Receiver::Call(code) if here == Some(ticket) => own = Some((code, result)),
                Receiver::Call(code) => {
                    self.calls.add(Box::new(move || code(result)));
                    calls = true;
                }
            }
        }
        if calls {
            self.calls.hand_out(self.handle.group_here());
        }
        for number in todo.connect {
            let link = Link::connect(self, &self.handle, &self.options, number);
            if link.lost().is_some() {
                self.link_lost(&link);
            }
        }
        if let Some(due) = todo.due {
            self.arm(due);
        }
        if let Some((code, result)) = own {
            code(result);
        }
    }

    /// Closes the client: it gives out no more sessions, and ends the open ones.
    pub(super) fn close(self: &Arc<Self>) {
        let mut places = lock(&self.places);
        places.closed = true;
        let links = places.take_links();
        let todo = self.settle(&mut places, clock::now());
        drop(places);
        self.follow(todo, None);
        links.iter().for_each(|link| link.end(&Error::unknown(ErrorKind::Closed)));
    }

    pub(super) fn status(&self) -> Status {
        let places = lock(&self.places);
        let leaving = places.leaving.iter().map(|link| ConnectionStatus {
            phase: ConnectionPhase::Leaving,
            ..ConnectionStatus::of(link)
        });
        let connections = places.places.iter().map(|place| match place {
            Place::Empty => ConnectionStatus::default(),
            Place::Connecting(_) => ConnectionStatus {
                phase: ConnectionPhase::Connecting,
                ..ConnectionStatus::default()
            },
            Place::Ready(link) => ConnectionStatus::of(link),
        });
        Status {
            connections: connections.chain(leaving).collect(),
            waiting: places.waiting.len(),
            connected: places.connected,
            failed: places.failed,
            refused: places.refused,
            last_error: places.last_error.clone(),
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // The timer is cancelled after this. The drop of its callback then does not mean that the
        // runtime has ended, and takes no lock.
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Callback of the timer. Its drop without a call shows that the runtime has ended.
struct Look {
    fleet: Weak<Fleet>,
    /// Set when the timer has fired or is not needed.
    done: Arc<AtomicBool>,
}

impl Look {
    fn fire(self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(fleet) = self.fleet.upgrade() {
            fleet.handle_timeout();
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if !self.done.swap(true, Ordering::Relaxed)
            && let Some(fleet) = self.fleet.upgrade()
        {
            fleet.runtime_ended();
        }
    }
}

impl Todo {
    fn add(&mut self, other: Self) {
        self.served.extend(other.served);
        self.connect.extend(other.connect);
        self.due = other.due;
    }
}

impl Places {
    fn place_of(&mut self, number: u64) -> Option<&mut Place> {
        self.places.iter_mut().find(|place| match place {
            Place::Empty => false,
            Place::Connecting(other) => *other == number,
            Place::Ready(link) => link.number == number,
        })
    }

    /// Forgets failures after connections that have lasted.
    fn see(&mut self, now: Instant, options: &Options) {
        for place in &self.places {
            if let Place::Ready(link) = place {
                self.retry.see(link.since, now, options);
            }
        }
    }

    /// Takes the places of connections whose servers shut down.
    fn let_go(&mut self, now: Instant, options: &Options) {
        let Self { places, leaving, retry, .. } = self;
        for place in places {
            if let Place::Ready(link) = place
                && link.is_leaving()
            {
                // A proxy may pass on 1053 of another server at each login. The client must not
                // connect in a loop.
                if !Retry::has_lasted(link.since, now, options) {
                    retry.fail(now, options, random());
                }
                leaving.push(Arc::clone(link));
                *place = Place::Empty;
            }
        }
    }

    fn least_loaded(&self, limit: usize) -> Option<Arc<Link>> {
        let ready = self.places.iter().filter_map(|place| match place {
            Place::Ready(link) if link.is_ready() => Some((link.open_sessions(), link)),
            _ => None,
        });
        let (sessions, link) = ready.min_by_key(|&(sessions, _)| sessions)?;
        (sessions < limit).then(|| Arc::clone(link))
    }

    fn take_links(&mut self) -> Vec<Arc<Link>> {
        let leaving = std::mem::take(&mut self.leaving);
        let links = self.places.iter_mut().filter_map(|place| {
            match std::mem::replace(place, Place::Empty) {
                Place::Ready(link) => Some(link),
                Place::Connecting(number) => {
                    *place = Place::Connecting(number);
                    None
                }
                Place::Empty => None,
            }
        });
        leaving.into_iter().chain(links).collect()
    }

    /// Error of a caller that has waited too long.
    fn too_late(&self, waiting: &Waiting, now: Instant) -> Error {
        let waited = now.duration_since(waiting.since);
        match &self.last_error {
            Some(error) if self.failing => as_connect(error),
            _ => Error::not_sent(ErrorKind::Deadline(Stage::Session(waited))),
        }
    }
}

/// Error of a caller without a session: the reason why there is no connection.
fn as_connect(error: &Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Connect(_)
        | ErrorKind::Login(_)
        | ErrorKind::Deadline(_)
        | ErrorKind::Closed
        | ErrorKind::Protocol(_)) => Error::not_sent(kind.clone()),
        other => Error::not_sent(ErrorKind::Connect(other.to_string().into())),
    }
}

/// Random number from 0 up to but not including 1; 0.5 if the system has no random numbers.
fn random() -> f64 {
    let mut bytes = [0; 8];
    match random::fill(&mut bytes) {
        Ok(()) => (u64::from_le_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64,
        Err(_) => 0.5,
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let links = self.places.get_mut().map(Places::take_links).unwrap_or_default();
        links.iter().for_each(|link| link.end(&Error::unknown(ErrorKind::Closed)));
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::sync::mpsc;

    use super::*;
    use crate::config::Config;
    use crate::runtime::Simulated;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a server that accepts no connection, and its address.
    fn silent_server(name: &str) -> (UnixListener, String) {
        let name = format!("{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        (UnixListener::bind_addr(&address).expect("a listener"), format!("unix:\0{name}"))
    }

    fn open(fleet: &Arc<Fleet>, deadline: Instant, told: &Arc<Mutex<Vec<Instant>>>) {
        let told = Arc::clone(told);
        let call = Receiver::Call(Box::new(move |_| lock(&told).push(deadline)));
        fleet.open(deadline, call);
    }

    #[test]
    fn a_caller_keeps_its_deadline_although_another_one_sets_the_timer_to_a_later_one() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (_server, address) = silent_server("fleet");
        let options = Options::new(address, "root");
        let fleet = Fleet::new(runtime.handle().clone(), options);
        let told = Arc::new(Mutex::new(Vec::new()));
        let (here, also) = (Arc::clone(&fleet), Arc::clone(&told));
        clock::at_each_look(move || {
            // The first caller waits and has not set the timer yet.
            let waits = here.places.try_lock().is_ok_and(|places| places.waiting.len() == 1);
            if waits {
                open(&here, now + SECOND, &also);
            }
        });
        open(&fleet, now + 2 * SECOND, &told);
        clock::at_each_look(|| ());
        for passed in [1, 2] {
            clock::simulate(Some(now + passed * SECOND));
            runtime.fire_due();
            while runtime.take_task(false) || runtime.in_hands() > 0 {
                runtime.run(0, None);
            }
            let expected: Vec<_> = (1..=passed).map(|number| now + number * SECOND).collect();
            assert_eq!(*lock(&told), expected);
        }
        clock::simulate(None);
    }

    #[test]
    fn a_caller_whose_time_is_over_is_told_so() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (_server, address) = silent_server("expired");
        let options = Options::new(address, "root");
        let fleet = Fleet::new(runtime.handle().clone(), options);
        let (give, given) = mpsc::sync_channel(1);
        let ticket = fleet.open(now + SECOND, Receiver::Thread(give));
        clock::simulate(Some(now + SECOND));
        fleet.expire(ticket);
        let error = given.try_recv().expect("an outcome").expect_err("no connection");
        let stage = Stage::Session(SECOND);
        assert!(matches!(error.kind(), ErrorKind::Deadline(late) if *late == stage), "{error}");
        clock::simulate(None);
    }

    #[test]
    fn a_caller_is_told_at_once_that_the_only_connection_has_failed_at_once() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let options = Options::new(format!("unix:\0nothing-{}", std::process::id()), "root");
        let fleet = Fleet::new(runtime.handle().clone(), options.connections(1));
        let (give, given) = mpsc::sync_channel(1);
        fleet.open(Instant::now() + SECOND, Receiver::Thread(give));
        let error = given.try_recv().expect("an outcome").expect_err("no server");
        assert!(matches!(error.kind(), ErrorKind::Connect(_)), "{error}");
        assert_eq!(fleet.status().failed, 1);
    }
}
