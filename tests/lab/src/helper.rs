//! Processes of a program that are spoken to in lines, such as the servers of a comparison.
//!
//! A helper says one line when it is ready, and one for each order. It ends when its standard input ends,
//! which also happens when the process that has started it is killed.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A running helper. Dropped, it gets a second to end, then it is killed; [`finish`](Self::finish) waits for it.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a command and waits for its first line, which is returned.
    ///
    /// # Errors
    /// It cannot be started, or ends without a line.
    pub fn start(command: &mut Command) -> Result<(Self, String), Box<dyn Error>> {
        let program = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut helper = Self { child, stdout };
        let line = helper.line().map_err(|error| format!("{program}: {error}"))?;
        Ok((helper, line))
    }

    /// Starts this program again with other arguments.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn again<A: AsRef<std::ffi::OsStr>>(
        args: impl IntoIterator<Item = A>,
    ) -> Result<(Self, String), Box<dyn Error>> {
        Self::start(Command::new(std::env::current_exe()?).args(args))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and returns the answer.
    ///
    /// # Errors
    /// The helper has ended.
    pub fn ask(&mut self, order: &str) -> Result<String, Box<dyn Error>> {
        let stdin = self.child.stdin.as_mut().ok_or("no standard input")?;
        writeln!(stdin, "{order}")?;
        self.line()
    }

    /// Ends it, waits for it, and returns its last output.
    ///
    /// # Errors
    /// The helper fails.
    pub fn finish(mut self) -> Result<String, Box<dyn Error>> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("process {} ended with {status}", self.child.id()).into());
        }
        Ok(text)
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err(format!("ended with {}", self.child.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have processes of its own, which it ends first.
        drop(self.child.stdin.take());
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        // Its parent cannot do more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Side of the helper: says a line.
///
/// # Errors
/// Standard output is gone.
pub fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Side of the helper: answers each order until there are no more.
///
/// # Errors
/// Those of `act`, and standard input or output is gone.
pub fn obey(
    mut act: impl FnMut(&str) -> Result<String, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for order in io::stdin().lines() {
        say(&act(&order?)?)?;
    }
    Ok(())
}

/// Side of the helper: says a line, and waits until the input ends.
///
/// # Errors
/// Standard input or output is gone.
pub fn announce(line: &str) -> io::Result<()> {
    say(line)?;
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_ready_answers_and_ends_with_its_input() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo ready; while read line; do echo \"<$line>\"; done; echo over"]);
        let (mut helper, line) = Helper::start(&mut shell).unwrap();
        assert_eq!(line, "ready");
        assert_eq!(helper.ask("a").unwrap(), "<a>");
        assert_eq!(helper.finish().unwrap(), "over\n");
        let error = Helper::start(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }
}
