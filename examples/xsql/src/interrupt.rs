//! Signals: SIGINT, as of Ctrl-C, interrupts the statement that runs. Without one it ends a script, and
//! a prompt goes on. SIGTERM ends the program.

use std::io;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use epoll_group::client::Canceller;

use lab::signals::EndSignals;

/// The statement that runs, if one does. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    canceller: Option<Canceller>,
    /// A user is at a prompt.
    is_interactive: bool,
}

/// Lives as long as the statement runs.
#[derive(Debug)]
pub(crate) struct Guard(Running);

impl Running {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A statement begins, which this interrupts.
    #[must_use]
    pub(crate) fn begin(&self, canceller: Canceller) -> Guard {
        self.lock().canceller = Some(canceller);
        Guard(self.clone())
    }

    /// Interrupts what runs; `false` when nothing does.
    pub(crate) fn cancel(&self) -> bool {
        let canceller = self.lock().canceller.clone();
        canceller.as_ref().map(Canceller::cancel).is_some()
    }

    /// Without a statement that runs, a SIGINT is ignored from now on: the user at the prompt has a
    /// session and a history.
    pub(crate) fn prompts(&self) {
        self.lock().is_interactive = true;
    }

    /// Responds to each signal from now on, in a thread that ends with the process.
    pub(crate) fn listen(&self, signals: EndSignals) -> io::Result<()> {
        let running = self.clone();
        let listen = move || {
            while let Ok(signal) = signals.wait() {
                let cancelled = signal == "SIGINT" && running.cancel();
                let is_interactive = running.lock().is_interactive;
                if let Some(status) = exit_status(signal, cancelled, is_interactive) {
                    // The main thread may be blocked in a read of the terminal.
                    process::exit(status);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().canceller = None;
    }
}

/// Exit status of the program after this signal, as shells have it. None: the program goes on.
fn exit_status(signal: &str, cancelled: bool, is_interactive: bool) -> Option<i32> {
    match signal {
        "SIGINT" if cancelled || is_interactive => None,
        "SIGINT" => Some(128 + 2),
        _ => Some(128 + 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_what_it_should() {
        for is_interactive in [false, true] {
            assert_eq!(exit_status("SIGINT", true, is_interactive), None);
            assert_eq!(exit_status("SIGTERM", false, is_interactive), Some(143));
        }
        assert_eq!(exit_status("SIGINT", false, false), Some(130));
        assert_eq!(exit_status("SIGINT", false, true), None);
    }
}
