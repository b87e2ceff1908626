//! `top`: a live view of a server, drawn from what its admin listener says. A frame has at most 80
//! columns and 24 rows.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use epoll_group::stats::{Counter, Snapshot, Stage};
use lab::address::Address;
use lab::args::seconds;
use lab::signals::EndSignals;
use lab::units::{Bytes, Count, Nanos};

use super::admin::Client;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Admin listener of the server
    #[arg(long, value_name = "ADDR")]
    connect: Address,
    /// Seconds between two looks, 0.05 to 3600
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds(0.05..=3600.0))]
    interval: Duration,
    /// Print one frame without escape codes, as when the output is no terminal
    #[arg(long)]
    once: bool,
}

/// A server as it was at the last two looks.
pub(crate) struct View {
    server: String,
    before: Sample,
    now: Sample,
    /// Requests per second, the latest last.
    history: VecDeque<f64>,
}

/// One look: what `stats`, `buckets` and `config` answered.
#[derive(Clone, Debug)]
struct Sample {
    values: HashMap<String, f64>,
    /// Stage, power p and count: samples that took at least 2^(p-1) and less than 2^p ns.
    buckets: Vec<(String, usize, u64)>,
    histograms_on: bool,
}

/// Reasons to start threads.
const STARTED: [(Counter, &str); 4] = [
    (Counter::ThreadsStartedStall, "handlers wait"),
    (Counter::ThreadsStartedBacklog, "long queue"),
    (Counter::ThreadsStartedWatchdog, "no progress"),
    (Counter::ThreadsStartedReserve, "reserve"),
];
/// Counters that are zero while all is well.
const PROBLEMS: [(Counter, &str); 7] = [
    (Counter::Panics, "panics"),
    (Counter::HandlersReported, "slow handlers"),
    (Counter::ThreadStartFailed, "threads not started"),
    (Counter::ThreadsLimited, "threads above the limit"),
    (Counter::ConnectionsRefusedLimit, "refused by the limit"),
    (Counter::ConnectionsRefusedSilentLimit, "refused by the silent limit"),
    (Counter::ConnectionsRefusedDescriptors, "refused for want of descriptors"),
];

/// Lines with the names of values between braces: how many, with `/s` how many a second, with `B` in
/// bytes, with `s` as a time.
const FRAME: &str = "
requests/s   {echo_requests/s}
bytes/s      {bytes_received/s B} in, {bytes_sent/s B} out
calls/s      {recv_calls/s} recv, {send_calls/s} send

threads      {base_threads} base, {dynamic_threads} dynamic, {reserve_threads} reserve
             {running_threads} at work, {stalled_threads} wait, {standby_threads} on call; {threads_left} left
queue        {queue_len} long, {urgent_queue_len} urgent, {overflow_len} overflow; {queue_high_water} at most, oldest {oldest_task_age_seconds s}
wake-ups/s   {wakeups_useful/s} useful, {wakeups_futile/s} futile
stalls/s     {stalls/s} announced, {stalls_uncounted/s} not counted
connections  {connections} open, {silent_connections} silent, {paused_connections} paused, {closing_connections} closing; {connections_accepted/s} new/s
memory       {buffered_bytes B} in buffers, {slots_free} of {slots_allocated} slots free, {timers_pending} timers";

const COLUMNS: usize = 80;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Powers of two that a strip shows, from 128 ns to 17 s. Faster and slower samples count at its ends.
const POWERS: RangeInclusive<usize> = 8..=34;

/// Shows a server until SIGINT, or once.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    if args.once || !io::stdout().is_terminal() {
        let view = twice(&args.connect, args.interval)?;
        return Ok(out.write_all(view.frame().as_bytes())?);
    }
    let signals = EndSignals::catch()?;
    let mut client = Client::connect(&args.connect)?;
    let mut view = View::new(&args.connect, |command| client.ask(command))?;
    write!(out, "\x1b[2J")?;
    loop {
        // From the top left corner; what was there before is erased line by line.
        let frame = view.frame().replace('\n', "\x1b[K\n");
        write!(out, "\x1b[H{frame}\x1b[J")?;
        out.flush()?;
        if signals.wait_for(args.interval)?.is_some() {
            return Ok(());
        }
        view.look(|command| client.ask(command))?;
    }
}

/// Looks twice, with a pause between.
pub(crate) fn twice(server: &Address, pause: Duration) -> Result<View, Box<dyn Error>> {
    let mut client = Client::connect(server)?;
    let mut view = View::new(server, |command| client.ask(command))?;
    thread::sleep(pause);
    view.look(|command| client.ask(command))?;
    Ok(view)
}

/// Says how many threads were started, and why.
pub(crate) fn started(stats: &Snapshot) -> String {
    listed(&STARTED, |counter| stats.get(counter))
}

impl View {
    /// Looks for the first time. `ask` answers the commands of the admin listener.
    pub(crate) fn new<E>(
        server: impl Display,
        ask: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<Self, Box<dyn Error>>
    where
        Box<dyn Error>: From<E>,
    {
        let now = Sample::fetch(ask)?;
        let server = server.to_string();
        Ok(Self { server, before: now.clone(), now, history: VecDeque::new() })
    }

    /// Looks again.
    pub(crate) fn look<E>(
        &mut self,
        ask: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<(), Box<dyn Error>>
    where
        Box<dyn Error>: From<E>,
    {
        self.advance(Sample::fetch(ask)?);
        Ok(())
    }

    fn advance(&mut self, now: Sample) {
        self.before = std::mem::replace(&mut self.now, now);
        self.history.push_back(self.rate("echo_requests"));
        if self.history.len() > COLUMNS - 26 {
            self.history.pop_front();
        }
    }

    /// The latest value of this name; 0 if the server does not count it.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.now.value(name)
    }

    fn seconds(&self) -> f64 {
        (self.value("echo_uptime_seconds") - self.before.value("echo_uptime_seconds")).max(0.0)
    }

    /// Change per second between the last two looks, by the server's clock.
    fn rate(&self, name: &str) -> f64 {
        let difference = (self.value(name) - self.before.value(name)).max(0.0);
        if self.seconds() > 0.0 { difference / self.seconds() } else { 0.0 }
    }

    /// The picture, lines of text.
    pub(crate) fn frame(&self) -> String {
        let up = self.value("echo_uptime_seconds") as u64;
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let every = Nanos::from_seconds(self.seconds());
        let server = &self.server;
        let mut lines =
            vec![format!("echo at {server}, up {hours}:{minutes:02}:{seconds:02}, last {every}")];
        lines.extend(FRAME.lines().map(|line| self.filled(line)));
        lines[2] = format!("{:<24}{}", lines[2], sparkline(&self.history));
        let (started, problems) = (self.listed(&STARTED), self.listed(&PROBLEMS));
        lines.extend([format!("started      {started}"), format!("problems     {problems}")]);
        lines.push(String::new());
        lines.extend(self.latencies());
        let cut = |line: &String| line.chars().take(COLUMNS).collect::<String>();
        lines.iter().map(|line| cut(line).trim_end().to_owned() + "\n").collect()
    }

    /// A line of [`FRAME`] with its values.
    fn filled(&self, line: &str) -> String {
        let mut parts = line.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (field, rest) = part.split_once('}').unwrap_or((part, ""));
            let (field, unit) = field.split_once(' ').unwrap_or((field, ""));
            let value = match field.strip_suffix("/s") {
                Some(name) => self.rate(name),
                None => self.value(field),
            };
            text += &match unit {
                "B" => Bytes(value).to_string(),
                "s" => Nanos::from_seconds(value).to_string(),
                _ => Count(value).to_string(),
            };
            text += rest;
        }
        text
    }

    /// The counters that are not zero.
    fn listed(&self, counters: &[(Counter, &str)]) -> String {
        listed(counters, |counter| self.value(counter.name()) as u64)
    }

    fn latencies(&self) -> impl Iterator<Item = String> {
        let state = if self.now.histograms_on { "" } else { "(off)" };
        let axis = "   1µs  32µs 1ms  33ms 1s";
        let names = ["p50", "p99", "p99.9", "max"].map(|name| format!("{name:>9}")).concat();
        let heading = format!("{state:<13}{axis:<27}{names}");
        // An echo server has no sessions, and does nothing when a connection ends.
        let left_out = [Stage::Decode, Stage::Auth, Stage::Cleanup, Stage::Fin];
        let shown = Stage::ALL.iter().filter(move |stage| !left_out.contains(stage));
        let stages = shown.map(|stage| {
            let name = stage.name();
            if self.value(&format!("{name}_samples")) == 0.0 {
                return format!("{name:<13}no samples");
            }
            let buckets = self.now.buckets.iter().filter(|(of, ..)| of == name);
            let strip = strip(buckets.map(|&(_, power, count)| (power, count)));
            let quantile = |quantile| {
                let seconds = self.value(&format!("{name}_{quantile}_seconds"));
                format!("{:>9}", Nanos::from_seconds(seconds))
            };
            let quantiles = ["p50", "p99", "p999", "max"].map(quantile).concat();
            format!("{name:<13}{strip}{quantiles}")
        });
        std::iter::once(heading).chain(stages)
    }
}

impl Sample {
    fn fetch<E>(mut ask: impl FnMut(&str) -> Result<String, E>) -> Result<Self, Box<dyn Error>>
    where
        Box<dyn Error>: From<E>,
    {
        let sample = Self::parse(&ask("stats")?, &ask("buckets")?, &ask("config")?);
        Ok(sample.map_err(|what| format!("this is no admin listener of echo: {what}"))?)
    }

    fn parse(stats: &str, buckets: &str, config: &str) -> Result<Self, String> {
        let value = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            let value: f64 = value.parse().ok()?;
            (value.is_finite() && value >= 0.0).then(|| (name.to_owned(), value))
        };
        let bucket = |line: &str| {
            let mut words = line.split(' ');
            let stage = words.next()?.to_owned();
            let end: u64 = words.next()?.parse().ok()?;
            let count = words.next()?.parse().ok()?;
            Some((stage, end.checked_ilog2()? as usize, count))
        };
        let sample = Self {
            values: parsed(stats, value)?,
            buckets: parsed(buckets, bucket)?,
            histograms_on: config.lines().any(|line| line.starts_with("enable_perf_hist true ")),
        };
        for needed in ["echo_uptime_seconds", "echo_requests", "connections", "groups"] {
            if !sample.values.contains_key(needed) {
                return Err(format!("its stats have no {needed}"));
            }
        }
        Ok(sample)
    }

    fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }
}

fn parsed<T, C: FromIterator<T>>(
    lines: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<C, String> {
    lines.lines().map(|line| parse(line).ok_or_else(|| format!("{line:?}"))).collect()
}

fn listed(counters: &[(Counter, &str)], value: impl Fn(Counter) -> u64) -> String {
    let counted = counters.iter().map(|&(counter, what)| (what, value(counter)));
    let counted = counted.filter(|(_, count)| *count > 0);
    let texts: Vec<_> = counted.map(|(what, count)| format!("{what} {count}")).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// One character for each value, as high as the value is compared with the highest.
fn sparkline(values: &VecDeque<f64>) -> String {
    let most = values.iter().fold(0.0, |most, &value| f64::max(most, value));
    values.iter().map(|value| level(value / most)).collect()
}

/// One character for each power of two, as high as the logarithm of its count, so that a single slow
/// sample among millions shows.
fn strip(buckets: impl Iterator<Item = (usize, u64)>) -> String {
    let mut counts = vec![0_u64; POWERS.count()];
    for (power, count) in buckets {
        counts[power.clamp(*POWERS.start(), *POWERS.end()) - POWERS.start()] += count;
    }
    let most = counts.iter().copied().max().unwrap_or(0) as f64;
    let char = |&count: &u64| match count {
        0 => '·',
        count => level((count as f64).ln_1p() / most.ln_1p()),
    };
    counts.iter().map(char).collect()
}

/// The character for a part of the whole, 0 to 1. NaN, nothing of nothing, is the lowest.
fn level(part: f64) -> char {
    LEVELS[(part * 7.0).round() as usize]
}

#[cfg(test)]
mod tests {
    use epoll_group::{Config, Runtime};

    use super::super::admin::Admin;
    use super::super::protocol::Echo;
    use super::*;

    fn view(factor: f64) -> View {
        let sample = |at: f64| {
            let mut stats = String::new();
            let gauges = ["groups", "workers", "base_threads", "connections", "queue_len"];
            let counters = Counter::ALL.iter().map(|counter| counter.name());
            for name in counters.chain(gauges).chain(["echo_requests"]) {
                stats.push_str(&format!("{name} {}\n", at * factor));
            }
            stats
                .push_str(&format!("echo_uptime_seconds {at}\nrun_samples 9\nrun_max_seconds 2\n"));
            Sample::parse(&stats, "run 1024 8\nrun 2147483648 1\n", "enable_perf_hist true  #\n")
                .expect("it is well formed")
        };
        let first = sample(1.0);
        let mut view = View {
            server: "127.0.0.1:9".to_owned(),
            before: first.clone(),
            now: first,
            history: VecDeque::new(),
        };
        (2..100).for_each(|at| view.advance(sample(f64::from(at))));
        view
    }

    #[test]
    fn a_frame_fits_whatever_the_numbers_are() {
        for factor in [0.0, 1.0, 10.0, 1e6, 1e15] {
            let frame = view(factor).frame();
            assert!(frame.lines().count() <= 24, "{frame}");
            for line in frame.lines() {
                assert!(line.chars().count() <= COLUMNS, "{line}");
                assert!(!line.contains('\x1b'), "{line}");
            }
        }
    }

    #[test]
    fn a_server_tells_each_value_of_the_frame() {
        let runtime = Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(1))
            .start()
            .expect("it starts");
        let stats = Admin::new(&runtime, Echo::default()).answer("stats").expect("no argument");
        let sample = Sample::parse(&stats, "", "").expect("it is well formed");
        for field in FRAME.split('{').skip(1) {
            let name = field.split(['}', ' ', '/']).next().expect("there is a first");
            assert!(sample.values.contains_key(name), "{name}");
        }
    }

    #[test]
    fn rates_are_by_the_servers_clock() {
        let frame = view(1000.0).frame();
        let line = frame.lines().find(|line| line.starts_with("requests/s")).expect("it is there");
        assert!(line.contains(" 1,000 "), "{line}");
        assert!(line.ends_with('█'), "{line}");
        let run = frame.lines().find(|line| line.starts_with("run ")).expect("it is there");
        assert!(run.contains('█') && run.contains('▃') && run.ends_with("2.00 s"), "{run}");
    }

    #[test]
    fn a_single_slow_sample_among_millions_shows() {
        let text = strip([(12, 1_000_000), (34, 1)].into_iter());
        assert_eq!(text, "····█·····················▁");
        let text = strip([(1, 1), (60, 1)].into_iter());
        assert!(text.starts_with("█·") && text.ends_with("·█"), "{text}");
        assert_eq!(strip(std::iter::empty()), "·".repeat(27));
    }

    #[test]
    fn lines_have_a_character_for_each_value() {
        assert_eq!(sparkline(&[0.0, 7.0, 14.0].into()), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0].into()), "▁▁");
    }

    #[test]
    fn what_is_no_admin_listener_is_said_to_be_none() {
        for stats in ["garbage", "a b", "connections -1", "groups NaN", "groups 1"] {
            let answer = |command: &str| match command {
                "stats" => Ok::<_, String>(stats.to_owned()),
                _ => Ok(String::new()),
            };
            let error = View::new("", answer).err().expect(stats).to_string();
            assert!(error.starts_with("this is no admin listener of echo: "), "{error}");
        }
        assert!(Sample::parse("groups 1", "run 0 1", "").is_err());
    }
}
