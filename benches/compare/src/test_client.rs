//! A client that speaks frames, for the tests of servers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Blocks, and gives up after [`PATIENCE`].
pub(crate) struct Client(pub(crate) TcpStream);

/// A test that waits longer has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const LONGER_THAN_PATIENCE_US: u32 = 60_000_000;
pub(crate) const ECHO: u8 = 1;
pub(crate) const SLEEP: u8 = 0x7d;
pub(crate) const LOCK: u8 = 0x7c;
pub(crate) const UNLOCK: u8 = 0x7b;

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub(crate) fn ask(&mut self, frame: &[u8]) {
        self.0.write_all(frame).unwrap();
    }

    pub(crate) fn expect(&mut self, frame: &[u8]) {
        let mut answer = vec![0; frame.len()];
        self.0.read_exact(&mut answer).unwrap();
        assert!(answer == frame);
    }

    pub(crate) fn call(&mut self, frame: &[u8]) {
        self.ask(frame);
        self.expect(frame);
    }

    pub(crate) fn assert_unanswered(&self) {
        self.0.set_nonblocking(true).unwrap();
        let peeked = self.0.peek(&mut [0]);
        assert_eq!(peeked.unwrap_err().kind(), ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).unwrap();
    }
}

/// A frame of session 7.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = 7u64.to_le_bytes().to_vec();
    frame.extend((body.len() as u32 + 1).to_le_bytes());
    frame.push(kind);
    frame.extend(body);
    frame
}

pub(crate) fn with_number(kind: u8, number: u32) -> Vec<u8> {
    frame(kind, &number.to_le_bytes())
}
