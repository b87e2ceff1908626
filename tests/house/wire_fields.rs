//! Compares the tables of the guide's page on the wire format with the `.proto` files, with the
//! kinds of messages, and with the tests that the tables name.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use epoll_group::codec::message::{ClientKind, ServerKind};

use crate::functions::functions;
use crate::promises::sources;

const PAGE: &str = include_str!("../../src/guide/wire.md");

/// Row of a table.
#[derive(Debug)]
struct Row {
    /// Messages in the heading above the table.
    messages: Vec<&'static str>,
    /// Fields or messages, state, test.
    cells: Vec<&'static str>,
}

/// Parts of the text in backticks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Rows of all tables, without their heads.
fn rows() -> Vec<Row> {
    let (_, tables) = PAGE.split_once("\n## Every message and field\n").expect("a section");
    let mut messages = Vec::new();
    let mut rows = Vec::new();
    for line in tables.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            messages = names(heading).collect();
        } else if let Some(cells) = line.strip_prefix("| ") {
            let cells = cells.strip_suffix(" |").expect("a row ends with |");
            let cells: Vec<_> = cells.split(" | ").collect();
            if cells.last() != Some(&"test") {
                rows.push(Row { messages: messages.clone(), cells });
            }
        }
    }
    rows
}

/// Names of all tests in the repository.
fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests", "examples"];
    let mut tests = BTreeSet::new();
    for file in folders.into_iter().flat_map(|folder| sources(&root.join(folder))) {
        let source = fs::read_to_string(file).expect("it can be read");
        let found = functions(&source).into_iter().filter(|function| function.is_test());
        tests.extend(found.map(|function| function.name));
    }
    tests
}

/// Fields of a `.proto` file, each with the full name of its message.
fn fields(text: &str) -> Vec<(String, String)> {
    // Package, then the messages and enums that are open.
    let mut open = Vec::new();
    let mut fields = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["package", name] => open.push(name.trim_end_matches(';')),
            ["message" | "enum", name, "{"] => open.push(name),
            ["}"] => {
                open.pop();
            }
            ["required" | "optional" | "repeated", _, name, "=", ..] => {
                fields.push((open.join("."), name.to_owned()));
            }
            _ => {}
        }
    }
    fields
}

/// Everything that the tables must have: messages and their fields, lists of kinds and their kinds.
fn expected() -> BTreeSet<(String, String)> {
    let mut expected = BTreeSet::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proto/files");
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        expected.extend(fields(&fs::read_to_string(path).expect("it can be read")));
    }
    assert!(expected.len() > 200, "{expected:?}");
    let client = (0..=u8::MAX).filter_map(ClientKind::from_number);
    let client = client.map(|kind| ("ClientKind", kind.protocol_name()));
    let server = (0..=u8::MAX).filter_map(ServerKind::from_number);
    let server = server.map(|kind| ("ServerKind", kind.protocol_name()));
    let kinds = client.chain(server);
    expected.extend(kinds.map(|(list, kind)| (list.to_owned(), kind.to_owned())));
    expected
}

#[test]
fn each_field_and_each_kind_is_in_a_table() {
    let expected = expected();
    let mut found = BTreeSet::new();
    for Row { messages, cells } in rows() {
        for name in names(cells[0]) {
            for &message in &messages {
                // Below a heading with several messages, each field has its message in front.
                let own = message.rsplit('.').next().unwrap_or(message);
                let field = match messages.len() {
                    1 => Some(name),
                    _ => name.strip_prefix(own).and_then(|rest| rest.strip_prefix('.')),
                };
                found.extend(field.map(|field| (message.to_owned(), field.to_owned())));
            }
        }
    }
    let missing: Vec<_> = expected.difference(&found).collect();
    assert!(missing.is_empty(), "not in src/guide/wire.md: {missing:#?}");
    // Rows of kinds may be about numbers without a name here.
    let unknown = found.difference(&expected).filter(|(list, _)| !list.ends_with("Kind"));
    let unknown: Vec<_> = unknown.collect();
    assert!(unknown.is_empty(), "in src/guide/wire.md alone: {unknown:#?}");
}

#[test]
fn each_row_has_a_state_and_a_test() {
    let tests = tests();
    for Row { cells, .. } in rows() {
        let [names, state, test] = cells[..] else { panic!("not three cells: {cells:?}") };
        assert!(!state.trim().is_empty(), "{names}: no state");
        let is_absent = state.starts_with("absent: ");
        assert_eq!(is_absent, state.contains("absent"), "{names}: no reason in '{state}'");
        let (without, reasoned) = (state.contains("without effect"), "without effect: ");
        assert_eq!(without, state.contains(reasoned), "{names}: no reason in '{state}'");
        match test.strip_prefix("none: ") {
            Some(reason) => assert!(is_absent && !reason.is_empty(), "{names}: no test"),
            None => {
                let name = test.strip_prefix('`').and_then(|test| test.strip_suffix('`'));
                let is_there = name.is_some_and(|name| tests.contains(name));
                assert!(is_there, "{names}: no test {test}");
            }
        }
    }
}
