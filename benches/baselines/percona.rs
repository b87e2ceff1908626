//! Thread groups: the thread pool of Percona Server and MariaDB.
//!
//! ```text
//!                                  one group of several
//!             ╭──────────────────────────────────────────────────────────────────╮
//!  accept ──▶ │ epoll ──▶ listener ──▶ queue ──▶ worker: receive, perform, send  │
//!  id mod     │   ▲          │                      ▲      │                      │
//!  groups     │   │          ╰── queue empty, and   │      │ one-shot: watched    │
//!             │   │              nobody works: it   │      │ again when answered  │
//!             │   │              runs the first ────╯      │                      │
//!             │   ╰────────────────────────────────────────╯                      │
//!             │ standby: idle threads, the last to sleep is woken first           │
//!             ╰──────────────────────────────────────────────────────────────────╯
//!  timer, each 500 ms: a group without progress gets one more thread
//! ```
//!
//! It is written from public manuals alone: "Thread Groups in the Unix Implementation of the Thread
//! Pool", "Thread Pool System and Status Variables" and `THREAD_POOL_STATS` of MariaDB, "Thread
//! pool" of Percona Server. What they say, and this does:
//!
//! - A group wants one active thread. A listener that finds the queue empty and nobody at work runs
//!   the first request itself, and then those that it has queued: nobody is woken. Whoever next
//!   finds the queue empty listens. Only when nobody is active is a thread woken, or made.
//! - A worker without work looks at epoll once, without waiting, before it stands by.
//! - More threads come in two ways. One that is about to wait, for a row lock or for its peer, says
//!   so and no longer counts as active ([`Group::waiting`]). And the timer finds, every
//!   `thread_pool_stall_limit`, that queued requests or events have been left alone since its last
//!   look, and wakes or makes one thread.
//! - More than `1 + thread_pool_oversubscribe` active threads do not take from the queue. Threads
//!   beyond the first few are made only some time after the one before.
//!
//! A request is read to its end by the worker that began it, as MySQL does: while the rest of a
//! frame is on its way, or the peer does not read, the thread waits in `poll`, and has said so.
//!
//! Left out: the queue for statements inside of transactions, which goes before the other one; an
//! echo has no transactions. Accepting is a thread's of its own, as there.
//!
//! Good at: few wake-ups while requests are short; waits that are announced; hot connections of one
//! group do not hold up another group. Bad at: the system call that re-arms, for each request; work
//! that waits unannounced: those behind it wait for up to three looks of the timer, a second and a
//! half; a thread for each peer that is slow in the middle of a frame; and groups do not help each
//! other.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::epoll::{self, Address};
use super::{frames, poll};
use group::Group;

#[path = "percona/group.rs"]
mod group;
#[cfg(test)]
#[path = "percona/tests.rs"]
mod tests;

/// What becomes of a connection after a request.
enum Next {
    Keep,
    Close,
}

/// Default of `thread_pool_stall_limit`.
const STALL_LIMIT: Duration = Duration::from_millis(500);
const RECEIVE_BYTES: usize = 64 << 10;

/// Starts the groups; they serve until the process ends.
pub(crate) fn start(address: SocketAddr, groups: usize) -> io::Result<SocketAddr> {
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

/// The life of a thread: it serves what its group gives it, until it is not needed any more.
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

/// Answers all that has arrived, and what it is the beginning of.
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
                group.waiting(|| poll::wait([(socket.as_fd(), libc::POLLIN)]))?;
                continue;
            }
            Err(error) => return Err(error),
        }
        // The wait for a lock is announced; a handler that sleeps tells nobody.
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

/// Sends all of it, however long the peer takes.
fn send(group: &Arc<Group>, mut socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                group.waiting(|| poll::wait([(socket.as_fd(), libc::POLLOUT)]))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
