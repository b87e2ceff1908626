//! Signals: SIGINT, as of Ctrl-C, interrupts the statement that runs. A script stops behind it, and a
//! prompt goes on. SIGTERM ends the program.

use std::io::{self, IsTerminal};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use epoll_group::client::Canceller;

use lab::signals::EndSignals;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Exit status after a SIGINT, as shells have it.
pub(crate) const INTERRUPTED: u8 = 128 + 2;
/// Exit status after a SIGTERM.
const TERMINATED: u8 = 128 + 15;
/// Ends the marking of pastes, which the prompt began.
const BRACKETED_PASTE_OFF: &[u8] = b"\x1b[?2004l";

/// The statement that runs, if one does. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    canceller: Option<Canceller>,
    mode: Mode,
    /// Settings of the terminal when no line is edited. `None` in a script.
    terminal: Option<Termios>,
}

/// Source of the statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Script,
    /// A script that had a SIGINT. No statement begins any more.
    Interrupted,
    /// A user at a prompt.
    Prompt,
}

/// Lives as long as the statement runs.
#[derive(Debug)]
pub(crate) struct Guard(Running);

impl Running {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the canceller of a statement. Returns None if a SIGINT has stopped the script.
    pub(crate) fn begin(&self, canceller: Canceller) -> Option<Guard> {
        let mut state = self.lock();
        if state.mode == Mode::Interrupted {
            return None;
        }
        state.canceller = Some(canceller);
        Some(Guard(self.clone()))
    }

    /// Responds to a SIGINT: interrupts the statement that runs, and stops a script. Returns the exit
    /// status if the program ends at once, because no statement runs.
    pub(crate) fn interrupt(&self) -> Option<u8> {
        let mut state = self.lock();
        if state.mode == Mode::Script {
            state.mode = Mode::Interrupted;
        }
        let (canceller, mode) = (state.canceller.clone(), state.mode);
        drop(state);
        match canceller {
            Some(canceller) => canceller.cancel(),
            None if mode == Mode::Interrupted => return Some(INTERRUPTED),
            None => {}
        }
        None
    }

    /// True if a SIGINT stops the script.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.lock().mode == Mode::Interrupted
    }

    /// Without a statement that runs, a SIGINT is ignored from now on: the user at the prompt has a
    /// session and a history. Called before the first prompt.
    pub(crate) fn prompts(&self) {
        let mut state = self.lock();
        state.mode = Mode::Prompt;
        state.terminal = tcgetattr(io::stdin()).ok();
    }

    /// Takes back what the prompt has set at the terminal, in place of the main thread, which is
    /// blocked in a read.
    fn restore_terminal(&self) {
        let state = self.lock();
        if let (Some(terminal), None) = (&state.terminal, &state.canceller) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, terminal);
            if io::stdout().is_terminal() {
                let _ = rustix::io::write(io::stdout(), BRACKETED_PASTE_OFF);
            }
        }
    }

    /// Responds to each signal from now on, in a thread that ends with the process.
    pub(crate) fn listen(&self, signals: EndSignals) -> io::Result<()> {
        let running = self.clone();
        let listen = move || {
            while let Ok(signal) = signals.wait() {
                let status = match signal {
                    "SIGINT" => running.interrupt(),
                    _ => {
                        running.restore_terminal();
                        Some(TERMINATED)
                    }
                };
                if let Some(status) = status {
                    // The main thread may be blocked in a read of the terminal.
                    process::exit(status.into());
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

#[cfg(test)]
impl Running {
    /// True if a statement runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().canceller.is_some()
    }
}
