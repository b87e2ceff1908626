//! `serve`: a server until it is told to end.

use std::env;
use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

use epoll_group::{Class, Runtime};

use super::admin::Admin;
use super::args::Serve;
use super::load::raise_descriptor_limit;
use super::periodic::Periodic;
use super::protocol::Echo;
use super::settings::Settings;
use super::signals::EndSignals;

/// How long requests in progress may take to finish once the server is told to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) fn run(args: &Serve, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let settings = Settings::gather(args.config.as_deref(), env::vars_os(), &args.settings)?;
    if args.print_config {
        settings.print(out)?;
        return Ok(());
    }
    // Before the runtime starts its threads: they inherit the mask.
    let signals = EndSignals::catch()?;
    raise_descriptor_limit()?;

    let runtime = Runtime::builder().name("echo").config(settings.config).start()?;
    let handle = runtime.handle();
    let echo = Echo::default();
    let listener = runtime.listen(args.listen.as_str(), echo.clone())?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    if let Some(address) = &args.admin {
        let requests = echo.clone();
        let admin = Admin::new(&runtime, move || requests.answered());
        let listener = handle.with_class(Class::Admin).listen(address.as_str(), admin)?;
        writeln!(out, "admin on {}", listener.local_addr())?;
    }
    out.flush()?;

    let signal = match args.stats_every {
        None => signals.wait()?,
        Some(interval) => {
            let mut periodic = Periodic::new(handle.stats(), echo.answered());
            let mut next = Instant::now() + interval;
            loop {
                if let Some(signal) = signals.wait_for(next.duration_since(Instant::now()))? {
                    break signal;
                }
                if Instant::now() >= next {
                    periodic.print(out, handle.stats(), echo.answered())?;
                    out.flush()?;
                    // A look that came late is no reason for two in a row.
                    next = (next + interval).max(Instant::now());
                }
            }
        }
    };
    writeln!(out, "{signal}: draining")?;
    out.flush()?;
    let report = runtime.drain(DRAIN);
    writeln!(out, "{report}")?;
    writeln!(out, "{} frames answered", echo.answered())?;
    writeln!(out, "{}", handle.stats())?;
    Ok(())
}
