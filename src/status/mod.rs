//! Status page of a runtime, for people, and its metrics for Prometheus.
//!
//! [`Status`] serves two paths over HTTP/1 on a listener of its own, on the workers of the runtime that
//! it shows:
//!
//! * `/`: a page that keeps itself up to date: requests per second, use of limits, listeners, threads,
//!   histograms of all stages, and tables of the host, for example of its pools
//! * `/metrics`: the same numbers in the text format of Prometheus
//!
//! Both are read-only. Any peer that reaches the listener may read them, and nothing is encrypted. So
//! give it a loopback address, a Unix socket, or a port that only operators reach. Its work is of class
//! [`Admin`](Class::Admin), so it answers also while all other threads wait.
//!
//! A peer can make it hold a request head of 8 KiB, the requests of one receive, and one answer beyond
//! the low watermark of its backlog. Of the requests that a peer sends at once, it answers a few at a
//! time.

#![forbid(unsafe_code)]

pub(crate) mod http;
mod page;

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use crate::net::{
    Close, Connection, Input, ListenError, ListenOptions, Listener, ListenerStats, Protocol,
    ToAddress,
};
use crate::runtime::{Class, Handle};
use crate::stats::Snapshot;
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

/// Status page of a runtime, with the listeners and tables that it shows.
///
/// ```
/// # use std::error::Error;
/// # use epoll_group::Runtime;
/// # use epoll_group::net::{Close, Connection, Input, Protocol};
/// # struct Echo;
/// # impl Protocol for Echo {
/// #     type State = ();
/// #     fn opened(&self, _: &Connection) -> Result<(), Close> { Ok(()) }
/// #     fn received(&self, _: &Connection, _: &mut (), _: &mut Input<'_>) -> Result<(), Close> { Ok(()) }
/// # }
/// use epoll_group::status::Status;
///
/// # fn main() -> Result<(), Box<dyn Error>> {
/// let runtime = Runtime::builder().start()?;
/// let clients = runtime.listen("127.0.0.1:0", Echo)?;
/// let page = Status::new(&runtime.handle(), "echo server")
///     .listener("clients", &clients)
///     .table("shards", &["in use", "idle"], || vec![("eu-1".into(), vec![3, 5])])
///     .listen(0)?;
/// println!("http://{}/", page.local_addr());
/// # Ok(())
/// # }
/// ```
pub struct Status {
    handle: Handle,
    title: String,
    started: Instant,
    listeners: Vec<(String, Box<dyn Fn() -> ListenerStats + Send + Sync>)>,
    tables: Vec<Table>,
    /// Earlier looks at the numbers, oldest first. There is at least one.
    looks: Mutex<VecDeque<(Instant, Snapshot)>>,
}

/// A table of the host.
struct Table {
    name: String,
    columns: Vec<String>,
    rows: Box<dyn Fn() -> Vec<(String, Vec<u64>)> + Send + Sync>,
}

/// Numbers at the time of a look, and since an earlier one.
struct Look {
    now: Snapshot,
    recent: Snapshot,
    /// Length of the time that `recent` covers.
    period: Duration,
}

impl Status {
    /// Creates the status page of a runtime. The title names the server to its operator.
    #[must_use]
    pub fn new(handle: &Handle, title: impl Into<String>) -> Self {
        let (now, handle) = (clock::now(), handle.with_class(Class::Admin));
        Self {
            title: title.into(),
            started: now,
            listeners: Vec::new(),
            tables: Vec::new(),
            looks: Mutex::new(VecDeque::from([(now, handle.stats())])),
            handle,
        }
    }

    /// Adds a listener, whose connections are then counted on the page. The listener may be dropped
    /// while the page is served.
    #[must_use]
    pub fn listener(mut self, name: impl Into<String>, listener: &Listener) -> Self {
        let name = format!("{}, {}", name.into(), listener.local_addr());
        self.listeners.push((name, Box::new(listener.stats_reader())));
        self
    }

    /// Adds a table of the host: a pool, a cache, a queue. `rows` is called for each look, on a
    /// worker. It returns the name and the numbers of each row, in the order of `columns`. Names of
    /// rows must differ from each other, and so must names of tables. The page shows the first 100
    /// rows. In the metrics each number is an `epoll_group_table` with the labels `table`, `row`
    /// and `column`.
    ///
    /// A pool, for example: `|| pool.status().iter().map(|backend| …).collect()`.
    #[must_use]
    pub fn table<F>(mut self, name: impl Into<String>, columns: &[&str], rows: F) -> Self
    where
        F: Fn() -> Vec<(String, Vec<u64>)> + Send + Sync + 'static,
    {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        self.tables.push(Table { name: name.into(), columns, rows: Box::new(rows) });
        self
    }

    /// Serves the page on this TCP port of `127.0.0.1`, until the returned value is dropped. Port 0
    /// takes any free one. At most 64 connections are served, and each ends after two idle minutes.
    ///
    /// # Errors
    ///
    /// See [`ListenError`]. The runtime continues.
    pub fn listen(self, port: u16) -> Result<Listener, ListenError> {
        let options =
            ListenOptions::new().max_connections(MAX_CONNECTIONS).idle_timeout(IDLE_TIMEOUT);
        self.listen_with(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), options)
    }

    /// Serves the page at another address, or with other options. Any peer that reaches it may read
    /// the page.
    ///
    /// # Errors
    ///
    /// See [`ListenError`]. The runtime continues.
    pub fn listen_with(
        mut self,
        at: impl ToAddress,
        options: ListenOptions,
    ) -> Result<Listener, ListenError> {
        let (handle, listeners) = (self.handle.clone(), mem::take(&mut self.listeners));
        let columns = ["open", "accepted", "over limit", "over limit by address"];
        let mut page = self.table("Listeners", &columns, move || {
            let numbers = |stats: ListenerStats| {
                let refused =
                    [stats.refused_max_connections, stats.refused_max_connections_per_address];
                [&[stats.open as u64, stats.accepted], &refused[..]].concat()
            };
            listeners.iter().map(|(name, stats)| (name.clone(), numbers(stats()))).collect()
        });
        page.tables.rotate_right(1);
        handle.listen_with(at, options, Server(page))
    }

    /// Takes the numbers, and compares them with those of an earlier look.
    fn look(&self) -> Look {
        let (at, now) = (clock::now(), self.handle.stats());
        let mut looks = lock(&self.looks);
        // A rate over less than `APART` would say little.
        while looks.len() > 1
            && at.duration_since(looks[0].0) > PERIOD
            && at.duration_since(looks[1].0) >= APART
        {
            looks.pop_front();
        }
        let (earlier_at, earlier) = &looks[0];
        let recent = now.since(earlier);
        let period = at.duration_since(*earlier_at);
        if at.duration_since(looks[looks.len() - 1].0) >= APART {
            looks.push_back((at, now.clone()));
        }
        Look { now, recent, period }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").field("title", &self.title).finish_non_exhaustive()
    }
}

/// The protocol: HTTP/1.
struct Server(Status);

/// Set while a connection is not read, because requests of it wait for their answers.
#[derive(Default)]
struct Paused(bool);

impl Paused {
    fn pause(&mut self, conn: &Connection) {
        self.0 = true;
        conn.pause_reads();
    }

    fn resume(&mut self, conn: &Connection) {
        if mem::take(&mut self.0) {
            conn.resume_reads();
        }
    }
}

impl Protocol for Server {
    type State = Paused;

    fn opened(&self, _: &Connection) -> Result<Paused, Close> {
        Ok(Paused::default())
    }

    /// Answers requests. Before more are read, it answers all of these, a few at a time and only while
    /// the peer takes the answers.
    fn received(
        &self,
        conn: &Connection,
        paused: &mut Paused,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        for _ in 0..ANSWERS_IN_A_ROW {
            if conn.pending_bytes() > self.0.handle.settings().write_low_watermark_bytes {
                paused.pause(conn);
                conn.notify_when_drained();
                return Ok(());
            }
            let request = match http::parse(input.bytes()) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    paused.resume(conn);
                    return Ok(());
                }
                Err(refusal) => {
                    // The parser accepts blank lines before a request.
                    let head_only = input.take_all().trim_ascii_start().starts_with(b"HEAD ");
                    answer(conn, refusal.0, PLAIN, &format!("{}\n", refusal.0), head_only, true);
                    return Err(refusal.0.into());
                }
            };
            let (status, kind, body) = match request.path {
                "/" => ("200 OK", "text/html", page::render(&self.0, &self.0.look())),
                "/metrics" => ("200 OK", METRICS_TYPE, metrics(&self.0)),
                _ => ("404 Not Found", PLAIN, "404 Not Found\n".to_owned()),
            };
            let (length, head_only, close) = (request.length, request.head_only, request.close);
            input.consume(length);
            answer(conn, status, kind, &body, head_only, close);
            if close {
                conn.close("the last answer was sent");
                return Ok(());
            }
        }
        paused.pause(conn);
        conn.notify();
        Ok(())
    }

    fn notified(
        &self,
        conn: &Connection,
        paused: &mut Paused,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        self.received(conn, paused, input)
    }

    fn drained(&self, conn: &Connection) {
        conn.notify();
    }
}

fn answer(conn: &Connection, status: &str, kind: &str, body: &str, head_only: bool, close: bool) {
    let head = http::head(status, kind, body.len(), close);
    let body = if head_only { "" } else { body };
    conn.send_slices(&[IoSlice::new(head.as_bytes()), IoSlice::new(body.as_bytes())]);
}

const PLAIN: &str = "text/plain";

/// Time that the recent numbers cover, if the page is looked at during all of it.
const PERIOD: Duration = Duration::from_secs(10);
/// Shortest time between two looks that are kept. At most eleven are, of 60 KiB with histograms.
const APART: Duration = Duration::from_secs(1);

/// Requests of one connection that are answered before other work has its turn.
const ANSWERS_IN_A_ROW: usize = 4;

const MAX_CONNECTIONS: usize = 64;
/// Longer than the intervals at which Prometheus usually asks.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Media type of the format, without the character set.
const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// Text for Prometheus: the numbers of the runtime, and the tables.
fn metrics(status: &Status) -> String {
    let mut text = status.handle.stats().to_prometheus();
    text += "# HELP epoll_group_table numbers of the host, by table, row and column\n\
             # TYPE epoll_group_table untyped\n";
    for table in &status.tables {
        for (row, numbers) in (table.rows)() {
            for (column, number) in table.columns.iter().zip(numbers) {
                let [table, row, column] = [&table.name, &row, column].map(|text| label(text));
                text += &format!(
                    "epoll_group_table{{table=\"{table}\",row=\"{row}\",column=\"{column}\"}} {number}\n"
                );
            }
        }
    }
    text
}

/// Value of a label, as text between quotes.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use crate::stats::Counter;

    #[test]
    fn recent_numbers_cover_a_bounded_time_and_few_looks_are_kept() {
        let runtime = Runtime::builder().start().expect("a runtime");
        let status = Status::new(&runtime.handle(), "");
        let from = status.started;
        let look_at = |milliseconds| {
            clock::simulate(Some(from + Duration::from_millis(milliseconds)));
            let look = status.look();
            clock::simulate(None);
            look
        };
        runtime.handle().reconfigure(|config| config).expect("the same");
        assert_eq!(look_at(500).period, Duration::from_millis(500));
        for turn in 1..=100 {
            let look = look_at(500 + turn * 300);
            assert!(look.period <= PERIOD + APART, "{:?}", look.period);
            assert!(lock(&status.looks).len() <= 11);
        }
        // The first look after a pause covers all of the pause.
        let look = look_at(90_000);
        assert!(look.period > Duration::from_secs(59), "{:?}", look.period);
        assert_eq!(look.recent.get(Counter::Reconfigured), 0, "it is older");
        assert_eq!(look.now.get(Counter::Reconfigured), 1);
        assert_eq!(look_at(92_000).period, Duration::from_secs(2));
        // The look at 92 s is too recent for a rate, although the one at 90 s is too old.
        assert_eq!(look_at(102_000).period, PERIOD);
        assert_eq!(look_at(102_001).period, PERIOD + Duration::from_millis(1));
    }
}
