//! Proxies that pass bytes both ways between clients and a server behind.

use std::error::Error;
use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener as Socket};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use baselines::epoll::{self, Address};
use baselines::pairs;
use clap::ValueEnum;
use lab::helper::announce;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

// The example is what users read first, so it keeps its proxy, and this suite measures that file.
#[path = "../../../examples/splice/proxy.rs"]
mod proxy;

/// Kinds of proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Proxy {
    /// The example `splice` of the library.
    EpollGroup,
    /// Bare epoll loops, one a CPU, with a pair at one loop.
    Loops,
    /// HAProxy in TCP mode with two threads.
    Haproxy,
    /// The same with `option splice-auto`, which moves bytes between sockets inside the kernel.
    HaproxySplice,
    /// `copy_bidirectional` of tokio, one task a pair.
    Tokio,
}

impl Proxy {
    pub fn is_haproxy(self) -> bool {
        matches!(self, Self::Haproxy | Self::HaproxySplice)
    }

    /// Serves until the input ends.
    ///
    /// # Errors
    /// It cannot listen, or HAProxy cannot be started.
    pub fn serve(self, to: SocketAddr) -> Result<(), Box<dyn Error>> {
        let any = ([127, 0, 0, 1], 0).into();
        match self {
            Self::EpollGroup => {
                let runtime = proxy::start()?;
                let listener = proxy::listen(&runtime, any, to)?;
                announce(&listener.local_addr().to_string())?;
                // The load has closed its connections.
                let _ = runtime.drain(Duration::from_secs(5));
                Ok(())
            }
            Self::Loops => {
                let threads = thread::available_parallelism()?.get();
                Ok(announce(&pairs::start(any, threads, to)?.to_string())?)
            }
            Self::Tokio => {
                let listener = epoll::listen(any, Address::Alone)?;
                let address = listener.local_addr()?;
                listener.set_nonblocking(true)?;
                let threads = thread::available_parallelism()?.get();
                let runtime =
                    Builder::new_multi_thread().worker_threads(threads).enable_io().build()?;
                runtime.spawn(accept(listener, to));
                Ok(announce(&address.to_string())?)
            }
            Self::Haproxy | Self::HaproxySplice => {
                haproxy(epoll::listen(any, Address::Alone)?, to, self == Self::HaproxySplice)
            }
        }
    }
}

/// True if the program is installed.
pub fn has_haproxy() -> bool {
    let version = Command::new("haproxy").arg("-v").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

async fn accept(listener: Socket, to: SocketAddr) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        // A peer that leaves before it is accepted is no reason to stop.
        if let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(pass(socket, to));
        }
    }
}

async fn pass(mut client: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// HAProxy gets the socket as its standard input. It is another process than this one, so its
/// number is announced with the address.
fn haproxy(socket: Socket, to: SocketAddr, splices: bool) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("haproxy.cfg");
    let splice = if splices { "option splice-auto" } else { "" };
    let threads = thread::available_parallelism()?;
    let config = format!(
        "global\n nbthread {threads}\n maxconn 4000\n\
         defaults\n mode tcp\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n {splice}\n\
         listen pairs\n bind fd@0\n server behind {to}\n"
    );
    fs::write(&file, config)?;
    let address = socket.local_addr()?;
    let mut command = Command::new("haproxy");
    let stdin = Stdio::from(std::os::fd::OwnedFd::from(socket));
    let mut child =
        command.arg("-db").arg("-f").arg(&file).stdin(stdin).stdout(Stdio::null()).spawn()?;
    drop(command);
    let announced = passes(address).and_then(|()| announce(&format!("{address} {}", child.id())));
    child.kill()?;
    child.wait()?;
    Ok(announced?)
}

/// Waits until a connection through the proxy has come back closed. Before that, its memory is not that of
/// a proxy that runs.
fn passes(proxy: SocketAddr) -> std::io::Result<()> {
    let mut socket = std::net::TcpStream::connect(proxy)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.shutdown(Shutdown::Write)?;
    socket.read_to_end(&mut Vec::new()).map(drop)
}
