//! Peers that send slowly or read slowly.

use std::time::Duration;

use epoll_group::codec::frame::Header;
use epoll_group::codec::message::ClientMessage;

use super::crowd::{self, Manner, Rules, WHILE};
use super::wire::{Heard, Reading, Wire};
use super::{Abuse, Course, Tally, Target};
use crate::xrpc::request::{self, query};

pub(super) const ONE_BYTE_WRITERS: Abuse = Abuse {
    name: "one-byte-writers",
    about: "logs in, opens a session and asks, a byte in each segment",
    peers: 1_000,
    run: one_byte_writers,
};

pub(super) const SLOWLORIS: Abuse = Abuse {
    name: "slowloris",
    about: "never finishes the login: nothing, or a byte of a frame every five seconds",
    peers: 5_000,
    run: slowloris,
};

pub(super) const SLOWLORIS_LOGGED_IN: Abuse = Abuse {
    name: "slowloris-logged-in",
    about: "logs in, announces a frame of a mebibyte, and sends a byte of it every second",
    peers: 5_000,
    run: slowloris_logged_in,
};

pub(super) const SLOW_READERS: Abuse = Abuse {
    name: "slow-readers",
    about: "asks for large results on sixteen sessions, grants them all, and reads nothing",
    peers: 500,
    run: slow_readers,
};

pub(super) const TRICKLE_READERS: Abuse = Abuse {
    name: "trickle-readers",
    about: "the same, and reads a kilobyte a second, so that there is always progress",
    peers: 500,
    run: trickle_readers,
};

/// One session, and one small request after the other.
struct OneByte {
    statement: String,
    open: bool,
}

impl Manner for OneByte {
    fn connected(&mut self, wire: &mut Wire) {
        wire.pieces(1, Duration::from_micros(100));
    }

    fn idle(&mut self, wire: &mut Wire) {
        if !self.open {
            self.open = true;
            wire.ask(2, &ClientMessage::SessionNew);
        }
        wire.ask(2, &ClientMessage::ExecSql(query(&self.statement)));
        wire.wait();
    }

    fn heard(&mut self, wire: &mut Wire, _: Heard<'_>) {
        if wire.outstanding() > 0 {
            wire.wait();
        }
    }
}

fn one_byte_writers(target: &Target, course: &Course<'_>) -> Tally {
    crowd::run(target, course, Rules::logged_in(), |_| OneByte {
        statement: target.small.clone(),
        open: false,
    })
}

/// Begins a login byte by byte. Every other peer sends nothing at all.
struct Loris {
    speaks: bool,
}

impl Manner for Loris {
    fn connected(&mut self, wire: &mut Wire) {
        wire.pieces(1, Duration::from_secs(5));
    }

    fn idle(&mut self, wire: &mut Wire) {
        if self.speaks {
            wire.say(0, &request::login_start());
        } else {
            wire.wait();
        }
    }
}

fn slowloris(target: &Target, course: &Course<'_>) -> Tally {
    let rules = Rules { rest: WHILE, ..Rules::stranger() };
    crowd::run(target, course, rules, |number| Loris { speaks: number % 2 == 0 })
}

/// A frame that is announced large and comes in bytes.
struct LoggedInLoris {
    announced: bool,
}

impl Manner for LoggedInLoris {
    fn idle(&mut self, wire: &mut Wire) {
        if !self.announced {
            self.announced = true;
            return wire.bytes(&Header::new(2, 101, 1 << 20).encode());
        }
        wire.bytes(&[b'x'; 4096]);
        wire.pieces(1, Duration::from_secs(1));
    }
}

fn slowloris_logged_in(target: &Target, course: &Course<'_>) -> Tally {
    let rules = Rules { rest: WHILE, ..Rules::logged_in() };
    crowd::run(target, course, rules, |_| LoggedInLoris { announced: false })
}

/// Sessions of one slow reader.
const SESSIONS: u64 = 16;

/// Asks once, and then never reads again.
struct SlowReader {
    statement: String,
    reading: Reading,
}

impl Manner for SlowReader {
    fn idle(&mut self, wire: &mut Wire) {
        wire.read(self.reading);
        for session in 2..2 + SESSIONS {
            wire.ask(session, &ClientMessage::SessionNew);
            let mut large = query(&self.statement);
            large.token = Some(1 << 30);
            wire.ask(session, &ClientMessage::ExecSql(large));
        }
        wire.wait();
    }
}

fn slow_readers(target: &Target, course: &Course<'_>) -> Tally {
    read_by(Reading::Nothing, target, course)
}

fn trickle_readers(target: &Target, course: &Course<'_>) -> Tally {
    read_by(Reading::Trickle(1024, Duration::from_secs(1)), target, course)
}

fn read_by(reading: Reading, target: &Target, course: &Course<'_>) -> Tally {
    // A small kernel buffer, because the test is about the backlog in the server.
    let rules = Rules { receive_buffer: Some(4096), rest: WHILE, ..Rules::logged_in() };
    crowd::run(target, course, rules, |_| SlowReader { statement: target.large.clone(), reading })
}
