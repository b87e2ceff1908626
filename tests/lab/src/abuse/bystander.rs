//! One connection of the bystanders.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use epoll_group::codec::auth;
use epoll_group::codec::decoder::Decoder;
use epoll_group::codec::dialect::Dialect;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;

use super::Target;
use super::bystanders::Report;
use crate::xrpc::{Datum, Exchange, Reply, Ticket, request};

/// Logged in, with its sessions open. What comes is held against the table of what a client
/// accepts.
pub(super) struct Line {
    socket: TcpStream,
    decoder: Decoder,
    exchange: Exchange,
    /// What the socket did not take yet.
    out: Vec<u8>,
    /// What each session has asked.
    asking: Vec<Option<Asking>>,
}

struct Asking {
    ticket: Ticket,
    number: u64,
    at: Instant,
}

/// The number of the first session.
const FIRST: u64 = 1;

impl Line {
    pub(super) fn open(target: &Target, sessions: usize, patience: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&target.address, patience)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        let mut line = Self {
            socket,
            decoder: Decoder::new(Limits::default()),
            exchange: Exchange::default(),
            out: Vec::new(),
            asking: (0..sessions).map(|_| None).collect(),
        };
        let challenge = line.exchange(0, &request::login_start())?.challenge.unwrap_or_default();
        let proof = auth::Challenge::Classic(&challenge).prove(target.password.as_bytes(), 0);
        let proof = proof.map_err(io::Error::other)?;
        let data = auth::Reply::new(target.user.as_bytes(), proof).encode();
        line.exchange(0, &request::login_continue(data.map_err(io::Error::other)?))?;
        for session in 0..sessions as u64 {
            line.exchange(FIRST + session, &ClientMessage::SessionNew)?;
        }
        line.socket.set_nonblocking(true)?;
        Ok(line)
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Requests without an answer.
    pub(super) fn in_flight(&self) -> u64 {
        self.asking.iter().flatten().count() as u64
    }

    /// The question counts as asked, whatever becomes of it.
    pub(super) fn ask(&mut self, session: usize, statement: &str, number: u64) -> io::Result<()> {
        let message = ClientMessage::ExecSql(request::query(&format!("{statement}{number}")));
        let ticket = self.queue(FIRST + session as u64, &message);
        self.asking[session] = Some(Asking { ticket, number, at: Instant::now() });
        self.flush()
    }

    /// Reads all that is there; the sessions that got an answer are added to `answered`.
    pub(super) fn take_in(
        &mut self,
        window: &mut Report,
        answered: &mut Vec<usize>,
    ) -> io::Result<()> {
        self.flush()?;
        let mut piece = [0; 1 << 14];
        loop {
            let count = match self.socket.read(&mut piece) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it was closed")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            self.decoder.feed(&piece[..count]);
            while let Some(ticket) = self.next_ended()? {
                let of = |asking: &Option<Asking>| {
                    asking.as_ref().is_some_and(|asking| asking.ticket == ticket)
                };
                let reply = self.exchange.take(ticket);
                let Some(session) = self.asking.iter().position(of) else { continue };
                let asked = self.asking[session].take();
                let (Some(asked), Some(reply)) = (asked, reply) else { continue };
                answered.push(session);
                if is_answer(&reply, asked.number) {
                    window.answered += 1;
                    let nanos = now.duration_since(asked.at).as_nanos() as u64;
                    window.times.saturating_record(nanos);
                } else {
                    window.fail(1, || format!("asked for {}, got {reply:?}", asked.number));
                }
            }
            if count < piece.len() {
                return Ok(());
            }
        }
    }

    /// Asks, and waits for the answer on the blocking socket.
    fn exchange(&mut self, session: u64, message: &ClientMessage) -> io::Result<Reply> {
        let ticket = self.queue(session, message);
        self.flush()?;
        let mut piece = [0; 4096];
        loop {
            if self.next_ended()? == Some(ticket) {
                break;
            }
            let count = self.socket.read(&mut piece)?;
            if count == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "it was closed"));
            }
            self.decoder.feed(&piece[..count]);
        }
        let reply = self.exchange.take(ticket);
        let reply = reply.ok_or_else(|| io::Error::other("a reply without a request"))?;
        match &reply.error {
            None => Ok(reply),
            Some(error) => Err(io::Error::other(format!("refused: {error:?}"))),
        }
    }

    fn queue(&mut self, session: u64, message: &ClientMessage) -> Ticket {
        message.encode(Dialect::Legacy, session, &mut self.out).expect("it is small");
        self.exchange.sent(session, message).expect("it is answered")
    }

    /// The next request whose answer is whole.
    fn next_ended(&mut self) -> io::Result<Option<Ticket>> {
        let illegal = |error: String| io::Error::new(ErrorKind::InvalidData, error);
        while let Some(frame) = self.decoder.next_frame().map_err(|e| illegal(e.to_string()))? {
            let outcome = self.exchange.received(&frame).map_err(|e| illegal(format!("{e:?}")))?;
            // An error for many requests ends the connection anyway.
            if let Some(&ticket) = outcome.ended.first() {
                return Ok(Some(ticket));
            }
        }
        Ok(None)
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_answer(reply: &Reply, number: u64) -> bool {
    if reply.error.is_some() || reply.rows.len() != 1 {
        return false;
    }
    match reply.rows[0].as_slice() {
        [cell] if cell.integer().is_some() => cell.integer() == Some(number.into()),
        [Datum::Bytes(text)] => *text == number.to_string().into_bytes(),
        _ => false,
    }
}
