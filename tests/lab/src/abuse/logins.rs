//! Logins that fail, as many as the server looks at.

use super::crowd::{self, Manner, Rules};
use super::wire::{Heard, Wire, prove};
use super::{Abuse, Course, Tally, Target};
use crate::xrpc::request;

pub(super) const WRONG_PASSWORDS: Abuse = Abuse {
    name: "wrong-passwords",
    about: "tries passwords, from one address",
    peers: 100,
    run: |target, course| run(target, course, false, Trick::WrongPassword),
};

pub(super) const SCATTERED_PASSWORDS: Abuse = Abuse {
    name: "wrong-passwords-scattered",
    about: "tries passwords, each peer from an address of its own",
    peers: 1_000,
    run: |target, course| run(target, course, true, Trick::WrongPassword),
};

pub(super) const UNKNOWN_USERS: Abuse = Abuse {
    name: "unknown-users",
    about: "tries names, from one address",
    peers: 100,
    run: |target, course| run(target, course, false, Trick::UnknownUser),
};

pub(super) const REPLAYED: Abuse = Abuse {
    name: "replayed-proofs",
    about: "a good proof, but of another challenge",
    peers: 100,
    run: |target, course| run(target, course, false, Trick::Replay),
};

pub(super) const TRUNCATED: Abuse = Abuse {
    name: "truncated-proofs",
    about: "a good proof, cut at random, or with one bit turned",
    peers: 100,
    run: |target, course| run(target, course, false, Trick::Truncate),
};

pub(super) const HUGE_FIELDS: Abuse = Abuse {
    name: "huge-login-fields",
    about: "names of 3 000 and 5 000 bytes, with a proof of 500",
    peers: 100,
    run: |target, course| run(target, course, false, Trick::Huge),
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trick {
    WrongPassword,
    UnknownUser,
    Replay,
    Truncate,
    Huge,
}

/// Begins a new login after each refused one.
struct Login<'a> {
    target: &'a Target,
    trick: Trick,
}

impl Manner for Login<'_> {
    fn idle(&mut self, wire: &mut Wire) {
        wire.ask(0, &request::login_start());
        wire.wait();
    }

    fn heard(&mut self, wire: &mut Wire, heard: Heard<'_>) {
        if heard.kind != 3 {
            // The login was refused. `idle` begins the next one.
            return;
        }
        let Target { user, password, .. } = self.target;
        let word = wire.random.below(u64::MAX);
        let data = match self.trick {
            Trick::WrongPassword => prove(user, &format!("{word}"), heard.body),
            Trick::UnknownUser => prove(&format!("user{word}"), password, heard.body),
            Trick::Replay => {
                // The challenge of 20 equal letters, in the form in which it comes.
                let mut other = vec![0x0a, 20];
                other.extend([b'x'; 20]);
                prove(user, password, &other)
            }
            Trick::Truncate => {
                let mut data = prove(user, password, heard.body);
                if word.is_multiple_of(2) {
                    data.truncate((word >> 1) as usize % data.len().max(1));
                } else if let Some(last) = data.last_mut() {
                    *last ^= 1;
                }
                data
            }
            Trick::Huge => {
                let mut data = vec![0];
                data.extend(vec![b'u'; 3000 + (word % 2) as usize * 2000]);
                data.push(0);
                data.extend(vec![b'*'; 500]);
                data
            }
        };
        wire.ask(0, &request::login_continue(data));
        wire.wait();
    }
}

fn run(target: &Target, course: &Course<'_>, scattered: bool, trick: Trick) -> Tally {
    let rules = Rules { scattered, ..Rules::stranger() };
    crowd::run(target, course, rules, |_| Login { target, trick })
}
