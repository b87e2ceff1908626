//! A suite by the program itself, for a moment.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// Runs a suite, one round of short windows; returns its raw numbers, and the page.
pub(crate) fn report(suite: &str) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["--quick", "--only", suite, "--rounds", "1", "--window-ms", "20", "--out"])
        .arg(folder.path())
        // Without cargo it builds nothing, and measures what is there.
        .env_remove("CARGO")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(folder.path().join("README.md")).unwrap();
    let raw = fs::read_to_string(folder.path().join(suite).with_extension("json")).unwrap();
    let raw: Value = serde_json::from_str(&raw).unwrap();
    (raw["raw"].clone(), page)
}
