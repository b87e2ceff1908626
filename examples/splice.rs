//! A TCP proxy: bytes in both directions, with backpressure and half-close.
//!
//! ```text
//! cargo run --release --example splice                        # a demonstration that checks itself
//! cargo run --release --example splice -- --to 127.0.0.1:5432  # a proxy, until SIGTERM or SIGINT
//! ```
//!
//! If one side does not read, the proxy pauses the other side's input. So a pair of connections keeps at
//! most about `HIGH` bytes for each direction, however fast the peers write.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use epoll_group::net::{
    Close, CloseReason, ConnectOptions, Connection, FullBacklog, HalfClose, Input, ListenError,
    ListenOptions, Listener, Protocol, Sent,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Handle, Runtime};
use lab::signals::EndSignals;

/// Passes bytes between its clients and another server, both ways.
#[derive(clap::Parser)]
#[command(name = "splice")]
struct Args {
    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The server behind. Without it, the program demonstrates itself and ends
    #[arg(long, value_name = "ADDR")]
    to: Option<SocketAddr>,
}

/// Backlog in bytes from which the other side is no longer read.
const HIGH: usize = 256 << 10;
/// Bytes that a connection receives in a row.
const BUDGET: usize = 64 << 10;

/// Passes what one side sends to the other side.
fn pass(from: &Connection, to: &Connection, input: &mut Input<'_>) {
    if let Sent::Queued(bytes) = to.send(input.take_all())
        && bytes > HIGH
    {
        from.pause_reads();
        // The call of `drained` follows the pause, even if the backlog is low by now.
        to.notify_when_drained();
    }
}

/// Connections of clients. The state is the connection to the server behind.
struct Front {
    handle: Handle,
    to: SocketAddr,
}

/// Connection to the server behind, for `drained`, which has no state. `closed` takes it out, because
/// the two connections would keep each other alive.
struct Behind(Mutex<Option<Connection>>);

impl Behind {
    fn of(conn: &Connection) -> Option<MutexGuard<'_, Option<Connection>>> {
        let behind = conn.extension::<Self>()?;
        Some(behind.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Protocol for Front {
    type State = Connection;

    fn opened(&self, conn: &Connection) -> Result<Connection, Close> {
        let options = ConnectOptions::new().full_backlog(FullBacklog::Notify);
        let back = Back { client: conn.clone() };
        let server = self.handle.connect_with(self.to, options, back).map_err(Close::error)?;
        let _ = conn.set_extension(Behind(Mutex::new(Some(server.clone()))));
        Ok(server)
    }

    fn received(
        &self,
        conn: &Connection,
        server: &mut Connection,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        pass(conn, server, input);
        Ok(())
    }

    fn ended(&self, _: &Connection, server: &mut Connection) -> Result<HalfClose, Close> {
        server.shutdown_write();
        Ok(HalfClose::KeepOpen)
    }

    fn drained(&self, conn: &Connection) {
        if let Some(server) = Behind::of(conn).as_deref().and_then(Option::as_ref) {
            server.resume_reads();
        }
    }

    fn closed(&self, conn: &Connection, server: Connection, reason: &CloseReason) {
        drop(Behind::of(conn).and_then(|mut behind| behind.take()));
        server.close(reason.to_string());
    }
}

/// Connection to the server behind, for one client.
struct Back {
    client: Connection,
}

impl Protocol for Back {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        self.client.close(reason.to_string());
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        pass(conn, &self.client, input);
        Ok(())
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        self.client.shutdown_write();
        Ok(HalfClose::KeepOpen)
    }

    fn drained(&self, _: &Connection) {
        self.client.resume_reads();
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        self.client.close(reason.to_string());
    }
}

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| match args.to {
        Some(to) => serve(args.listen, to, out),
        None => demonstrate(args.listen, out),
    })
}

fn proxy() -> Result<Runtime, Box<dyn Error>> {
    let config =
        Config::default().write_high_watermark_bytes(HIGH).write_low_watermark_bytes(HIGH / 4);
    Ok(Runtime::builder().name("splice").config(config).start()?)
}

fn listen(runtime: &Runtime, at: SocketAddr, to: SocketAddr) -> Result<Listener, ListenError> {
    let options = ListenOptions::new().full_backlog(FullBacklog::Notify);
    runtime.listen_with(at, options, Front { handle: runtime.handle(), to })
}

fn serve(at: SocketAddr, to: SocketAddr, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let signals = EndSignals::catch()?;
    let runtime = proxy()?;
    writeln!(out, "listening on {}", listen(&runtime, at, to)?.local_addr())?;
    out.flush()?;
    writeln!(out, "{}: draining", signals.wait()?)?;
    let report = runtime.drain(Duration::from_secs(5));
    Ok(writeln!(out, "{} connections were cut", report.cut)?)
}

/// A server that sends back what it gets, and finishes after its client has finished.
struct Origin;

impl Protocol for Origin {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send(input.take_all());
        Ok(())
    }
}

/// Clients of the demonstration, and the bytes that each of them sends.
const CLIENTS: usize = 4;
const BYTES: usize = 64 << 20;

/// Clients write without reading until the proxy has paused them. Then each gets back what it sent.
fn demonstrate(at: SocketAddr, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (origin, proxy) = (Runtime::builder().name("origin").start()?, proxy()?);
    let behind = origin.listen("127.0.0.1:0", Origin)?;
    let to = behind.local_addr().to_string().parse()?;
    let at = listen(&proxy, at, to)?.local_addr().to_string();
    let handle = proxy.handle();
    let mut most = 0;
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let clients = [(); CLIENTS].map(|()| scope.spawn(|| converse(&at, &handle)));
        while clients.iter().any(|client| !client.is_finished()) {
            most = most.max(handle.stats().buffered_bytes);
            thread::sleep(Duration::from_millis(1));
        }
        for client in clients {
            client.join().map_err(|_| "a client panicked")??;
        }
        Ok(())
    })?;
    let report = proxy.drain(Duration::from_secs(5));
    let stats = handle.stats();
    writeln!(out, "{:>12} bytes each way, of {CLIENTS} clients, unchanged", CLIENTS * BYTES)?;
    for counter in [Counter::ReadsPaused, Counter::ReadsResumed] {
        writeln!(out, "{:>12} {}", stats.get(counter), counter.name())?;
    }
    writeln!(out, "{most:>12} bytes in backlogs at most")?;
    // In each direction: a full backlog, and what one call of `received` adds.
    let limit = 2 * CLIENTS * (HIGH + BUDGET);
    if report.cut > 0 || most > limit as u64 || stats.get(Counter::ReadsPaused) == 0 {
        return Err(format!("{report:?}, or no pause, or {most} bytes exceed {limit}").into());
    }
    Ok(())
}

/// Sends, half-closes, and checks that the same bytes and the end of the stream come back.
fn converse(at: &str, proxy: &Handle) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(at)?;
    let byte = |n: usize| (n * n >> 7) as u8;
    let mut writer = socket.try_clone()?;
    let writer = thread::spawn(move || -> std::io::Result<()> {
        let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
        writer.write_all(&bytes)?;
        writer.shutdown(Shutdown::Write)
    });
    while proxy.stats().get(Counter::ReadsPaused) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let mut back = Vec::with_capacity(BYTES);
    socket.read_to_end(&mut back)?;
    writer.join().map_err(|_| std::io::Error::other("the writer panicked"))??;
    let same = back.len() == BYTES && (0..BYTES).all(|n| back[n] == byte(n));
    same.then_some(()).ok_or_else(|| std::io::Error::other("the bytes have changed"))
}
