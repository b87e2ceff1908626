//! SIGTERM and SIGINT as something to wait for.
//!
//! The library handles no signals: how a process is told to end is the host's business. Blocked
//! before the runtime starts, both signals stay pending until the main thread asks for them,
//! because threads inherit the mask.

#![expect(unsafe_code, reason = "std has no door to signal masks")]

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// The two signals that ask a server to end, blocked in this thread and its later children.
pub(crate) struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Call it first thing in `main`: a thread that runs already keeps its own mask.
    pub(crate) fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call writes a whole set to a place that is ours.
        checked(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
        // SAFETY: the call above has initialised the set.
        let mut set = unsafe { set.assume_init() };
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the set is initialised, and ours.
            checked(unsafe { libc::sigaddset(&raw mut set, signal) })?;
        }
        // SAFETY: the set outlives the call, and the old mask is not asked for.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Self { set })
    }

    /// Waits for the next of them and returns its name.
    pub(crate) fn wait(&self) -> io::Result<&'static str> {
        let mut signal = 0;
        // SAFETY: the set is initialised, and the number is written to a place that is ours.
        let error = unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
        match (error, signal) {
            (0, libc::SIGINT) => Ok("SIGINT"),
            (0, _) => Ok("SIGTERM"),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl fmt::Debug for EndSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndSignals")
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
