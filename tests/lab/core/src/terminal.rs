//! Standard output that may be cut short by its reader, and progress on standard error.

use std::error::Error;
use std::fmt;
use std::io::{self, Stdout, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

/// Standard output. When its reader goes away (`| head`), the rest is discarded. The checks and
/// the exit status of a program do not depend on its reader.
#[derive(Debug)]
pub struct Output {
    stdout: Stdout,
}

/// One line of progress on standard error: overwritten on a terminal; elsewhere, only the last text
/// of each step.
#[derive(Debug)]
pub struct ProgressLine {
    bar: ProgressBar,
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self::new()
    }
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
        let style = ProgressStyle::with_template("{msg}").expect("the template is a constant");
        Self { bar: ProgressBar::new_spinner().with_style(style) }
    }

    /// Shows how far a step has come.
    pub fn update(&mut self, text: impl fmt::Display) {
        if !self.bar.is_hidden() {
            self.bar.set_message(text.to_string());
        }
    }

    /// Shows one line of several: overwritten on a terminal, kept elsewhere.
    pub fn each(&mut self, text: impl fmt::Display) {
        if self.bar.is_hidden() { say(text) } else { self.update(text) }
    }

    /// Takes the line off a terminal.
    pub fn clear(&mut self) {
        self.update("");
    }

    /// Shows the end of a step. A terminal keeps nothing of it: the table says it all again.
    pub fn step_done(&mut self, text: impl fmt::Display) {
        if self.bar.is_hidden() { say(text) } else { self.clear() }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn say(text: impl fmt::Display) {
    // Progress that cannot be shown is no reason to stop.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Says on standard error why the program ends.
pub fn fail(program: &str, error: &dyn Error, status: ExitCode) -> ExitCode {
    // If even standard error is gone, the exit status still says it.
    let _ = writeln!(io::stderr(), "{program}: {error}");
    status
}
