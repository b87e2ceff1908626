//! Without arguments: a recorded conversation is shown, in several forms, and the outcome checked.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::dissector::{Side, Tally};
use super::{Options, input, show};

/// A log-in, statements, rows and chunks, as a client and a toy server exchanged them.
const SAMPLE: &str = include_str!("../../tests/golden/sessions/chunk.jsonl");

/// A frame of an unknown kind.
const UNKNOWN: [u8; 15] = [9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 99, 0xab, 0xcd];

pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let tally = show(SAMPLE.as_bytes(), Options::default(), out)?;
    writeln!(out, "{tally}")?;
    let frames = SAMPLE.lines().filter(|line| line.contains("frame_hex")).count();
    expect("frames of the sample", tally.frames, frames)?;
    expect("faults in it", (tally.unknown, tally.errors), (0, 0))?;
    if tally.rows == 0 {
        return Err("no row of the sample was shown".into());
    }

    let mut total = 0;
    for side in [Side::Client, Side::Server] {
        let parts = input::read(SAMPLE.as_bytes())?;
        let bytes: Vec<u8> = parts
            .into_iter()
            .filter(|part| part.from == Some(side))
            .flat_map(|p| p.bytes)
            .collect();
        total += forms(&bytes)?.frames;
        faults(&bytes)?;
    }
    expect("frames of both directions", total, frames)?;
    rubbish()?;
    writeln!(out, "the same from raw bytes and from hex digits, with faults found where they are")?;
    Ok(())
}

/// Dissects one direction as raw bytes and as hex digits, without naming its sender.
fn forms(bytes: &[u8]) -> Result<Tally, Box<dyn Error>> {
    let expected = show(bytes, Options::default(), &mut io::sink())?;
    expect("faults in raw bytes", (expected.unknown, expected.errors), (0, 0))?;
    let mut digits = String::new();
    for line in bytes.chunks(16) {
        for byte in line {
            write!(digits, "{byte:02x} ")?;
        }
        digits.push('\n');
    }
    let tally = show(digits.as_bytes(), Options::default(), &mut io::sink())?;
    expect("hex digits", tally, expected)?;
    Ok(expected)
}

/// Checks that the dissector goes on behind an unknown kind, and says that the last frame is cut.
fn faults(bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let good = show(bytes, Options::default(), &mut io::sink())?;
    let mut broken = [&UNKNOWN[..], bytes, &UNKNOWN].concat();
    broken.pop();
    let tally = show(&broken, Options::default(), &mut io::sink())?;
    let expected = Tally { frames: good.frames + 1, unknown: 1, errors: 1, ..good };
    expect("faults that were put in", tally, expected)
}

/// Checks that half a byte is refused, a name sends no control characters, and a broken login shows
/// no proof.
fn rubbish() -> Result<(), Box<dyn Error>> {
    let refused = show(b"00 0", Options::default(), &mut io::sink()).is_err();
    expect("half a byte is refused", refused, true)?;

    let mut out = Vec::new();
    let column = b"\x02\0\0\0\0\0\0\0\x09\0\0\0\x0c\x08\x01\x10\x08\x1a\x02\x1b\n";
    let row = b"\x02\0\0\0\0\0\0\0\x04\0\0\0\x0d\x0a\x01\x02";
    let options = Options { direction: Some(Side::Server), ..Options::default() };
    show(&[&column[..], row].concat(), options, &mut out)?;
    expect("control characters of a name", out.contains(&0x1b), false)?;

    let mut out = Vec::new();
    let login = b"\0\0\0\0\0\0\0\0\x09\0\0\0\x05\x0a\x07*proof";
    let options = Options { direction: Some(Side::Client), ..Options::default() };
    let tally = show(login, options, &mut out)?;
    let shown = String::from_utf8(out)?;
    expect("errors of a login that is cut", tally.errors, 1)?;
    expect("a proof in it that is shown", shown.contains("2a70726f6f66"), false)
}

fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> Result<(), Box<dyn Error>> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found:?} in place of {expected:?}").into())
}
