//! Recorded bytes through the codec: what the existing Java client sent and read.
//!
//! The vectors lie in `tests/golden`, where a README says where they come from and how a line
//! looks. `GOLDEN_DIR` points these tests at another folder of the same shape; a file that is not
//! there is passed over, a folder without any is an error.
//!
//! To add the vectors of another file `NAME.jsonl`:
//!
//! 1. copy it to `tests/golden` and describe it in the README there,
//! 2. add a module here, named after what the file holds, and `NAME.jsonl` to [`FILES`],
//! 3. in it `for vector in crate::vectors("NAME.jsonl") { … }`, with [`Vector`] for the common keys
//!    and `vector.json` for the others; say in every assertion which vector it was (`{vector}`).

mod auth;
mod chunks;
mod encoder;
mod fields;
mod folders;
mod messages;
mod rows;
mod sessions;

use std::fmt;
use std::path::PathBuf;

use epoll_group::codec::frame::Dialect;
use serde_json::Value;

/// Every file that a module reads; the conversations lie in a folder.
const FILES: &[&str] = &[
    "auth_vectors.jsonl",
    "c2s.jsonl",
    "chunks.jsonl",
    "column_meta.jsonl",
    "exec_plan.jsonl",
    "galaxy_header.jsonl",
    "rows.jsonl",
    "s2c.jsonl",
    "sessions",
];

/// One line of a file.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    /// File and name, to find it again.
    pub(crate) name: String,
    /// All that the line says.
    pub(crate) json: Value,
}

impl Vector {
    /// The bytes whose hex stands under this key; empty if there is no such key.
    pub(crate) fn bytes(&self, key: &str) -> Vec<u8> {
        hex(self.json[key].as_str().unwrap_or_default())
    }

    /// The text under this key.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.json[key].as_str().unwrap_or_else(|| panic!("{self}: no text {key}"))
    }

    /// The number under this key.
    pub(crate) fn number(&self, key: &str) -> u64 {
        let value = &self.json[key];
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.unwrap_or_else(|| panic!("{self}: no number {key}"))
    }

    /// The kind byte.
    pub(crate) fn kind(&self) -> u8 {
        u8::try_from(self.number("type_id")).unwrap_or_else(|_| panic!("{self}: type_id"))
    }

    /// True if the client sent it.
    pub(crate) fn is_from_client(&self) -> bool {
        self.text("direction") == "c2s"
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The lines of a file in the folder of the vectors, none if it is not there.
pub(crate) fn vectors(file: &str) -> Vec<Vector> {
    read(file, path(file))
}

fn read(file: &str, path: PathBuf) -> Vec<Vector> {
    let Ok(text) = std::fs::read_to_string(path) else {
        return Vec::new();
    };
    let line = |(at, line): (usize, &str)| {
        let json: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{file}, line {}: {error}", at + 1));
        Vector { name: format!("{file}: {}", json["name"].as_str().unwrap_or("?")), json }
    };
    text.lines().enumerate().map(line).collect()
}

fn path(file: &str) -> PathBuf {
    if is_other_folder() { folder().join(file) } else { recorded_path(file) }
}

/// Path of a file of recorded vectors. Unit tests of the crate read those of the logins, too: they
/// lie in `src`.
pub(crate) fn recorded_path(file: &str) -> PathBuf {
    let path = proto::root().join("tests/golden").join(file);
    if path.exists() { path } else { proto::root().join("src/session/auth").join(file) }
}

/// True if the vectors are not those of this repository, whose number is known.
pub(crate) fn is_other_folder() -> bool {
    std::env::var_os("GOLDEN_DIR").is_some()
}

pub(crate) fn folder() -> PathBuf {
    match std::env::var_os("GOLDEN_DIR") {
        Some(folder) => folder.into(),
        None => proto::root().join("tests/golden"),
    }
}

/// The dialect of the older line of servers, as the client speaks it.
pub(crate) const GALAXY: Dialect = Dialect::Galaxy { version: 0 };

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
    digits.map(byte).collect()
}

#[test]
fn there_are_vectors() {
    let folder = folder();
    let found = FILES.iter().filter(|file| path(file).exists()).count();
    assert!(found > 0, "{} holds none of {FILES:?}", folder.display());
}
