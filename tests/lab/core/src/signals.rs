//! SIGTERM and SIGINT as something to wait for.
//!
//! The library handles no signals. Ending a process is the host's business.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The two signals that ask a server to end. From its start on they do not end the process.
#[derive(Debug)]
pub struct EndSignals(Receiver<&'static str>);

impl EndSignals {
    /// Catches both signals.
    ///
    /// # Errors
    /// The system has no descriptors or threads left.
    pub fn catch() -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let (give, caught) = mpsc::channel();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                if give.send(name).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(caught))
    }

    /// Waits for the next signal and returns its name.
    ///
    /// # Errors
    /// The thread that catches signals is gone.
    pub fn wait(&self) -> io::Result<&'static str> {
        self.0.recv().map_err(io::Error::other)
    }

    /// Waits for the next signal, at most this long.
    ///
    /// # Errors
    /// The thread that catches signals is gone.
    pub fn wait_for(&self, limit: Duration) -> io::Result<Option<&'static str>> {
        match self.0.recv_timeout(limit) {
            Ok(name) => Ok(Some(name)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(gone @ RecvTimeoutError::Disconnected) => Err(io::Error::other(gone)),
        }
    }
}
