//! Whole, small messages at wire speed.

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::session::KillSessionType;

use super::crowd::{self, Manner, Rules};
use super::wire::{Reading, Wire};
use super::{Abuse, Course, Tally, Target};
use crate::xrpc::AUTO;
use crate::xrpc::request::{self, query};

/// Messages that are put on the wire at once.
const BATCH: u64 = 256;

/// Writes one batch of an endless stream. The number counts the batches.
type Batch = fn(&mut Wire, &Target, u64);

struct Flood<'a> {
    target: &'a Target,
    reading: Reading,
    batch: Batch,
    batches: u64,
}

impl Manner for Flood<'_> {
    fn idle(&mut self, wire: &mut Wire) {
        wire.read(self.reading);
        (self.batch)(wire, self.target, self.batches);
        self.batches += 1;
    }
}

fn flood(
    target: &Target,
    course: &Course<'_>,
    rules: Rules,
    reading: Reading,
    batch: Batch,
) -> Tally {
    // The kernel keeps little for a peer that does not read, so the server soon has the backlog.
    let receive_buffer = (reading == Reading::Nothing).then_some(4096);
    let rules = Rules { receive_buffer, ..rules };
    crowd::run(target, course, rules, |_| Flood { target, reading, batch, batches: 0 })
}

fn ask_capabilities(wire: &mut Wire) {
    for _ in 0..BATCH {
        wire.ask(0, &ClientMessage::CapabilitiesGet);
    }
}

macro_rules! floods {
    ($($name:ident $text:literal $about:literal $peers:literal $rules:ident $reading:ident, $batch:expr;)+) => {$(
        pub(super) const $name: Abuse = Abuse {
            name: $text,
            about: $about,
            peers: $peers,
            run: |target, course| flood(target, course, Rules::$rules(), Reading::$reading, $batch),
        };
    )+};
}

floods! {
    PINGS "ping-flood" "asks for the capabilities without end and reads nothing" 100
        logged_in Nothing, |wire, _, _| ask_capabilities(wire);
    STRANGE_PINGS "ping-flood-before-login" "the same without a login" 100
        stranger Nothing, |wire, _, _| ask_capabilities(wire);
    READ_PINGS "ping-flood-read" "the same, and reads all answers" 100
        logged_in All, |wire, _, _| ask_capabilities(wire);
    EMPTY "empty-frames" "closes sessions that never were: frames without a body" 100
        logged_in Nothing, |wire, _, _| {
        for session in 0..BATCH {
            wire.ask(100 + session, &ClientMessage::SessionClose);
        }
    };
    OFFERS "offer-flood" "grants room to a session that wants none, and to sessions that never were" 100
        logged_in Nothing, |wire, _, batches| {
        if batches == 0 {
            wire.ask(2, &ClientMessage::SessionNew);
        }
        for at in 0..BATCH {
            wire.say([2, AUTO | at, 100 + at][at as usize % 3], &request::offer(1));
        }
    };
    UNKNOWN "unknown-sessions" "asks sessions that never were, and reads the errors" 100
        logged_in All, |wire, target, _| {
        for session in 0..BATCH {
            wire.ask(100 + session, &ClientMessage::ExecSql(query(&target.small)));
        }
    };
    IDS "session-id-flood" "opens sessions without end, none of which is used" 100
        logged_in All, |wire, _, batches| {
        for at in 0..BATCH {
            wire.ask(2 + batches * BATCH + at, &ClientMessage::SessionNew);
        }
    };
    SAME_ID "duplicate-ids" "opens the same session again and again" 100
        logged_in All, |wire, _, _| {
        for _ in 0..BATCH {
            wire.ask(2, &ClientMessage::SessionNew);
        }
    };
    PAIRS "open-close-pairs" "opens a session and closes it, unused" 100
        logged_in All, |wire, _, _| {
        for session in 2..2 + BATCH / 2 {
            wire.ask(session, &ClientMessage::SessionNew);
            wire.ask(session, &ClientMessage::SessionClose);
        }
    };
    RAPID_RESET "rapid-reset" "asks for a large result and kills the session, in one write" 100
        logged_in All, |wire, target, _| {
        for session in 2..2 + BATCH / 4 {
            wire.ask(session, &ClientMessage::SessionNew);
            wire.ask(session, &ClientMessage::ExecSql(query(&target.large)));
            wire.say(session, &request::kill(session, KillSessionType::Connection));
        }
    };
    RAPID_CANCEL "rapid-cancel" "the same, and kills only the statement" 100
        logged_in All, |wire, target, batches| {
        for session in 2..2 + BATCH / 4 {
            if batches == 0 {
                wire.ask(session, &ClientMessage::SessionNew);
            }
            wire.ask(session, &ClientMessage::ExecSql(query(&target.large)));
            wire.say(session, &request::kill(session, KillSessionType::Query));
        }
    };
    RAPID_AUTO "rapid-reset-auto" "the same with sessions for one statement" 100
        logged_in All, |wire, target, _| {
        for at in 0..BATCH / 4 {
            wire.ask(AUTO | at, &ClientMessage::ExecSql(query(&target.large)));
            wire.say(AUTO | at, &request::kill(AUTO | at, KillSessionType::Connection));
        }
    };
    QUEUES "pipelining-flood" "asks one session without end, however many wait" 100
        logged_in All, |wire, target, batches| {
        if batches == 0 {
            wire.ask(2, &ClientMessage::SessionNew);
        }
        for _ in 0..BATCH {
            wire.ask(2, &ClientMessage::ExecSql(query(&target.small)));
        }
    };
    KILLS "log-flood" "makes the server write a log line for each message: kills that hit" 100
        logged_in All, |wire, target, _| {
        for session in 2..2 + BATCH / 4 {
            wire.ask(session, &ClientMessage::SessionNew);
            wire.ask(session, &ClientMessage::ExecSql(query(&target.small)));
            // The wrong session number makes the server log another line.
            wire.say(session, &request::kill(session + 1, KillSessionType::Connection));
        }
    };
}
