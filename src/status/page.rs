//! The page: HTML in one piece, with its style and its script.
//!
//! The script asks for the page again and replaces the parts of class `live`. Without a script the
//! browser loads the page again.

use std::iter;
use std::process;
use std::time::Duration;

use super::{Look, Status};
use crate::runtime::{LANES, ThreadKind, WorkerState};
use crate::stats::{Counter, Histogram, Short, Stage};
use crate::sys::clock;

/// Largest number of threads, and of rows of a table of the host.
const MOST_ROWS: usize = 100;

pub(super) fn render(status: &Status, look: &Look) -> String {
    let ends = ["closed", "refused", "limited", "cut", "expired", "failed", "errors", "panics"];
    let is_end = |counter: &Counter| counter.name().split('_').any(|word| ends.contains(&word));
    let rates = [
        Counter::RequestsExecuted,
        Counter::Receives,
        Counter::ConnectionsAccepted,
        Counter::Logins,
        Counter::TasksRun,
        Counter::BytesReceived,
        Counter::BytesSent,
    ];
    let tables = status.tables.iter().map(|shown| {
        let columns: Vec<_> = shown.columns.iter().map(String::as_str).collect();
        let cells = |(name, numbers): (String, Vec<u64>)| {
            row(iter::once(escape(&name)).chain(numbers.into_iter().map(count)))
        };
        let rows = (shown.rows)().into_iter().take(MOST_ROWS).map(cells);
        table(&shown.name, "", &columns, "", rows)
    });
    format!(
        include_str!("page.html"),
        title = escape(&status.title),
        style = include_str!("page.css"),
        process = process::id(),
        up = span(clock::since(status.started)),
        period = span(look.period),
        facts = facts(look),
        rates = counters(look, "Rates", rates.into_iter()),
        limits = limits(status, look),
        stages = stages(look),
        tables = tables.collect::<String>(),
        threads = threads(status, look),
        ends = counters(look, "Ends and refusals", Counter::ALL.iter().copied().filter(is_end)),
        text = escape(&look.now.to_string()),
        script = include_str!("page.js"),
    )
}

/// Numbers to look at first. A protocol without sessions has no other requests than its receives.
fn facts(look: &Look) -> String {
    let now = &look.now;
    let has_requests = now.get(Counter::RequestsExecuted) > 0;
    let requests = if has_requests { Counter::RequestsExecuted } else { Counter::Receives };
    let oldest = format!("oldest {}", time(now.oldest_task_age));
    let at_work = format!("{} run, {} wait", now.running_threads, now.stalled_threads);
    let facts = [
        (if has_requests { "Requests" } else { "Receives" }, look.rate(requests), "/s"),
        ("Received", look.rate(Counter::BytesReceived), "/s"),
        ("Sent", look.rate(Counter::BytesSent), "/s"),
        ("Connections", count(now.connections), ""),
        ("Queue", count(now.queue_len), if now.queue_len > 0 { &oldest } else { "tasks" }),
        ("Threads", count(now.workers), &at_work),
        ("Memory", bytes(now.buffered_bytes as f64), "buffered"),
    ];
    let fact = |(name, value, unit)| {
        format!("<div><dt>{name}<dd id=\"{name}\">{value} <small>{unit}</small></div>\n")
    };
    facts.into_iter().map(fact).collect()
}

/// A table of the counters that have counted.
fn counters(look: &Look, title: &str, shown: impl Iterator<Item = Counter>) -> String {
    let rows = shown.filter(|&counter| look.now.get(counter) > 0).map(|counter| {
        let (total, name) = (look.now.get(counter), counter.name().replace('_', " "));
        let total = if counter.is_of_bytes() { bytes(total as f64) } else { count(total) };
        row([name, look.rate(counter), total, escape(counter.help())])
    });
    table(title, "counters", &["per second", "total", ""], "", rows)
}

/// Gauges beside the tunables that limit them.
fn limits(status: &Status, look: &Look) -> String {
    let (now, config) = (&look.now, status.handle.settings());
    let queue = config.epoll_work_queue_capacity * LANES * now.groups as usize;
    let unauthenticated = config.max_unauthenticated_connections;
    let shown = [
        ("connections", now.connections, config.max_connections),
        ("silent connections", now.silent_connections, config.max_silent_connections),
        ("unauthenticated connections", now.unauthenticated_connections, unauthenticated),
        ("sessions", now.sessions, config.max_sessions),
        ("threads", now.workers, config.max_threads),
        ("queued tasks", now.queue_len, queue),
        ("waiting writers", now.waiting_writers, config.max_waiting_writers),
        ("buffered bytes", now.buffered_bytes, config.max_buffered_bytes),
        ("queued request bytes", now.queued_request_bytes, config.max_queued_bytes),
    ];
    let rows = shown.into_iter().map(|(name, used, limit)| {
        let text = |number: u64| {
            if name.ends_with("bytes") { bytes(number as f64) } else { count(number) }
        };
        let part = (used as f64 * 100.0 / limit.max(1) as f64).min(100.0);
        let class = if part > 80.0 { "high" } else { "" };
        let bar = format!("<i class=\"{class}\" style=\"width:{part:.1}%\"></i>");
        let bar = format!("{part:.1} %<span class=\"bar\">{bar}</span>");
        row([name.to_owned(), text(used), text(limit as u64), bar])
    });
    table("Limits", "", &["now", "limit", "use"], "", rows)
}

fn stages(look: &Look) -> String {
    let note = match look.now.histogram(Stage::Run) {
        Some(_) => "Coloured bars are recent, grey ones all samples. Heights are logarithmic.",
        None => "Histograms are off. The tunable enable_perf_hist switches them on.",
    };
    let rows = Stage::ALL.iter().filter_map(|&stage| {
        let (all, recent) = (look.now.histogram(stage)?, look.recent.histogram(stage)?);
        let (name, help) = (stage.name().replace('_', " "), escape(stage.help()));
        Some(format!(
            "<tr><th scope=\"row\" rowspan=\"2\">{name}<small>{help}</small>{}\
             <td rowspan=\"2\">{}\n<tr>{}\n",
            quantiles("recent", recent),
            chart(all, recent),
            quantiles("all", all),
        ))
    });
    let columns = ["", "samples", "p50", "p99", "p99.9", "max", ""];
    table("Stages", "stages", &columns, note, rows)
}

fn quantiles(period: &str, histogram: &Histogram) -> String {
    let quantile = |part| histogram.quantile(part).map_or_else(|| "–".into(), time);
    let quantiles = [0.5, 0.99, 0.999, 1.0].map(quantile);
    let [p50, p99, p999, max] = quantiles;
    let samples = count(histogram.count());
    format!("<td class=\"text\">{period}<td>{samples}<td>{p50}<td>{p99}<td>{p999}<td>{max}")
}

/// First and last power of two of a chart, in nanoseconds. Samples beyond them are in its first and
/// its last bar.
const FIRST: u32 = 8;
const LAST: u32 = 35;
const BARS: usize = (LAST + 1 - FIRST) as usize;

/// Bars of all samples, and in front of them the bars of the recent samples.
fn chart(all: &Histogram, recent: &Histogram) -> String {
    const STEP: u32 = 10;
    const HEIGHT: f64 = 34.0;
    let (all, recent) = (bars(all), bars(recent));
    let mut svg =
        String::from("<svg viewBox=\"0 0 280 48\" role=\"img\" aria-label=\"histogram\">");
    for (exponent, unit) in [(10, "1 µs"), (20, "1 ms"), (30, "1 s")] {
        let x = (exponent + 1 - FIRST) * STEP - 1;
        svg += &format!("<line x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"38\"/>");
        svg += &format!("<text x=\"{x}\" y=\"47\" text-anchor=\"middle\">{unit}</text>");
    }
    let most = all.iter().copied().max().unwrap_or(0).max(1) as f64;
    for (class, counts) in [("all", all), ("recent", recent)] {
        for (exponent, samples) in (FIRST..).zip(counts).filter(|&(_, samples)| samples > 0) {
            // Each factor adds the same height, and one sample is visible.
            let height = HEIGHT * (1.0 + (samples as f64).ln()) / (1.0 + most.ln());
            let (x, y) = ((exponent - FIRST) * STEP, HEIGHT + 4.0 - height);
            let title =
                format!("{} below {}", count(samples), time(Duration::from_nanos(1 << exponent)));
            svg += &format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y:.1}\" width=\"8\" ");
            svg += &format!("height=\"{height:.1}\"><title>{title}</title></rect>");
        }
    }
    svg + "</svg>"
}

fn bars(histogram: &Histogram) -> [u64; BARS] {
    let mut counts = [0; BARS];
    for (end, samples) in histogram.buckets() {
        let exponent = end.as_nanos().ilog2().clamp(FIRST, LAST);
        counts[(exponent - FIRST) as usize] += samples;
    }
    counts
}

fn threads(status: &Status, look: &Look) -> String {
    let threads = status.handle.threads();
    let (present, left) = (threads.len(), count(look.now.get(Counter::ThreadsLeft)));
    let more = if present > MOST_ROWS { "; the first of them:" } else { "" };
    let rows = threads.into_iter().take(MOST_ROWS).map(|(info, age, state)| {
        let kind = match info.kind {
            ThreadKind::Base => "base",
            ThreadKind::Worker => "added",
            ThreadKind::Reserve => "reserve",
        };
        let state = match state {
            WorkerState::Resting => "rests",
            WorkerState::Running | WorkerState::Polling => "runs",
            WorkerState::Stalled => "waits, announced",
            WorkerState::Stuck(_) => "stuck",
        };
        let (name, reason) = (escape(&info.name), info.reason.to_string());
        row([name, kind.to_owned(), reason, state.to_owned(), span(age)])
    });
    let columns = ["kind", "started because", "state", "for"];
    let note = format!("{present} threads, {left} have left{more}");
    table("Threads", "threads", &columns, &note, rows)
}

/// A table with a heading. The first column has no head. The class says which columns are text.
fn table(
    title: &str,
    class: &str,
    columns: &[&str],
    note: &str,
    rows: impl Iterator<Item = String>,
) -> String {
    let title = escape(title);
    let columns = columns.iter().map(|name| format!("<th scope=\"col\">{}", escape(name)));
    format!(
        "<section>\n<h2>{title}</h2>\n<p>{note}</p>\n<div class=\"scroll\"><table class=\"{class}\">\n\
         <thead><tr><th>{}\n<tbody>\n{}</table></div>\n</section>\n",
        columns.collect::<String>(),
        rows.collect::<String>(),
    )
}

/// A row of a table: its name, and the other cells.
fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!("<tr><th scope=\"row\">{}\n", cells.into_iter().collect::<Vec<_>>().join("<td>"))
}

impl Look {
    /// Recent events or bytes per second.
    fn rate(&self, counter: Counter) -> String {
        match self.recent.get(counter) as f64 / self.period.as_secs_f64().max(0.001) {
            rate if counter.is_of_bytes() => bytes(rate),
            0.0 => "0".into(),
            few @ ..9.95 => format!("{few:.1}"),
            many => count(many.round() as u64),
        }
    }
}

/// Replaces the characters that HTML reserves.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// A number with a narrow space between thousands: `12 345`.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join("\u{202f}")
}

/// Bytes in three digits: `1.25 MiB`.
fn bytes(number: f64) -> String {
    let mut value = number;
    let mut units = ["B", "KiB", "MiB", "GiB"].into_iter();
    let unit = loop {
        match units.next() {
            Some(unit) if value < 999.5 => break unit,
            Some(_) => value /= 1024.0,
            None => break "TiB",
        }
    };
    match value {
        _ if unit == "B" => format!("{value:.0} B"),
        ..9.995 => format!("{value:.2} {unit}"),
        ..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A duration in three digits: `1.05 ms`.
fn time(duration: Duration) -> String {
    Short(duration).to_string().replace('u', "µ")
}

/// A long time in its two largest units: `3 h 12 min`.
fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_unit_and_few_digits() {
        let counts = [0, 999, 1000, 1_234_567].map(|number| count(number).replace('\u{202f}', "_"));
        assert_eq!(counts, ["0", "999", "1_000", "1_234_567"]);
        let amounts = [0.0, 999.0, 1000.0, 10_239.0, 1_048_575.0, 1e15, 1e18].map(bytes);
        let expected =
            ["0 B", "999 B", "0.98 KiB", "10.0 KiB", "1.00 MiB", "909 TiB", "909495 TiB"];
        assert_eq!(amounts, expected);
        let spans = [0, 60, 3_661, 90_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["0 s", "1 min 0 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(time(Duration::from_nanos(1_500)), "1.50 µs");
    }

    #[test]
    fn each_sample_is_in_a_bar() {
        let nanoseconds = [0, 255, 256, 1_000, 1 << 41];
        let all: Histogram = nanoseconds.into_iter().map(Duration::from_nanos).collect();
        let bars = bars(&all);
        assert_eq!((bars[0], bars[1], bars[2], bars[BARS - 1]), (2, 1, 1, 1));
        assert_eq!(chart(&all, &Histogram::default()).matches("<rect").count(), 4);
    }
}
