//! Ctrl-C: it interrupts the statement that runs, and ends the program when there is none.

use std::io;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use epoll_group::client::Canceller;

use lab::signals::EndSignals;

/// The statement that runs, if one does. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<Option<Canceller>>>);

/// Lives as long as the statement runs.
#[derive(Debug)]
pub(crate) struct Guard(Running);

/// Exit status of a program ended by Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 128 + 2;

impl Running {
    fn lock(&self) -> MutexGuard<'_, Option<Canceller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A statement begins, which this interrupts.
    #[must_use]
    pub(crate) fn begin(&self, canceller: Canceller) -> Guard {
        *self.lock() = Some(canceller);
        Guard(self.clone())
    }

    /// Interrupts what runs; `false` when nothing does.
    pub(crate) fn cancel(&self) -> bool {
        let canceller = self.lock().clone();
        canceller.as_ref().map(Canceller::cancel).is_some()
    }

    /// Does so for each SIGINT from now on, in a thread that ends with the process.
    pub(crate) fn listen(&self, signals: EndSignals) -> io::Result<()> {
        let running = self.clone();
        let listen = move || {
            while let Ok(signal) = signals.wait() {
                if signal != "SIGINT" || !running.cancel() {
                    // The main thread may be blocked in a read of the terminal.
                    process::exit(INTERRUPTED);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
