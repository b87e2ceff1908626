//! An echo server and its client, on plain threads.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::address::Address;

/// Bytes that a client sends.
pub(crate) const SIZE: usize = 100_000;
/// After so long without a byte a client gives up.
const SILENCE: Duration = Duration::from_millis(600);

/// Answers with what it is sent. Its threads end with its connections, or with the process.
pub(crate) struct Echo(SocketAddr);

/// What a client has seen.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    pub(crate) corrupted: u64,
    /// Positions of what was corrupted.
    pub(crate) places: Vec<usize>,
    pub(crate) time: Duration,
    pub(crate) saw: Saw,
}

/// How it ended for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saw {
    All,
    End,
    Reset,
    Silence,
}

impl Echo {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::Builder::new().spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || io::copy(&mut &client, &mut &client));
            }
        })?;
        Ok(Self(address))
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.0
    }
}

impl Exchange {
    /// All came back.
    pub(crate) fn whole(&self) -> bool {
        self.saw == Saw::All && self.arrived == self.sent && self.intact()
    }

    /// What came back is what was sent.
    pub(crate) const fn intact(&self) -> bool {
        self.corrupted == 0
    }
}

/// Sends and receives at the same time.
pub(crate) fn exchange(address: &Address) -> io::Result<Exchange> {
    let Address::Tcp(address) = address else { return Err(ErrorKind::Unsupported.into()) };
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let mut writer = stream.try_clone()?;
    let sender = thread::spawn(move || {
        let bytes: Vec<u8> = (0..SIZE).map(byte).collect();
        let mut sent = 0;
        while sent < SIZE {
            match writer.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                // It was cut.
                Err(_) => break,
            }
        }
        sent as u64
    });
    let (mut arrived, mut places, mut bytes) = (0, Vec::new(), [0; 16 << 10]);
    let saw = loop {
        if arrived == SIZE {
            break Saw::All;
        }
        match stream.read(&mut bytes) {
            Ok(0) => break Saw::End,
            Ok(count) => {
                let wrong = (arrived..).zip(&bytes[..count]).filter(|&(at, got)| *got != byte(at));
                places.extend(wrong.map(|(at, _)| at));
                arrived += count;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Saw::Silence,
            Err(_) => break Saw::Reset,
        }
    };
    let time = began.elapsed();
    // Who sends hears of the end, too.
    let _ = stream.shutdown(Shutdown::Both);
    let sent = sender.join().map_err(|_| io::Error::other("the sender panicked"))?;
    let corrupted = places.len() as u64;
    Ok(Exchange { sent, arrived: arrived as u64, corrupted, places, time, saw })
}

/// What is sent at a position.
const fn byte(at: usize) -> u8 {
    (at ^ (at >> 8)) as u8
}

impl fmt::Display for Saw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::All => "all",
            Self::End => "the end",
            Self::Reset => "a reset",
            Self::Silence => "silence",
        })
    }
}
