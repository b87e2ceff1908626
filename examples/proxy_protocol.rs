//! The address of a client, passed on through two proxies by PROXY headers.
//!
//! ```text
//! cargo run --release --example proxy_protocol
//!
//! client ────────▶ outer proxy ── version 1 ──▶ inner proxy ── version 2 ──▶ server
//!                  names client                 passes it on                 client_addr()
//! ```
//!
//! The proxies here pass bytes without flow control. The example `splice` has that.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use epoll_group::net::{
    Address, Close, CloseReason, ConnectOptions, Connection, HalfClose, Input, ListenOptions,
    Listener, Network, Protocol, ProxyHeader, ProxyVersion,
};
use epoll_group::stats::Counter;
use epoll_group::{Handle, Runtime};

/// Shows what a server behind proxies knows of its clients.
#[derive(clap::Parser)]
#[command(name = "proxy_protocol")]
struct Args {}

fn main() -> ExitCode {
    lab::args::run(|_: Args, out| demonstrate(out))
}

fn demonstrate(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().start()?;
    let handle = runtime.handle();
    // Only connections of this machine may name a client.
    let loopback: Network = "127.0.0.0/8".parse()?;
    let behind = ListenOptions::new().proxy_protocol([loopback]).max_connections_per_address(2);
    let server = handle.listen_with("127.0.0.1:0", behind.clone(), WhoAmI)?;
    let inner = Proxy { handle: handle.clone(), to: tcp(&server)?, version: ProxyVersion::V2 };
    let inner = handle.listen_with("127.0.0.1:0", behind, inner)?;
    let outer = |at: &str| {
        let proxy = Proxy { handle: handle.clone(), to: tcp(&inner)?, version: ProxyVersion::V1 };
        Ok::<_, Box<dyn Error>>(handle.listen(at, proxy)?)
    };
    writeln!(out, "{:<24} {:<24} the server calls it", "client", "the server's socket says")?;
    let mut clients = Vec::new();
    for at in ["127.0.0.1:0", "127.0.0.1:0", "[::1]:0"] {
        let outer = match outer(at) {
            Ok(outer) => outer,
            Err(_) if at.starts_with('[') => continue,
            Err(error) => return Err(error),
        };
        let mut client = TcpStream::connect(tcp(&outer)?)?;
        client.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut answer = String::new();
        client.write_all(b"?")?;
        BufReader::new(&client).read_line(&mut answer)?;
        let (socket, named) = answer.trim().split_once(' ').ok_or("no answer")?;
        let own = client.local_addr()?.to_string();
        writeln!(out, "{own:<24} {socket:<24} {named}")?;
        if named != own || socket == own {
            return Err(format!("{own} is called {named}").into());
        }
        clients.push((client, outer));
    }

    // Two clients of 127.0.0.1 are connected: a third is one too many, though its proxy is not.
    let third = tcp(&clients[0].1)?;
    refused(out, "a third client of 127.0.0.1", third, b"?")?;
    let elsewhere = ListenOptions::new().proxy_protocol(["192.0.2.0/24".parse()?]);
    let strict = handle.listen_with("127.0.0.1:0", elsewhere, WhoAmI)?;
    let forged = b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n?";
    refused(out, "a peer outside of the trusted network", tcp(&strict)?, forged)?;
    refused(out, "a peer without a header", tcp(&server)?, b"GET / HTTP/1.1\r\n\r\n")?;
    let ended = runtime.stats().get(Counter::ClosedByLayer);
    writeln!(out, "{ended} connections ended by the layer that reads headers")?;
    drop(clients);
    let report = runtime.drain(Duration::from_secs(5));
    if report.cut > 0 || ended < 3 {
        return Err(format!("{report}, {ended} ended").into());
    }
    Ok(())
}

/// Sends bytes, and checks that the connection ends without an answer.
fn refused(
    out: &mut impl Write,
    name: &str,
    at: SocketAddr,
    bytes: &[u8],
) -> Result<(), Box<dyn Error>> {
    let mut peer = TcpStream::connect(at)?;
    peer.set_read_timeout(Some(Duration::from_secs(10)))?;
    // The connection may have ended already.
    let _ = peer.write_all(bytes);
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = peer.read_to_end(&mut answer);
    if !answer.is_empty() {
        return Err(format!("{name} gets an answer").into());
    }
    Ok(writeln!(out, "{name}: refused")?)
}

fn tcp(listener: &Listener) -> Result<SocketAddr, &'static str> {
    match listener.local_addr() {
        Address::Tcp(addr) => Ok(*addr),
        _ => Err("a listener of TCP"),
    }
}

/// Answers with the address of its socket's peer, and with that of the client.
struct WhoAmI;

impl Protocol for WhoAmI {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        conn.send(format!("{} {}\n", conn.peer_addr(), conn.client_addr()));
        Ok(())
    }
}

/// Names its clients to the server behind, or passes on what another proxy has said.
struct Proxy {
    handle: Handle,
    to: SocketAddr,
    version: ProxyVersion,
}

impl Protocol for Proxy {
    type State = Connection;

    fn opened(&self, conn: &Connection) -> Result<Connection, Close> {
        let header = match conn.extension::<ProxyHeader>() {
            Some(header) => header.clone(),
            None => {
                let (client, server) = (conn.peer_addr().clone(), conn.local_addr()?);
                ProxyHeader::Proxied { client, server }
            }
        };
        let options = ConnectOptions::new().proxy_header(self.version, &header);
        let back = Back { client: conn.clone() };
        self.handle.connect_with(self.to, options, back).map_err(Close::error)
    }

    fn received(
        &self,
        _: &Connection,
        server: &mut Connection,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        server.send(input.take_all());
        Ok(())
    }

    fn closed(&self, _: &Connection, server: Connection, reason: &CloseReason) {
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

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        self.client.send(input.take_all());
        Ok(())
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        self.client.close("the server has closed");
        Ok(HalfClose::End)
    }
}
