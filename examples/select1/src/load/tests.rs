//! Short loads of a server in this process.

use super::*;

/// A load of a hundred rows, for so short a time that it is only checked.
fn short(mode: Mode, change: impl FnOnce(&mut Args)) -> (Result<(), String>, serde_json::Value) {
    let mut args = Args {
        mode,
        sessions: 8,
        seconds: Duration::from_millis(100),
        json: true,
        ..crate::args::tests::load("select1 load")
    };
    change(&mut args);
    let mut out = Vec::new();
    let done = run(&args, &mut out).map_err(|error| error.to_string());
    let object = serde_json::from_slice(&out).unwrap_or_default();
    (done, object)
}

#[test]
fn every_mode_is_answered_and_checked() {
    let runtime = Runtime::builder().start().expect("it starts");
    let node = Node::start(runtime, ("u", "p"), SCHEMA, 100).expect("it serves");
    for mode in [Mode::Select1, Mode::Sql, Mode::Digest, Mode::Plan] {
        let (done, object) = short(mode, |args| {
            args.connect = Some(node.address().to_string());
            (args.user, args.password) = ("u".to_owned(), "p".to_owned());
        });
        assert_eq!(done, Ok(()), "{mode}");
        assert!(object["requests"].as_u64() >= Some(8), "{mode}: {object}");
        assert_eq!((&object["wrong"], &object["errors"]), (&0.into(), &0.into()), "{mode}");
        assert_eq!(object["mode"], mode.to_string());
    }
}

#[test]
fn an_answer_to_something_else_is_wrong() {
    let runtime = Runtime::builder().start().expect("it starts");
    let node = Node::start(runtime, ("u", "p"), SCHEMA, 1).expect("it serves");
    // Ids that are not there: no row comes for them.
    let (done, object) = short(Mode::Digest, |args| {
        args.connect = Some(node.address().to_string());
        (args.user, args.password) = ("u".to_owned(), "p".to_owned());
        args.rows = Some(1000);
    });
    let error = done.expect_err("rows are missing");
    assert!(error.contains("0 rows for id"), "{error}");
    assert!(object["wrong"].as_u64() > Some(0), "{object}");
    assert_eq!(object["errors"], 0);
}

#[test]
fn who_may_not_log_in_is_told() {
    let runtime = Runtime::builder().start().expect("it starts");
    let node = Node::start(runtime, ("u", "p"), SCHEMA, 1).expect("it serves");
    let (done, _) = short(Mode::Select1, |args| {
        args.connect = Some(node.address().to_string());
        (args.user, args.password) = ("u".to_owned(), "another".to_owned());
    });
    let error = done.expect_err("the password is wrong");
    assert!(error.contains("login"), "{error}");
}

#[test]
fn a_server_of_its_own_needs_nobody() {
    let (done, object) = short(Mode::Plan, |args| args.connections = 1);
    assert_eq!(done, Ok(()));
    assert!(object["client_cpu_ns_per_request"].is_null(), "{object}");
}
