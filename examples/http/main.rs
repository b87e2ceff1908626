//! A toy server under a little load, and its status page.
//!
//! ```text
//! cargo run --release --example http              # a demonstration that checks itself
//! cargo run --release --example http -- --serve   # goes on, until SIGTERM or SIGINT
//! ```
//!
//! Each line that a client sends is a question to one of three shards. An answer takes a connection of
//! a pool and some time, so threads are added. The page shows why.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Close, Connection, Input, ListenOptions, Protocol};
use epoll_group::pool::{BackendStatus, Limits, Manage, Pool, Target};
use epoll_group::stall::{Wait, run_as};
use epoll_group::stats::{Counter, Stage};
use epoll_group::status::Status;
use epoll_group::{Config, Runtime};
use lab::prometheus;
use lab::signals::EndSignals;

/// Shows a toy server on a status page
#[derive(clap::Parser)]
#[command(name = "http")]
struct Args {
    /// Go on with the load and the page until SIGTERM or SIGINT
    #[arg(long)]
    serve: bool,
    /// Port of the page on 127.0.0.1; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value = "0")]
    port: u16,
}

const SHARDS: [&str; 3] = ["eu", "us", "asia"];
const CLIENTS: usize = 24;
/// Clients that the listener takes. The others are refused.
const MOST_CLIENTS: usize = 20;
/// Time of the demonstration. It covers two looks of the page, which are at least 1 s apart.
const DEMONSTRATION: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| {
        let config = Config::default().epoll_groups(1).enable_perf_hist(true);
        let runtime = Runtime::builder().name("toy").config(config).start()?;
        let limits = Limits::default().max(4).min_idle(1);
        let builder = Pool::builder(Shard).limits(limits).maintained_by(runtime.handle());
        let pool = Arc::new(builder.build()?);
        let options = ListenOptions::new().max_connections(MOST_CLIENTS);
        let toy = Toy(Arc::clone(&pool));
        let clients = runtime.listen_with("127.0.0.1:0", options, toy)?;
        let columns = ["in use", "idle", "waiting", "max", "handed out", "waited"];
        let page = Status::new(&runtime.handle(), "Toy server")
            .listener("clients", &clients)
            .table("Shards", &columns, move || pool.status().iter().map(shard).collect())
            .listen(args.port)?;
        let [clients, page] = [&clients, &page].map(|one| one.local_addr().to_string().parse());
        let (clients, page): (SocketAddr, SocketAddr) = (clients?, page?);
        let (over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                scope.spawn({
                    let (over, answers) = (&over, &answers);
                    move || ask(clients, number, over, answers)
                });
            }
            let done = if args.serve { serve(page, out) } else { look(page, &answers, out) };
            over.store(true, Ordering::Relaxed);
            done
        })?;
        if !args.serve {
            let stats = runtime.stats();
            writeln!(out, "{:>8} answers", answers.load(Ordering::Relaxed))?;
            writeln!(out, "{:>8} threads added", stats.get(Counter::ThreadsStartedStall))?;
            let median = stats.histogram(Stage::Run).and_then(|run| run.quantile(0.5));
            writeln!(out, "{:>8.1?} is the median time of a run", median.unwrap_or_default())?;
        }
        let report = runtime.drain(Duration::from_secs(5));
        if report.cut > 0 { Err(format!("{report:?}").into()) } else { Ok(()) }
    })
}

/// Row of a shard on the page.
fn shard(shard: &BackendStatus<&str>) -> (String, Vec<u64>) {
    let now = [shard.in_use, shard.idle, shard.waiting, shard.max].map(|number| number as u64);
    (shard.key.to_owned(), [&now[..], &[shard.totals.handed_out, shard.totals.waited]].concat())
}

/// Server: answers each line after the wait for its shard.
struct Toy(Arc<Pool<Shard>>);

impl Protocol for Toy {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        while let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') {
            let line = input.take(end + 1);
            let shard = SHARDS[usize::from(line[0]) % SHARDS.len()];
            let _taken = self.0.get(&shard).map_err(Close::error)?;
            let took = Duration::from_micros(200 + 40 * u64::from(line[0]));
            run_as(Wait::Reply, || thread::sleep(took));
            conn.send(line);
        }
        if input.len() > 100 { Err("a line of more than 100 bytes".into()) } else { Ok(()) }
    }
}

/// Maker of connections to shards. A connection is `()` here.
struct Shard;

impl Manage for Shard {
    type Key = &'static str;
    type Connection = ();
    type Error = std::io::Error;

    fn connect(&self, _: &Target<'_, &'static str>, _: Instant) -> std::io::Result<()> {
        run_as(Wait::Network, || thread::sleep(Duration::from_millis(5)));
        Ok(())
    }
}

/// Client: asks until all is over, or until it is refused. Some ask more often than others.
fn ask(
    at: SocketAddr,
    number: usize,
    over: &AtomicBool,
    answers: &AtomicU64,
) -> std::io::Result<()> {
    let server = TcpStream::connect(at)?;
    server.set_nodelay(true)?;
    let mut server = BufReader::new(server);
    for turn in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
        let letter = char::from(b'a' + ((turn * 7 + number) % 26) as u8);
        server.get_mut().write_all(format!("{letter} from {number}\n").as_bytes())?;
        if server.read_line(&mut String::new())? == 0 {
            break;
        }
        answers.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(number as u64));
    }
    Ok(())
}

fn serve(page: SocketAddr, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let signals = EndSignals::catch()?;
    writeln!(out, "listening on http://{page}/")?;
    out.flush()?;
    signals.wait()?;
    Ok(())
}

/// Gets the page twice and the metrics once, and compares them with the clients' counts.
fn look(page: SocketAddr, answers: &AtomicU64, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let first = get(page, "/")?;
    let before = answers.load(Ordering::Relaxed);
    thread::sleep(DEMONSTRATION);
    let answered = answers.load(Ordering::Relaxed) - before;
    let families = prometheus::parse(&get(page, "/metrics")?)?;
    let column = |name: &'static str| {
        families["epoll_group_table"].samples.iter().filter(move |one| one.labels["column"] == name)
    };
    let refused = column("over limit").next().ok_or("no listener")?.value;
    writeln!(out, "{:>8} metrics", families.len())?;
    writeln!(out, "{refused:>8} clients refused")?;
    let mut asked = 0.0;
    for sample in column("handed out") {
        writeln!(out, "{:>8} questions to shard {}", sample.value, sample.labels["row"])?;
        asked += sample.value;
    }
    let second = get(page, "/")?;
    let good = answered > 0
        && asked >= answered as f64
        && refused == (CLIENTS - MOST_CLIENTS) as f64
        && second.contains("handlers wait")
        && first != second;
    let error = || format!("{answered} answers, but the page says\n{second}");
    if good { Ok(()) } else { Err(error().into()) }
}

/// Asks for a path, and returns the body of the answer.
fn get(at: SocketAddr, path: &str) -> Result<String, Box<dyn Error>> {
    let mut server = TcpStream::connect(at)?;
    server.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(server, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    server.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no end of the head")?;
    if head.starts_with("HTTP/1.1 200 OK\r\n") { Ok(body.to_owned()) } else { Err(head.into()) }
}
