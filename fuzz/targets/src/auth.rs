//! Texts of the login. The parsers do not panic and take little memory, and a text that was read is
//! written back as it was.
//!
//! ```text
//! part = length u8, password │ length u8, challenge │ data of the client
//! ```

use epoll_group::codec::auth::{Challenge, ChallengeError, Reply, StoredPassword};

use crate::input::short_piece;
use crate::memory::bounded;

/// Bound on the rounds of a challenge. More rounds take time and run the same code.
const MAX_ROUNDS: u32 = 1000;

pub(crate) fn check(input: &[u8]) {
    let mut rest = input;
    let Some(password) = short_piece(&mut rest) else {
        return;
    };
    let Some(challenge) = short_piece(&mut rest) else {
        return;
    };
    bounded(input.len(), || {
        reply(rest);
        texts(rest);
        login(password, challenge, rest);
    });
}

/// Runs both sides of a login. The right proof is accepted, and any other one is refused.
fn login(password: &[u8], challenge: &[u8], data: &[u8]) {
    let stored = StoredPassword::of(password);
    assert_eq!(stored == StoredPassword::of(b""), password.is_empty());
    let Ok(challenge) = Challenge::parse(challenge) else {
        return;
    };
    if let Ok(bytes) = challenge.encode() {
        assert_eq!(Challenge::parse(&bytes), Ok(challenge));
    }
    match challenge.prove(password, MAX_ROUNDS) {
        Ok(proof) => {
            let crypted = matches!(challenge, Challenge::Crypted { .. }) && !password.is_empty();
            assert_eq!(stored.accepts(challenge.hashed(), proof.as_ref()), !crypted);
            let sent = Reply::parse(data).ok().and_then(|reply| reply.proof);
            if !crypted && sent != proof {
                assert!(!stored.accepts(challenge.hashed(), sent.as_ref()));
            }
        }
        Err(ChallengeError::Rounds { rounds, limit: MAX_ROUNDS }) => {
            assert!(rounds == 0 || rounds > MAX_ROUNDS);
        }
        Err(error) => panic!("{error}"),
    }
}

fn reply(data: &[u8]) {
    let Ok(reply) = Reply::parse(data) else {
        return;
    };
    let names = reply.schema.len() + reply.user.len() + 2;
    let bytes = reply.encode().expect("no name holds a zero");
    assert_eq!(bytes[..names], data[..names]);
    assert!(bytes[names..].eq_ignore_ascii_case(&data[names..]));
    assert!(!format!("{reply:?}").contains("proof: Some(Proof(["));
}

fn texts(data: &[u8]) {
    let stored = StoredPassword::parse(data);
    let reply = [&b"\0\0"[..], data].concat();
    assert_eq!(stored.is_ok(), Reply::parse(&reply).is_ok(), "the texts have one form");
    if let Some(text) = stored.ok().and_then(|stored| stored.to_text()) {
        assert!(text.eq_ignore_ascii_case(data));
    }
}
