//! Each load, end to end, against a server in this process.

use txn_kv::KeyRange;
use txn_kv::load::{Keys, Lines, Load, Options, Progress, Shape, Summary, Until, Workload};
use txn_kv::serve::{self, Server};
use txn_kv::store::Stats;

const REQUESTS: u64 = 200;
const KEYS: u64 = 50;

fn server() -> Server {
    Server::start(&serve::Options::new("u", "p").threads(2)).expect("it serves")
}

fn quiet() -> Progress {
    Progress::new("", Lines::None)
}

fn load(server: &Server, password: &str, clients: usize) -> Load {
    let options = Options {
        address: server.address().to_string(),
        user: "u".to_owned(),
        password: password.to_owned(),
        clients,
        connections: 2,
    };
    let keys = Keys::new(8, KEYS).expect("they fit");
    Load::new(&options, Shape { keys, value_bytes: 64, seed: 7 }).expect("it makes sense")
}

fn run(load: &Load, workload: Workload) -> Summary {
    load.run(workload, Until::Requests(REQUESTS), quiet()).expect("it runs")
}

fn all_are_right(summary: &Summary, writes: u64) {
    summary.verdict().expect("all answers are right");
    assert_eq!((summary.answers(), summary.writes()), (REQUESTS, writes));
    assert_eq!(summary.to_json()["requests"], REQUESTS);
    assert!(summary.quantile(0.5) > 0 && summary.per_second() > 0.0);
}

#[test]
fn puts_are_transactions_of_their_own() {
    let server = server();
    for clients in [1, 10, 300] {
        let before = server.store().revision();
        let summary = run(&load(&server, "p", clients), Workload::Put { operations: 1 });
        all_are_right(&summary, REQUESTS);
        assert_eq!(server.store().revision() - before, REQUESTS);
    }
    assert_eq!(server.store().check().expect("they agree"), 3 * REQUESTS);
}

#[test]
fn transactions_have_as_many_puts_as_told() {
    let server = server();
    let summary = run(&load(&server, "p", 10), Workload::Put { operations: 7 });
    all_are_right(&summary, REQUESTS);
    assert_eq!(server.store().revision(), REQUESTS);
    assert_eq!(server.store().check().expect("they agree"), 7 * REQUESTS);
}

#[test]
fn a_fill_puts_every_key_once() {
    let server = server();
    load(&server, "p", 10).fill(quiet()).expect("it fills");
    let all = KeyRange::Span(b"0"[..].into(), None);
    let found = server.store().read(&all, None, usize::MAX).expect("it reads");
    assert_eq!(found.entries.len() as u64, KEYS);
    assert!(found.entries.iter().all(|entry| entry.record.version == 1));
}

#[test]
fn reads_find_what_was_put() {
    let server = server();
    let load = load(&server, "p", 10);
    load.fill(quiet()).expect("it fills");
    all_are_right(&run(&load, Workload::Get), 0);
    all_are_right(&run(&load, Workload::Range { limit: 20 }), 0);
    let Stats { indexed, read, .. } = server.store().stats();
    assert!(indexed > REQUESTS, "{indexed} revisions were found");
    assert_eq!(indexed, read);
}

#[test]
fn mixed_loads_read_and_write() {
    let server = server();
    let load = load(&server, "p", 10);
    load.fill(quiet()).expect("it fills");
    let before = server.store().revision();
    let summary = run(&load, Workload::Mixed { reads_per_100: 50 });
    let writes = server.store().revision() - before;
    assert!((50..150).contains(&writes), "{writes} of {REQUESTS} wrote");
    all_are_right(&summary, writes);
}

#[test]
fn the_same_seed_puts_the_same_keys() {
    let keys_of_a_load = || {
        let server = server();
        run(&load(&server, "p", 10), Workload::Put { operations: 1 });
        let all = KeyRange::Span(b"0"[..].into(), None);
        let found = server.store().read(&all, None, usize::MAX).expect("it reads");
        let versions = found.entries.iter().map(|entry| {
            let record = &entry.record;
            (record.key.clone(), record.version)
        });
        versions.collect::<Vec<_>>()
    };
    assert_eq!(keys_of_a_load(), keys_of_a_load());
}

#[test]
fn a_time_ends_a_load() {
    let server = server();
    let time = std::time::Duration::from_millis(20);
    let load = load(&server, "p", 10);
    let put = Workload::Put { operations: 1 };
    let summary = load.run(put, Until::Time(time), quiet()).expect("it runs");
    summary.verdict().expect("all answers are right");
    assert_eq!(server.store().revision(), summary.writes());
}

#[test]
fn reads_of_keys_that_are_not_there_are_wrong() {
    let server = server();
    let summary = run(&load(&server, "p", 10), Workload::Get);
    assert_eq!((summary.answers(), summary.failures()), (0, REQUESTS));
    let error = summary.verdict().expect_err("no key is there").to_string();
    assert!(error.starts_with("200 wrong answers and 0 errors, the first: 0 of 1 keys"), "{error}");
}

#[test]
fn values_of_others_are_wrong() {
    let server = server();
    let load = load(&server, "p", 10);
    load.fill(quiet()).expect("it fills");
    let other = Shape { keys: Keys::new(8, KEYS).expect("they fit"), value_bytes: 64, seed: 8 };
    let mut txn = other.puts(1, 3, 1);
    for operation in &mut txn.then {
        if let txn_kv::Op::Put { key, .. } = operation {
            *key = other.keys.key(4);
        }
    }
    server.store().txn(txn, |outcome| drop(outcome.expect("it writes")));
    let summary = run(&load, Workload::Range { limit: KEYS });
    let error = summary.verdict().expect_err("a value is at another key").to_string();
    assert!(error.ends_with("key 00000004 has the value of key 00000003"), "{error}");
}

#[test]
fn errors_are_counted_and_told() {
    let server = server();
    // Keys of 2000 bytes are longer than the store accepts.
    let options = Options {
        address: server.address().to_string(),
        user: "u".to_owned(),
        password: "p".to_owned(),
        clients: 3,
        connections: 1,
    };
    let keys = Keys::new(2000, KEYS).expect("they fit");
    let shape = Shape { keys, value_bytes: 3000, seed: 7 };
    let load = Load::new(&options, shape).expect("it makes sense");
    let summary = run(&load, Workload::Put { operations: 1 });
    assert_eq!((summary.answers(), summary.failures()), (0, REQUESTS));
    let error = summary.verdict().expect_err("no key is taken").to_string();
    assert!(error.contains("0 wrong answers and 200 errors") && error.contains("2000"), "{error}");
}

#[test]
fn a_server_that_goes_away_ends_the_load() {
    let server = server();
    let load = load(&server, "p", 10);
    load.fill(quiet()).expect("it fills");
    let store = server.store().clone();
    let (load, summary) = std::thread::scope(|scope| {
        scope.spawn(move || {
            let before = store.revision();
            while store.revision() < before + 10 {
                std::thread::yield_now();
            }
            drop(server);
        });
        let put = Workload::Put { operations: 1 };
        let summary = load.run(put, Until::Requests(u64::MAX), quiet()).map_err(|e| e.to_string());
        (load, summary)
    });
    let summary = summary.expect("what was done is counted");
    assert!(summary.answers() > 0 && summary.failures() > 0);
    assert!(summary.verdict().is_err());
    drop(load);
}

#[test]
fn who_may_not_log_in_is_told() {
    let server = server();
    let error = load(&server, "q", 10)
        .run(Workload::Get, Until::Requests(1), quiet())
        .expect_err("the password is wrong");
    assert!(error.to_string().contains("login"), "{error}");
}
