//! A connection to the echo server.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use epoll_group::client::Fate;
use epoll_group::codec::frame::Header;
use fastrand::Rng;

use super::Road;
use crate::account::Account;

const PLAIN: u8 = 1;
/// Kinds of frames for which the server works or sleeps; their first field is the time in microseconds.
const BURN: u8 = 0x7e;
const SLEEP: u8 = 0x7d;

pub(crate) struct EchoSeat {
    address: SocketAddr,
    road: Road,
    stream: Option<TcpStream>,
    next: u64,
}

impl EchoSeat {
    pub(super) const fn new(address: SocketAddr, road: Road) -> Self {
        Self { address, road, stream: None, next: 0 }
    }

    pub(super) fn turn(&mut self, random: &mut Rng, account: &mut Account) {
        let Some(stream) = &mut self.stream else {
            match self.connect() {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => {
                    account.ask();
                    account.failed(Fate::NotSent, "connect".to_owned(), &error);
                }
            }
            return;
        };
        self.next += 1;
        let frame = frame(self.next, self.road, random);
        let began = Instant::now();
        account.ask();
        match exchange(stream, &frame) {
            Ok(answer) => {
                let right = if answer == frame { Ok(()) } else { Err("other bytes".to_owned()) };
                account.answered(began.elapsed(), right);
            }
            Err(error) => {
                self.stream = None;
                let late =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                let kind = if late { "deadline" } else { "lost" };
                account.failed(Fate::Unknown, kind.to_owned(), &error);
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let patience = Duration::from_secs(if self.road == Road::Direct { 30 } else { 2 });
        let stream = TcpStream::connect_timeout(&self.address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(stream)
    }
}

fn frame(number: u64, road: Road, random: &mut Rng) -> Vec<u8> {
    let (kind, micros) = match random.u32(..20) {
        // A faulty road would change the time.
        0 if road == Road::Direct => (BURN, 200),
        1 if road == Road::Direct => (SLEEP, 1000),
        _ => (PLAIN, random.u32(..)),
    };
    let most = if random.u32(..50) == 0 { 100_000 } else { 500 };
    let body = random.u64(4..4 + most);
    let mut frame = Header::new(number, kind, body as u32).encode().to_vec();
    frame.extend(micros.to_le_bytes());
    frame.extend((4..body).map(|at| (at ^ number) as u8));
    frame
}

fn exchange(stream: &mut TcpStream, frame: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(frame)?;
    let mut answer = vec![0; frame.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
