//! Handshake, as the connection sees it.

use super::bench::{Bench, Sent, options};
use crate::client::error::{ErrorKind, Fate};
use crate::codec::auth::Challenge;
use crate::codec::frame::Dialect;
use crate::codec::message::ServerMessage;
use crate::codec::proto::notice::Frame as Notice;
use crate::codec::proto::session::{AuthenticateContinue, AuthenticateOk};

const SALT: &[u8; 20] = b"0123456789abcdefghij";

fn accepted() -> ServerMessage {
    ServerMessage::AuthenticateOk(AuthenticateOk::default())
}

#[test]
fn every_form_of_challenge_is_answered() {
    let salted = Challenge::Salted { salt: SALT }.encode().expect("a good one");
    let crypted = b"0123456789abcdefghij005$ABCDEFGHIJKLMNOPQRST1";
    for challenge in [&SALT[..], b"short", &salted, crypted] {
        let mut bench = Bench::connected(options());
        bench.challenge(challenge);
        assert_eq!(bench.sent(), [Sent::Proof]);
        bench.message(0, &ServerMessage::Notice(Notice::default()));
        assert!(!bench.state.is_ready());
        bench.message(0, &accepted());
        assert!(bench.state.is_ready());
        assert_eq!(bench.sent(), []);
    }
}

#[test]
fn an_older_server_may_answer_the_login_in_session_1() {
    for (dialect, counts) in [(Dialect::Galaxy { version: 0 }, true), (Dialect::Legacy, false)] {
        let mut bench = Bench::connected(options().dialect(dialect));
        let challenge = AuthenticateContinue { auth_data: SALT.to_vec() };
        bench.message(1, &ServerMessage::AuthenticateContinue(challenge));
        bench.message(1, &accepted());
        assert_eq!(bench.state.is_ready(), counts);
        assert!(bench.state.lost().is_none());
    }
}

#[test]
fn a_challenge_that_is_empty_or_too_much_work_is_refused() {
    for challenge in [&b""[..], b"0123456789abcdefghijfff$ABCDEFGHIJKLMNOPQRST1"] {
        let mut bench = Bench::connected(options());
        bench.challenge(challenge);
        assert!(matches!(bench.lost(), ErrorKind::Protocol(_)));
        assert_eq!(bench.sent(), []);
    }
}

#[test]
fn a_refusal_is_told_as_such_at_either_step() {
    for steps in 0..2 {
        let mut bench = Bench::connected(options());
        (0..steps).for_each(|_| bench.challenge(SALT));
        bench.error(0, 1045);
        let lost = bench.state.lost().expect("refused");
        assert!(matches!(lost.kind(), ErrorKind::Login(_)));
        assert_eq!(lost.fate(), Fate::NotSent);
    }
}

#[test]
fn what_has_no_place_in_a_login_ends_it() {
    let wrong: [fn(&mut Bench); 4] = [
        |bench| bench.ok(0),
        |bench| bench.frames(0, |encoder| encoder.execute_ok()),
        |bench| bench.frames(0, |encoder| encoder.frame(99, &[]).expect("short")),
        |bench| (0..2).for_each(|_| bench.challenge(SALT)),
    ];
    for wrong in wrong {
        for steps in 0..2 {
            let mut bench = Bench::connected(options());
            (0..steps).for_each(|_| bench.challenge(SALT));
            wrong(&mut bench);
            assert!(matches!(bench.lost(), ErrorKind::Protocol(_)));
        }
    }
    let mut bench = Bench::connected(options());
    bench.message(0, &accepted());
    assert!(matches!(bench.lost(), ErrorKind::Protocol(_)), "nothing was proved");
}

#[test]
fn sessions_have_to_wait_and_frames_of_them_are_nobodys() {
    let mut bench = Bench::connected(options());
    assert_eq!(bench.state.try_open(), None);
    bench.answer(2, "too early");
    assert!(bench.state.lost().is_none());
    bench.log_in();
    assert!(bench.state.try_open().is_some());
}
