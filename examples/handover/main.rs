//! A server that a newer process replaces under load, and no request is lost.
//!
//! ```text
//! cargo run --release --example handover                             # a demonstration that checks itself
//! cargo run --release --example handover -- serve /tmp/control 0      # a server
//! cargo run --release --example handover -- serve /tmp/control 1      # its successor
//! ```
//!
//! A server waits for its successor on a Unix socket, the control socket.
//!
//! 1. The successor connects there, and is sent the descriptors of the listening sockets.
//! 2. The successor listens on them, and says so. Now both processes accept connections.
//! 3. The older server drops its listener, which leaves the backlog to the successor. It ends when its
//!    own connections have ended.
//!
//! If a successor fails before step 3, the older server goes on and waits for the next one.

mod server;

use std::error::Error;
use std::io::{self, BufRead, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use server::{receive, serve};

/// Servers that replace each other under load
#[derive(clap::Parser)]
#[command(name = "handover")]
struct Args {
    #[command(subcommand)]
    command: Option<Role>,
}

#[derive(clap::Subcommand)]
enum Role {
    /// Serve, after taking over from the server at the control socket, if there is one
    Serve {
        /// Path of the control socket
        control: PathBuf,
        /// Number to answer with
        number: u8,
    },
}

/// Time for the end of connections, and for the answers of other processes.
const LIMIT: Duration = Duration::from_secs(10);
/// Servers that follow each other.
const GENERATIONS: usize = 5;
const CLIENTS: usize = 8;
/// Requests that a server answers before it is replaced.
const REQUESTS: usize = 500;

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| match args.command {
        Some(Role::Serve { control, number }) => serve(&control, number, out),
        None => demonstrate(out),
    })
}

/// Clients connect again and again while one server after the other is replaced.
fn demonstrate(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let control = std::env::temp_dir().join(format!("handover-{}", std::process::id()));
    let (mut server, at) = start(&control, 0)?;
    let at: SocketAddr = at.parse()?;
    let answered = [const { AtomicUsize::new(0) }; GENERATIONS];
    let over = AtomicBool::new(false);
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let client = || -> io::Result<()> {
            while !over.load(Ordering::Relaxed) {
                answered[usize::from(ask(at)?)].fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let clients = [(); CLIENTS].map(|()| scope.spawn(client));
        let replaced = (1..=GENERATIONS).try_for_each(|next| -> Result<(), Box<dyn Error>> {
            while answered[next - 1].load(Ordering::Relaxed) < REQUESTS {
                if clients.iter().any(|client| client.is_finished()) {
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(1));
            }
            if next == 1 {
                // A successor that fails. The server must go on.
                drop(receive(&UnixStream::connect(&control)?)?);
            }
            if next < GENERATIONS {
                let (successor, _) = start(&control, next)?;
                wait(mem::replace(&mut server, successor))?;
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no panic").map_err(|error| format!("a request: {error}"))?;
        }
        replaced
    })?;
    // No server follows the last one. Its sockets are taken and dropped, so that it ends.
    let mut last = UnixStream::connect(&control)?;
    drop(receive(&last)?);
    last.write_all(b"!")?;
    wait(server)?;
    std::fs::remove_file(&control)?;
    writeln!(out, "server    requests")?;
    for (number, requests) in answered.iter().enumerate() {
        writeln!(out, "{number:>6} {:>11}", requests.load(Ordering::Relaxed))?;
    }
    Ok(writeln!(out, "no connection was refused, reset or left without an answer")?)
}

/// Connects, asks once, and returns the number of the server that answered.
fn ask(at: SocketAddr) -> io::Result<u8> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut answer = [0];
    stream.write_all(b"?")?;
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// Starts a server as a process of its own. Returns it with its address when it listens.
fn start(control: &Path, number: usize) -> Result<(Child, String), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg(control).arg(number.to_string()).stdout(Stdio::piped());
    let mut server = command.spawn()?;
    let mut line = String::new();
    let output = server.stdout.as_mut().ok_or("no output")?;
    io::BufReader::new(output).read_line(&mut line)?;
    let at = line.trim().strip_prefix("listening on ").ok_or("the server does not listen")?;
    Ok((server, at.to_owned()))
}

/// Waits for the end of a server, which must have cut no connection.
fn wait(server: Child) -> Result<(), Box<dyn Error>> {
    let output = server.wait_with_output()?;
    let last = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !last.ends_with("0 connections were cut\n") {
        return Err(format!("a server ended with {}: {last}", output.status).into());
    }
    Ok(())
}
