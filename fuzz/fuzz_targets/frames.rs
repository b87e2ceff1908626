//! Bytes and split points through a small deframer: never panics, never holds more than one frame
//! within the limit, and says the same however the bytes were cut.
//!
//! ```text
//! input = limit u32 LE │ number of cuts u8 │ size of each piece u8 … │ stream
//! ```
//!
//! The sizes are used in turn, over and over; without any the stream comes in one piece.

#![no_main]

use epoll_group::codec::header::{HEADER_BYTES, Header, HeaderError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&limit, input)) = input.split_first_chunk::<4>() else {
        return;
    };
    let Some((&cuts, input)) = input.split_first() else {
        return;
    };
    let Some((sizes, stream)) = input.split_at_checked(usize::from(cuts)) else {
        return;
    };
    let limit = u32::from_le_bytes(limit);

    let mut whole = Deframer::new(limit);
    whole.push(stream);

    let mut split = Deframer::new(limit);
    let mut sizes = sizes.iter().map(|&size| usize::from(size).max(1)).cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
        let (piece, after) = rest.split_at(size);
        split.push(piece);
        rest = after;
    }

    assert_eq!(whole.frames, split.frames, "the frames depend on the cuts");
    assert_eq!(whole.error, split.error, "the error depends on the cuts");
    if whole.error.is_none() {
        assert_eq!(whole.held, split.held, "the rest depends on the cuts");
        let mut again = Vec::new();
        for (header, body) in &whole.frames {
            again.extend(header.encode());
            again.extend(body);
        }
        again.extend(&whole.held);
        assert_eq!(again, stream, "what was encoded is not what was decoded");
    }
});

struct Deframer {
    limit: u32,
    held: Vec<u8>,
    frames: Vec<(Header, Vec<u8>)>,
    error: Option<HeaderError>,
}

impl Deframer {
    fn new(limit: u32) -> Self {
        Self { limit, held: Vec::new(), frames: Vec::new(), error: None }
    }

    fn push(&mut self, piece: &[u8]) {
        if self.error.is_some() {
            return;
        }
        self.held.extend(piece);
        let mut used = 0;
        loop {
            let rest = &self.held[used..];
            let header = match Header::parse(rest, self.limit) {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(error) => {
                    self.error = Some(error);
                    return;
                }
            };
            assert!(header.body_bytes < self.limit, "a frame above the limit was let through");
            let Some(frame) = rest.get(..header.frame_bytes()) else {
                break;
            };
            self.frames.push((header, frame[HEADER_BYTES..].to_vec()));
            used += frame.len();
        }
        self.held.drain(..used);
        let most = HEADER_BYTES + usize::try_from(self.limit).unwrap_or(usize::MAX);
        assert!(self.held.len() < most, "more is held than one frame within the limit");
    }
}
