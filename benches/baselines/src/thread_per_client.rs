//! A thread for each client, and a connection for each session: how classic MySQL serves JDBC.
//!
//! ```text
//!  connection = session ──▶ its thread: receive, decode, execute, encode, send
//!  connection = session ──▶ its thread
//! ```
//!
//! MySQL's manual describes it ("Connection Interfaces", "How MySQL Handles Client Connections"). One thread
//! for each client does the login and all statements of that connection, one after the other. A client
//! that wants many sessions opens many connections, as pools of JDBC do. The protocol, the codec and the
//! engines are those of the others here, so that only the threads differ; MySQL's own protocol costs about
//! as much. All statements of one receive are answered with one send, unless a result is long. The receive
//! buffer and the parts of a long result have the size of MySQL's `net_buffer_length`.
//!
//! Good at: one request needs no other thread, no queue and no lock, and the kernel's scheduler shares the
//! CPUs out among the running threads. Bad at: no call ever serves two clients. Each request is a receive and
//! a send of its own, and two context switches. Each session costs a stack, a socket and its buffers, used
//! or not.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use epoll_group::codec::encoder::OutBuffer;
use epoll_group::codec::frame::Decoder;
use epoll_group::codec::limits::Limits;

use super::statements::{Account, Client, Engine, Request, broken, done, refuse_session};
use super::threads;

struct Server<E> {
    account: Account,
    engine: E,
}

/// The one session that a connection may have open.
type Session<E> = Option<(u64, <E as Engine>::Session)>;

const RECEIVE_BYTES: usize = 16 << 10;

/// Starts to accept. All threads serve until their peers leave or the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, account: Account, engine: impl Engine) -> io::Result<SocketAddr> {
    let server = Arc::new(Server { account, engine });
    threads::accept(address, move |socket| serve(&socket, &server))
}

fn serve<E: Engine>(socket: &TcpStream, server: &Server<E>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut client = Client::default();
    let mut session = None;
    let mut out = OutBuffer::default();
    let mut decoder = Decoder::new(Limits::default());
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let count = threads::receive(socket, &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        decoder.feed(&buffer[..count]);
        while let Some(frame) = decoder.next_frame().map_err(broken)? {
            let id = frame.session();
            if let Some(request) = client.take(&frame, &server.account, &mut out)? {
                answer(&mut session, id, &request, &server.engine, &mut out, socket)?;
            }
        }
        send(socket, &mut out)?;
    }
}

fn answer<E: Engine>(
    session: &mut Session<E>,
    id: u64,
    request: &Request,
    engine: &E,
    out: &mut OutBuffer,
    socket: &TcpStream,
) -> io::Result<()> {
    match (request, session.as_mut()) {
        (Request::Open, None) => *session = Some((id, E::Session::default())),
        (Request::Open, Some(_)) => return refuse_session(id, "One session a connection.", out),
        (Request::Statement(statement), Some((open, data))) if *open == id => {
            return statement.run(id, engine, data, out, |out| send(socket, out));
        }
        (Request::Close, Some((open, _))) if *open == id => *session = None,
        _ => return refuse_session(id, "Session not found.", out),
    }
    done(id, out);
    Ok(())
}

fn send(mut socket: &TcpStream, out: &mut OutBuffer) -> io::Result<()> {
    out.slices().try_for_each(|slice| socket.write_all(slice))?;
    out.clear();
    Ok(())
}
