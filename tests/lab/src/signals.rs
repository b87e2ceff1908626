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
use std::time::Duration;

/// The two signals that ask a server to end, blocked in this thread and its later children.
pub struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Call it first thing in `main`: a thread that runs already keeps its own mask.
    pub fn block() -> io::Result<Self> {
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
    pub fn wait(&self) -> io::Result<&'static str> {
        loop {
            if let Some(name) = self.wait_for(Duration::from_secs(3600))? {
                return Ok(name);
            }
        }
    }

    /// Waits for the next of them, but not longer than `limit`.
    pub fn wait_for(&self, limit: Duration) -> io::Result<Option<&'static str>> {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: set and limit outlive the call; what is known of the signal is not asked for.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.set, ptr::null_mut(), &raw const limit) };
        match checked(signal) {
            Ok(libc::SIGINT) => Ok(Some("SIGINT")),
            Ok(_) => Ok(Some("SIGTERM")),
            // EINTR: another signal had a handler. The caller looks at the time anyway.
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            },
        }
    }
}

impl fmt::Debug for EndSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndSignals")
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
