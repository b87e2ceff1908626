//! The start of a connection: capabilities, login, sessions. One step after the other, blocking:
//! it is over before anything is measured.

use std::collections::HashSet;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use epoll_group::codec::auth::{Proof, Reply};
use epoll_group::codec::decoder::Decoder;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::session::{AuthenticateContinue, AuthenticateStart};
use epoll_group::codec::message::{ClientMessage, ServerMessage};

use super::question::encode;
use super::{PASSWORD, USER};

struct Start {
    socket: TcpStream,
    decoder: Decoder,
}

/// A server that starts some hundred threads at a time takes a while.
const PATIENCE: Duration = Duration::from_secs(30);
const RECEIVE_BYTES: usize = 16 << 10;

/// A connection that is logged in and has these sessions open; from here on it does not block.
pub(super) fn connect(
    address: SocketAddr,
    sessions: impl Iterator<Item = u64> + Clone,
) -> Result<TcpStream, Box<dyn Error>> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut start = Start { socket, decoder: Decoder::new(Limits::default()) };
    start.log_in()?;
    start.open(sessions)?;
    start.socket.set_nonblocking(true)?;
    Ok(start.socket)
}

impl Start {
    fn log_in(&mut self) -> Result<(), Box<dyn Error>> {
        self.send(&ClientMessage::CapabilitiesGet)?;
        match self.next()? {
            (0, ServerMessage::Capabilities(_)) => {}
            other => return unexpected("capabilities", &other),
        }
        let start = AuthenticateStart { mech_name: b"MYSQL41".to_vec(), ..Default::default() };
        self.send(&ClientMessage::AuthenticateStart(start))?;
        let challenge = match self.next()? {
            (0, ServerMessage::AuthenticateContinue(message)) => message.auth_data,
            other => return unexpected("a challenge", &other),
        };
        let proof = Proof::new(PASSWORD.as_bytes(), &challenge);
        let auth_data = Reply::new(USER.as_bytes(), proof).encode()?;
        self.send(&ClientMessage::AuthenticateContinue(AuthenticateContinue { auth_data }))?;
        loop {
            match self.next()? {
                (0, ServerMessage::AuthenticateOk(_)) => return Ok(()),
                (0, ServerMessage::Notice(_)) => {}
                other => return unexpected("the end of the login", &other),
            }
        }
    }

    /// Opens them all in one write, and waits for each.
    fn open(&mut self, sessions: impl Iterator<Item = u64> + Clone) -> Result<(), Box<dyn Error>> {
        let mut bytes = Vec::new();
        let mut waiting = HashSet::new();
        for session in sessions {
            encode(&ClientMessage::SessionNew, session, &mut bytes);
            waiting.insert(session);
        }
        self.socket.write_all(&bytes)?;
        while !waiting.is_empty() {
            match self.next()? {
                (session, ServerMessage::Ok(_)) if waiting.remove(&session) => {}
                other => return unexpected("a session", &other),
            }
        }
        Ok(())
    }

    fn send(&mut self, message: &ClientMessage) -> Result<(), Box<dyn Error>> {
        let mut bytes = Vec::new();
        encode(message, 0, &mut bytes);
        Ok(self.socket.write_all(&bytes)?)
    }

    fn next(&mut self) -> Result<(u64, ServerMessage), Box<dyn Error>> {
        let mut buffer = [0; RECEIVE_BYTES];
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok((frame.session(), frame.server_message(&Limits::default())?));
            }
            match self.socket.read(&mut buffer)? {
                0 => return Err("closed by the server before its sessions were open".into()),
                count => self.decoder.feed(&buffer[..count]),
            }
        }
    }
}

fn unexpected<T>(what: &str, found: &(u64, ServerMessage)) -> Result<T, Box<dyn Error>> {
    let (session, message) = found;
    Err(match message {
        ServerMessage::Error(error) => format!("{error} in place of {what}"),
        other => format!("kind {} on session {session} in place of {what}", other.kind()),
    }
    .into())
}
