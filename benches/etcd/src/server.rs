//! Server processes, each with a folder of its own. Both are gone when this program ends. If it is
//! killed, the folders stay.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A server and its folder. Dropped, it gets SIGTERM, then SIGKILL, and its folder is removed. The kernel
/// kills it if this process is killed.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    folder: TempDir,
}

const GRACE: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Bytes of the log that an error shows.
const LOG_BYTES: usize = 2000;

impl Server {
    /// Starts `program`. The arguments may name its folder in `parent`.
    pub(crate) fn start(
        program: &Path,
        parent: &Path,
        arguments: impl FnOnce(&str) -> Vec<String>,
    ) -> Result<Self, Box<dyn Error>> {
        fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new().prefix("etcd-compare-").tempdir_in(parent)?;
        let data = folder.path().join("data");
        let data = data.to_str().ok_or("the folder's name is not UTF-8")?;
        let log = File::create(folder.path().join("log"))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments(data))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("setpriv {}: {error}", program.display()))?;
        Ok(Self { child, folder })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// # Errors
    ///
    /// The server has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), Box<dyn Error>> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the server ended with {status}: {}", self.log()).into()),
        }
    }

    /// Returns the end of the log.
    pub(crate) fn log(&self) -> String {
        let text = fs::read(self.folder.path().join("log")).unwrap_or_default();
        let end = &text[text.len().saturating_sub(LOG_BYTES)..];
        String::from_utf8_lossy(end).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failure means that the server has ended already.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        }
        let end = Instant::now() + GRACE;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(BETWEEN_LOOKS);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the CPU time of a process: user and system time of all threads, also of those that have ended.
pub(crate) fn cpu_time(pid: u32) -> io::Result<Duration> {
    let clock: ClockId = clock_getcpuclockid(Pid::from_raw(pid as i32))?;
    Ok(clock.now()?.into())
}

/// Returns a free port of the loopback.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(parent: &Path, script: &'static str) -> Server {
        let arguments = |data: &str| vec!["-c".into(), script.into(), data.into()];
        Server::start(Path::new("/bin/sh"), parent, arguments).unwrap()
    }

    #[test]
    fn a_server_that_is_dropped_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let server = shell(parent.path(), "mkdir \"$0\"; exec sleep 100");
        let pid = server.pid();
        assert!(cpu_time(pid).is_ok());
        drop(server);
        assert!(cpu_time(pid).is_err());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_server_that_ends_shows_its_log() {
        let parent = tempfile::tempdir().unwrap();
        let mut server = shell(parent.path(), "echo no luck; exit 3");
        server.child.wait().unwrap();
        assert!(server.check().unwrap_err().to_string().contains("no luck"));
    }

    #[test]
    fn the_clock_of_this_process_moves() {
        let before = cpu_time(std::process::id()).unwrap();
        while cpu_time(std::process::id()).unwrap() == before {}
    }
}
