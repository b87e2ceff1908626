//! What stands where in a frame. It fits into 80 columns and 24 rows.

use std::collections::VecDeque;
use std::time::Duration;

use epoll_group::stats::{Counter, Stage};

use super::super::load::Target;
use super::super::periodic::STARTED;
use super::super::units::{Bytes, Count, Nanos};
use super::bars;
use super::line::{Line, Look, Size, Style};
use super::sample::Sample;

/// A server as it was at the last two looks.
pub(super) struct View {
    server: String,
    before: Sample,
    now: Sample,
    /// Requests per second, the latest last.
    history: VecDeque<f64>,
}

/// Intervals that the sparkline shows.
const HISTORY: usize = 60;
/// From here on a strip takes two columns for each power of two.
const WIDE: usize = 110;

impl View {
    pub(super) fn new(server: &Target, first: Sample) -> Self {
        let server = server.to_string();
        Self { server, before: first.clone(), now: first, history: VecDeque::new() }
    }

    pub(super) fn advance(&mut self, now: Sample) {
        self.before = std::mem::replace(&mut self.now, now);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(self.rate("echo_requests"));
    }

    pub(super) const fn histograms_on(&self) -> bool {
        self.now.histograms_on
    }

    /// The frame, cut to the size of the terminal.
    pub(super) fn text(&self, size: Size, look: Look) -> String {
        let mut lines = self.lines(size.columns);
        lines.truncate(size.rows);
        lines.iter().map(|line| line.text(size.columns, look) + "\n").collect()
    }

    fn lines(&self, columns: usize) -> Vec<Line> {
        let mut lines = vec![self.title(columns), Line::default()];
        lines.extend(self.throughput(columns));
        lines.push(Line::default());
        lines.extend(self.threads(columns));
        lines.push(Line::default());
        lines.extend([self.queue(), self.wakeups(), self.stalls()]);
        lines.extend([self.connections(), self.memory(), Line::default()]);
        lines.extend(self.latencies(columns));
        lines.push(
            Line::default().with(
                Style::Faint,
                "q quits, r empties the histograms, h switches them on and off",
            ),
        );
        lines
    }

    fn title(&self, columns: usize) -> Line {
        let up = Duration::from_secs(self.now.value("echo_uptime_seconds") as u64).as_secs();
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let every = Nanos::from_seconds(self.seconds());
        let right = format!("up {hours}:{minutes:02}:{seconds:02}, last {every}");
        let left = Line::default().with(Style::Heading, format!("echo at {}", self.server));
        let gap = columns.saturating_sub(left.chars() + right.chars().count()).max(2);
        left.plain(" ".repeat(gap)).with(Style::Faint, right)
    }

    fn throughput(&self, columns: usize) -> [Line; 2] {
        let requests = Count(self.rate("echo_requests"));
        let first = Line::named("requests/s").plain(format!("{requests:>11}  "));
        let room = columns.saturating_sub(first.chars()).min(self.history.len());
        let latest = self.history.range(self.history.len() - room..).copied();
        let calls = self.rate(Counter::RecvCalls.name()) + self.rate(Counter::SendCalls.name());
        let calls = match self.rate("echo_requests") {
            0.0 => String::new(),
            requests => format!("; {:.2} recv and send calls per request", calls / requests),
        };
        let bytes = |counter: Counter| Bytes(self.rate(counter.name()));
        let (received, sent) = (bytes(Counter::BytesReceived), bytes(Counter::BytesSent));
        [
            first.with(Style::Good, bars::sparkline(latest)),
            Line::named("bytes/s").plain(format!("{received:>11} in, {sent} out{calls}")),
        ]
    }

    fn threads(&self, columns: usize) -> [Line; 4] {
        let value = |name| self.now.value(name);
        let (busy, waiting) = (value("running_threads"), value("stalled_threads"));
        let all = value("workers") + value("reserve_threads");
        let idle = (all - busy - waiting).max(0.0);
        let states =
            [(Style::Good, '█', busy), (Style::Busy, '▒', waiting), (Style::Faint, '░', idle)];
        let mut started = Line::named("  started");
        for (place, (counter, why)) in STARTED.into_iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            started = started.plain(format!("{separator}{why} {}", brief(self.now.count(counter))));
        }
        [
            Line::named("threads")
                .plain(format!(
                    "base {}, dynamic {}, tasker {}, reserve {} ({} on call)",
                    value("base_threads"),
                    value("dynamic_threads"),
                    value("tasker_threads"),
                    value("reserve_threads"),
                    value("standby_threads"),
                ))
                .problem("failed", self.now.count(Counter::ThreadStartFailed)),
            bars::shares(Line::named(""), &states, columns.saturating_sub(15)),
            Line::named("")
                .with(Style::Good, "█")
                .plain(format!(" at work {busy}  "))
                .with(Style::Busy, "▒")
                .plain(format!(" wait {waiting}  "))
                .with(Style::Faint, "░")
                .plain(format!(
                    " idle {idle}  left {}",
                    brief(self.now.count(Counter::ThreadsLeft))
                ))
                .problem("limited", self.now.count(Counter::ThreadsLimited)),
            started,
        ]
    }

    fn queue(&self) -> Line {
        let value = |name| self.now.value(name);
        let oldest = Nanos::from_seconds(value("oldest_task_age_seconds"));
        let (urgent, overflow) = (value("urgent_queue_len"), value("overflow_len"));
        Line::named("queue").plain(format!(
            "{} long, urgent {urgent}, overflow {overflow}; high water {}, oldest {oldest}",
            value("queue_len"),
            value("queue_high_water"),
        ))
    }

    fn wakeups(&self) -> Line {
        let useful = self.rate(Counter::WakeupsUseful.name());
        let futile = self.rate(Counter::WakeupsFutile.name());
        let percent = 100.0 * futile / (useful + futile).max(f64::MIN_POSITIVE);
        let (useful, futile) = (Count(useful), Count(futile));
        Line::named("wake-ups/s")
            .plain(format!("useful {useful}, futile {futile} ({percent:.0} %)"))
    }

    fn stalls(&self) -> Line {
        let counted = Count(self.rate(Counter::Stalls.name()));
        let uncounted = Count(self.rate(Counter::StallsUncounted.name()));
        Line::named("stalls/s")
            .plain(format!("{counted} announced, {uncounted} not counted"))
            .problem("slow handlers", self.now.count(Counter::HandlersReported))
            .problem("panics", self.now.count(Counter::Panics))
    }

    fn connections(&self) -> Line {
        let value = |name| self.now.value(name);
        let refused = [
            Counter::ConnectionsRefusedLimit,
            Counter::ConnectionsRefusedSilentLimit,
            Counter::ConnectionsRefusedDescriptors,
        ];
        let refused = refused.into_iter().map(|counter| self.now.count(counter)).sum();
        Line::named("connections")
            .plain(format!(
                "open {} (silent {}, paused {}, closing {}); {} new/s",
                value("connections"),
                value("silent_connections"),
                value("paused_connections"),
                value("closing_connections"),
                Count(self.rate(Counter::ConnectionsAccepted.name())),
            ))
            .problem("refused", refused)
    }

    fn memory(&self) -> Line {
        let value = |name| self.now.value(name);
        let (buffered, timers) = (Bytes(value("buffered_bytes")), value("timers_pending"));
        let used = value("slots_allocated") - value("slots_free");
        let slots = value("slots_allocated");
        Line::named("memory")
            .plain(format!("{buffered} in buffers, {used} of {slots} slots used, {timers} timers"))
    }

    fn latencies(&self, columns: usize) -> Vec<Line> {
        let chars_each = if columns >= WIDE { 2 } else { 1 };
        let mut lines = Vec::new();
        let state = if self.now.histograms_on { "" } else { "histograms: off" };
        let width = bars::POWERS.count() * chars_each;
        lines.push(
            Line::default()
                .with(
                    if state.is_empty() { Style::Faint } else { Style::Busy },
                    format!("{state:<13}"),
                )
                .with(Style::Faint, format!("{:<width$}", bars::axis(chars_each)))
                .with(
                    Style::Faint,
                    ["p50", "p99", "p99.9", "max"].map(|name| format!("{name:>9}")).concat(),
                ),
        );
        for &stage in Stage::ALL {
            let line = Line::named(stage.name());
            if self.now.samples(stage) == 0.0 {
                lines.push(line.with(Style::Faint, "no samples"));
                continue;
            }
            let strip = bars::strip(self.now.buckets(stage), chars_each);
            let quantile = |name| {
                let time = Nanos::from_seconds(self.now.quantile(stage, name));
                format!("{time:>9}")
            };
            let quantiles = ["p50", "p99", "p999", "max"].map(quantile).concat();
            lines.push(line.with(Style::Good, strip).plain(quantiles));
        }
        lines
    }

    /// Between the last two looks, by the server's clock.
    fn seconds(&self) -> f64 {
        let uptime = |sample: &Sample| sample.value("echo_uptime_seconds");
        (uptime(&self.now) - uptime(&self.before)).max(0.0)
    }

    fn rate(&self, name: &str) -> f64 {
        let difference = (self.now.value(name) - self.before.value(name)).max(0.0);
        if self.seconds() > 0.0 { difference / self.seconds() } else { 0.0 }
    }
}

/// A count that rises for ever, in five characters or six.
fn brief(count: f64) -> String {
    match count {
        ..1e5 => format!("{count:.0}"),
        ..1e8 => format!("{:.0}k", count / 1e3),
        _ => format!("{:.0}M", count / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(factor: f64) -> View {
        let sample = |at: f64| {
            let mut stats = String::new();
            for &counter in Counter::ALL {
                stats.push_str(&format!("{} {}\n", counter.name(), at * factor));
            }
            let gauges = ["groups", "workers", "base_threads", "connections", "queue_len"];
            for name in gauges.into_iter().chain(["echo_requests"]) {
                stats.push_str(&format!("{name} {}\n", at * factor));
            }
            stats
                .push_str(&format!("echo_uptime_seconds {at}\nrun_samples 9\nrun_max_seconds 2\n"));
            Sample::parse(&stats, "run 1024 8\nrun 2147483648 1\n", "enable_perf_hist true  #\n")
                .expect("it is well formed")
        };
        let target = "127.0.0.1:9".parse().expect("an address");
        let mut view = View::new(&target, sample(1.0));
        (2..100).for_each(|at| view.advance(sample(f64::from(at))));
        view
    }

    #[test]
    fn a_frame_fits_whatever_the_numbers_are() {
        for factor in [0.0, 1.0, 1e6, 1e15] {
            for size in [(80, 24), (200, 50), (20, 5), (1, 1)] {
                let size = Size { columns: size.0, rows: size.1 };
                let text = view(factor).text(size, Look::Plain);
                assert!(text.lines().count() <= size.rows);
                for line in text.lines() {
                    assert!(line.chars().count() <= size.columns, "{line}");
                    assert!(!line.contains('\x1b'), "{line}");
                }
            }
        }
    }

    #[test]
    fn everything_fits_into_80_columns_and_24_rows() {
        let lines = view(10.0).lines(80);
        assert!(lines.len() <= 24, "{}", lines.len());
        for line in lines {
            assert!(line.chars() <= 80, "{}", line.text(200, Look::Plain));
        }
    }

    #[test]
    fn rates_are_by_the_servers_clock() {
        let text = view(1000.0).text(Size::default(), Look::Plain);
        let line = text.lines().find(|line| line.starts_with("requests/s")).expect("it is there");
        assert!(line.contains(" 1,000 "), "{line}");
        assert!(line.ends_with('█'), "{line}");
        let run = text.lines().find(|line| line.starts_with("run ")).expect("it is there");
        assert!(run.contains('█') && run.contains('▃') && run.ends_with("2.00 s"), "{run}");
    }

    #[test]
    fn what_is_no_admin_listener_is_said_to_be_none() {
        for stats in ["garbage", "a b", "connections -1", "groups NaN", "groups 1"] {
            let error = Sample::parse(stats, "", "").expect_err(stats).to_string();
            assert!(error.starts_with("this is no admin listener of echo: "), "{error}");
        }
        assert!(Sample::parse("groups 1", "run 0 1", "").is_err());
    }
}
