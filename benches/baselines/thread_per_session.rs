//! A thread for each session, and one that reads for each connection: the older shape of a data
//! node.
//!
//! ```text
//!  connection ──▶ reader thread: receive, decode, route
//!                    │  mutex + condition variable, one queue a session
//!                    ├──▶ session thread: take all, execute each, encode ─┐
//!                    ├──▶ session thread                                  ├─▶ send mutex,
//!                    └──▶ session thread                                  ┘   blocking write
//! ```
//!
//! It models a server that gives every session of the database a thread of its own, as databases
//! with a thread for each client do, and puts a protocol with many sessions on a connection in front
//! of them. Every request is handed over: the reader wakes the session's thread, which sleeps again
//! when its queue is empty, so a request costs two context switches and a system call for each of its
//! replies, whatever it does. What it needs no thought for is waiting: a handler that blocks holds up
//! its own session alone.
//!
//! It is to be a fair opponent. It decodes and encodes with the codec of the library, sends a reply
//! with one system call, takes the whole queue when it is woken, wakes nobody who is awake, and its
//! threads have small stacks. It speaks what a benchmark needs: login, capabilities, new session,
//! statements in text form, close. Everything else is answered with an error.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use epoll_group::codec::auth::{Reply, SALT_BYTES, StoredPassword, printable_salt};
use epoll_group::codec::buffer::OutBuffer;
use epoll_group::codec::decoder::{Decoder, Frame};
use epoll_group::codec::encoder::{EncodeError, Encoder, Metadata, Severity};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::connection::{Capabilities, Capability};
use epoll_group::codec::message::session::{AuthenticateContinue, AuthenticateOk};
use epoll_group::codec::message::value::{Any, Scalar, any};
use epoll_group::codec::message::{ClientMessage, ServerMessage};
use epoll_group::codec::reply::{GENERAL_STATE, code};

use super::epoll::{self, Address};

/// What runs the statements: the same one can stand behind other servers.
pub(crate) trait Engine: Send + Sync + 'static {
    /// Runs one statement and writes all frames of its answer, an error too. Called by the threads
    /// of many sessions at once.
    ///
    /// # Errors
    /// The answer does not fit into a frame.
    fn execute(&self, sql: &[u8], out: &mut Encoder<'_>) -> Result<(), EncodeError>;
}

/// Who may log in.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    user: Vec<u8>,
    password: StoredPassword,
}

struct Server<E> {
    account: Account,
    engine: E,
}

/// One connection as its reader sees it.
struct Reader<E> {
    server: Arc<Server<E>>,
    sender: Arc<Sender>,
    login: Login,
    sessions: HashMap<u64, Arc<Mailbox>>,
    limits: Limits,
}

enum Login {
    Expected,
    Challenged([u8; SALT_BYTES]),
    Done,
}

/// The way out, shared by the reader and all sessions: whole replies, one after the other.
struct Sender(Mutex<TcpStream>);

/// The queue between the reader and one session.
#[derive(Default)]
struct Mailbox {
    requests: Mutex<Vec<Request>>,
    arrived: Condvar,
}

enum Request {
    Execute {
        sql: Vec<u8>,
        metadata: Metadata,
    },
    Close,
    /// The connection is gone: nothing to answer.
    End,
}

const RECEIVE_BYTES: usize = 64 << 10;
/// So that thousands of sessions have room, and enough for an embedded database.
const STACK_BYTES: usize = 256 << 10;
/// Session ids with this bit need no opening: not served here.
const AUTO_COMMIT: u64 = 1 << 63;

/// Starts to accept; all threads serve until their peers leave or the process ends.
pub(crate) fn start(
    address: SocketAddr,
    account: Account,
    engine: impl Engine,
) -> io::Result<SocketAddr> {
    let listener = epoll::listen(address, Address::Alone)?;
    let address = listener.local_addr()?;
    let server = Arc::new(Server { account, engine });
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // An error ends its connection, as it would end any connection.
            thread::spawn(move || serve(socket, server));
        }
    });
    Ok(address)
}

fn serve<E: Engine>(mut socket: TcpStream, server: Arc<Server<E>>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let sender = Arc::new(Sender(Mutex::new(socket.try_clone()?)));
    let limits = Limits::default();
    let sessions = HashMap::new();
    let mut reader = Reader { server, sender, login: Login::Expected, sessions, limits };
    let mut decoder = Decoder::new(limits);
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let count = match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        decoder.feed(&buffer[..count]);
        while let Some(frame) = decoder.next_frame().map_err(broken)? {
            reader.take(&frame)?;
        }
    }
}

impl Account {
    pub(crate) fn new(user: &str, password: &str) -> Self {
        Self { user: user.into(), password: StoredPassword::of(password.as_bytes()) }
    }
}

impl<E: Engine> Reader<E> {
    fn take(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let id = frame.session();
        let message = frame.client_message(&self.limits).map_err(broken)?;
        match (&self.login, message) {
            (_, ClientMessage::CapabilitiesGet) => self.send(id, &capabilities()),
            (Login::Done, message) => self.route(id, message),
            (Login::Expected, ClientMessage::AuthenticateStart(_)) => {
                let challenge = challenge();
                self.login = Login::Challenged(challenge);
                let auth_data = challenge.to_vec();
                let message = AuthenticateContinue { auth_data };
                self.send(id, &ServerMessage::AuthenticateContinue(message))
            }
            (Login::Challenged(challenge), ClientMessage::AuthenticateContinue(message)) => {
                let reply = Reply::parse(&message.auth_data);
                let account = &self.server.account;
                let accepted = reply.is_ok_and(|reply| {
                    reply.user == account.user
                        && account.password.accepts(challenge, reply.proof.as_ref())
                });
                if !accepted {
                    self.login = Login::Expected;
                    let text = "Invalid user or password";
                    return self.refuse(id, Severity::Error, code::ACCESS_DENIED, text);
                }
                self.login = Login::Done;
                let message = AuthenticateOk { auth_data: Some(Vec::new()) };
                self.send(id, &ServerMessage::AuthenticateOk(message))
            }
            _ => self.refuse(id, Severity::Fatal, code::SERVER, "Login expected."),
        }
    }

    /// Hands a request over to the thread of its session.
    fn route(&mut self, id: u64, message: ClientMessage) -> io::Result<()> {
        let request = match message {
            ClientMessage::SessionNew if id & AUTO_COMMIT == 0 => return self.open(id),
            ClientMessage::SessionClose => Request::Close,
            ClientMessage::ExecSql(statement) => {
                let metadata = match statement.compact_metadata() {
                    true => Metadata::Compact,
                    false => Metadata::Full,
                };
                match statement.stmt {
                    Some(sql) if statement.args.is_empty() => Request::Execute { sql, metadata },
                    Some(_) => return self.not_supported(id),
                    None => {
                        // Nothing is kept under digests here: the text has to follow.
                        let text = "do not exist query!";
                        return self.refuse(id, Severity::Error, code::CACHE_MISS, text);
                    }
                }
            }
            _ => return self.not_supported(id),
        };
        let mailbox = match request {
            Request::Close => self.sessions.remove(&id),
            _ => self.sessions.get(&id).cloned(),
        };
        match mailbox {
            Some(mailbox) => mailbox.push(request),
            None => self.refuse(id, Severity::Fatal, code::SERVER, "Session not found.")?,
        }
        Ok(())
    }

    fn open(&mut self, id: u64) -> io::Result<()> {
        let Entry::Vacant(place) = self.sessions.entry(id) else {
            return self.refuse(id, Severity::Fatal, code::SERVER, "Duplicate session ID.");
        };
        let mailbox = Arc::new(Mailbox::default());
        let (server, sender) = (Arc::clone(&self.server), Arc::clone(&self.sender));
        let inbox = Arc::clone(&mailbox);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        // A peer that is gone ends the session as well.
        let spawned = thread.spawn(move || run(id, &server.engine, &inbox, &sender));
        if let Err(error) = spawned {
            return self.refuse(id, Severity::Fatal, code::SERVER, &error.to_string());
        }
        place.insert(mailbox);
        let mut buffer = OutBuffer::default();
        Encoder::new(&mut buffer, id).ok(None);
        self.sender.send(&mut buffer)
    }

    fn send(&self, id: u64, message: &ServerMessage) -> io::Result<()> {
        let mut buffer = OutBuffer::default();
        Encoder::new(&mut buffer, id).message(message).map_err(broken)?;
        self.sender.send(&mut buffer)
    }

    fn not_supported(&self, id: u64) -> io::Result<()> {
        self.refuse(id, Severity::Error, code::SERVER, "Not support for polarx rpc.")
    }

    fn refuse(&self, id: u64, severity: Severity, code: u32, text: &str) -> io::Result<()> {
        let mut buffer = OutBuffer::default();
        let mut out = Encoder::new(&mut buffer, id);
        out.error(severity, code, GENERAL_STATE, text).map_err(broken)?;
        self.sender.send(&mut buffer)
    }
}

impl<E> Drop for Reader<E> {
    fn drop(&mut self) {
        // Session threads hold the socket too: nobody is to wait for what they still send.
        let _ = lock(&self.sender.0).shutdown(Shutdown::Both);
        for mailbox in self.sessions.values() {
            mailbox.push(Request::End);
        }
    }
}

/// The life of a session's thread.
fn run(id: u64, engine: &impl Engine, inbox: &Mailbox, sender: &Sender) -> io::Result<()> {
    let mut buffer = OutBuffer::default();
    let mut requests = Vec::new();
    loop {
        inbox.take_all(&mut requests);
        for request in requests.drain(..) {
            let mut out = Encoder::new(&mut buffer, id);
            match request {
                Request::Execute { sql, metadata } => {
                    let mut out = out.metadata(metadata);
                    if let Err(error) = engine.execute(&sql, &mut out) {
                        let text = error.to_string();
                        out.error(Severity::Error, code::SERVER, GENERAL_STATE, &text)
                            .map_err(broken)?;
                    }
                    sender.send(&mut buffer)?;
                }
                Request::Close => {
                    out.ok(None);
                    return sender.send(&mut buffer);
                }
                Request::End => return Ok(()),
            }
        }
    }
}

impl Mailbox {
    fn push(&self, request: Request) {
        let mut requests = lock(&self.requests);
        requests.push(request);
        let is_first = requests.len() == 1;
        drop(requests);
        // Whoever finds requests there already knows that somebody was woken for them.
        if is_first {
            self.arrived.notify_one();
        }
    }

    /// Waits for requests and swaps them for `empty`.
    fn take_all(&self, empty: &mut Vec<Request>) {
        let requests = lock(&self.requests);
        let requests = self.arrived.wait_while(requests, |requests| requests.is_empty());
        std::mem::swap(&mut *requests.unwrap_or_else(PoisonError::into_inner), empty);
    }
}

impl Sender {
    fn send(&self, buffer: &mut OutBuffer) -> io::Result<()> {
        let mut socket = lock(&self.0);
        let result = buffer.slices().try_for_each(|slice| socket.write_all(slice));
        drop(socket);
        buffer.clear();
        result
    }
}

fn capabilities() -> ServerMessage {
    let value = Any {
        r#type: any::Type::Scalar.into(),
        scalar: Some(Scalar::unsigned(1)),
        ..Any::default()
    };
    let capabilities = vec![Capability { name: b"polarx_rpc".to_vec(), value }];
    ServerMessage::Capabilities(Capabilities { capabilities })
}

/// Fresh for each login. The seed of a hash map is random enough for an opponent in a benchmark.
fn challenge() -> [u8; SALT_BYTES] {
    let mut random = [0; SALT_BYTES];
    for (place, byte) in random.iter_mut().enumerate() {
        *byte = RandomState::new().hash_one(place) as u8;
    }
    printable_salt(random)
}

/// A thread that panicked has left nothing half done in what these locks guard.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(error: impl std::error::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}
