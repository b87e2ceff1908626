//! Thread groups: the thread pool of Percona Server and MariaDB.
//!
//! ```text
//!                                  one group of several
//!             ╭──────────────────────────────────────────────────────────────────╮
//!  accept ──▶ │ epoll ──▶ listener ──▶ queue ──▶ worker: receive, perform, send  │
//!  id mod     │   ▲          │                      ▲      │                      │
//!  groups     │   │          ╰── queue empty, and   │      │ one-shot: watched    │
//!             │   │              no active thread:  │      │ again when answered  │
//!             │   │              runs the first ────╯      │                      │
//!             │   ╰────────────────────────────────────────╯                      │
//!             │ standby: idle threads, the last to sleep is woken first           │
//!             ╰──────────────────────────────────────────────────────────────────╯
//!  timer, each 500 ms: a group without progress gets one more thread
//! ```
//!
//! It is written from public manuals alone: "Thread Groups in the Unix Implementation of the Thread
//! Pool", "Thread Pool System and Status Variables" and `THREAD_POOL_STATS` of MariaDB, "Thread
//! pool" of Percona Server. They say, and this does:
//!
//! - A group wants one active thread. A listener that finds the queue empty and no active thread runs the
//!   first request itself, and then those that it has queued, without a wake-up. The next thread that finds
//!   the queue empty listens. A thread is woken or made only if no thread is active.
//! - A worker without work looks at epoll once, without waiting, before it stands by.
//! - More threads come in two ways. A thread that is about to wait, for a row lock or for its peer,
//!   announces that and no longer counts as active ([`Group::waiting`]). And every
//!   `thread_pool_stall_limit` the timer checks for queued requests or events that no thread has touched
//!   since its last look. For those it wakes or makes one thread.
//! - More than `1 + thread_pool_oversubscribe` active threads do not take from the queue. Threads
//!   beyond the first few are made only some time after the one before.
//!
//! A request is read to its end by the worker that began it, as in MySQL. While the rest of a frame is
//! missing, or the peer does not read, the thread waits in `poll`, and has announced it.
//!
//! Left out: the queue for statements inside of transactions, which goes before the other one, because an
//! echo has no transactions. A thread of its own accepts, as in those servers.
//!
//! Good at: few wake-ups while requests are short; waits that are announced; hot connections of one group do
//! not hold up another group. Bad at: the system call that re-arms, for each request; handlers that wait
//! unannounced, because the requests behind them wait for up to three looks of the timer, a second and a
//! half; a thread for each peer that is slow in the middle of a frame; groups do not help each other.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::epoll::{self, Address};
use super::frames;
use group::Group;

mod group;
#[cfg(test)]
mod tests;

/// State of a connection after a request.
enum Next {
    Keep,
    Close,
}

/// Default of `thread_pool_stall_limit`.
const STALL_LIMIT: Duration = Duration::from_millis(500);
const RECEIVE_BYTES: usize = 64 << 10;

/// Starts the groups. They serve until the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, groups: usize) -> io::Result<SocketAddr> {
    let groups = (0..groups).map(|_| Group::new()).collect::<io::Result<Vec<_>>>()?;
    start_with(address, &groups, STALL_LIMIT)
}

fn start_with(
    address: SocketAddr,
    groups: &[Arc<Group>],
    stall_limit: Duration,
) -> io::Result<SocketAddr> {
    let listener = epoll::listen(address, Address::Alone)?;
    let address = listener.local_addr()?;
    for group in groups {
        group.start()?;
    }
    let checked = groups.to_vec();
    thread::spawn(move || {
        loop {
            thread::sleep(stall_limit);
            checked.iter().for_each(Group::check_for_stall);
        }
    });
    let groups = groups.to_vec();
    thread::spawn(move || {
        let sockets = listener.incoming().flatten();
        for (group, socket) in groups.iter().cycle().zip(sockets) {
            // An error ends its connection, as it would end any connection.
            let _ = group.add(socket);
        }
    });
    Ok(address)
}

/// Body of a thread: serves the connections that its group gives it, until the group needs it no more.
fn run(group: &Arc<Group>) {
    let seat = group.seat();
    let mut buffer = vec![0; RECEIVE_BYTES];
    while let Some(socket) = group.next(&seat) {
        let next = serve(group, &socket, &mut buffer);
        match next {
            Ok(Next::Keep) if group.rearm(&socket).is_ok() => {}
            _ => group.close(&socket),
        }
    }
}

/// Answers all frames that have begun to arrive.
fn serve(group: &Arc<Group>, socket: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<Next> {
    let mut filled = 0;
    loop {
        match (&*socket).read(&mut buffer[filled..]) {
            Ok(0) => return Ok(Next::Close),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if filled == 0 {
                    return Ok(Next::Keep);
                }
                group.waiting(|| wait(socket, PollFlags::IN))?;
                continue;
            }
            Err(error) => return Err(error),
        }
        // The wait for a lock is announced; the sleep of a handler is not.
        let whole = frames::perform_in(&buffer[..filled], |wait| group.waiting(wait))?;
        send(group, socket, &buffer[..whole])?;
        if whole == filled {
            return Ok(Next::Keep);
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
    }
}

/// Sends all bytes, however long the peer takes.
fn send(group: &Arc<Group>, mut socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                group.waiting(|| wait(socket, PollFlags::OUT))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait(socket: &TcpStream, flags: PollFlags) -> io::Result<()> {
    match rustix::event::poll(&mut [PollFd::new(socket, flags)], None) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        result => Ok(result.map(drop)?),
    }
}
