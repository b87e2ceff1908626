//! The program: what it prints, and how it exits.

use std::process::{Command, Output};

fn txn_kv(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txn_kv"));
    command.args(line.split_whitespace()).output().expect("it starts")
}

fn printed(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("it is text")
}

fn told(output: &Output) -> &str {
    str::from_utf8(&output.stderr).expect("it is text")
}

#[test]
fn help_names_every_command() {
    let output = txn_kv("--help");
    assert!(output.status.success());
    for command in ["serve ", "load ", "designs ", "commits "] {
        assert!(printed(&output).contains(command), "{command}");
    }
}

#[test]
fn a_command_line_without_sense_has_a_status_of_its_own() {
    let output = txn_kv("load put");
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("invalid value 'put'"), "{}", told(&output));
}

#[test]
fn a_load_prints_a_summary_or_one_object() {
    for load in ["txn-put --txn-ops 2", "get", "range --limit 5", "mixed --reads-per-100 20"] {
        let line = format!("load {load} --clients 5 --total 100 --key-space-size 20");
        let output = txn_kv(&line);
        assert!(output.status.success(), "{load}: {}", told(&output));
        assert!(printed(&output).contains("Response time histogram:"), "{load}");

        let output = txn_kv(&format!("{line} --json"));
        assert!(output.status.success(), "{load}: {}", told(&output));
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
        assert_eq!((&object["requests"], &object["errors"]), (&100.into(), &0.into()), "{load}");
        assert_eq!(object["key_space_size"], 20);
    }
}

#[test]
fn a_load_that_fails_says_so() {
    // The store is empty, because no load has filled it.
    let output = txn_kv("load get --filled --total 10");
    assert_eq!(output.status.code(), Some(1));
    let first = "10 wrong answers and 0 errors, the first: 0 of 1 keys";
    assert!(told(&output).contains(first), "{}", told(&output));
    assert!(printed(&output).contains("10 wrong answers, 0 errors"), "{}", printed(&output));
}
