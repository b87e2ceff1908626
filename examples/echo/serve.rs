//! `serve`: a server until it is told to end.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use epoll_group::Runtime;

use super::args::Serve;
use super::load::raise_descriptor_limit;
use super::protocol::Echo;
use super::signals::EndSignals;

/// How long requests in progress may take to finish once the server is told to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) fn run(args: &Serve, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // Before the runtime starts its threads: they inherit the mask.
    let signals = EndSignals::block()?;
    raise_descriptor_limit()?;

    let mut builder = Runtime::builder().name("echo");
    if let Some(groups) = args.groups {
        builder = builder.groups(groups);
    }
    if let Some(threads) = args.threads {
        builder = builder.threads_per_group(threads);
    }
    let runtime = builder.start()?;
    let handle = runtime.handle();
    let echo = Echo::default();
    let listener = runtime.listen(args.listen.as_str(), echo.clone())?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    out.flush()?;

    let signal = signals.wait()?;
    writeln!(out, "{signal}: draining")?;
    out.flush()?;
    let report = runtime.drain(DRAIN);
    writeln!(out, "{report}")?;
    writeln!(out, "{} frames answered", echo.answered())?;
    writeln!(out, "{}", handle.stats())?;
    Ok(())
}
