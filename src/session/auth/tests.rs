use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::codec::auth::{Challenge, PasswordDigest, Reply};

const SALT: [u8; 20] = *b"0123456789abcdefghij";
const OTHER_SALT: [u8; 20] = *b"ABCDEFGHIJKLMNOPQRST";
const MOST: usize = 3;

/// A service with some accounts, and its handshake.
struct Server {
    accounts: HashMap<&'static [u8], StoredPassword>,
    handshake: Handshake,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Challenge(Vec<u8>),
    Ok,
    Error(u32),
    Closed(u32),
}

const DENIED: Answer = Answer::Error(1045);
const PROTOCOL: Answer = Answer::Error(8001);

impl Server {
    fn new(most_failures: usize) -> Self {
        let accounts = HashMap::from([
            (&b"root"[..], StoredPassword::of(b"secret")),
            (b"open", StoredPassword::of(b"")),
        ]);
        Self { accounts, handshake: Handshake::new(most_failures) }
    }

    fn answer(&mut self, step: Step) -> Answer {
        match step {
            Step::SendChallenge(salt) => Answer::Challenge(salt),
            Step::Refuse(error) => Answer::Error(error.to_reply().code),
            Step::Close(error) => Answer::Closed(error.to_reply().code),
            Step::Verify(claim) => {
                let peer = Address::Unix("".into());
                let login = Login::new(&claim, &peer);
                match login.check(self.accounts.get(login.user)) {
                    Ok(()) if self.handshake.accepted() => Answer::Ok,
                    Ok(()) => unreachable!("it was asked for"),
                    Err(error) => {
                        let step = self.handshake.refused(error);
                        self.answer(step)
                    }
                }
            }
        }
    }

    fn start(&mut self, salt: [u8; 20]) -> Answer {
        self.start_with(b"MYSQL41", salt)
    }

    fn start_with(&mut self, mechanism: &[u8], salt: [u8; 20]) -> Answer {
        let start = AuthenticateStart { mech_name: mechanism.to_vec(), ..Default::default() };
        let step = self.handshake.handle_start(&start, salt, |_| None);
        self.answer(step)
    }

    fn reply(&mut self, data: &[u8]) -> Answer {
        let step = self.handshake.handle_continue(data);
        self.answer(step)
    }

    /// Performs a whole login.
    fn login(&mut self, data: &[u8]) -> Answer {
        assert_eq!(self.start(SALT), Answer::Challenge(SALT.to_vec()));
        self.reply(data)
    }
}

fn reply(user: &[u8], password: &[u8]) -> Vec<u8> {
    Reply::new(user, Proof::new(password, &SALT)).encode().expect("no 00 in it")
}

#[test]
fn who_knows_the_password_gets_in_and_nobody_else() {
    let mut server = Server::new(usize::MAX);
    for (user, password, expected) in [
        (&b"root"[..], &b"Secret"[..], DENIED),
        (b"root", b"", DENIED),
        (b"Root", b"secret", DENIED),
        (b"nobody", b"secret", DENIED),
        (b"nobody", b"", DENIED),
        (b"open", b"secret", DENIED),
        (b"root", b"secret", Answer::Ok),
    ] {
        assert_eq!(server.login(&reply(user, password)), expected, "{}", user.escape_ascii());
        assert_eq!(server.handshake.is_done(), expected == Answer::Ok);
    }
    let mut server = Server::new(MOST);
    assert_eq!(server.login(&reply(b"open", b"")), Answer::Ok);
}

#[test]
fn a_schema_and_upper_case_digits_are_accepted() {
    let data = reply(b"root", b"secret");
    let upper = [b"shop", &data[..]].concat().to_ascii_uppercase();
    let (names, proof) = upper.split_at(upper.len() - 41);
    let data = [&names.to_ascii_lowercase(), proof].concat();
    let claim = Claim::parse(SALT, &data, None).expect("well formed");
    assert_eq!((&*claim.schema, &*claim.user), (&b"shop"[..], &b"root"[..]));
    assert_eq!(Server::new(MOST).login(&data), Answer::Ok);
}

#[test]
fn what_is_malformed_is_a_wrong_password() {
    let good = reply(b"root", b"secret");
    let mut server = Server::new(usize::MAX);
    for end in 0..good.len() {
        assert_eq!(server.login(&good[..end]), DENIED, "{end} bytes");
    }
    let broken: [&[u8]; 6] = [
        b"",
        b"\0\0",
        b"\0root\0*",
        b"\0root\0*f5ca\0f3b3d",
        b"root*f5cac3f3b3df2133feb57db682c71ee6d433a988",
        b"\0\0*f5cac3f3b3df2133feb57db682c71ee6d433a988",
    ];
    for data in broken {
        assert_eq!(server.login(data), DENIED, "{}", data.escape_ascii());
    }
    for (at, byte) in [(6, b'+'), (7, b'g'), (46, b' ')] {
        let mut data = good.clone();
        data[at] = byte;
        assert_eq!(server.login(&data), DENIED, "{at}");
    }
    assert_eq!(server.login(&[&good[..], b"0"].concat()), DENIED, "too long");
    assert_eq!(server.login(&good), Answer::Ok);
}

#[test]
fn a_proof_of_nothing_does_not_open_an_account_without_a_password() {
    let mut server = Server::new(usize::MAX);
    for proof in [[0; 20], [0xff; 20]] {
        for user in [&b"open"[..], b"root", b"nobody"] {
            let data = Reply::new(user, Some(Proof::from_bytes(proof))).encode().expect("no 00");
            assert_eq!(server.login(&data), DENIED);
        }
    }
}

#[test]
fn a_challenge_serves_for_one_proof() {
    let mut server = Server::new(usize::MAX);
    let good = reply(b"root", b"secret");
    assert_eq!(server.login(&reply(b"root", b"wrong")), DENIED);
    assert_eq!(server.reply(&good), PROTOCOL, "the challenge is used up");
    assert_eq!(server.start(OTHER_SALT), Answer::Challenge(OTHER_SALT.to_vec()));
    assert_eq!(server.reply(&good), DENIED, "recorded with another challenge");
    assert_eq!(server.login(&good), Answer::Ok);
}

#[test]
fn what_is_out_of_order_is_an_error_and_spoils_the_challenge() {
    let mut server = Server::new(usize::MAX);
    let good = reply(b"root", b"secret");
    assert_eq!(server.reply(&good), PROTOCOL);
    assert_eq!(server.start(SALT), Answer::Challenge(SALT.to_vec()));
    assert_eq!(server.start(OTHER_SALT), PROTOCOL);
    assert_eq!(server.reply(&good), PROTOCOL);
    assert_eq!(server.login(&good), Answer::Ok);
    assert_eq!(server.start(SALT), PROTOCOL);
    assert_eq!(server.reply(&good), PROTOCOL);
    assert!(server.handshake.is_done());
}

#[test]
fn a_digest_takes_the_place_of_the_password_for_the_user_that_is_named_first() {
    let digest = PasswordDigest::of(b"secret", OTHER_SALT, 5000).expect("short enough");
    let stored = digest.stored();
    // Returns whether the challenge was for a digest, and whether the login succeeded.
    let login = |named: &[u8], user: &[u8], password: &[u8]| {
        let mut handshake = Handshake::new(MOST);
        let start =
            AuthenticateStart { auth_data: Some(named.to_vec()), ..AuthenticateStart::default() };
        let step =
            handshake.handle_start(&start, SALT, |user| (user == b"new").then(|| digest.salt()));
        let Step::SendChallenge(challenge) = step else { panic!("{step:?}") };
        let challenge = Challenge::parse(&challenge).expect("well formed");
        let proof = challenge.prove(password, 5000).expect("few rounds");
        let data = Reply::new(user, proof).encode().expect("no 00 in it");
        let crypted = matches!(challenge, Challenge::Crypted { rounds: 5000, .. });
        let accepted = match handshake.handle_continue(&data) {
            Step::Verify(claim) => claim.check(Some(&stored)).is_ok(),
            _ => false,
        };
        (crypted, accepted)
    };
    assert_eq!(login(b"new", b"new", b"secret"), (true, true));
    assert_eq!(login(b"new", b"new", b"wrong"), (true, false));
    assert_eq!(login(b"new", b"new", b""), (true, false));
    assert_eq!(login(b"new", b"old", b"secret"), (true, false), "another user");
    assert_eq!(login(b"old", b"new", b"secret"), (false, false), "another challenge");
    assert_eq!(login(b"", b"new", b"secret"), (false, false), "an older client");
}

#[test]
fn nothing_may_come_while_a_claim_is_looked_at() {
    let start = AuthenticateStart { mech_name: b"MYSQL41".to_vec(), ..Default::default() };
    for starts in [true, false] {
        let mut handshake = Handshake::new(MOST);
        let _ = handshake.handle_start(&start, SALT, |_| None);
        let step = handshake.handle_continue(&reply(b"root", b"secret"));
        assert!(matches!(step, Step::Verify(_)));
        let early = if starts {
            handshake.handle_start(&start, SALT, |_| None)
        } else {
            handshake.handle_continue(b"")
        };
        assert!(matches!(early, Step::Close(_)));
        assert!(!handshake.accepted(), "it comes too late");
        assert!(!handshake.is_done());
        assert!(matches!(handshake.handle_start(&start, SALT, |_| None), Step::Close(_)));
    }
}

#[test]
fn after_so_many_failures_the_connection_closes() {
    let mut server = Server::new(MOST);
    let wrong = reply(b"root", b"wrong");
    assert_eq!(server.login(&wrong), DENIED);
    assert_eq!(server.reply(&wrong), PROTOCOL, "counts too");
    assert_eq!(server.login(&wrong), Answer::Closed(1045));
    assert_eq!(server.start(SALT), Answer::Closed(8001));
    assert_eq!(server.reply(&reply(b"root", b"secret")), Answer::Closed(8001));

    let mut once = Server::new(1);
    assert_eq!(once.start_with(b"PLAIN", SALT), Answer::Closed(8001));
    let mut once = Server::new(1);
    assert_eq!(once.login(&reply(b"root", b"secret")), Answer::Ok);
}

#[test]
fn one_mechanism_is_known_in_any_case_and_others_are_refused_by_name() {
    let mut server = Server::new(usize::MAX);
    let wrong = reply(b"root", b"wrong");
    for name in [&b"MYSQL41"[..], b"mysql41", b"MySQL41", b""] {
        assert_eq!(server.start_with(name, SALT), Answer::Challenge(SALT.to_vec()));
        assert_eq!(server.reply(&wrong), DENIED);
    }
    for name in [&b"PLAIN"[..], b"SHA256_MEMORY", b"MYSQL4", b"MYSQL411", b"\0"] {
        assert_eq!(server.start_with(name, SALT), PROTOCOL, "{}", name.escape_ascii());
    }
}

#[test]
fn the_service_may_refuse_for_reasons_of_its_own() {
    let start = AuthenticateStart { mech_name: b"MYSQL41".to_vec(), ..Default::default() };
    let mut handshake = Handshake::new(2);
    let _ = handshake.handle_start(&start, SALT, |_| None);
    let _ = handshake.handle_continue(&reply(b"root", b"secret"));
    let refused = handshake.refused(AuthError::Locked);
    assert!(matches!(refused, Step::Refuse(error) if error == AuthError::Locked));
    let _ = handshake.handle_start(&start, SALT, |_| None);
    let _ = handshake.handle_continue(&reply(b"root", b"secret"));
    let refused = handshake.refused(AuthError::Expired);
    assert!(matches!(refused, Step::Close(error) if error == AuthError::Expired));
}

#[test]
fn no_secret_is_printed() {
    let start = AuthenticateStart { mech_name: b"MYSQL41".to_vec(), ..Default::default() };
    let mut handshake = Handshake::new(MOST);
    let _ = handshake.handle_start(&start, SALT, |_| None);
    let challenged = format!("{handshake:?}");
    assert!(challenged.contains("Challenged(..)") && !challenged.contains("48, 49"));
    let step = handshake.handle_continue(&reply(b"ro\not", b"secret"));
    let text = format!("{step:?}");
    assert_eq!(text, r#"Verify(Claim { user: "ro\\not", schema: "", .. })"#);
    let Step::Verify(claim) = step else { unreachable!("matched above") };
    let peer = Address::Tcp(([127, 0, 0, 1], 5).into());
    let text = format!("{:?}", Login::new(&claim, &peer));
    let expected = r#"Login { claim: Claim { user: "ro\\not", schema: "", .. }, "#;
    assert_eq!(text, format!("{expected}peer_addr: \"127.0.0.1:5\" }}"));
}

#[test]
fn recorded_logins_are_accepted() {
    let mut accepted = 0;
    for line in include_str!("auth_vectors.jsonl").lines() {
        let vector: serde_json::Value = serde_json::from_str(line).expect("valid");
        let text = |name: &str| vector[name].as_str().unwrap_or_else(|| panic!("{name}: {line}"));
        let bytes = |name| unhex(text(name));
        let Ok(salt) = <[u8; 20]>::try_from(bytes("challenge_hex")) else { continue };
        let data = bytes("auth_data_hex");
        if text("user").is_empty() {
            assert_eq!(Claim::parse(salt, &data, None).err(), Some(AuthError::Denied));
            continue;
        }
        let claim = Claim::parse(salt, &data, None).expect("well formed");
        assert_eq!(*claim.user, *text("user").as_bytes(), "{line}");
        let stored = match <[u8; 20]>::try_from(bytes("stored_sha1_sha1_hex")) {
            Ok(hash) => StoredPassword(Some(hash)),
            Err(_) => StoredPassword::of(b""),
        };
        assert_eq!(claim.check(Some(&stored)), Ok(()), "{line}");
        assert_eq!(claim.check(None), Err(AuthError::Denied), "{line}");
        let other = StoredPassword::of(b"some other password");
        assert_eq!(claim.check(Some(&other)), Err(AuthError::Denied), "{line}");
        accepted += 1;
    }
    assert!(accepted > 10, "{accepted}");
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn no_two_salts_are_alike() {
    let salts: std::collections::HashSet<_> =
        (0..1000).map(|_| fresh_salt().expect("the system has some")).collect();
    assert_eq!(salts.len(), 1000);
}

#[derive(Clone, Debug)]
enum Say {
    Start(Vec<u8>),
    Wrong(Vec<u8>),
    Right,
}

fn say() -> impl Strategy<Value = Say> {
    prop_oneof![
        4 => Just(Say::Start(b"MYSQL41".to_vec())),
        1 => proptest::collection::vec(any::<u8>(), 0..9).prop_map(Say::Start),
        2 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Say::Wrong),
        1 => Just(Say::Right),
    ]
}

proptest! {
    #[test]
    fn whatever_is_said_only_a_right_answer_to_the_last_challenge_gets_in(
        said in proptest::collection::vec(say(), 0..40),
        most in 1..9_usize,
    ) {
        let mut server = Server::new(most);
        let right = reply(b"root", b"secret");
        let [mut challenged, mut done] = [false; 2];
        let mut failures = 0;
        for say in said {
            let answer = match &say {
                Say::Start(mechanism) => server.start_with(mechanism, SALT),
                Say::Wrong(data) => server.reply(data),
                Say::Right => server.reply(&right),
            };
            let expected_in = challenged && !done && matches!(say, Say::Right);
            prop_assert_eq!(answer == Answer::Ok, expected_in);
            challenged = matches!(answer, Answer::Challenge(_));
            done |= expected_in;
            failures += usize::from(!challenged && !done);
            prop_assert_eq!(matches!(answer, Answer::Closed(_)), failures >= most && !done);
            prop_assert_eq!(server.handshake.is_done(), done);
        }
    }
}
