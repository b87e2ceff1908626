//! An echo server and its client, on plain threads.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use lab::address::Address;

/// Bytes that a client sends.
pub(crate) const SIZE: usize = 100_000;
/// Time without a byte after which a client gives up.
const SILENCE: Duration = Duration::from_millis(600);

/// The exchange as its client saw it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    /// Positions of bytes that arrived corrupted.
    pub(crate) places: Vec<usize>,
    pub(crate) time: Duration,
    pub(crate) saw: Saw,
}

/// How the exchange ended for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saw {
    All,
    End,
    Reset,
    Silence,
}

/// Starts an echo server. Its threads end with their connections, or with the process.
pub(crate) fn echo(listen: &Address) -> io::Result<Address> {
    let (listener, address) = listen.listen()?;
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            thread::spawn(move || io::copy(&mut &client, &mut &client));
        }
    });
    Ok(address)
}

impl Exchange {
    /// True if every byte came back as it was sent.
    pub(crate) fn whole(&self) -> bool {
        self.saw == Saw::All && self.arrived == self.sent && self.intact()
    }

    /// True if no byte that came back was corrupted.
    pub(crate) fn intact(&self) -> bool {
        self.places.is_empty()
    }
}

/// Sends and receives at the same time.
pub(crate) fn exchange(address: &Address) -> io::Result<Exchange> {
    let began = Instant::now();
    let mut stream = address.connect(SILENCE)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let mut writer = stream.try_clone()?;
    let sender = thread::spawn(move || {
        let bytes: Vec<u8> = (0..SIZE).map(byte).collect();
        let mut sent = 0;
        while sent < SIZE {
            match writer.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                // The connection was cut.
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
    // Ends the sender's writes, too.
    let _ = stream.shutdown(Shutdown::Both);
    let sent = sender.join().map_err(|_| io::Error::other("the sender panicked"))?;
    Ok(Exchange { sent, arrived: arrived as u64, places, time, saw })
}

/// The byte sent at a position.
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
