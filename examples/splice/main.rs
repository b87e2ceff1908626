//! A TCP proxy: bytes in both directions, with backpressure and half-close.
//!
//! ```text
//! cargo run --release --example splice                        # a demonstration that checks itself
//! cargo run --release --example splice -- --to 127.0.0.1:5432  # a proxy, until SIGTERM or SIGINT
//! ```
//!
//! If one side does not read, the proxy pauses the other side's input. So a pair of connections keeps at
//! most about `HIGH` bytes for each direction, however fast the peers write.
//! A drain lets streams finish until its deadline, and then resets both sides.

mod proxy;

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use epoll_group::stats::Counter;
use epoll_group::{DrainReport, Handle, Runtime};
use lab::signals::EndSignals;
use socket2::SockRef;

use proxy::HIGH;

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

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| match args.to {
        Some(to) => serve(args.listen, to, out),
        None => demonstrate(args.listen, out),
    })
}

fn serve(at: SocketAddr, to: SocketAddr, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let signals = EndSignals::catch()?;
    let runtime = proxy::start()?;
    let listener = proxy::listen(&runtime, at, to)?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    out.flush()?;
    writeln!(out, "{}: draining", signals.wait()?)?;
    let report = runtime.drain(Duration::from_secs(5));
    Ok(writeln!(out, "{} connections were cut", report.cut)?)
}

/// Clients of the demonstration, and the bytes that each of them sends.
const CLIENTS: usize = 4;
const BYTES: usize = 64 << 20;
/// Most bytes that one call of `received` gets.
const BUDGET: usize = 64 << 10;

/// Clients write without reading until the proxy has paused one. Then each gets back what it sent.
fn demonstrate(at: SocketAddr, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let origin = TcpListener::bind("127.0.0.1:0")?;
    let proxy = proxy::start()?;
    let listener = proxy::listen(&proxy, at, origin.local_addr()?)?;
    let at = listener.local_addr().to_string();
    let handle = proxy.handle();
    let mut most = 0;
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| {
            origin.incoming().take(CLIENTS).for_each(|one| drop(thread::spawn(|| echo(one))))
        });
        let clients = [(); CLIENTS].map(|()| scope.spawn(|| converse(&at, &handle)));
        while !clients.iter().all(ScopedJoinHandle::is_finished) {
            most = most.max(handle.stats().buffered_bytes);
            thread::sleep(Duration::from_millis(1));
        }
        clients.into_iter().try_for_each(|client| Ok(client.join().map_err(|_| "a panic")??))
    })?;
    let (client, behind) = begin_a_message(&at, &origin)?;
    SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
    drop(client);
    expect_a_reset(behind)?;
    let (client, behind) = begin_a_message(&at, &origin)?;
    let report = finish_in_a_drain(proxy, client, behind)?;
    cut_by_a_drain(&origin)?;
    let stats = handle.stats();
    writeln!(out, "{:>12} bytes each way, of {CLIENTS} clients, unchanged", CLIENTS * BYTES)?;
    for counter in [Counter::ReadsPaused, Counter::ReadsResumed] {
        writeln!(out, "{:>12} {}", stats.get(counter), counter.name())?;
    }
    writeln!(out, "{most:>12} bytes in backlogs at most")?;
    // In each direction: a full backlog, and what one run of `received` adds.
    let limit = 2 * CLIENTS * (HIGH + BUDGET);
    writeln!(
        out,
        "{:>12} in the middle of a stream: one by the client, one by a drain",
        "2 resets"
    )?;
    if report.cut > 0 || most > limit as u64 || stats.get(Counter::ReadsPaused) == 0 {
        return Err(format!("{report:?}, no pause, or {most} bytes exceed {limit}").into());
    }
    Ok(())
}

/// Server behind: sends back what it gets, and finishes after its client has.
fn echo(socket: io::Result<TcpStream>) -> io::Result<()> {
    let mut socket = socket?;
    io::copy(&mut socket.try_clone()?, &mut socket)?;
    socket.shutdown(Shutdown::Write)
}

/// Sends parts of messages through the proxy, both ways. Returns the client and its connection at the server
/// behind.
fn begin_a_message(at: &str, origin: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let mut client = TcpStream::connect(at)?;
    client.write_all(b"half a mess")?;
    let (mut behind, _) = origin.accept()?;
    behind.read_exact(&mut [0; 11])?;
    behind.write_all(b"half an ans")?;
    client.read_exact(&mut [0; 11])?;
    Ok((client, behind))
}

/// The client must get all that the server behind sends during a drain.
fn finish_in_a_drain(
    proxy: Runtime,
    mut client: TcpStream,
    mut behind: TcpStream,
) -> Result<DrainReport, Box<dyn Error>> {
    let handle = proxy.handle();
    let drain = thread::spawn(|| proxy.drain(Duration::from_secs(30)));
    // A spawn is refused as soon as the drain has begun.
    while handle.spawn(|| ()).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    behind.write_all(b"wer")?;
    drop(behind);
    let mut rest = String::new();
    client.read_to_string(&mut rest)?;
    drop(client);
    let report = drain.join().map_err(|_| "a panic")?;
    if rest == "wer" { Ok(report) } else { Err(format!("the client got {rest:?} only").into()) }
}

/// Neither side must take the part that it got for the whole.
fn cut_by_a_drain(origin: &TcpListener) -> Result<(), Box<dyn Error>> {
    let proxy = proxy::start()?;
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = proxy::listen(&proxy, at, origin.local_addr()?)?;
    let (client, behind) = begin_a_message(&listener.local_addr().to_string(), origin)?;
    let _ = proxy.drain(Duration::from_millis(100));
    expect_a_reset(behind)?;
    expect_a_reset(client)
}

fn expect_a_reset(mut peer: TcpStream) -> Result<(), Box<dyn Error>> {
    match peer.read(&mut [0]) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        other => Err(format!("a peer got {other:?} instead of a reset").into()),
    }
}

/// Client: sends, half-closes, and checks that the same bytes and the end of the stream come back.
fn converse(at: &str, proxy: &Handle) -> io::Result<()> {
    let bytes: Vec<u8> = (0..BYTES).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let socket = TcpStream::connect(at)?;
    let mut back = Vec::with_capacity(BYTES);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (&socket).write_all(&bytes)?;
            socket.shutdown(Shutdown::Write)
        });
        while proxy.stats().get(Counter::ReadsPaused) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        (&socket).read_to_end(&mut back)?;
        writer.join().map_err(|_| io::Error::other("the writer panicked"))?
    })?;
    if back == bytes { Ok(()) } else { Err(io::Error::other("other bytes came back")) }
}
