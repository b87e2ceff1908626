//! A thread for each session, for frames that are echoed: the older shape of a data node, without its
//! protocol.
//!
//! ```text
//!  connection ──▶ reader thread: receive, find frames, route
//!                    │  mutex + condition variable, one queue a session
//!                    ├──▶ session thread: take all, perform, ─┐
//!                    ├──▶ session thread                      ├─▶ send mutex, blocking write
//!                    └──▶ session thread                      ┘
//! ```
//!
//! `thread_per_session.rs` names the model and speaks the real protocol. This server has the same queue and
//! output, so that the shape can be compared under the load of the others. A session begins with its first
//! frame and ends with its connection. The reader hands over at once all frames that one receive has for a
//! session, and the session's thread answers them with one write. So nothing is allocated for a frame, and
//! only a sleeping thread is woken.
//!
//! Good at: handlers that wait, which hold up only their own session, and many sessions on a hot connection,
//! which spread over all CPUs. Bad at: short requests, for which the way to another thread and back is most of
//! the cost, and memory, because each session has a stack.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use super::frames;
use super::threads::{self, Mailbox, Shared};

/// A connection, as its reader sees it.
struct Reader {
    socket: Arc<Shared>,
    /// Whole frames for each session.
    sessions: HashMap<u64, Arc<Mailbox<u8>>>,
}

const RECEIVE_BYTES: usize = 64 << 10;
/// Sessions of one connection. Each is a thread.
const MOST_SESSIONS: usize = 4096;

/// Starts to accept. All threads serve until their peers leave or the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr) -> io::Result<SocketAddr> {
    threads::accept(address, serve)
}

fn serve(socket: TcpStream) -> io::Result<()> {
    let mut reader = Reader { socket: Arc::new(Shared::new(socket)?), sessions: HashMap::new() };
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut filled = 0;
    loop {
        let count = reader.socket.receive(&mut buffer[filled..])?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        let whole = reader.route(&buffer[..filled])?;
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
    }
}

impl Reader {
    /// Hands over the whole frames at the start of `bytes`. Returns where the last of them ends.
    fn route(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut start, mut end) = (0, 0);
        let mut session = None;
        while let Some(frame) = frames::first(&bytes[end..])? {
            if session.is_some_and(|session| session != frame.session) {
                self.hand_over(session, &bytes[start..end])?;
                start = end;
            }
            session = Some(frame.session);
            end += frame.bytes;
        }
        self.hand_over(session, &bytes[start..end])?;
        Ok(end)
    }

    /// Hands over frames of one session that came one after the other.
    fn hand_over(&mut self, session: Option<u64>, frames: &[u8]) -> io::Result<()> {
        let Some(id) = session else { return Ok(()) };
        if let Some(mailbox) = self.sessions.get(&id) {
            mailbox.extend(frames);
            return Ok(());
        }
        if self.sessions.len() == MOST_SESSIONS {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let mailbox = Arc::new(Mailbox::default());
        let (inbox, socket) = (Arc::clone(&mailbox), Arc::clone(&self.socket));
        // An error in a session ends its connection.
        threads::spawn(move || run(&inbox, &socket).inspect_err(|_| socket.end()))?;
        mailbox.extend(frames);
        self.sessions.insert(id, mailbox);
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.socket.end();
        for mailbox in self.sessions.values() {
            mailbox.close();
        }
    }
}

/// Body of a session's thread.
fn run(inbox: &Mailbox<u8>, socket: &Shared) -> io::Result<()> {
    let mut bytes = Vec::new();
    while inbox.take_all(&mut bytes) {
        let whole = frames::perform(&bytes)?;
        socket.send([&bytes[..whole]])?;
        bytes.clear();
    }
    Ok(())
}
