//! Makes the seeds of the corpora out of the golden vectors:
//!
//! ```text
//! cargo run --manifest-path fuzz/Cargo.toml --example seed [FOLDER]
//! ```
//!
//! FOLDER holds vectors of the shape of `tests/golden`, which is the default. Files of the same name
//! are written anew; others stay, among them what the fuzzer found.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Larger ones slow the engine down and show nothing new.
const MAX_SEED_BYTES: usize = 3000;

/// Header bytes of the dialect of the recordings.
const HEADER_BYTES: usize = 13;

fn main() -> Result<(), Box<dyn Error>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = match std::env::args_os().nth(1) {
        Some(folder) => PathBuf::from(folder),
        None => own.join("../tests/golden"),
    };
    let corpus = own.join("corpus");
    let mut count = 0;
    let mut seed = |target: &str, name: &str, bytes: &[u8]| -> Result<(), Box<dyn Error>> {
        if bytes.len() <= MAX_SEED_BYTES {
            fs::create_dir_all(corpus.join(target))?;
            fs::write(corpus.join(target).join(name), bytes)?;
            count += 1;
        }
        Ok(())
    };

    for vector in lines(&own.join("../src/session/auth/auth_vectors.jsonl"))? {
        let challenge = hex(&vector["challenge_hex"]);
        let password = vector["password"].as_str().unwrap_or_default().as_bytes();
        let data = hex(&vector["auth_data_hex"]);
        let bytes = [&short(password)?[..], &short(&challenge)?, &data].concat();
        seed("auth", &name(&vector), &bytes)?;
    }
    for vector in lines(&golden.join("chunks.jsonl"))? {
        let mut bytes = columns(&vector["metas"], COLUMN_TYPES)?;
        let body = hex(&vector["body_hex"]);
        bytes.extend(u16::try_from(body.len())?.to_le_bytes());
        bytes.extend(body);
        seed("chunk", &name(&vector), &bytes)?;
    }
    for vector in lines(&golden.join("rows.jsonl"))? {
        let metas = if vector["metas"].is_array() {
            vector["metas"].clone()
        } else {
            Value::Array(vec![vector["meta"].clone()])
        };
        let bytes = [columns(&metas, COLUMN_TYPES)?, hex(&vector["body_hex"])].concat();
        seed("row", &name(&vector), &bytes)?;
    }
    let files = ["c2s", "s2c", "exec_plan", "column_meta", "galaxy_header"];
    for file in files {
        let galaxy = file == "galaxy_header";
        for vector in lines(&golden.join(file).with_extension("jsonl"))? {
            let body = hex(&vector["body_hex"]);
            let client = vector["direction"] == "c2s";
            let kind = u8::try_from(vector["type_id"].as_u64().unwrap_or_default())?;
            let direction = if client { 0 } else { 1 + u8::from(galaxy) };
            seed("message", &name(&vector), &[&[direction, kind], &body[..]].concat())?;
            if client && !galaxy {
                // On a session that is open, in one frame if it is short, else in pieces.
                let mut bytes = vec![1, 7, 1];
                if let Ok(length) = u8::try_from(body.len()) {
                    bytes.extend([&[2, 1, kind, length], &body[..]].concat());
                }
                bytes.extend([15, 0, 12, 250, 15, 0]);
                seed("server", &name(&vector), &bytes)?;
            }
            if kind == 100 && client {
                seed("plan", &name(&vector), &[&[0], &body[..]].concat())?;
            }
        }
    }
    for number in 0..=6_u8 {
        // A recipe is read from both ends: values from the front, choices from the back.
        let recipe: Vec<u8> = (0..200).map(|at: u8| at.wrapping_mul(number | 1)).collect();
        seed("plan", &format!("recipe_{number}"), &[&[1], &recipe[..]].concat())?;
    }
    conversations(&golden.join("sessions"), &mut seed)?;
    println!("{count} seeds in {}", corpus.display());
    Ok(())
}

/// The beginning of each recorded conversation, one direction each, in several cuts.
fn conversations(
    folder: &Path,
    seed: &mut impl FnMut(&str, &str, &[u8]) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for direction in ["c2s", "s2c"] {
            let mut stream = Vec::new();
            for vector in lines(&path)?.iter().filter(|vector| vector["direction"] == direction) {
                let frame = hex(&vector["frame_hex"]);
                if stream.len() + frame.len() > MAX_SEED_BYTES - 2 * HEADER_BYTES {
                    break;
                }
                stream.extend(frame);
            }
            if direction == "c2s" {
                // Logged in by the target itself, so what the recording says of that is answered by errors.
                let pieces = stream.chunks(200).flat_map(|piece| {
                    let length = u8::try_from(piece.len()).unwrap_or(u8::MAX);
                    [&[0, length], piece, &[15, 0]].concat()
                });
                let bytes: Vec<u8> = std::iter::once(1).chain(pieces).collect();
                seed("server", &format!("session_{stem}"), &bytes)?;
            }
            let limit = (64_u32 << 20).to_le_bytes();
            let bytes = [&limit[..], &[3, 1, 13, 200], &stream].concat();
            seed("frames", &format!("session_{stem}_{direction}"), &bytes)?;
        }
    }
    Ok(())
}

/// The count of columns and a byte for the type of each.
fn columns(metas: &Value, types: &[(&str, &str)]) -> Result<Vec<u8>, Box<dyn Error>> {
    let metas = metas.as_array().map_or(&[][..], Vec::as_slice);
    let mut bytes = vec![u8::try_from(metas.len())?];
    for meta in metas {
        let field = meta["type"].as_str().unwrap_or_default();
        let original = meta["original_type"].as_str().unwrap_or_default();
        let place = types.iter().position(|&(name, ending)| {
            field == name && (ending.is_empty() || original.ends_with(ending))
        });
        bytes.push(u8::try_from(place.ok_or("an unknown type")?)?);
    }
    Ok(bytes)
}

/// Field types in the order of `BlockKind::ALL` and of the `TYPES` of rows, with the end of the
/// original type where that matters.
const COLUMN_TYPES: &[(&str, &str)] = &[
    ("SINT", ""),
    ("UINT", ""),
    ("BIT", ""),
    ("FLOAT", ""),
    ("DOUBLE", ""),
    ("DECIMAL", ""),
    ("DATETIME", "DATE"),
    ("DATETIME", ""),
    ("TIME", ""),
    ("BYTES", ""),
    ("ENUM", ""),
    ("SET", ""),
];

fn lines(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?),
        // Not every folder has every file.
        Err(_) => Ok(Vec::new()),
    }
}

fn name(vector: &Value) -> String {
    vector["name"].as_str().unwrap_or("unnamed").replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn hex(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap_or_default().as_bytes();
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).filter_map(byte).collect()
}

fn short(bytes: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    Ok([&[u8::try_from(bytes.len())?], bytes].concat())
}
