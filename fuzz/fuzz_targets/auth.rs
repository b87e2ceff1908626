//! The texts of the login: never panics, takes little memory, and what is read is written back.
//!
//! ```text
//! input = length u8, password │ length u8, challenge │ client's data
//! ```

#![no_main]

use epoll_group::codec::auth::{Challenge, ChallengeError, Proof, Reply, StoredPassword};
use epoll_group_fuzz::{bounded, short_piece};
use libfuzzer_sys::fuzz_target;

/// Rounds cost time, which says nothing here.
const MAX_ROUNDS: u32 = 1000;

fuzz_target!(|input: &[u8]| {
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
});

/// Both sides of a login: the right proof is accepted, any other one is not.
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
    if let Ok(proof) = Proof::parse(data) {
        assert!(proof.to_text().eq_ignore_ascii_case(data));
        let stored = StoredPassword::parse(data).expect("the texts have one form");
        assert_eq!(stored.as_bytes(), Some(proof.as_bytes()));
    }
}
