//! Errors, and the answers that clients get for them.

use epoll_group::client::{Client, ErrorKind, Fate, Options, Request};
use epoll_group::codec::proto::plan::AnyPlan;
use epoll_group::codec::proto::plan::PlanType;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::Scalar;
use txn_kv::service::code;
use txn_kv::store::Limits;
use txn_kv::{Op, Txn};

use super::{Both, PASSWORD, USER, failure, told};

#[test]
fn what_makes_no_sense_is_refused_and_the_session_goes_on() {
    let both = Both::start();
    let mut session = both.session();
    let bytes = || Scalar::octets(*b"a");
    for (text, arguments, number, state, message) in [
        (
            "drop everything",
            vec![],
            1064,
            "42000",
            "at 1: expected put, get, range, delete, txn, compact or status, found drop",
        ),
        (
            "put 'a'",
            vec![],
            1064,
            "42000",
            "at 8: expected a value (?, 'text' or x'hex'), found the end",
        ),
        ("get 'a", vec![], 1064, "42000", "at 5: expected ' behind the text, found the end"),
        ("get x'0'", vec![], 1064, "42000", "at 5: expected pairs of hexadecimal digits in x''"),
        ("get ?", vec![], 1210, "HY000", "at 5: there is no argument 1 for the mark"),
        ("get ?", vec![bytes(), bytes()], 1210, "HY000", "2 arguments for 1 marks"),
        (
            "get ?",
            vec![Scalar::signed(1)],
            1210,
            "HY000",
            "argument 1: expected a string, found an integer",
        ),
        (
            "compact ?",
            vec![bytes()],
            1210,
            "HY000",
            "argument 1: expected an integer from 0, found a string",
        ),
    ] {
        let error = failure(&mut session, Request::sql(text).args(arguments));
        assert_eq!(error.msg, message.as_bytes(), "{text}: {error}");
        assert_eq!((error.code, &*error.sql_state), (number, state.as_bytes()), "{text}");
        assert_eq!(told(&mut session, "get 'a'"), "@0 0");
    }
}

#[test]
fn only_statements_are_served() {
    let both = Both::start();
    let mut session = both.session();
    let plan = AnyPlan { plan_type: PlanType::TableScan, ..AnyPlan::default() };
    for request in [Request::plan(plan), Request::savepoint(Operation::Set, "s")] {
        let error = failure(&mut session, request);
        assert_eq!(error.to_string(), "error 8001 (HY000): only statements are served");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let limits = Limits { key_bytes: 8, value_bytes: 16, operations: 3, ..Limits::default() };
    let both = Both::start_with(|options| options.limits(limits));
    let mut kv = both.kv();
    assert_eq!(kv.put(&[1; 8], &[2; 16]).expect("it fits"), 1);
    let get = Op::Get { range: super::one(b"k"), limit: 1 };
    let txn = |operations: usize| Txn { then: vec![get.clone(); operations], ..Txn::default() };
    kv.txn(&txn(3)).expect("it fits");
    let failures = [
        (kv.put(&[1; 9], b"").expect_err("a long key"), "9 exceeds 8"),
        (kv.put(b"k", &[2; 17]).expect_err("a long value"), "17 exceeds 16"),
        (kv.txn(&txn(4)).expect_err("many operations"), "4 exceeds 3"),
    ];
    for (error, text) in failures {
        assert_eq!((error.code(), error.fate()), (Some(code::TOO_LARGE), Fate::Refused));
        assert!(error.to_string().ends_with(text), "{error}");
        assert!(error.to_string().starts_with("error 1406 (22001): "), "{error}");
    }
    assert_eq!(kv.put(b"k", b"v").expect("it goes on"), 2);
}

#[test]
fn keys_are_not_empty_and_written_once() {
    let both = Both::start();
    let mut session = both.session();
    let error = failure(&mut session, "put '' 'a'");
    assert_eq!(error.to_string(), "error 1210 (HY000): a key has one byte at least");
    let error = failure(&mut session, "txn then put 'a' '1', put 'b' '', put 'a' '2'");
    let text = "error 1062 (23000): key a is written twice in one transaction";
    assert_eq!(error.to_string(), text);
    assert_eq!(told(&mut session, "range 'a'"), "@0 0");
}

#[test]
fn reads_go_from_what_was_compacted_to_what_is_newest() {
    let both = Both::start();
    let (mut kv, mut session) = (both.kv(), both.session());
    for value in [b"1", b"2", b"3"] {
        kv.put(b"a", value).expect("written");
    }
    let error = failure(&mut session, "get 'a' at 4");
    assert_eq!(
        error.to_string(),
        "error 1264 (22003): revision 4 is in the future: the newest is 3"
    );
    assert_eq!(
        kv.read(&super::one(b"a"), Some(9), 1).expect_err("future").code(),
        Some(code::FUTURE)
    );
    let error = kv.compact(4).expect_err("future");
    assert_eq!((error.code(), error.fate()), (Some(code::FUTURE), Fate::Refused));
    assert_eq!(kv.compact(2).expect("done"), 1);
    let error = failure(&mut session, "get 'a' at 1");
    assert_eq!(
        error.to_string(),
        "error 9001 (72000): revision 1: what comes before 2 was compacted"
    );
    assert_eq!(
        kv.read(&super::one(b"a"), Some(1), 1).expect_err("gone").code(),
        Some(code::COMPACTED)
    );
    assert_eq!(told(&mut session, "get 'a' at 2"), "0|a|2|1|2|2; @2 0");
}

#[test]
fn a_write_that_fails_is_told_and_not_visible() {
    let both = Both::start();
    let mut kv = both.kv();
    kv.put(b"a", b"1").expect("written");
    both.engine.fail(true);
    let error = kv.put(b"a", b"2").expect_err("no space");
    let text = "error 1026 (HY000): not written: commit: no space left on device";
    assert_eq!((error.to_string().as_str(), error.code()), (text, Some(code::WRITE)));
    assert_eq!(error.fate(), Fate::Unknown, "it may be there after a crash");
    let entry = kv.get(b"a").expect("read").expect("found");
    assert_eq!(entry.record.value.as_deref(), Some(&b"1"[..]));
    both.engine.fail(false);
    let before = entry.revision.main;
    assert!(kv.put(b"a", b"3").expect("it goes on") > before);
    let status = kv.status().expect("told");
    assert!(status.contains(&("failed flushes".into(), "1".into())), "{status:?}");
}

#[test]
fn only_the_user_logs_in() {
    let both = Both::start();
    let address = both.server.address().to_string();
    for (user, password) in [(USER, "wrong"), (USER, ""), ("nobody", PASSWORD), ("Root", PASSWORD)]
    {
        let options = Options::new(address.as_str(), user).password(password);
        let client = Client::new(&both.runtime.handle(), options).expect("good options");
        let error = client.session().expect_err("refused");
        let ErrorKind::Login(refused) = error.kind() else { panic!("{error}") };
        assert_eq!(refused.code, 1045);
    }
}
