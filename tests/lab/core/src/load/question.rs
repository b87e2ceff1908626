//! Bytes of one request of an echo load. They follow from the session and a sequence number, so an
//! answer can be checked although the request was not kept.
//!
//! ```text
//!  0         8        12     13       (17)              25
//!  +---------+--------+------+ - - - - +-----------------+--------------------------+
//!  | session | length | kind | burn µs | tag of this one | pattern from tag % 4096  |
//!  +---------+--------+------+ - - - - +-----------------+--------------------------+
//!  |<------------------- head --------------------------->|<--------- tail -------->|
//! ```
//!
//! Only heavy frames have the burn time. A short frame ends where its size says.

use std::time::Duration;

/// Bytes of the frame header: session, length, kind.
pub const HEADER_BYTES: usize = 13;
/// The smallest heavy frame: header, burn time, tag.
pub(super) const HEAVY_FRAME_BYTES: usize = HEAD_BYTES;

const KIND_PLAIN: u8 = 1;
const KIND_BURN: u8 = 0x7e;
const BURN_BYTES: usize = 4;
const TAG_BYTES: usize = 8;
const HEAD_BYTES: usize = HEADER_BYTES + BURN_BYTES + TAG_BYTES;
/// Number of places at which the pattern can start, so that neighbours differ in every byte.
const SHIFTS: usize = 4096;

/// Size and kind of all frames of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) frame_bytes: usize,
    /// CPU time that a heavy frame burns in the server.
    pub(super) burn: Option<Duration>,
}

/// One request, as a head of its own and a slice of the common pattern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    shift: usize,
    pub(super) frame_bytes: usize,
}

/// Pseudo-random bytes that the bodies of all frames are cut from.
#[derive(Debug)]
pub(super) struct Pattern {
    bytes: Vec<u8>,
}

/// First byte of an answer that differs from the question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Difference {
    pub(super) offset: usize,
    pub(super) expected: u8,
    pub(super) found: u8,
}

impl Question {
    pub(super) fn new(shape: Shape, session: u64, sequence: u64) -> Self {
        let mut head = [0; HEAD_BYTES];
        let length = (shape.frame_bytes - HEADER_BYTES + 1) as u32;
        head[..8].copy_from_slice(&session.to_le_bytes());
        head[8..12].copy_from_slice(&length.to_le_bytes());
        head[12] = KIND_PLAIN;
        let mut filled = HEADER_BYTES;
        if let Some(burn) = shape.burn {
            head[12] = KIND_BURN;
            head[13..17].copy_from_slice(&(burn.as_micros() as u32).to_le_bytes());
            filled += BURN_BYTES;
        }
        let tag = spread(session ^ sequence.rotate_left(40));
        head[filled..filled + TAG_BYTES].copy_from_slice(&tag.to_le_bytes());
        Self {
            head,
            head_bytes: (filled + TAG_BYTES).min(shape.frame_bytes),
            shift: tag as usize % SHIFTS,
            frame_bytes: shape.frame_bytes,
        }
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>, pattern: &Pattern) {
        out.extend_from_slice(&self.head[..self.head_bytes]);
        out.extend_from_slice(self.tail(pattern));
    }

    /// Compares a piece of the answer, which begins at `offset` of the frame.
    pub(super) fn compare(
        &self,
        pattern: &Pattern,
        offset: usize,
        found: &[u8],
    ) -> Result<(), Difference> {
        let in_head = found.len().min(self.head_bytes.saturating_sub(offset));
        let (found_head, found_tail) = found.split_at(in_head);
        if in_head > 0 {
            same(offset, &self.head[offset..offset + in_head], found_head)?;
        }
        let offset = offset + in_head;
        if found_tail.is_empty() {
            return Ok(());
        }
        let from = offset - self.head_bytes;
        same(offset, &self.tail(pattern)[from..from + found_tail.len()], found_tail)
    }

    fn tail<'a>(&self, pattern: &'a Pattern) -> &'a [u8] {
        &pattern.bytes[self.shift..self.shift + self.frame_bytes - self.head_bytes]
    }
}

impl Pattern {
    pub(super) fn new(longest_frame_bytes: usize) -> Self {
        let words = (SHIFTS + longest_frame_bytes).div_ceil(8) as u64;
        Self { bytes: (1..=words).flat_map(|word| spread(word).to_le_bytes()).collect() }
    }
}

fn same(offset: usize, expected: &[u8], found: &[u8]) -> Result<(), Difference> {
    if expected == found {
        return Ok(());
    }
    let at = expected.iter().zip(found).position(|(expected, found)| expected != found);
    let at = at.unwrap_or(0);
    Err(Difference { offset: offset + at, expected: expected[at], found: found[at] })
}

/// Spreads the bits of a number over all of its bytes (the finisher of splitmix64).
fn spread(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
