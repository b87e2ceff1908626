//! Processes of this program that are spoken to in lines.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::options::Attackers;

/// A process that says one line when it is ready, and one for each order. The end of its input
/// ends it.
pub(crate) struct Helper {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// Whose turn it is when a CPU is wanted by many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Usual,
    /// Whenever it wants, if this user may give that: what is measured is not the one who measures.
    First,
    /// When nobody else wants it.
    Last,
}

impl From<Attackers> for Priority {
    fn from(attackers: Attackers) -> Self {
        match attackers {
            Attackers::Idle => Self::Last,
            Attackers::Equal => Self::Usual,
        }
    }
}

impl Helper {
    /// This program again; returns its first line too.
    pub(crate) fn start(
        priority: Priority,
        args: &[String],
    ) -> Result<(Self, String), Box<dyn Error>> {
        let program = std::env::current_exe()?;
        let mut command = match priority {
            Priority::Usual => Command::new(&program),
            Priority::First => wrapped("nice", &["-n", "-10"], &program),
            Priority::Last => wrapped("chrt", &["--idle", "0"], &program),
        };
        let errors = if priority == Priority::First { Stdio::null() } else { Stdio::inherit() };
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(errors).spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut helper = Self { child, stdout };
        let line = helper.line()?;
        Ok((helper, line))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and returns the answer.
    pub(crate) fn ask(&mut self, order: &str) -> Result<String, Box<dyn Error>> {
        let stdin = self.child.stdin.as_mut().ok_or("no standard input")?;
        writeln!(stdin, "{order}")?;
        self.line()
    }

    /// Ends it, waits, and returns what it still had to say.
    pub(crate) fn finish(mut self) -> Result<String, Box<dyn Error>> {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest)?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(rest)
        } else {
            Err(format!("a helper ended with {status}").into())
        }
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err(format!("a helper ended: {:?}", self.child.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// `exec`s in the end, so that the child is the program itself.
fn wrapped(by: &str, args: &[&str], program: &std::path::Path) -> Command {
    let mut command = Command::new(by);
    command.args(args).arg(program);
    command
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other side: answers each line of the input until it ends.
pub(crate) fn obey(
    mut act: impl FnMut(&str) -> Result<String, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for order in io::stdin().lines() {
        say(&act(&order?)?)?;
    }
    Ok(())
}

/// A line for whoever has started this process.
pub(crate) fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
