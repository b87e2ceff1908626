//! A proxy of event loops with one thread each, and nothing shared: the limit of what a proxy can cost.
//!
//! ```text
//!  thread: epoll ── listener of its own (SO_REUSEPORT)
//!            └───── its pairs: receive from one side, send to the other
//! ```
//!
//! As in [`loops`](crate::loops), each thread has a level-triggered epoll loop, and a pair belongs to one
//! thread for life. A request that passes takes four system calls and its share of two waits. A side that
//! does not read has a backlog, and while it has one the other side is not read from.
//!
//! Good at: nothing is shared, so nothing is locked. Bad at: a pair ends when either side does, even with a
//! backlog; there are no time-outs, no limits and no counters; the loop waits while it connects.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};

use super::epoll::{self, Epoll};
use super::event_loop::{self, Connection, Next, Received, Table};

const EVENTS: usize = 64;
const RECEIVE_BYTES: usize = 64 << 10;

/// One connection of a pair, and the descriptor of the other.
#[derive(Debug)]
struct Side {
    connection: Connection,
    other: RawFd,
}

/// Starts the threads, which pass bytes between clients and the server at `to` until the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, threads: usize, to: SocketAddr) -> io::Result<SocketAddr> {
    event_loop::start_listening(address, threads, move |listener| run(listener, to))
}

fn run(listener: &TcpListener, to: SocketAddr) -> io::Result<Infallible> {
    let epoll = Epoll::new()?;
    epoll.add(listener, libc::EPOLLIN)?;
    let mut sides = Table::new();
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut events = epoll::events::<EVENTS>();
    loop {
        let count = epoll.wait(&mut events, -1)?;
        for event in &events[..count] {
            let (fd, bits) = (event.u64 as RawFd, event.events as i32);
            if fd == listener.as_raw_fd() {
                pair(listener, &epoll, to, &mut sides)?;
                continue;
            }
            let Some(other) = sides.get(fd).map(|side| side.other) else { continue };
            if let Ok(Next::Close) | Err(_) = pass(&mut sides, &epoll, fd, bits, &mut buffer) {
                sides.remove(fd);
                sides.remove(other);
            }
        }
    }
}

/// Accepts a client and connects to the server behind. A client whose server refuses is closed.
fn pair(
    listener: &TcpListener,
    epoll: &Epoll,
    to: SocketAddr,
    sides: &mut Table<Side>,
) -> io::Result<()> {
    let Some(client) = Connection::accept(listener, epoll)? else { return Ok(()) };
    let Ok(server) = Connection::connect(to, epoll) else { return Ok(()) };
    let (front, back) = (client.as_raw_fd(), server.as_raw_fd());
    sides.insert(front, Side { connection: client, other: back });
    sides.insert(back, Side { connection: server, other: front });
    Ok(())
}

/// Handles an event of one side.
fn pass(
    sides: &mut Table<Side>,
    epoll: &Epoll,
    fd: RawFd,
    bits: i32,
    buffer: &mut [u8],
) -> io::Result<Next> {
    let Some(side) = sides.get(fd) else { return Ok(Next::Keep) };
    let other = side.other;
    if bits & libc::EPOLLOUT != 0 {
        side.connection.send_backlog(epoll)?;
        if !side.connection.has_backlog()
            && let Some(other) = sides.get(other)
        {
            other.connection.pause(epoll, false)?;
        }
        return Ok(Next::Keep);
    }
    let count = match side.connection.receive(buffer)? {
        Received::Bytes(count) => count,
        Received::Nothing => return Ok(Next::Keep),
        Received::End => return Ok(Next::Close),
    };
    let Some(to) = sides.get(other) else { return Ok(Next::Close) };
    to.connection.send(epoll, &buffer[..count])?;
    if to.connection.has_backlog()
        && let Some(from) = sides.get(fd)
    {
        from.connection.pause(epoll, true)?;
    }
    Ok(Next::Keep)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::thread;

    use super::*;

    /// More than sockets and the loop hold. The other side begins to read when a socket is full, so there is a
    /// backlog.
    const BYTES: usize = 32 << 20;

    #[test]
    fn bytes_pass_both_ways_and_the_end_of_one_side_ends_the_other() {
        let behind = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = start(([127, 0, 0, 1], 0).into(), 1, behind.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        let (mut server, _) = behind.accept().unwrap();
        let sent: Vec<u8> = (0..BYTES).map(|n| (n >> 9) as u8).collect();
        client.set_nonblocking(true).unwrap();
        let mut first = 0;
        while let Ok(count) = client.write(&sent[first..]) {
            first += count;
        }
        assert!(first < BYTES, "nothing has held the writer up");
        client.set_nonblocking(false).unwrap();
        thread::scope(|scope| {
            let mut writer = client.try_clone().unwrap();
            let sent = &sent;
            scope.spawn(move || writer.write_all(&sent[first..]).unwrap());
            let mut echo = server.try_clone().unwrap();
            scope.spawn(move || {
                let mut all = vec![0; BYTES];
                echo.read_exact(&mut all).unwrap();
                echo.write_all(&all).unwrap();
            });
            let mut back = vec![0; BYTES];
            client.read_exact(&mut back).unwrap();
            assert!(back == *sent, "other bytes came back");
        });
        drop(client);
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
    }
}
