//! Effect and answer of each statement.

use epoll_group::client::{Request, Session};
use epoll_group::codec::proto::value::Scalar;
use txn_kv::client::Done;
use txn_kv::{Compare, Design, Entry, Key, Op, Relation, Target, Txn};

use super::{Both, from, one, span, told};

fn put(key: &[u8], value: &[u8]) -> Op {
    Op::Put { key: key.into(), value: value.into() }
}

fn get(key: &[u8]) -> Op {
    Op::Get { range: one(key), limit: usize::MAX }
}

fn compare(key: &[u8], relation: Relation, target: Target) -> Compare {
    Compare { key: key.into(), relation, target }
}

fn pair(entry: &Entry) -> (&[u8], &[u8]) {
    (&entry.record.key, entry.record.value.as_deref().expect("no deletion"))
}

#[test]
fn people_write_literals() {
    // Literals mean the same in every design.
    for design in Design::ALL {
        let both = Both::start_with(|options| options.design(design));
        literals(&mut both.session());
    }
}

fn literals(session: &mut Session) {
    for (text, expected) in [
        ("get 'a'", "@0 0"),
        ("put 'a' 'one'", "@1 1"),
        ("PUT 'b' 'it''s'", "@2 1"),
        ("put x'00ff' x''", "@3 1"),
        ("get 'a'", "0|a|one|1|1|1; @3 0"),
        ("put 'a' 'two'", "@4 1"),
        ("get 'a'", "0|a|two|1|4|2; @4 0"),
        ("get 'a' at 3", "0|a|one|1|1|1; @3 0"),
        ("range x'00'", "0|\\x00\\xff||3|3|1;0|a|two|1|4|2;0|b|it\\'s|2|2|1; @4 0"),
        ("range '' limit 1", "0|\\x00\\xff||3|3|1; @4 0"),
        ("range 'a' 'b'", "0|a|two|1|4|2; @4 0"),
        ("range 'a' limit 1 at 2", "0|a|one|1|1|1; @2 0"),
        ("delete 'none'", "@4 0"),
        ("delete 'a'", "@5 1"),
        ("get 'a'", "@5 0"),
        ("get 'a' at 4", "0|a|two|1|4|2; @4 0"),
        ("put 'a' 'new'", "@6 1"),
        ("get 'a'", "0|a|new|6|6|1; @6 0"),
        ("delete range x'00'", "@7 3"),
        ("range x'00'", "@7 0"),
    ] {
        assert_eq!(told(session, text), expected, "{text}");
    }
}

#[test]
fn people_write_transactions() {
    let both = Both::start();
    let mut session = both.session();
    for (text, expected) in [
        ("txn then put 'a' '1', put 'b' '2'", "@1 2"),
        ("txn then get 'a', range 'a' limit 1, put 'c' '3'", "0|a|1|1|1|1;1|a|1|1|1|1; @2 1"),
        (
            "txn if value 'a' = '1' and version 'b' = 1 then put 'a' '4', get 'b' else get 'a'",
            "1|b|2|1|1|1; @3 1 then",
        ),
        ("txn if value 'a' = '1' then put 'a' '5' else get 'a', get 'z'", "0|a|4|1|3|2; @3 0 else"),
        ("txn if version 'z' = 0 then nothing", "@3 0 then"),
        ("txn if version 'z' > 0 then put 'z' '6'", "@3 0 else"),
        ("txn then delete range 'a' 'c', put 'd' '7', delete 'none'", "@4 3"),
        ("range 'a'", "0|c|3|2|2|1;0|d|7|4|4|1; @4 0"),
        ("txn then nothing", "@4 0"),
    ] {
        assert_eq!(told(&mut session, text), expected, "{text}");
    }
}

#[test]
fn marks_take_arguments() {
    let both = Both::start();
    let mut session = both.session();
    let put = Request::sql("put ? ?").arg(Scalar::string("a", None)).arg(Scalar::octets(*b"\0"));
    assert_eq!(told(&mut session, put), "@1 1");
    let read = Request::sql("range ? limit ? at ?").args([
        Scalar::octets(*b"a"),
        Scalar::unsigned(1),
        Scalar::signed(1),
    ]);
    // The client may send a digest in place of the text. The answer is the same each time.
    for _ in 0..3 {
        assert_eq!(told(&mut session, read.clone().cached()), "0|a|\\x00|1|1|1; @1 0");
    }
}

#[test]
fn a_client_with_types_does_the_same() {
    let both = Both::start();
    let mut kv = both.kv();
    assert!(kv.get(b"a").expect("read").is_none());
    assert_eq!(kv.put(b"a", b"one").expect("written"), 1);
    assert_eq!(kv.put(b"a", b"two").expect("written"), 2);
    let entry = kv.get(b"a").expect("read").expect("found");
    assert_eq!(pair(&entry), (&b"a"[..], &b"two"[..]));
    let Entry { revision, record } = &entry;
    assert_eq!((revision.main, record.created, record.version), (2, 1, 2));
    let before = kv.read(&one(b"a"), Some(1), usize::MAX).expect("read");
    assert_eq!((before.revision, pair(&before.entries[0]).1), (1, &b"one"[..]));
    assert_eq!(kv.put(b"b", b"").expect("written"), 3);
    let all = kv.read(&from(b"a"), None, usize::MAX).expect("read");
    assert_eq!((all.revision, all.entries.len()), (3, 2));
    assert_eq!(kv.read(&from(b"a"), None, 1).expect("read").entries.len(), 1);
    assert_eq!(kv.read(&span(b"a", b"b"), None, 9).expect("read").entries.len(), 1);
    assert_eq!(kv.delete(&one(b"none")).expect("done"), (3, 0));
    assert_eq!(kv.delete(&from(b"a")).expect("done"), (4, 2));
    assert_eq!(kv.read(&from(b"a"), None, 9).expect("read").entries, []);
}

#[test]
fn a_transaction_does_one_branch_or_the_other() {
    let both = Both::start();
    let mut kv = both.kv();
    let absent = compare(b"lock", Relation::Equal, Target::Version(0));
    let txn = Txn {
        compares: vec![absent],
        then: vec![put(b"lock", b"me"), get(b"lock"), get(b"none")],
        otherwise: vec![get(b"none"), get(b"lock")],
    };
    let done = kv.txn(&txn).expect("done");
    assert_eq!((done.revision, done.succeeded, done.affected), (1, true, 1));
    let again = kv.txn(&txn).expect("done");
    assert_eq!((again.revision, again.succeeded, again.affected), (1, false, 0));
    let [(1, entry)] = again.found.as_slice() else { panic!("{again:?}") };
    assert_eq!(pair(entry), (&b"lock"[..], &b"me"[..]));
    let single = Txn { then: vec![put(b"a", b"b")], ..Txn::default() };
    let expected = Done { revision: 2, succeeded: true, affected: 1, found: Vec::new() };
    assert_eq!(kv.txn(&single).expect("done"), expected);
}

#[test]
fn every_comparison_is_carried() {
    let both = Both::start();
    let mut kv = both.kv();
    kv.put(b"other", b"").expect("written");
    kv.put(b"k", b"m").expect("written");
    kv.put(b"k", b"m").expect("written");
    // The key was created by revision 2 and written last by revision 3, twice in all.
    let value = |value: &[u8]| Target::Value(value.into());
    let mut cases = vec![(value(b"l"), 1), (value(b"m"), 0), (value(b"n"), -1)];
    cases.extend([1, 2, 3].map(|n| (Target::Created(n), 2 - n as i64)));
    cases.extend([2, 3, 4].map(|n| (Target::Modified(n), 3 - n as i64)));
    cases.extend([1, 2, 3].map(|n| (Target::Version(n), 2 - n as i64)));
    for (target, stands) in cases {
        for (relation, expected) in [
            (Relation::Equal, stands == 0),
            (Relation::NotEqual, stands != 0),
            (Relation::Less, stands < 0),
            (Relation::Greater, stands > 0),
        ] {
            let compares = vec![compare(b"k", relation, target.clone())];
            let done = kv.txn(&Txn { compares, ..Txn::default() }).expect("done");
            assert_eq!(done.succeeded, expected, "{relation:?} {target:?}");
        }
    }
}

#[test]
fn keys_and_values_are_any_bytes() {
    let both = Both::start();
    let (mut kv, mut session) = (both.kv(), both.session());
    let all: Vec<u8> = (0..=255).collect();
    let odd: [&[u8]; 7] = [b"\0", b"\0\0", b"'", b"?", b"x'00'", b"\xff\xfe", &all];
    for (key, value) in odd.iter().zip(odd.iter().rev()) {
        kv.put(key, value).expect("written");
    }
    for (key, value) in odd.iter().zip(odd.iter().rev()) {
        let entry = kv.get(key).expect("read").expect("found");
        assert_eq!(pair(&entry), (*key, *value));
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let told = told(&mut session, format!("get x'{digits}'"));
        let (key, value) = (key.escape_ascii(), value.escape_ascii());
        assert!(told.starts_with(&format!("0|{key}|{value}|")), "{told}");
    }
    let found = kv.read(&from(b"\0"), None, usize::MAX).expect("read");
    let keys: Vec<Key> = found.entries.iter().map(|entry| entry.record.key.clone()).collect();
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!((&keys, keys.len()), (&sorted, odd.len()));
}

#[test]
fn status_tells_how_the_store_is() {
    let both = Both::start();
    let mut kv = both.kv();
    for _ in 0..3 {
        kv.put(b"a", b"1").expect("written");
    }
    kv.compact(2).expect("done");
    let status = kv.status().expect("told");
    let of = |name: &str| {
        let line = status.iter().find(|(known, _)| known == name);
        line.unwrap_or_else(|| panic!("no {name}: {status:?}")).1.as_str()
    };
    assert_eq!([of("revision"), of("compacted"), of("keys")], ["3", "2", "1"]);
    // Two of the flushes belong to the compaction.
    assert_eq!([of("transactions"), of("flushes"), of("failed flushes")], ["3", "5", "0"]);
    assert_eq!(of("transactions per flush"), "0.6");
    assert_eq!([of("design"), of("engine")], ["publish", "memory"]);
}
