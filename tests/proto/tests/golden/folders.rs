//! The other tests of this program, on folders with other vectors than the recorded ones.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use serde_json::{Value, json};

use crate::{FILES, read, recorded_path};

/// Runs the other tests of this program on a folder with these files. They must pass.
fn passes(name: &str, files: &[(&str, Vec<Value>)]) {
    let folder = Folder::new(name);
    for (file, lines) in files {
        let path = folder.0.join(file);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(path, text).expect("a file of vectors");
    }
    let mut tests = Command::new(env::current_exe().expect("the path of this program"));
    tests.args(["--skip", "folders::"]).env("GOLDEN_DIR", &folder.0);
    let output = tests.output().expect("the tests run");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("golden-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The first line of a file of this repository whose name begins so.
fn recorded(file: &str, name: &str) -> Value {
    let mut lines = read(file, recorded_path(file)).into_iter().map(|vector| vector.json);
    lines
        .find(|line| line["name"].as_str().is_none_or(|found| found.starts_with(name)))
        .unwrap_or_else(|| panic!("{file}: no {name}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `line` with another body.
fn with_body(mut line: Value, body: &[u8]) -> Value {
    let sid: u64 = line["sid"].as_str().and_then(|sid| sid.parse().ok()).expect("a session");
    let kind = u8::try_from(line["type_id"].as_u64().expect("a kind")).expect("a byte");
    let length = u32::try_from(body.len() + 1).expect("small");
    let header = [&sid.to_le_bytes()[..], &length.to_le_bytes(), &[kind]].concat();
    line["body_hex"] = json!(hex(body));
    line["frame_hex"] = json!(hex(&[&header, body].concat()));
    line
}

#[test]
fn a_folder_may_be_small() {
    let alone = FILES.iter().filter(|file| **file != "sessions");
    for file in alone.chain(&["sessions/chunk.jsonl", "sessions/error.jsonl"]) {
        passes("small", &[(file, vec![recorded(file, "")])]);
    }
}

#[test]
fn a_server_may_send_kinds_that_are_unknown() {
    let line = |kind: u8, extra: Value| {
        let mut line = json!({
            "name": format!("future_{kind}"), "direction": "s2c", "type_id": kind,
            "type_name": "FUTURE", "sid": "5", "conn": 1,
        });
        line.as_object_mut().expect("an object").extend(extra.as_object().cloned().expect("one"));
        with_body(line, b"\x08\x01")
    };
    let lines = vec![
        line(77, json!({ "client_result": "ignored" })),
        line(250, json!({ "fields": {}, "message": "Polarx.Future.Message" })),
    ];
    passes("unknown", &[("s2c.jsonl", lines.clone()), ("sessions/future.jsonl", lines)]);
}

#[test]
fn a_client_may_derive_lengths_itself() {
    let mut meta = recorded("column_meta.jsonl", "meta_sint_tiny");
    let mut other = meta.clone();
    other["client_length"] = json!(3);
    // Without its field 11.
    let body = crate::hex(meta["body_hex"].as_str().expect("hex"));
    let without: Vec<u8> = body.iter().copied().filter(|byte| !matches!(byte, 0x58 | 4)).collect();
    assert_eq!(without.len() + 2, body.len());
    meta["fields"].as_object_mut().expect("fields").remove("length");
    let meta = with_body(meta, &without);
    let mut bit = recorded("rows.jsonl", "row_bit_8_255");
    bit["meta"].as_object_mut().expect("metadata").remove("length");
    passes("derived", &[("column_meta.jsonl", vec![meta, other]), ("rows.jsonl", vec![bit])]);
}

#[test]
fn an_empty_set_may_have_either_form() {
    let set = recorded("rows.jsonl", "row_set_one");
    let mut rows = Vec::new();
    for form in [0, 1] {
        for readable in [true, false] {
            let mut line = with_body(set.clone(), &[0x0a, 1, form]);
            line["name"] = json!(format!("empty_{form}_{readable}"));
            line["fields"] = json!({ "field": [hex(&[form])] });
            line["decoded"] = json!({ "object": "", "text_hex": "", "text": "" });
            if !readable {
                line["object_error"] = json!("Exception");
                line["decoded"] = json!({ "object_error": "Exception" });
            }
            rows.push(line);
        }
    }
    let set = recorded("chunks.jsonl", "chunk_set");
    let mut chunks = Vec::new();
    for (at, form) in [[0, 0], [0, 1], [1, 0], [1, 1]].iter().enumerate() {
        // Two rows, one column with values of variable size: each has its length before it.
        let body = [8, 2, 0x12, 8, 0x1a, 6, 0x0a, 4, 1, form[0], 1, form[1]];
        let mut line = with_body(set.clone(), &body);
        line["name"] = json!(format!("sets_{at}"));
        line["fields"] = json!({ "row_count": 2 });
        let empty = json!([{ "items_hex": [], "string_hex": "" }]);
        line["decoded_rows"] = json!([empty, empty]);
        chunks.push(line);
    }
    passes("sets", &[("rows.jsonl", rows), ("chunks.jsonl", chunks)]);
}
