//! The options of `serve`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::super::settings::Setting;
use super::{Command, UsageError, number, seconds, text};

#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) listen: String,
    pub(crate) admin: Option<String>,
    pub(crate) config: Option<PathBuf>,
    /// In the order of the command line: the last one of a tunable counts.
    pub(crate) settings: Vec<Setting>,
    pub(crate) stats_every: Option<Duration>,
    pub(crate) print_config: bool,
}

const GROUPS: RangeInclusive<usize> = 0..=128;
const STATS_EVERY: RangeInclusive<f64> = 0.1..=86_400.0;
const THREADS: RangeInclusive<usize> = 1..=128;

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut serve = Serve {
        listen: "127.0.0.1:4711".to_owned(),
        admin: None,
        config: None,
        settings: Vec::new(),
        stats_every: None,
        print_config: false,
    };
    let setting = |option, name: &str, value: &str| Setting {
        option,
        name: name.to_owned(),
        value: value.to_owned(),
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("listen") => serve.listen = text("--listen", parser.value()?)?,
            Arg::Long("admin") => serve.admin = Some(text("--admin", parser.value()?)?),
            Arg::Long("config") => serve.config = Some(parser.value()?.into()),
            Arg::Long("set") => {
                let pair = text("--set", parser.value()?)?;
                let Some((name, value)) = pair.split_once('=') else {
                    let usage = "is not NAME=VALUE, such as max_threads=256";
                    return Err(UsageError(format!("--set {pair} {usage}")));
                };
                serve.settings.push(setting("--set", name, value));
            }
            Arg::Long("groups") => {
                let groups = number("--groups", parser.value()?, GROUPS)?;
                serve.settings.push(setting("--groups", "epoll_groups", &groups.to_string()));
            }
            Arg::Long("threads") => {
                let threads = number("--threads", parser.value()?, THREADS)?.to_string();
                serve.settings.push(setting("--threads", "epoll_threads_per_group", &threads));
            }
            Arg::Long("histograms") => {
                serve.settings.push(setting("--histograms", "enable_perf_hist", "on"));
            }
            Arg::Long("stats-every") => {
                let interval = seconds("--stats-every", parser.value()?, STATS_EVERY)?;
                serve.stats_every = Some(interval);
            }
            Arg::Long("print-config") => serve.print_config = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Command::Serve(serve))
}
