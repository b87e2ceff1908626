//! libeasy's asynchronous shape: io threads that decode and send, and worker threads that process.
//!
//! ```text
//!  io thread: epoll                       worker: a queue of its own
//!    readable ▸ message ▸ one request a frame ──lock, push, wake if asleep──▶ process
//!                                                                                │
//!    writable ◀─ backlog ◀─ one write a connection ◀──lock, push, wake if asleep─┘
//! ```
//!
//! The library, the turns to accept and the messages are those of `easy_sync.rs` (here the sources are
//! `easy_request.c`, and libev for how a loop is woken). The way of a request through the threads:
//!
//! * A number that the embedder gives, or the connection, selects a worker. Here it is the sum of the
//!   connection's number and the session's. So workers have equal shares, and a session's requests are
//!   processed one after the other. (To give each request to the next worker would be more even, but would
//!   answer a session out of order.)
//! * A request owns its bytes, in libeasy by a reference to its message. A message with a single
//!   request, which is the usual one, becomes the request; others are copied out of it.
//! * A worker takes all that is in its queue, and gives each answer back as soon as it is there. In
//!   libeasy it sleeps in an epoll of its own; a condition variable is cheaper, so here it has one.
//! * An io thread is woken by its event descriptor, and only if it sleeps or is about to: libev does
//!   the same. libev reads that descriptor; here it is watched for edges, which spares the read.
//!   A request is handed over as soon as it is decoded, as in libeasy. To gather the requests of several
//!   connections would wake workers less often, and keep them idle meanwhile.
//! * An io thread adds up all answers that it finds, and writes once on each connection.
//!
//! libeasy closes connections with too many requests in progress. Here such a connection is not read until
//! some are answered.
//!
//! Good at: a slow request holds up only the requests of its worker, and 64 workers beside 16 io threads have
//! room for many. Bad at: each request crosses two queues and wakes up to two threads, and an idle worker
//! does not take over the requests behind a slow one.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};

use super::easy_sync::{FIRST_MESSAGE_BYTES, MESSAGE_BYTES, Turns};
use super::epoll::{self, Epoll};
use super::event_loop::{self, Connection, Next, Received, Table};
use super::frames;

/// State that all threads share.
struct Shared {
    turns: Turns,
    /// Queues of the io threads.
    answers: Vec<Answers>,
    /// Queues of the workers.
    requests: Vec<Requests>,
}

/// Address of a connection for other threads. Descriptors are used again, numbers are not.
#[derive(Clone, Copy)]
struct Place {
    io_thread: usize,
    fd: RawFd,
    number: usize,
}

struct Request {
    from: Place,
    frame: Vec<u8>,
}

struct Answer {
    to: Place,
    /// Size of the request, which may exceed that of the answer.
    request_bytes: usize,
    result: Result<Vec<u8>, frames::Broken>,
}

/// A worker's queue.
#[derive(Default)]
struct Requests {
    queue: Mutex<Queue<Request>>,
    arrived: Condvar,
}

/// The way back to an io thread.
struct Answers {
    queue: Mutex<Queue<Answer>>,
    arrived: OwnedFd,
}

struct Queue<T> {
    items: Vec<T>,
    /// The owner does not look again before it is woken.
    asleep: bool,
}

/// An io thread.
struct Io {
    index: usize,
    shared: Arc<Shared>,
    clients: Table<Client>,
    accepted: usize,
    /// Connections with answers that have not been written, each once.
    to_write: Vec<RawFd>,
}

struct Client {
    connection: Connection,
    place: Place,
    message_bytes: usize,
    /// Size of the requests that workers have.
    bytes_under_way: usize,
    /// Answers that are not written yet.
    answers: Vec<u8>,
    /// The peer has ended its stream, but waits for answers.
    ended: bool,
}

const EVENTS_PER_WAIT: usize = 64;
/// A connection with more bytes in progress is not read.
const MOST_UNDER_WAY: usize = 1 << 20;

/// Starts the threads. They serve until the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, io_threads: usize, workers: usize) -> io::Result<SocketAddr> {
    let shared = Arc::new(Shared {
        turns: Turns::new(address, io_threads)?,
        answers: (0..io_threads).map(|_| Answers::new()).collect::<io::Result<_>>()?,
        requests: (0..workers).map(|_| Requests::default()).collect(),
    });
    for index in 0..io_threads {
        shared.turns.epoll_of(index).add(&shared.answers[index].arrived, EDGES)?;
        let mut io = Io::new(index, Arc::clone(&shared));
        event_loop::start(move || io.run());
    }
    for index in 0..workers {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.work(index));
    }
    shared.turns.address()
}

impl Shared {
    /// Body of a worker.
    fn work(&self, index: usize) {
        let mut requests = Vec::new();
        loop {
            self.requests[index].take_all(&mut requests);
            for Request { from, frame } in requests.drain(..) {
                let request_bytes = frame.len();
                let result = frames::perform(&frame).map(|_| frame);
                self.answers[from.io_thread].push(Answer { to: from, request_bytes, result });
            }
        }
    }

    /// Hands a whole frame to the worker of its session.
    fn hand_over(&self, from: Place, session: u64, frame: Vec<u8>) {
        // The low half: the number of the session on its connection.
        let worker = from.number.wrapping_add(session as u32 as usize) % self.requests.len();
        self.requests[worker].push(Request { from, frame });
    }
}

impl Requests {
    fn push(&self, request: Request) {
        if lock(&self.queue).push(request) {
            self.arrived.notify_one();
        }
    }

    /// Waits for requests and swaps all of them for `empty`.
    fn take_all(&self, empty: &mut Vec<Request>) {
        let mut queue = lock(&self.queue);
        while queue.items.is_empty() {
            queue.asleep = true;
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.asleep = false;
        std::mem::swap(&mut queue.items, empty);
    }
}

impl Answers {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { queue: Mutex::default(), arrived: eventfd(0, flags)? })
    }

    fn push(&self, answer: Answer) {
        if lock(&self.queue).push(answer) {
            // A write fails only if the counter is full, and then the descriptor is signalled.
            let _ = rustix::io::write(&self.arrived, &1_u64.to_ne_bytes());
        }
    }

    /// Called before a wait. If there is no answer, the next one wakes the owner, and this returns true.
    fn may_sleep(&self) -> bool {
        let mut queue = lock(&self.queue);
        queue.asleep = queue.items.is_empty();
        queue.asleep
    }

    /// Swaps all answers for `empty`. The owner is awake.
    fn take_all(&self, empty: &mut Vec<Answer>) {
        let mut queue = lock(&self.queue);
        queue.asleep = false;
        std::mem::swap(&mut queue.items, empty);
    }
}

impl<T> Queue<T> {
    /// Returns true if the caller must wake the owner.
    #[must_use]
    fn push(&mut self, item: T) -> bool {
        self.items.push(item);
        std::mem::take(&mut self.asleep)
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: Vec::new(), asleep: false }
    }
}

impl Io {
    fn new(index: usize, shared: Arc<Shared>) -> Self {
        Self { index, shared, clients: Table::new(), accepted: 0, to_write: Vec::new() }
    }

    fn run(&mut self) -> io::Result<Infallible> {
        let shared = Arc::clone(&self.shared);
        let epoll = shared.turns.epoll_of(self.index);
        let inbox = &shared.answers[self.index];
        let mut events = epoll::events::<EVENTS_PER_WAIT>();
        let mut answers = Vec::new();
        loop {
            let timeout_ms = if inbox.may_sleep() { -1 } else { 0 };
            let count = epoll.wait(&mut events, timeout_ms)?;
            inbox.take_all(&mut answers);
            for event in &events[..count] {
                let (fd, bits) = (event.u64 as RawFd, event.events as i32);
                if shared.turns.is_accept(fd) {
                    self.accept()?;
                } else if fd != inbox.arrived.as_raw_fd() {
                    self.serve(epoll, fd, bits);
                }
            }
            for answer in answers.drain(..) {
                self.collect(answer);
            }
            self.write(epoll);
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        if let Some(connection) = self.shared.turns.accept(self.index)? {
            let fd = connection.as_raw_fd();
            // The threads take turns, so connections are numbered in the order of acceptance.
            let number = self.accepted * self.shared.answers.len() + self.index;
            let place = Place { io_thread: self.index, fd, number };
            self.accepted += 1;
            self.clients.insert(fd, Client::new(connection, place));
        }
        Ok(())
    }

    fn serve(&mut self, epoll: &Epoll, fd: RawFd, bits: i32) {
        let Some(client) = self.clients.get(fd) else { return };
        // Whatever goes wrong on a connection ends that connection.
        if let Ok(Next::Close) | Err(_) = client.serve(epoll, bits, &self.shared) {
            self.clients.remove(fd);
        }
    }

    /// Adds an answer to the output of its connection, unless that has gone.
    fn collect(&mut self, answer: Answer) {
        let Answer { to, request_bytes, result } = answer;
        let Some(client) = self.clients.get(to.fd) else { return };
        if client.place.number != to.number {
            return;
        }
        client.bytes_under_way -= request_bytes;
        let Ok(bytes) = result else { return self.clients.remove(to.fd) };
        if client.answers.is_empty() {
            client.answers = bytes;
            self.to_write.push(to.fd);
        } else {
            client.answers.extend_from_slice(&bytes);
        }
    }

    fn write(&mut self, epoll: &Epoll) {
        for fd in self.to_write.drain(..) {
            // The connection may have broken meanwhile.
            let Some(client) = self.clients.get(fd) else { continue };
            if let Ok(Next::Close) | Err(_) = client.write(epoll) {
                self.clients.remove(fd);
            }
        }
    }
}

impl Client {
    fn new(connection: Connection, place: Place) -> Self {
        Self {
            connection,
            place,
            message_bytes: FIRST_MESSAGE_BYTES,
            bytes_under_way: 0,
            answers: Vec::new(),
            ended: false,
        }
    }

    fn serve(&mut self, epoll: &Epoll, bits: i32, shared: &Shared) -> io::Result<Next> {
        if bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0 {
            return Ok(Next::Close);
        }
        if bits & libc::EPOLLOUT != 0 {
            self.connection.send_backlog(epoll)?;
        }
        if bits & libc::EPOLLIN != 0 && !self.connection.has_backlog() {
            let mut message = std::mem::take(&mut self.connection.partial);
            match self.connection.receive_behind(&mut message, self.message_bytes)? {
                Received::Bytes(count) if count == self.message_bytes => {
                    self.message_bytes = MESSAGE_BYTES.min(2 * count);
                }
                Received::Bytes(_) | Received::Nothing => {}
                Received::End => self.ended = true,
            }
            self.connection.partial = self.hand_over(message, shared)?;
            self.regulate(epoll)?;
        }
        Ok(self.next())
    }

    /// Hands all whole frames of a message to workers. Returns the rest.
    fn hand_over(&mut self, mut message: Vec<u8>, shared: &Shared) -> io::Result<Vec<u8>> {
        let mut done = 0;
        while let Some(whole) = frames::first(&message[done..])? {
            self.bytes_under_way += whole.bytes;
            if whole.bytes == message.len() {
                shared.hand_over(self.place, whole.session, message);
                return Ok(Vec::new());
            }
            let frame = message[done..done + whole.bytes].to_vec();
            shared.hand_over(self.place, whole.session, frame);
            done += whole.bytes;
        }
        if done == message.len() {
            return Ok(Vec::new());
        }
        message.drain(..done);
        Ok(message)
    }

    /// Sends the answers.
    fn write(&mut self, epoll: &Epoll) -> io::Result<Next> {
        self.connection.send(epoll, &std::mem::take(&mut self.answers))?;
        self.regulate(epoll)?;
        Ok(self.next())
    }

    fn regulate(&mut self, epoll: &Epoll) -> io::Result<()> {
        let paused = self.ended || self.bytes_under_way > MOST_UNDER_WAY;
        self.connection.pause(epoll, paused)
    }

    /// Once the peer has ended, the connection lives until its last answer.
    fn next(&self) -> Next {
        let idle = self.bytes_under_way == 0 && self.answers.is_empty();
        if self.ended && idle && !self.connection.has_backlog() { Next::Close } else { Next::Keep }
    }
}

/// These locks guard no state that a panic could leave half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const EDGES: i32 = libc::EPOLLIN | libc::EPOLLET;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let to = Place { io_thread: 0, fd: 0, number: 0 };
        Answer { to, request_bytes: 0, result: Ok(Vec::new()) }
    }

    #[test]
    fn only_the_first_answer_wakes_and_only_a_sleeper() {
        let (epoll, inbox) = (Epoll::new().unwrap(), Answers::new().unwrap());
        epoll.add(&inbox.arrived, EDGES).unwrap();
        let signals = || epoll.wait(&mut epoll::events::<4>(), 0).unwrap();
        inbox.push(answer());
        assert_eq!((signals(), inbox.may_sleep()), (0, false));

        let mut taken = Vec::new();
        for _ in 0..3 {
            inbox.take_all(&mut taken);
            taken.clear();
            assert!(inbox.may_sleep());
            inbox.push(answer());
            assert_eq!(signals(), 1);
            inbox.push(answer());
            assert_eq!(signals(), 0);
        }
        inbox.take_all(&mut taken);
        assert_eq!(taken.len(), 2);
    }
}
