//! A thread for each session, and a reader for each connection: the older shape of a data node.
//!
//! ```text
//!  connection ──▶ reader thread: receive, decode, route
//!                    │  mutex + condition variable, one queue a session
//!                    ├──▶ session thread: take all, execute each, encode ─┐
//!                    ├──▶ session thread                                  ├─▶ send mutex,
//!                    └──▶ session thread                                  ┘   blocking write
//! ```
//!
//! It models a server that gives every session of the database a thread, as databases with a thread for each
//! client do, behind a protocol with many sessions on a connection. The reader wakes the session's thread for
//! a request, and the thread sleeps again when its queue is empty. So each request costs two context switches
//! and a system call for each reply. In exchange, a handler that blocks holds up only its own session.
//!
//! It is a fair opponent: it has the codec of the library, sends a reply of up to 16 KiB with one system call,
//! takes the whole queue when it is woken, wakes only a sleeping thread, and its threads have small stacks. Its
//! protocol is in `statements.rs`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use epoll_group::codec::encoder::OutBuffer;
use epoll_group::codec::frame::{Decoder, Frame};
use epoll_group::codec::limits::Limits;

use super::statements::{
    Account, Client, Engine, Request, Statement, broken, done, refuse_session,
};
use super::threads::{self, Mailbox, Shared};

struct Server<E> {
    account: Account,
    engine: E,
}

/// A connection, as its reader sees it.
struct Reader<E> {
    server: Arc<Server<E>>,
    socket: Arc<Shared>,
    client: Client,
    sessions: HashMap<u64, Arc<Mailbox<Task>>>,
    /// Answers of the reader itself.
    out: OutBuffer,
}

/// Message for a session's thread.
enum Task {
    Run(Statement),
    Close,
}

const RECEIVE_BYTES: usize = 64 << 10;

/// Starts to accept. All threads serve until their peers leave or the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, account: Account, engine: impl Engine) -> io::Result<SocketAddr> {
    let server = Arc::new(Server { account, engine });
    threads::accept(address, move |socket| serve(socket, Arc::clone(&server)))
}

fn serve<E: Engine>(socket: TcpStream, server: Arc<Server<E>>) -> io::Result<()> {
    let mut reader = Reader {
        server,
        socket: Arc::new(Shared::new(socket)?),
        client: Client::default(),
        sessions: HashMap::new(),
        out: OutBuffer::default(),
    };
    let mut decoder = Decoder::new(Limits::default());
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let count = reader.socket.receive(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        decoder.feed(&buffer[..count]);
        while let Some(frame) = decoder.next_frame().map_err(broken)? {
            reader.take(&frame)?;
        }
    }
}

impl<E: Engine> Reader<E> {
    /// Answers a frame, or hands it over to the thread of its session.
    fn take(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let id = frame.session();
        match self.client.take(frame, &self.server.account, &mut self.out)? {
            None => {}
            Some(Request::Open) => self.open(id)?,
            Some(Request::Statement(statement)) => match self.sessions.get(&id) {
                Some(mailbox) => {
                    mailbox.push(Task::Run(statement));
                    return Ok(());
                }
                None => refuse_session(id, "Session not found.", &mut self.out)?,
            },
            Some(Request::Close) => match self.sessions.remove(&id) {
                Some(mailbox) => {
                    mailbox.push(Task::Close);
                    return Ok(());
                }
                None => refuse_session(id, "Session not found.", &mut self.out)?,
            },
        }
        send(&self.socket, &mut self.out)
    }

    fn open(&mut self, id: u64) -> io::Result<()> {
        let Entry::Vacant(place) = self.sessions.entry(id) else {
            return refuse_session(id, "Duplicate session ID.", &mut self.out);
        };
        let mailbox = Arc::new(Mailbox::default());
        let (server, socket) = (Arc::clone(&self.server), Arc::clone(&self.socket));
        let inbox = Arc::clone(&mailbox);
        // A send to a peer that is gone ends the session.
        match threads::spawn(move || run(id, &server.engine, &inbox, &socket)) {
            Ok(()) => {
                place.insert(mailbox);
                done(id, &mut self.out);
                Ok(())
            }
            Err(error) => refuse_session(id, &error.to_string(), &mut self.out),
        }
    }
}

impl<E> Drop for Reader<E> {
    fn drop(&mut self) {
        // Session threads hold the socket too. Their sends must not block any more.
        self.socket.end();
        for mailbox in self.sessions.values() {
            mailbox.close();
        }
    }
}

/// Body of a session's thread.
fn run<E: Engine>(id: u64, engine: &E, inbox: &Mailbox<Task>, socket: &Shared) -> io::Result<()> {
    let mut session = E::Session::default();
    let mut out = OutBuffer::default();
    let mut tasks = Vec::new();
    while inbox.take_all(&mut tasks) {
        for task in tasks.drain(..) {
            match task {
                Task::Run(statement) => {
                    let full = |out: &mut OutBuffer| send(socket, out);
                    statement.run(id, engine, &mut session, &mut out, full)?;
                    send(socket, &mut out)?;
                }
                Task::Close => {
                    done(id, &mut out);
                    return send(socket, &mut out);
                }
            }
        }
    }
    Ok(())
}

fn send(socket: &Shared, out: &mut OutBuffer) -> io::Result<()> {
    let result = socket.send(out.slices());
    out.clear();
    result
}
