//! [`Passage`]: one connection that passes through a relay, on a thread of its own.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::plan::{Plan, Step};
use super::script::{Direction, How};
use super::sys::{self, Watched};

/// Bytes read at a time.
const READ: usize = 16 << 10;
/// Pieces sent at a time, so that neither direction starves the other.
const TURN: usize = 64;
/// Interval of looks while a socket is gone. Such a socket cannot wake the thread.
const TICK: Duration = Duration::from_millis(20);
/// Time for which a cut connection goes on reading. Closed with bytes unread, it would be reset.
const LINGER: Duration = Duration::from_secs(1);

/// A connection on both sides.
#[derive(Debug)]
pub struct Passage<'a> {
    pub client: &'a Socket,
    pub server: &'a Socket,
    pub up: Plan,
    pub down: Plan,
    /// Set when the relay's owner cuts the connection. Both sockets are shut down as well.
    pub cut: &'a AtomicBool,
}

/// How a passage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides finished, and all was passed on.
    Finished,
    /// A plan cut the connection after this number of bytes in this direction.
    Cut(Direction, u64, How),
    /// The owner of the relay cut it.
    CutByOwner,
    /// Either side broke off.
    Lost,
    /// The server could not be reached.
    Unreachable,
}

/// One direction.
struct Lane<'a> {
    plan: &'a mut Plan,
    from: &'a Socket,
    to: &'a Socket,
    direction: Direction,
    /// All was passed on, the end as well.
    done: bool,
    /// The receiver takes nothing now.
    blocked: bool,
    /// Time of the next step, from the start of the passage. `None`: when more bytes come.
    wait: Option<Duration>,
}

impl Passage<'_> {
    /// Passes bytes on until there are no more.
    pub fn run(&mut self) -> End {
        match self.pass() {
            Ok(end) => {
                if let End::Cut(_, _, How::Close) = end {
                    self.close();
                } else if end != End::Finished {
                    self.reset();
                }
                end
            }
            Err(_) => {
                self.reset();
                if self.cut.load(Ordering::Relaxed) { End::CutByOwner } else { End::Lost }
            }
        }
    }

    fn pass(&mut self) -> io::Result<End> {
        self.client.set_nonblocking(true)?;
        self.server.set_nonblocking(true)?;
        let began = Instant::now();
        let mut up = Lane::new(&mut self.up, self.client, self.server, Direction::Up);
        let mut down = Lane::new(&mut self.down, self.server, self.client, Direction::Down);
        let mut gone = [false; 2];
        loop {
            for lane in [&mut up, &mut down] {
                if let Some(end) = lane.step(began)? {
                    return Ok(end);
                }
            }
            if self.cut.load(Ordering::Relaxed) {
                return Ok(End::CutByOwner);
            }
            if up.done && down.done {
                return Ok(End::Finished);
            }
            let mut watched = [
                watch(self.client, up.wants_bytes(), down.blocked, gone[0]),
                watch(self.server, down.wants_bytes(), up.blocked, gone[1]),
            ];
            let idle = |one: &Watched<'_>| one.gone && !one.readable && !one.writable;
            if watched.iter().all(idle) {
                return Ok(End::Lost);
            }
            let until = [&up, &down].into_iter().filter_map(|lane| lane.wait).min();
            let mut limit = until.map(|until| until.saturating_sub(began.elapsed()));
            if watched.iter().any(idle) {
                limit = Some(limit.map_or(TICK, |limit| limit.min(TICK)));
            }
            sys::wait(&mut watched, limit)?;
            gone = watched.map(|one| one.gone);
        }
    }

    fn close(&self) {
        let deadline = Instant::now() + LINGER;
        for socket in [self.client, self.server] {
            let _ = socket.shutdown(Shutdown::Write);
        }
        let mut bytes = [0; 4096];
        for mut socket in [self.client, self.server] {
            let _ = socket.set_nonblocking(false);
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
                    break;
                }
                if !matches!(socket.read(&mut bytes), Ok(1..)) {
                    break;
                }
            }
        }
    }

    fn reset(&self) {
        for socket in [self.client, self.server] {
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
    }
}

impl<'a> Lane<'a> {
    const fn new(
        plan: &'a mut Plan,
        from: &'a Socket,
        to: &'a Socket,
        direction: Direction,
    ) -> Self {
        Self { plan, from, to, direction, done: false, blocked: false, wait: None }
    }

    fn wants_bytes(&self) -> bool {
        !self.done && self.plan.room() > 0
    }

    /// Reads once, and sends what may be sent. Returns the end, if it has come.
    fn step(&mut self, began: Instant) -> io::Result<Option<End>> {
        self.blocked = false;
        self.wait = None;
        if self.done {
            return Ok(None);
        }
        let mut bytes = [0; READ];
        let room = self.plan.room().min(READ);
        if room > 0 {
            match self.from.read(&mut bytes[..room]) {
                Ok(0) => self.plan.handle_end(),
                Ok(count) => self.plan.handle_bytes(began.elapsed(), &bytes[..count]),
                Err(error) if comes_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        for _ in 0..TURN {
            match self.plan.poll(began.elapsed()) {
                Step::Send(piece) => match self.to.write(piece) {
                    Ok(count) => self.plan.handle_sent(began.elapsed(), count),
                    Err(error) if comes_later(&error) => {
                        self.blocked = true;
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                },
                Step::Wait(until) => {
                    self.wait = until;
                    return Ok(None);
                }
                Step::End => {
                    self.done = true;
                    // Fails if the receiver is gone already.
                    let _ = self.to.shutdown(Shutdown::Write);
                    return Ok(None);
                }
                Step::Cut(how) => {
                    return Ok(Some(End::Cut(self.direction, self.plan.sent(), how)));
                }
            }
        }
        self.wait = Some(Duration::ZERO);
        Ok(None)
    }
}

fn comes_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn watch(socket: &Socket, readable: bool, writable: bool, gone: bool) -> Watched<'_> {
    Watched { socket: socket.as_fd(), readable, writable, gone }
}
