//! Standard output that may be cut short by its reader, and progress on standard error.

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal, Stderr, Stdout, Write};
use std::process::ExitCode;

/// Standard output. When its reader goes away (`| head`), the rest is discarded: what the
/// program checks and how it exits does not depend on who listens.
#[derive(Debug)]
pub struct Output {
    stdout: Stdout,
}

/// One line that is overwritten on a terminal; elsewhere, only the last text of each step.
#[derive(Debug)]
pub struct ProgressLine {
    stderr: Stderr,
    on_terminal: bool,
}

impl Output {
    pub fn new() -> Self {
        Self { stdout: io::stdout() }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stdout.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            result => result,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.stdout.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}

impl ProgressLine {
    pub fn new() -> Self {
        let stderr = io::stderr();
        let on_terminal = stderr.is_terminal();
        Self { stderr, on_terminal }
    }

    /// Shows how far a step has come.
    pub fn update(&mut self, text: impl fmt::Display) {
        if self.on_terminal {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(self.stderr, "\r\x1b[K{text}").and_then(|()| self.stderr.flush());
        }
    }

    /// Shows one line of several: overwritten on a terminal, kept elsewhere.
    #[allow(dead_code, reason = "the select1 example shows its progress so")]
    pub fn each(&mut self, text: impl fmt::Display) {
        if self.on_terminal {
            self.update(text);
        } else {
            let _ = writeln!(self.stderr, "{text}");
        }
    }

    /// A terminal forgets the last line.
    #[allow(dead_code, reason = "the select1 example shows its progress so")]
    pub fn clear(&mut self) {
        self.update("");
    }

    /// Shows the end of a step. A terminal keeps nothing of it: the table says it all again.
    pub fn step_done(&mut self, text: impl fmt::Display) {
        let _ = if self.on_terminal {
            write!(self.stderr, "\r\x1b[K").and_then(|()| self.stderr.flush())
        } else {
            writeln!(self.stderr, "{text}")
        };
    }
}

/// Says on standard error why the program ends.
pub fn fail(program: &str, error: &dyn Error, status: ExitCode) -> ExitCode {
    // If even standard error is gone, the exit status still says it.
    let _ = writeln!(io::stderr(), "{program}: {error}");
    status
}
