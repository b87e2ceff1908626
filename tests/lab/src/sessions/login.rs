//! The start of a connection: login and sessions. Blocking, because it is over before anything is
//! measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use epoll_group::codec::auth::{Proof, Reply};
use epoll_group::codec::frame::Decoder;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use socket2::Socket;

use super::question::encode;
use crate::load::prepare;
use crate::xrpc::{self, Exchange, Ticket, request};

/// Opens a connection that is logged in and has these sessions. The returned socket does not block.
/// The exchange knows the sessions.
///
/// # Errors
/// The server is not there, does not answer in time, breaks the protocol, or refuses.
pub fn connect(
    address: SocketAddr,
    (user, password): (&str, &str),
    sessions: impl IntoIterator<Item = u64>,
    patience: Duration,
) -> io::Result<(Socket, Exchange)> {
    let socket = TcpStream::connect_timeout(&address, patience)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    let mut start = Start {
        socket,
        decoder: Decoder::new(Limits::default()),
        exchange: Exchange::default(),
        out: Vec::new(),
    };
    start.ask(0, &ClientMessage::CapabilitiesGet)?;
    let challenge = start.ask(0, &request::login_start())?.challenge.unwrap_or_default();
    let proof = Proof::new(password.as_bytes(), &challenge);
    let reply = Reply::new(user.as_bytes(), proof).encode().map_err(io::Error::other)?;
    start.ask(0, &request::login_continue(reply))?;
    // All sessions in one write.
    let tickets: Vec<_> =
        sessions.into_iter().map(|id| start.queue(id, &ClientMessage::SessionNew)).collect();
    tickets.into_iter().try_for_each(|ticket| start.wait(ticket).map(drop))?;
    Ok((prepare(start.socket.into())?, start.exchange))
}

struct Start {
    socket: TcpStream,
    decoder: Decoder,
    exchange: Exchange,
    out: Vec<u8>,
}

impl Start {
    fn ask(&mut self, session: u64, message: &ClientMessage) -> io::Result<xrpc::Reply> {
        let ticket = self.queue(session, message);
        self.wait(ticket)
    }

    fn queue(&mut self, session: u64, message: &ClientMessage) -> Ticket {
        encode(message, session, &mut self.out);
        self.exchange.sent(session, message).expect("it is answered")
    }

    /// Sends what is queued and waits for a reply.
    fn wait(&mut self, ticket: Ticket) -> io::Result<xrpc::Reply> {
        self.socket.write_all(&self.out)?;
        self.out.clear();
        let mut bytes = [0; 16 << 10];
        while !self.exchange.reply(ticket).is_some_and(|reply| reply.done) {
            if let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? {
                let received = self.exchange.received(&frame);
                received.map_err(|error| io::Error::other(error.to_string()))?;
                continue;
            }
            match self.socket.read(&mut bytes)? {
                0 => return Err(io::Error::other("closed before its sessions were open")),
                count => self.decoder.feed(&bytes[..count]),
            }
        }
        let reply = self.exchange.take(ticket).expect("it is done");
        match &reply.error {
            None => Ok(reply),
            Some(error) => Err(io::Error::other(format!("refused: {error:?}"))),
        }
    }
}
