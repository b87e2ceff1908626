use proptest::collection::vec;
use proptest::prelude::*;

use epoll_group::codec::proto::value::{Any, AnyType, Array, Scalar};

use super::{Encoded, MOST_OPERATIONS, Statement, StatementError};
use crate::record::Key;
use crate::txn::{Compare, KeyRange, Op, Relation, Target, Txn};

fn parse(text: &str) -> Result<Statement, StatementError> {
    Statement::parse(text.as_bytes(), &[])
}

fn parse_with(
    text: &str,
    arguments: impl IntoIterator<Item = Scalar>,
) -> Result<Statement, String> {
    let arguments: Vec<Any> = arguments.into_iter().map(Any::from).collect();
    Statement::parse(text.as_bytes(), &arguments).map_err(|error| error.to_string())
}

fn key(bytes: &[u8]) -> Key {
    bytes.into()
}

fn one(bytes: &[u8]) -> KeyRange {
    KeyRange::One(key(bytes))
}

fn put(name: &[u8], value: &[u8]) -> Op {
    Op::Put { key: key(name), value: value.into() }
}

fn single(op: Op) -> Statement {
    Statement::Txn(Txn { then: vec![op], ..Txn::default() })
}

fn read(range: KeyRange, limit: usize, at: Option<u64>) -> Statement {
    Statement::Read { range, limit, at }
}

const ALL: usize = usize::MAX;

#[test]
fn every_statement_is_read_from_literals() {
    let span = KeyRange::Span(key(b"a"), Some(key(b"b")));
    let open = KeyRange::Span(key(b"a"), None);
    let cases = [
        ("put 'a' 'b'", single(put(b"a", b"b"))),
        ("  PUT\t'it''s'\n''''  ", single(put(b"it's", b"'"))),
        ("Put x'00fF' X''", single(put(b"\x00\xff", b""))),
        ("put'a'x'62'", single(put(b"a", b"b"))),
        ("get 'a'", read(one(b"a"), ALL, None)),
        ("get 'a' at 7", read(one(b"a"), ALL, Some(7))),
        ("get 'a' limit 1 at 7", read(one(b"a"), 1, Some(7))),
        ("range 'a'", read(open.clone(), ALL, None)),
        ("range 'a' 'b'", read(span.clone(), ALL, None)),
        ("range x'61' x'62' limit 3", read(span.clone(), 3, None)),
        ("range 'a' limit 3 at 18446744073709551615", read(open.clone(), 3, Some(u64::MAX))),
        ("delete 'a'", single(Op::Delete(one(b"a")))),
        ("delete range 'a'", single(Op::Delete(open))),
        ("delete range 'a' 'b'", single(Op::Delete(span))),
        ("compact 0012", Statement::Compact(12)),
        ("status", Statement::Status),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }
}

#[test]
fn a_transaction_has_comparisons_and_two_branches() {
    let text = "txn if value 'a' != 'x' and version 'a' = 1 and created 'a' < 2 and modified x'61' > 3 \
                then put 'a' '1', get 'b', range 'c' 'd' limit 5 \
                else delete 'e', delete range 'f'";
    let compare = |relation, target| Compare { key: key(b"a"), relation, target };
    let expected = Txn {
        compares: vec![
            compare(Relation::NotEqual, Target::Value(b"x"[..].into())),
            compare(Relation::Equal, Target::Version(1)),
            compare(Relation::Less, Target::Created(2)),
            compare(Relation::Greater, Target::Modified(3)),
        ],
        then: vec![
            put(b"a", b"1"),
            Op::Get { range: one(b"b"), limit: ALL },
            Op::Get { range: KeyRange::Span(key(b"c"), Some(key(b"d"))), limit: 5 },
        ],
        otherwise: vec![Op::Delete(one(b"e")), Op::Delete(KeyRange::Span(key(b"f"), None))],
    };
    assert_eq!(parse(text), Ok(Statement::Txn(expected)));
    let none = Statement::Txn(Txn::default());
    assert_eq!(parse("txn then nothing"), Ok(none.clone()));
    assert_eq!(parse("TXN THEN NOTHING ELSE NOTHING"), Ok(none));
}

#[test]
fn arguments_take_the_places_of_marks_in_their_order() {
    let text = "txn if value ? = ? and version ? > ? then put ? ?, range ? ? limit ? else get ?";
    let arguments = [
        Scalar::octets(*b"k"),
        Scalar::string(*b"v", Some(63)),
        Scalar::octets(*b"n"),
        Scalar::signed(3),
        Scalar::string(*b"p", None),
        Scalar::octets(*b"\0?'"),
        Scalar::octets(*b"a"),
        Scalar::octets(*b"b"),
        Scalar::unsigned(4),
        Scalar::octets(*b"g"),
    ];
    let equal = Target::Value(b"v"[..].into());
    let expected = Txn {
        compares: vec![
            Compare { key: key(b"k"), relation: Relation::Equal, target: equal },
            Compare { key: key(b"n"), relation: Relation::Greater, target: Target::Version(3) },
        ],
        then: vec![
            put(b"p", b"\0?'"),
            Op::Get { range: KeyRange::Span(key(b"a"), Some(key(b"b"))), limit: 4 },
        ],
        otherwise: vec![Op::Get { range: one(b"g"), limit: ALL }],
    };
    assert_eq!(parse_with(text, arguments), Ok(Statement::Txn(expected)));
    // A mark in a literal is none.
    assert_eq!(parse_with("put '?' ?", [Scalar::octets(*b"v")]), Ok(single(put(b"?", b"v"))));
}

#[test]
fn what_makes_no_sense_is_told_with_its_place() {
    let cases = [
        ("", "at 1: expected put, get, range, delete, txn, compact or status, found the end"),
        (
            "  drop 'a'",
            "at 3: expected put, get, range, delete, txn, compact or status, found drop",
        ),
        ("put", "at 4: expected a key (?, 'text' or x'hex'), found the end"),
        ("put a 'b'", "at 5: expected a key (?, 'text' or x'hex'), found a"),
        ("put 'a' 12", "at 9: expected a value (?, 'text' or x'hex'), found the number 12"),
        ("put 'a' 'b' 'c'", "at 13: expected the end, found the text 'c'"),
        ("put 'a' 'b' at 1", "at 13: expected the end, found at"),
        ("put 'a' 'b", "at 9: expected ' behind the text, found the end"),
        ("put 'a' 'b''", "at 9: expected ' behind the text, found the end"),
        ("put x'a' 'b'", "at 5: expected pairs of hexadecimal digits in x''"),
        ("put x'ag' 'b'", "at 5: expected pairs of hexadecimal digits in x''"),
        ("put x'aa", "at 5: expected ' behind the text, found the end"),
        ("get 'a' at", "at 11: expected a number (? or digits), found the end"),
        ("get 'a' at -1", "at 12: expected a number (? or digits), found -"),
        ("get 'a' at 1 limit 2", "at 14: expected the end, found limit"),
        ("get 'a' 'b'", "at 9: expected the end, found the text 'b'"),
        ("compact 18446744073709551616", "at 9: the number exceeds 18446744073709551615"),
        ("delete range", "at 13: expected a key (?, 'text' or x'hex'), found the end"),
        ("status;", "at 7: expected the end, found ;"),
        ("\u{e4}", "at 1: expected put, get, range, delete, txn, compact or status, found \\xc3"),
        ("txn put 'a' 'b'", "at 5: expected if or then, found put"),
        ("txn if then", "at 8: expected value, version, created or modified, found then"),
        ("txn if version 'a' 1", "at 20: expected =, !=, < or >, found the number 1"),
        ("txn if version 'a' = 'b'", "at 22: expected a number (? or digits), found the text 'b'"),
        ("txn if version 'a' = 1", "at 23: expected and or then, found the end"),
        ("txn then", "at 9: expected put, get, range or delete, found the end"),
        ("txn then get 'a' at 3", "at 18: expected the end, found at"),
        ("txn then get 'a',", "at 18: expected put, get, range or delete, found the end"),
        ("txn then nothing, get 'a'", "at 17: expected the end, found ,"),
        ("txn then get 'a' else", "at 22: expected put, get, range or delete, found the end"),
        ("put ? 'b'", "at 5: there is no argument 1 for the mark"),
    ];
    for (text, expected) in cases {
        assert_eq!(
            parse(text).map_err(|error| error.to_string()),
            Err(expected.to_owned()),
            "{text}"
        );
    }
    let long = "x".repeat(33);
    let error = parse(&long).expect_err("no statement").to_string();
    assert!(error.ends_with(&format!("found {}…", "x".repeat(32))), "{error}");
}

#[test]
fn wrong_arguments_are_told_by_their_number() {
    let text = || Scalar::octets(*b"a");
    let cases = [
        ("put ? ?", vec![text()], "at 7: there is no argument 2 for the mark"),
        (
            "put ? ?",
            vec![text(), Scalar::signed(1)],
            "argument 2: expected a string, found an integer",
        ),
        ("put ? ?", vec![text(), text(), text()], "3 arguments for 2 marks"),
        ("status", vec![text()], "1 arguments for 0 marks"),
        ("get ?", vec![Scalar::null()], "argument 1: expected a string, found NULL"),
        (
            "get ?",
            vec![Scalar::raw_string("a")],
            "argument 1: expected a string, found a raw string",
        ),
        ("get ?", vec![Scalar::identifier("a")], "argument 1: expected a string, found a name"),
        (
            "get ? at ?",
            vec![text(), text()],
            "argument 2: expected an integer from 0, found a string",
        ),
        (
            "compact ?",
            vec![Scalar::signed(-1)],
            "argument 1: expected an integer from 0, found a negative integer",
        ),
        (
            "compact ?",
            vec![Scalar::double(1.0)],
            "argument 1: expected an integer from 0, found a number with a point",
        ),
        (
            "compact ?",
            vec![Scalar::bool(true)],
            "argument 1: expected an integer from 0, found a truth value",
        ),
    ];
    for (text, arguments, expected) in cases {
        assert_eq!(parse_with(text, arguments), Err(expected.to_owned()), "{text}");
    }
    let array = Any { r#type: AnyType::Array, array: Some(Array::default()), ..Any::default() };
    let error = Statement::parse(b"get ?", &[array]).expect_err("an array");
    assert_eq!(error.to_string(), "argument 1: expected a scalar, found no scalar");
    assert!(error.is_of_arguments());
    let empty = Any::from(Scalar { v_octets: None, ..text() });
    let error = Statement::parse(b"get ?", &[empty]).expect_err("nothing in it");
    assert_eq!(error.to_string(), "argument 1: expected a scalar, found nothing of its type");
}

#[test]
fn a_text_has_so_many_operations_and_no_more() {
    let text = |operations: usize| format!("txn then {}", vec!["get 'a'"; operations].join(", "));
    assert!(parse(&text(MOST_OPERATIONS)).is_ok());
    let error = parse(&text(MOST_OPERATIONS + 1)).expect_err("one too many");
    let at = text(MOST_OPERATIONS).len() + 3;
    assert_eq!(error, StatementError::TooMany { at, limit: MOST_OPERATIONS });
    let compares = vec!["version 'a' = 0"; MOST_OPERATIONS].join(" and ");
    assert!(parse(&format!("txn if {compares} then nothing")).is_ok());
    assert!(parse(&format!("txn if {compares} then get 'a'")).is_err());
}

fn keys() -> impl Strategy<Value = Key> {
    vec(any::<u8>(), 0..20).prop_map(Key::from)
}

fn values() -> impl Strategy<Value = Box<[u8]>> {
    vec(prop_oneof![any::<u8>(), Just(b'\''), Just(b'?')], 0..40).prop_map(Box::from)
}

fn ranges() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        keys().prop_map(KeyRange::One),
        (keys(), proptest::option::of(keys())).prop_map(|(from, to)| KeyRange::Span(from, to)),
    ]
}

fn limits() -> impl Strategy<Value = usize> {
    prop_oneof![Just(usize::MAX), 0..10_usize, any::<usize>()]
}

fn operations() -> impl Strategy<Value = Op> {
    prop_oneof![
        (keys(), values()).prop_map(|(key, value)| Op::Put { key, value }),
        ranges().prop_map(Op::Delete),
        (ranges(), limits()).prop_map(|(range, limit)| Op::Get { range, limit }),
    ]
}

fn compares() -> impl Strategy<Value = Compare> {
    let relations = [Relation::Equal, Relation::NotEqual, Relation::Less, Relation::Greater];
    let targets = prop_oneof![
        values().prop_map(Target::Value),
        any::<u64>().prop_map(Target::Version),
        any::<u64>().prop_map(Target::Created),
        any::<u64>().prop_map(Target::Modified),
    ];
    (keys(), proptest::sample::select(relations.to_vec()), targets)
        .prop_map(|(key, relation, target)| Compare { key, relation, target })
}

fn statements() -> impl Strategy<Value = Statement> {
    let txns = (vec(compares(), 0..4), vec(operations(), 0..4), vec(operations(), 0..4));
    prop_oneof![
        4 => txns.prop_map(|(compares, then, otherwise)| {
            Statement::Txn(Txn { compares, then, otherwise })
        }),
        1 => operations().prop_map(single),
        2 => (ranges(), limits(), proptest::option::of(any::<u64>()))
            .prop_map(|(range, limit, at)| Statement::Read { range, limit, at }),
        1 => any::<u64>().prop_map(Statement::Compact),
        1 => Just(Statement::Status),
    ]
}

/// The text with literals in place of its marks.
fn spelled(encoded: &Encoded, hex: bool) -> Vec<u8> {
    let mut text = Vec::new();
    let mut arguments = encoded.arguments.iter();
    for byte in encoded.text.bytes() {
        if byte != b'?' {
            text.push(byte);
            continue;
        }
        let argument = arguments.next().expect("one for each mark");
        match (&argument.v_octets, argument.v_unsigned_int) {
            (Some(octets), _) if hex => {
                let digits: String =
                    octets.value.iter().map(|byte| format!("{byte:02X}")).collect();
                text.extend(format!("x'{digits}'").bytes());
            }
            (Some(octets), _) => {
                text.push(b'\'');
                for &byte in &octets.value {
                    text.extend(if byte == b'\'' {
                        &b"''"[..]
                    } else {
                        std::slice::from_ref(&byte)
                    });
                }
                text.push(b'\'');
            }
            (None, number) => text.extend(number.expect("a number").to_string().bytes()),
        }
    }
    text
}

proptest! {
    #[test]
    fn what_is_encoded_reads_back(statement in statements(), upper in any::<bool>()) {
        let encoded = Encoded::from(&statement);
        let arguments: Vec<Any> = encoded.arguments.iter().cloned().map(Any::from).collect();
        let text = if upper { encoded.text.to_uppercase() } else { encoded.text.to_string() };
        let read = Statement::parse(text.as_bytes(), &arguments);
        prop_assert_eq!(read.as_ref(), Ok(&statement));
        for hex in [false, true] {
            let read = Statement::parse(&spelled(&encoded, hex), &[]);
            prop_assert_eq!(read.as_ref(), Ok(&statement));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        statement in statements(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in vec(any::<u8>(), 0..60),
    ) {
        let _ = Statement::parse(&noise, &[]);
        let mut text = spelled(&Encoded::from(&statement), false);
        let at = at.index(text.len());
        let _ = Statement::parse(&text[..at], &[]);
        text[at] = byte;
        if let Err(error) = Statement::parse(&text, &[]) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
