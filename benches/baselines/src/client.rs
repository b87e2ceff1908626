//! A blocking client that speaks frames, for tests, and the frames themselves.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Panics if an answer does not come within [`PATIENCE`] or is not the question.
#[derive(Debug)]
pub struct Client(pub TcpStream);

/// A test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const LONGER_THAN_PATIENCE_US: u32 = 60_000_000;
/// Time after which a write counts as stuck, because the server does not read.
const STUCK: Duration = Duration::from_millis(50);

pub const ECHO: u8 = 1;
pub const BURN: u8 = 0x7e;
pub const SLEEP: u8 = 0x7d;
pub const LOCK: u8 = 0x7c;
pub const UNLOCK: u8 = 0x7b;

#[expect(clippy::missing_panics_doc, reason = "a client of tests panics when a test has failed")]
impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub fn ask(&mut self, frame: &[u8]) {
        self.0.write_all(frame).unwrap();
    }

    #[track_caller]
    pub fn expect(&mut self, frame: &[u8]) {
        let mut answer = vec![0; frame.len()];
        self.0.read_exact(&mut answer).unwrap();
        assert!(answer == frame, "{} bytes were not echoed as they were sent", frame.len());
    }

    #[track_caller]
    pub fn call(&mut self, frame: &[u8]) {
        self.ask(frame);
        self.expect(frame);
    }

    /// Exchanges a frame. The server is then likely to have received what other clients sent before, and
    /// certain to have if it has one thread.
    #[track_caller]
    pub fn take_a_turn(&mut self) {
        self.call(&frame(ECHO, b"turn"));
    }

    pub fn assert_unanswered(&self) {
        self.0.set_nonblocking(true).unwrap();
        let peeked = self.0.peek(&mut [0]);
        assert_eq!(peeked.unwrap_err().kind(), ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).unwrap();
    }

    pub fn assert_closed(&mut self) {
        match self.0.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{other:?} instead of an end"),
        }
    }

    /// Writes without reading until the server takes no more. Returns the number of bytes it took.
    pub fn write_until_stuck(&mut self, bytes: &[u8]) -> usize {
        self.0.set_write_timeout(Some(STUCK)).unwrap();
        let mut written = 0;
        while written < bytes.len() {
            match self.0.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.0.set_write_timeout(Some(PATIENCE)).unwrap();
        written
    }
}

/// A frame of session 7.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    frame_of(7, kind, body)
}

pub fn frame_of(session: u64, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = session.to_le_bytes().to_vec();
    frame.extend((body.len() as u32 + 1).to_le_bytes());
    frame.push(kind);
    frame.extend(body);
    frame
}

/// A frame of session 7 whose body is a number.
pub fn with_number(kind: u8, number: u32) -> Vec<u8> {
    frame(kind, &number.to_le_bytes())
}
