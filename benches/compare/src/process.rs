//! A helper process: started, ready when it says so, ended by the end of its input.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running helper. Dropped, it is killed; [`finish`](Self::finish) lets it end by itself.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts it and waits for its first line, which has to begin with `greeting`; returns the
    /// rest of that line too.
    pub(crate) fn start(
        command: &mut Command,
        greeting: &str,
    ) -> Result<(Self, String), Box<dyn Error>> {
        let program = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut helper = Self { child, stdout: BufReader::new(stdout) };
        let mut line = String::new();
        helper.stdout.read_line(&mut line)?;
        match line.trim_end().strip_prefix(greeting) {
            Some(rest) => Ok((helper, rest.trim().to_owned())),
            None => Err(format!("{program} does not say {greeting:?} but {line:?}").into()),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends its input, waits for it, and returns what it still had to say.
    pub(crate) fn finish(mut self) -> Result<String, Box<dyn Error>> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(text)
        } else {
            Err(format!("process {} ended with {status}", self.child.id()).into())
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell about a failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
