//! [`Fleet`]: the connections of a client, and who waits for a session on one of them.
//!
//! A session goes to the connection with the fewest. As long as there are fewer connections than
//! sessions, others are made beside, up to the limit. After a failure one is tried at a time, and later
//! each time, until one has lasted. Who waits is served in order; when the connection fails that all
//! wait for, they hear of it.

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
use crate::runtime::{Class, Handle, Timer, after};
use crate::sync::shim::lock;

/// Who gets a session, or hears why there is none.
pub(super) enum Receiver {
    /// A thread that waits until it is given something.
    Thread(SyncSender<Result<Session, Error>>),
    /// A closure of the user.
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
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// No deadline of those who wait is before it.
    next_due: Option<Instant>,
    closed: bool,
    retry: Retry,
    /// The last try came to nothing.
    failing: bool,
    last_error: Option<Error>,
    timer: Option<Armed>,
    connected: u64,
    failed: u64,
}

enum Place {
    Empty,
    /// The connection of this number is being made.
    Connecting(u64),
    Ready(Arc<Link>),
}

struct Waiting {
    since: Instant,
    deadline: Instant,
    receiver: Receiver,
}

/// When time is looked at.
struct Armed {
    at: Instant,
    timer: Timer,
    done: Arc<AtomicBool>,
}

/// What is to be done when the lock is free.
#[derive(Default)]
struct Todo {
    served: Vec<(u64, Receiver, Result<Session, Error>)>,
    connect: Vec<u64>,
    /// When time is to be looked at.
    due: Option<Instant>,
}

impl Fleet {
    pub(super) fn new(handle: Handle, options: Options) -> Arc<Self> {
        let places = (0..options.connections).map(|_| Place::Empty).collect();
        let places = Places {
            places,
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
        };
        let (options, calls) = (Arc::new(options), Calls::new());
        Arc::new(Self { handle, options, calls, places: Mutex::new(places) })
    }

    /// Gives `receiver` a session as soon as there is one; at once if so. Its ticket.
    pub(super) fn open(self: &Arc<Self>, deadline: Instant, receiver: Receiver) -> u64 {
        let now = Instant::now();
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
            let error = Error::not_sent(ErrorKind::TooManyWait(limit));
            todo.served.push((ticket, waiting.receiver, Err(error)));
        }
        drop(places);
        self.follow(todo, Some(ticket));
        ticket
    }

    /// The time of one who waits is over. It is told, if it is not served already.
    pub(super) fn expire(self: &Arc<Self>, ticket: u64) {
        let mut places = lock(&self.places);
        let mut todo = Todo::default();
        if let Some(waiting) = places.waiting.remove(&ticket) {
            let error = places.too_late(&waiting, Instant::now());
            todo.served.push((ticket, waiting.receiver, Err(error)));
        }
        drop(places);
        self.follow(todo, None);
    }

    /// The least loaded connection that is ready, for a request without a session of its own.
    pub(super) fn least_loaded(&self) -> Option<Arc<Link>> {
        lock(&self.places).least_loaded(usize::MAX)
    }

    /// A session was closed: there may be room for another.
    pub(super) fn session_closed(self: &Arc<Self>) {
        let mut places = lock(&self.places);
        if places.waiting.is_empty() {
            return;
        }
        let todo = self.settle(&mut places, Instant::now());
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
        let todo = self.settle(&mut places, Instant::now());
        drop(places);
        self.follow(todo, None);
        if closed {
            link.end(&Error::unknown(ErrorKind::Closed));
        }
    }

    pub(super) fn link_lost(self: &Arc<Self>, link: &Arc<Link>) {
        let now = Instant::now();
        let error = link.lost();
        let mut places = lock(&self.places);
        places.see(now, &self.options);
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
                // Nothing is left to wait for.
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

    /// Serves who waits as far as there is room, and sees which connections are to be made.
    fn settle(self: &Arc<Self>, places: &mut Places, now: Instant) -> Todo {
        let mut todo = Todo::default();
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

    /// When time is to be looked at: for who waits too long, and for the next try to connect. None
    /// when it will be anyhow.
    fn next_look(places: &mut Places, now: Instant) -> Option<Instant> {
        if places.waiting.is_empty() {
            places.next_due = None;
            return None;
        }
        let due = places.next_due.into_iter().chain(places.retry.due(now)).min()?;
        let armed = places.timer.as_ref().is_some_and(|armed| armed.at <= due);
        (!armed).then_some(due)
    }

    /// Sees to it that time is looked at. With the lock free: when the runtime has ended, whoever waits
    /// is told here.
    fn arm(self: &Arc<Self>, due: Instant) {
        let now = Instant::now();
        let done = Arc::new(AtomicBool::new(false));
        let look = Look { fleet: Arc::downgrade(self), done: Arc::clone(&done) };
        let delay = due.saturating_duration_since(now).max(Duration::from_millis(1));
        let group = self.handle.group_here();
        let timer = after(group, Class::InProgress, delay, Box::new(move || look.fire()));
        let mut armed = Some(Armed { at: now + delay, timer, done: Arc::clone(&done) });
        let mut places = lock(&self.places);
        let earlier = places.timer.as_ref().is_some_and(|other| other.at <= now + delay);
        // One that is done already was seen to by who did it, before or behind this lock.
        if !earlier && !done.load(Ordering::Relaxed) {
            armed = std::mem::replace(&mut places.timer, armed);
        }
        drop(places);
        if let Some(Armed { timer, done, .. }) = armed {
            done.store(true, Ordering::Relaxed);
            timer.cancel();
        }
    }

    /// The runtime has ended: no connection can be made, and no time is looked at.
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
        let now = Instant::now();
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

    /// With the lock free. `here` may be called on this thread, and comes last: it is the user's.
    fn follow(self: &Arc<Self>, todo: Todo, here: Option<u64>) {
        let mut own = None;
        let mut calls = false;
        for (ticket, receiver, result) in todo.served {
            match receiver {
                // Whoever waits does so until it was given something.
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

    /// No more sessions; those that there are end.
    pub(super) fn close(self: &Arc<Self>) {
        let mut places = lock(&self.places);
        places.closed = true;
        let links = places.take_links();
        let todo = self.settle(&mut places, Instant::now());
        drop(places);
        self.follow(todo, None);
        links.iter().for_each(|link| link.end(&Error::unknown(ErrorKind::Closed)));
    }

    pub(super) fn status(&self) -> Status {
        let places = lock(&self.places);
        let connections = places.places.iter().map(|place| match place {
            Place::Empty => ConnectionStatus::default(),
            Place::Connecting(_) => ConnectionStatus {
                phase: ConnectionPhase::Connecting,
                ..ConnectionStatus::default()
            },
            Place::Ready(link) => ConnectionStatus {
                phase: ConnectionPhase::Ready,
                sessions: link.open_sessions(),
                outstanding: link.outstanding(),
                stray_errors: link.stray_errors(),
                age: Some(link.since.elapsed()),
            },
        });
        Status {
            connections: connections.collect(),
            waiting: places.waiting.len(),
            connected: places.connected,
            failed: places.failed,
            last_error: places.last_error.clone(),
        }
    }
}

/// Looks at the time, or finds that nobody will.
struct Look {
    fleet: Weak<Fleet>,
    /// It did, or is not needed.
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

    /// Connections that have lasted make failures forgotten.
    fn see(&mut self, now: Instant, options: &Options) {
        for place in &self.places {
            if let Place::Ready(link) = place {
                self.retry.see(link.since, now, options);
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
        links.collect()
    }

    /// What one hears who has waited too long.
    fn too_late(&self, waiting: &Waiting, now: Instant) -> Error {
        let waited = now.duration_since(waiting.since);
        match &self.last_error {
            Some(error) if self.failing => as_connect(error),
            _ => Error::not_sent(ErrorKind::Deadline(Stage::Session(waited))),
        }
    }
}

/// Why there is no session: the reason why there is no connection.
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

/// At least 0 and below 1, of the hasher that std seeds at random.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
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

/// How a client stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// One for each that there may be.
    pub connections: Vec<ConnectionStatus>,
    /// Callers that wait for a session.
    pub waiting: usize,
    /// Connections that were made, with a login that was accepted.
    pub connected: u64,
    /// Connections that came to nothing.
    pub failed: u64,
    /// Why the last of them did.
    pub last_error: Option<Error>,
}

/// How one connection of a client stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Whether it is there.
    pub phase: ConnectionPhase,
    /// Sessions on it.
    pub sessions: usize,
    /// Requests on it that are not answered.
    pub outstanding: usize,
    /// Errors of the server that answer no request and end nothing: about credit that came late, or
    /// about a probe, from one that does not know those.
    pub stray_errors: u64,
    /// Since it was begun.
    pub age: Option<Duration>,
}

/// Whether a connection is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionPhase {
    /// Nobody needs it, or the last try failed.
    #[default]
    Absent,
    /// It is being made, or logs in.
    Connecting,
    /// It carries sessions.
    Ready,
}
