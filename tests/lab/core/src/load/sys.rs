//! Settings of the process and of a thread that generates load.

use std::io;
use std::num::NonZeroU64;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets the waits of this thread end within a microsecond of their time. The kernel's default is 50.
///
/// # Errors
/// Those of the system.
pub fn wake_precisely() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

/// Raises the soft limit on open descriptors to the hard one and returns it.
///
/// # Errors
/// Those of the system.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}
