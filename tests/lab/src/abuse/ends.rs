//! Peers that leave in the middle of an exchange and connect again at once.

use std::time::Duration;

use epoll_group::codec::frame::Header;
use epoll_group::codec::message::ClientMessage;

use super::crowd::{self, Manner, Rules};
use super::wire::{Leave, Reading, Wire};
use super::{Abuse, Course, Tally, Target};
use crate::xrpc::request::query;

pub(super) const RESETS: Abuse = Abuse {
    name: "resets-mid-frame",
    about: "asks, sends half a frame, and resets",
    peers: 200,
    run: resets,
};

pub(super) const FINS: Abuse = Abuse {
    name: "fins-mid-frame",
    about: "asks, sends half a frame, and finishes",
    peers: 200,
    run: fins,
};

pub(super) const HALF_CLOSES: Abuse = Abuse {
    name: "half-closes",
    about: "asks for a large result, finishes sending and reads nothing",
    peers: 200,
    run: half_closes,
};

pub(super) const CHURN: Abuse = Abuse {
    name: "connection-churn",
    about: "connects and goes: at once, after a byte, after a probe; in order or by a reset",
    peers: 100,
    run: churn,
};

pub(super) const LOGIN_CHURN: Abuse = Abuse {
    name: "login-churn",
    about: "logs in, opens a session, asks, and goes without waiting for the answer",
    peers: 100,
    run: login_churn,
};

/// Sends a request and a part of the next one, and leaves.
struct MidFrame {
    statement: String,
    leave: Leave,
}

impl Manner for MidFrame {
    fn idle(&mut self, wire: &mut Wire) {
        for session in 2..6 {
            wire.ask(session, &ClientMessage::SessionNew);
            wire.ask(session, &ClientMessage::ExecSql(query(&self.statement)));
        }
        let mut frame = Header::new(2, 101, 1000).encode().to_vec();
        frame.extend([b'x'; 1000]);
        let cut = 1 + wire.random.below(frame.len() as u64 - 1) as usize;
        wire.bytes(&frame[..cut]);
        wire.leave(self.leave);
    }
}

fn resets(target: &Target, course: &Course<'_>) -> Tally {
    let statement = || target.large.clone();
    let leave = Leave::Reset;
    crowd::run(target, course, Rules::logged_in(), |_| MidFrame { statement: statement(), leave })
}

fn fins(target: &Target, course: &Course<'_>) -> Tally {
    let statement = || target.small.clone();
    let leave = Leave::Finish;
    crowd::run(target, course, Rules::logged_in(), |_| MidFrame { statement: statement(), leave })
}

/// Finishes sending and waits for answers for as long as the server allows.
struct HalfClose {
    statement: String,
}

impl Manner for HalfClose {
    fn idle(&mut self, wire: &mut Wire) {
        wire.read(Reading::Nothing);
        wire.ask(2, &ClientMessage::SessionNew);
        let mut large = query(&self.statement);
        large.token = Some(1 << 30);
        wire.ask(2, &ClientMessage::ExecSql(large));
        wire.leave(Leave::Finish);
    }
}

fn half_closes(target: &Target, course: &Course<'_>) -> Tally {
    let rules = Rules { receive_buffer: Some(4096), ..Rules::logged_in() };
    crowd::run(target, course, rules, |_| HalfClose { statement: target.large.clone() })
}

/// Every way to connect without a purpose.
struct Visit {
    number: usize,
}

impl Manner for Visit {
    fn idle(&mut self, wire: &mut Wire) {
        match wire.random.below(3) {
            0 => {}
            1 => wire.bytes(&[0]),
            _ => wire.ask(0, &ClientMessage::CapabilitiesGet),
        }
        let resets = (self.number + wire.random.below(2) as usize).is_multiple_of(2);
        wire.leave(if resets { Leave::Reset } else { Leave::Close });
    }
}

fn churn(target: &Target, course: &Course<'_>) -> Tally {
    crowd::run(target, course, Rules::stranger(), |number| Visit { number })
}

/// Asks after its login, and leaves. The login costs the server more than the rest of the
/// connection.
struct ShortCall {
    statement: String,
}

impl Manner for ShortCall {
    fn idle(&mut self, wire: &mut Wire) {
        wire.ask(2, &ClientMessage::SessionNew);
        wire.ask(2, &ClientMessage::ExecSql(query(&self.statement)));
        wire.leave(Leave::Close);
        wire.pause(Duration::from_millis(1));
    }
}

fn login_churn(target: &Target, course: &Course<'_>) -> Tally {
    crowd::run(target, course, Rules::logged_in(), |_| ShortCall {
        statement: target.small.clone(),
    })
}
