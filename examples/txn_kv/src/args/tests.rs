//! Command lines that make sense, and those that do not.

use txn_kv::load::{Keys, Workload};

use super::*;

fn parse(line: &str) -> Result<Command, String> {
    let mut parser = Parser::from_args(line.split_whitespace());
    Command::parse(&mut parser).map_err(|error| error.to_string())
}

fn load(line: &str) -> Load {
    match parse(line) {
        Ok(Command::Load(load)) => load,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn without_arguments_it_shows_itself() {
    assert!(matches!(parse(""), Ok(Command::Demo(Pace::Normal))));
    assert!(matches!(parse("--quick"), Ok(Command::Demo(Pace::Quick))));
    for line in ["--help", "load --help", "load get -h", "serve -h", "designs -h", "commits -h"] {
        assert!(matches!(parse(line), Ok(Command::Help)), "{line}");
    }
}

#[test]
fn a_load_has_the_defaults_of_the_help() {
    let get = load("load get");
    assert_eq!((get.connect, get.clients, get.connections, get.total), (None, 1, 4, 10_000));
    assert_eq!((get.shape.keys, get.shape.value_bytes), (Keys::new(8, 1).unwrap(), 256));
    assert_eq!((get.workload, get.filled, get.json), (Workload::Get, false, false));
    assert_eq!(load("load txn-put").workload, Workload::Put { operations: 1 });
    assert_eq!(load("load range").workload, Workload::Range { limit: 100 });
    assert_eq!(load("load mixed").workload, Workload::Mixed { reads_per_100: 50 });
}

#[test]
fn a_load_takes_its_options() {
    let put = load(
        "load --clients 200 txn-put --txn-ops 3 --key-size 6 --val-size 14 --key-space-size 100000 \
         --total 7 --seed 9 --json --connect localhost:1 --user u --password p",
    );
    assert_eq!((put.clients, put.total, put.json), (200, 7, true));
    assert_eq!(put.workload, Workload::Put { operations: 3 });
    let shape = put.shape;
    assert_eq!((shape.keys, shape.seed), (Keys::new(6, 100_000).unwrap(), 9));
    assert_eq!(put.connect.as_deref(), Some("localhost:1"));
}

#[test]
fn what_makes_no_sense_is_told() {
    for (line, part) in [
        ("lode", "there is no command lode"),
        ("load", "load needs txn-put, get, range or mixed"),
        ("load put", "there is no load put"),
        ("load get --clients 0", "--clients 0 is outside 1..=65536"),
        ("load get --connect localhost:1", "needs --user and --password"),
        ("load get --key-size 2 --key-space-size 101", "101 keys need 3 bytes"),
        ("load mixed --reads-per-100 101", "--reads-per-100 101 is outside 0..=100"),
        ("serve --listen localhost:0 --user u", "serve needs --password"),
        ("serve --design fast", "no design is called"),
        ("designs --pairs none", "--pairs none is not a number"),
    ] {
        let error = parse(line).expect_err(line);
        assert!(error.contains(part), "{line}: {error}");
    }
}
