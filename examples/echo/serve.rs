//! `serve`: a server until SIGTERM or SIGINT.

use std::error::Error;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use epoll_group::{Class, Config, Runtime};
use lab::args::{Tunables, seconds, within};
use lab::load::raise_descriptor_limit;
use lab::signals::EndSignals;
use lab::table;

use super::admin::Admin;
use super::protocol::Echo;
use super::top::View;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4711")]
    listen: String,
    /// Where an operator may look inside, also while everything else waits. Clients that can connect
    /// may change tunables: a Unix socket keeps strangers out
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    #[command(flatten)]
    tunables: Tunables,
    /// Epoll groups, 0 to 128; 0: from the CPUs. The same as --set epoll_groups=G
    #[arg(long, value_name = "G", value_parser = within(0..=128_usize))]
    groups: Option<usize>,
    /// Workers of each group, 1 to 128. The same as --set epoll_threads_per_group=T
    #[arg(long, value_name = "T", value_parser = within(1..=128_usize))]
    threads: Option<usize>,
    /// Measure the time of each stage of a request. The same as --set enable_perf_hist=on
    #[arg(long)]
    histograms: bool,
    /// Print what `top` shows every S seconds, 0.1 to 86400
    #[arg(long, value_name = "S", value_parser = seconds(0.1..=86_400.0))]
    stats_every: Option<Duration>,
    /// Print every tunable with its value, default and range, and end
    #[arg(long)]
    print_config: bool,
}

/// Longest time for requests in progress to finish after the signal.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let config = args.config()?;
    if args.print_config {
        return Ok(print(&config, out)?);
    }
    let signals = EndSignals::catch()?;
    raise_descriptor_limit()?;

    let runtime = Runtime::builder().name("echo").config(config).start()?;
    let handle = runtime.handle();
    let echo = Echo::default();
    let listener = runtime.listen(args.listen.as_str(), echo.clone())?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    let admin = Admin::new(&runtime, echo.clone());
    let admin_at = args
        .admin
        .as_deref()
        .map(|address| handle.with_class(Class::Admin).listen(address, admin.clone()));
    let admin_listener = admin_at.transpose()?;
    if let Some(listener) = &admin_listener {
        writeln!(out, "admin on {}", listener.local_addr())?;
    }
    out.flush()?;

    let signal = match args.stats_every {
        None => signals.wait()?,
        Some(interval) => {
            let mut view = View::new(listener.local_addr(), |command| admin.answer(command))?;
            let mut next = Instant::now() + interval;
            loop {
                if let Some(signal) = signals.wait_for(next.duration_since(Instant::now()))? {
                    break signal;
                }
                view.look(|command| admin.answer(command))?;
                writeln!(out, "{}", view.frame())?;
                out.flush()?;
                // After a late look the next one is not earlier than now.
                next = (next + interval).max(Instant::now());
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

impl Args {
    /// The tunables, with those that have options of their own.
    fn config(&self) -> Result<Config, Box<dyn Error>> {
        let mut config = self.tunables.gather()?;
        if let Some(groups) = self.groups {
            config = config.epoll_groups(groups);
        }
        if let Some(threads) = self.threads {
            config = config.epoll_threads_per_group(threads);
        }
        if self.histograms {
            config = config.enable_perf_hist(true);
        }
        config.validate()?;
        Ok(config)
    }
}

fn print(config: &Config, out: &mut impl Write) -> io::Result<()> {
    let mut table = table::plain(&["tunable", "value", "default", "range", "when"]);
    for field in Config::FIELDS {
        let when = if field.live { "live" } else { "start only" };
        table.add_row([
            field.name.to_owned(),
            field.value_in(config),
            field.default_value(),
            field.range(),
            when.to_owned(),
        ]);
    }
    writeln!(out, "{}", table.trim_fmt())
}
