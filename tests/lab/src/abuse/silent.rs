//! Peers that have vanished, and peers that never say anything.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use epoll_group::codec::message::ClientMessage;

use super::crowd::{self, Manner, Rules, WHILE};
use super::wire::{Heard, Reading, Wire};
use super::{Abuse, Course, Tally, Target, holes};
use crate::xrpc::request::query;

pub(super) const SILENT: Abuse = Abuse {
    name: "silent-peers",
    about: "connects and says nothing; every other one logs in before",
    peers: 5_000,
    run: silent,
};

pub(super) const BLACK_HOLES: Abuse = Abuse {
    name: "black-holes",
    about: "asks for a large result, and from then on takes nothing from the network, no ACK either",
    peers: 200,
    run: black_holes,
};

pub(super) const HALF_OPEN: Abuse = Abuse {
    name: "half-open",
    about: "forgets the connection without a FIN, as a machine that starts anew (needs CAP_NET_ADMIN)",
    peers: 200,
    run: half_open,
};

/// Logs in, or does not, and waits.
struct Silent;

impl Manner for Silent {
    fn idle(&mut self, wire: &mut Wire) {
        wire.wait();
    }
}

fn silent(target: &Target, course: &Course<'_>) -> Tally {
    let half = |peers, rules| {
        let course = Course { peers, ..*course };
        let rules = Rules { rest: WHILE, ..rules };
        move || crowd::run(target, &course, rules, |_| Silent)
    };
    let mute = half(course.peers / 2, Rules::stranger());
    let known = half(course.peers - course.peers / 2, Rules::logged_in());
    std::thread::scope(|scope| {
        let mute = scope.spawn(mute);
        let mut tally = known();
        tally.add(&mute.join().expect("an attacker does not panic"));
        tally
    })
}

/// Vanishes when its first rows have arrived.
struct Gone {
    statement: String,
    asked: bool,
    vanish: fn(&mut Wire),
}

impl Manner for Gone {
    fn idle(&mut self, wire: &mut Wire) {
        if !self.asked {
            self.asked = true;
            wire.ask(2, &ClientMessage::SessionNew);
            let mut large = query(&self.statement);
            large.token = Some(1 << 30);
            wire.ask(2, &ClientMessage::ExecSql(large));
        }
        wire.wait();
    }

    fn heard(&mut self, wire: &mut Wire, heard: Heard<'_>) {
        if heard.kind == 13 {
            (self.vanish)(wire);
        }
        wire.wait();
    }
}

fn black_holes(target: &Target, course: &Course<'_>) -> Tally {
    let rules = Rules { receive_buffer: Some(4096), ..Rules::logged_in() };
    let vanish = |wire: &mut Wire| {
        if holes::take_nothing(wire.socket()).is_err() {
            skipped("black-holes", "a socket filter is not allowed");
        }
        // The peer does not notice either when the server gives up.
        wire.read(Reading::Nothing);
        wire.pause(Duration::MAX);
    };
    crowd::run(target, course, rules, |_| Gone {
        statement: target.large.clone(),
        asked: false,
        vanish,
    })
}

fn half_open(target: &Target, course: &Course<'_>) -> Tally {
    let rules = Rules { receive_buffer: Some(4096), ..Rules::logged_in() };
    let vanish = |wire: &mut Wire| {
        if holes::forget(wire.socket()).is_err() {
            skipped("half-open", "TCP_REPAIR is not allowed: they reset");
        }
        wire.go_now();
    };
    crowd::run(target, course, rules, |_| Gone {
        statement: target.large.clone(),
        asked: false,
        vanish,
    })
}

/// Reports once for each abuse that it could not be carried out.
fn skipped(name: &'static str, why: &str) {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if SAID.lock().expect("nobody panics here").insert(name) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {why}");
    }
}
