//! Invalid frames, invalid messages, and messages at the wrong time.

use std::sync::Arc;

use epoll_group::codec::frame::Header;
use epoll_group::codec::message::ClientMessage;

use super::crowd::{self, Manner, Rules};
use super::wire::{Leave, Reading, Wire};
use super::{Abuse, Course, Tally, Target};
use crate::xrpc::request;

pub(super) const LYING_LENGTHS: Abuse = Abuse {
    name: "lying-lengths",
    about: "declares 64 MiB, sends ten bytes and stays",
    peers: 1_000,
    run: lying_lengths,
};

pub(super) const BAD_LENGTHS: Abuse = Abuse {
    name: "bad-lengths",
    about: "lengths of 0, 2^31, 2^32 - 1, and one too many",
    peers: 100,
    run: bad_lengths,
};

pub(super) const DEEP: Abuse = Abuse {
    name: "deep-nesting",
    about: "values in values, 100 000 deep; groups in groups in unknown fields",
    peers: 50,
    run: deep_nesting,
};

pub(super) const REPEATS: Abuse = Abuse {
    name: "huge-repeats",
    about: "a statement with a million values, four bytes each",
    peers: 20,
    run: huge_repeats,
};

pub(super) const TEXTS: Abuse = Abuse {
    name: "invalid-utf8",
    about: "texts, names and mechanisms that are no UTF-8, or hold zeros",
    peers: 100,
    run: invalid_texts,
};

pub(super) const DIRECTIONS: Abuse = Abuse {
    name: "wrong-direction",
    about: "every kind that only a server sends, or nobody",
    peers: 100,
    run: wrong_direction,
};

pub(super) const STATES: Abuse = Abuse {
    name: "wrong-state",
    about: "messages out of season: requests before the login, logins behind it, ends without begins",
    peers: 100,
    run: wrong_state,
};

/// Sends one of some prepared byte strings, and stays or connects again.
struct Prepared {
    pieces: Arc<[Vec<u8>]>,
    stays: bool,
    sent: bool,
}

impl Manner for Prepared {
    fn idle(&mut self, wire: &mut Wire) {
        if self.sent && self.stays {
            return wire.wait();
        }
        self.sent = true;
        let which = wire.random.below(self.pieces.len() as u64) as usize;
        wire.ask(2, &ClientMessage::SessionNew);
        wire.bytes(&self.pieces[which]);
        wire.count_requests(1);
        if !self.stays {
            wire.leave(Leave::Finish);
        }
    }
}

fn send(
    target: &Target,
    course: &Course<'_>,
    rules: Rules,
    stays: bool,
    pieces: Vec<Vec<u8>>,
) -> Tally {
    let pieces: Arc<[Vec<u8>]> = pieces.into();
    crowd::run(target, course, rules, |_| Prepared {
        pieces: Arc::clone(&pieces),
        stays,
        sent: false,
    })
}

/// A frame whose header says another length than it has.
fn lying(kind: u8, length: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = Header::new(2, kind, 0).encode().to_vec();
    frame[8..12].copy_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(body);
    frame
}

pub fn frame(session: u64, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Header::new(session, kind, body.len() as u32).encode().to_vec();
    frame.extend_from_slice(body);
    frame
}

fn lying_lengths(target: &Target, course: &Course<'_>) -> Tally {
    let pieces = vec![lying(101, 64 << 20, &[b'x'; 10])];
    send(target, course, Rules::logged_in(), true, pieces)
}

fn bad_lengths(target: &Target, course: &Course<'_>) -> Tally {
    let lengths = [0, 1 << 31, u32::MAX, (64 << 20) + 1];
    let pieces: Vec<_> = lengths.map(|length| lying(101, length, &[b'x'; 10])).into();
    send(target, course, Rules::logged_in(), true, pieces)
}

fn deep_nesting(target: &Target, course: &Course<'_>) -> Tally {
    // Field 1000 as a group, opened and never closed.
    let mut groups = Vec::new();
    for _ in 0..100_000 {
        groups.extend([0xc3, 0x3e]);
    }
    let pieces = vec![
        frame(2, 101, &nested_values(100_000)),
        frame(2, 101, &groups),
        frame(2, 101, &nested_values(10_000)),
    ];
    send(target, course, Rules::logged_in(), false, pieces)
}

/// The field `args` of a statement: arrays in arrays. Written from the inside, backwards.
pub fn nested_values(depth: usize) -> Vec<u8> {
    let mut backwards = Vec::new();
    let mut length = 0;
    for level in 0..=depth {
        // Any { type = ARRAY, array = { value = .. } }; around all of it the field of the
        // statement.
        let tags: &[u8] = if level == depth { &[0x12] } else { &[0x0a, 0x22] };
        for (at, &tag) in tags.iter().enumerate() {
            length += prepend_varint(&mut backwards, length);
            backwards.push(tag);
            length += 1;
            if at + 1 == tags.len() && level < depth {
                // `type` stands before `array`.
                backwards.extend([3, 0x08]);
                length += 2;
            }
        }
    }
    backwards.reverse();
    backwards
}

fn prepend_varint(backwards: &mut Vec<u8>, mut value: usize) -> usize {
    let mut bytes = Vec::new();
    loop {
        let more = value >= 128;
        bytes.push((value & 127) as u8 | u8::from(more) << 7);
        value >>= 7;
        if !more {
            break;
        }
    }
    backwards.extend(bytes.iter().rev());
    bytes.len()
}

fn huge_repeats(target: &Target, course: &Course<'_>) -> Tally {
    // Any { type = SCALAR } each.
    let values = [0x12, 2, 0x08, 1].repeat(1_000_000);
    send(target, course, Rules::logged_in(), false, vec![frame(2, 101, &values)])
}

fn invalid_texts(target: &Target, course: &Course<'_>) -> Tally {
    let bad = [0xff, 0xfe, 0x00, 0xc0, 0x80];
    let mut body = vec![0x0a, 5];
    body.extend(bad);
    let mut named = vec![0x1a, 5];
    named.extend(bad);
    named.extend(&body);
    let pieces =
        vec![frame(2, 101, &body), frame(2, 101, &named), frame(2, 115, &[8, 0, 18, 2, 255, 0])];
    send(target, course, Rules::logged_in(), false, pieces)
}

fn wrong_direction(target: &Target, course: &Course<'_>) -> Tally {
    let kinds = [0, 2, 3, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 99, 127, 200, 255];
    let pieces: Vec<_> = kinds.map(|kind| frame(2, kind, &[])).into();
    send(target, course, Rules::logged_in(), true, pieces)
}

/// Sends messages at the wrong time. Half of the peers have not logged in.
struct OutOfSeason {
    known: bool,
}

impl Manner for OutOfSeason {
    fn idle(&mut self, wire: &mut Wire) {
        wire.read(Reading::All);
        if self.known {
            wire.ask(0, &request::login_start());
            wire.ask(0, &request::login_continue("nothing"));
            wire.ask(9, &ClientMessage::ExpectClose);
            wire.ask(9, &ClientMessage::SessionClose);
            wire.ask(0, &ClientMessage::SessionNew);
            wire.ask(0, &ClientMessage::SessionClose);
        } else {
            wire.ask(0, &request::login_continue("nothing"));
            wire.ask(2, &ClientMessage::SessionNew);
            wire.ask(2, &request::timestamps(1));
        }
    }
}

fn wrong_state(target: &Target, course: &Course<'_>) -> Tally {
    let half = |peers, rules, known| {
        let course = Course { peers, ..*course };
        move || crowd::run(target, &course, rules, |_| OutOfSeason { known })
    };
    let strangers = half(course.peers / 2, Rules::stranger(), false);
    let known = half(course.peers - course.peers / 2, Rules::logged_in(), true);
    std::thread::scope(|scope| {
        let strangers = scope.spawn(strangers);
        let mut tally = known();
        tally.add(&strangers.join().expect("an attacker does not panic"));
        tally
    })
}
