//! A helper process: started, ready when it says so, ended by the end of its input or by a signal.

#![expect(unsafe_code, reason = "std has no door to signals")]

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A running helper. Dropped, it is told to end, and killed when it does not;
/// [`finish`](Self::finish) waits for it.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    stdout: BufReader<ChildStdout>,
    ending: Ending,
}

/// What tells a helper that it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The end of its input, which comes as well when this process is killed.
    Input,
    /// SIGTERM, which the kernel sends as well when this process is gone.
    Signal,
}

const GRACE: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

impl Helper {
    /// Starts it and waits for its first line, which has to begin with `greeting`; returns the
    /// rest of that line too.
    pub(crate) fn start(
        command: &mut Command,
        greeting: &str,
    ) -> Result<(Self, String), Box<dyn Error>> {
        Self::start_ending(command, greeting, Ending::Input)
    }

    /// The same for a program that listens to something else than its input.
    pub(crate) fn start_ending(
        command: &mut Command,
        greeting: &str,
        ending: Ending,
    ) -> Result<(Self, String), Box<dyn Error>> {
        if ending == Ending::Signal {
            // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
            unsafe { command.pre_exec(die_with_parent) };
        }
        let program = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut helper = Self { child, stdout: BufReader::new(stdout), ending };
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

    /// Ends it, waits for it, and returns what it still had to say.
    pub(crate) fn finish(mut self) -> Result<String, Box<dyn Error>> {
        self.tell()?;
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

impl Helper {
    /// That it is over. Only before it has been waited for.
    fn tell(&mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        if self.ending == Ending::Signal {
            // SAFETY: takes numbers only; the child has not been waited for, so the id is its own.
            let result = unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
            if result < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have temporary files to remove.
        if let Ok(None) = self.child.try_wait()
            && self.tell().is_ok()
        {
            let end = Instant::now() + GRACE;
            while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(BETWEEN_LOOKS);
            }
        }
        // It may have ended already; there is nobody to tell about a failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets the kernel end this process when the thread that has started it is gone.
fn die_with_parent() -> io::Result<()> {
    let signal = libc::SIGTERM as libc::c_ulong;
    // SAFETY: this operation takes a number, no pointer, and concerns the calling process alone.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_knows_signals_alone_ends_by_one() {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "trap 'echo over; exit 0' TERM; echo ready; while :; do sleep 0.01; done",
        ]);
        let (helper, rest) = Helper::start_ending(&mut shell, "ready", Ending::Signal).unwrap();
        assert_eq!(rest, "");
        assert_eq!(helper.finish().unwrap(), "over\n");
    }
}
