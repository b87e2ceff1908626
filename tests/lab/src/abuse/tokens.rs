//! Wrong credit: none, too much, negative, or never granted.

use epoll_group::codec::message::ClientMessage;

use super::crowd::{self, Manner, Rules};
use super::wire::{Heard, Wire};
use super::{Abuse, Course, Tally, Target};
use crate::xrpc::request::{self, query};

pub(super) const NEVER_GRANTS: Abuse = Abuse {
    name: "never-grants",
    about: "asks for large results with a credit of 1 KiB, on sixteen sessions, and grants no more",
    peers: 200,
    run: never_grants,
};

pub(super) const ZERO: Abuse = Abuse {
    name: "token-zero",
    about: "a credit of 0, and grants of 0 whenever more is asked for",
    peers: 200,
    run: |target, course| grants(target, course, 0),
};

pub(super) const HUGE: Abuse = Abuse {
    name: "token-huge",
    about: "grants of 2^31 - 1 KiB, many at once, which overflow 32 bits as bytes",
    peers: 200,
    run: |target, course| grants(target, course, i32::MAX),
};

pub(super) const NEGATIVE: Abuse = Abuse {
    name: "token-negative",
    about: "grants of less than nothing",
    peers: 200,
    run: |target, course| grants(target, course, i32::MIN),
};

/// Sessions of one connection.
const SESSIONS: u64 = 16;

/// Answers each request for credit with the same grant, or with none.
struct Grants {
    statement: String,
    first: i32,
    grant: Option<i32>,
    asked: bool,
}

impl Manner for Grants {
    fn idle(&mut self, wire: &mut Wire) {
        if !self.asked {
            self.asked = true;
            for session in 2..2 + SESSIONS {
                wire.ask(session, &ClientMessage::SessionNew);
                let mut large = query(&self.statement);
                large.token = Some(self.first);
                wire.ask(session, &ClientMessage::ExecSql(large));
            }
        }
        wire.wait();
    }

    fn heard(&mut self, wire: &mut Wire, heard: Heard<'_>) {
        match (heard.kind, self.grant) {
            // TOKEN_DONE.
            (19, Some(grant)) => {
                for _ in 0..4 {
                    wire.say(heard.session, &request::offer(grant));
                }
            }
            // The statement has ended, well or not. Sends the next one.
            (1 | 17, _) => {
                let mut large = query(&self.statement);
                large.token = Some(self.first);
                wire.ask(heard.session, &ClientMessage::ExecSql(large));
            }
            _ => {}
        }
        wire.wait();
    }
}

fn never_grants(target: &Target, course: &Course<'_>) -> Tally {
    run(target, course, 1, None)
}

fn grants(target: &Target, course: &Course<'_>, grant: i32) -> Tally {
    run(target, course, grant.clamp(0, 1), Some(grant))
}

fn run(target: &Target, course: &Course<'_>, first: i32, grant: Option<i32>) -> Tally {
    crowd::run(target, course, Rules::logged_in(), |_| Grants {
        statement: target.large.clone(),
        first,
        grant,
        asked: false,
    })
}
