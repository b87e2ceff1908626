//! Bytes and split points through the decoder. It does not panic, and holds little more than its input.
//! However the bytes are cut, it returns the frames and the error of a parser in place.
//!
//! ```text
//! part = limit u32 LE │ dialect 1 bit, number of cuts 7 bits │ size of each piece u8 … │ stream
//! ```
//!
//! The top bit selects the header of 14 bytes with version 0. The decoder gets pieces of these sizes in
//! turn, and starts over after the last size. Without sizes the stream is one piece.

use epoll_group::codec::frame::{Decoder, Dialect, Frame, Header, HeaderError};
use epoll_group::codec::limits::Limits;

use crate::memory::bounded;

pub(crate) fn check(input: &[u8]) {
    let Some((&limit, rest)) = input.split_first_chunk::<4>() else {
        return;
    };
    let Some((&cuts, rest)) = rest.split_first() else {
        return;
    };
    let Some((sizes, stream)) = rest.split_at_checked(usize::from(cuts & 0x7f)) else {
        return;
    };
    let dialect = if cuts < 0x80 { Dialect::Legacy } else { Dialect::Galaxy { version: 0 } };
    let mut limits = Limits::default();
    limits.frame_bytes = u32::from_le_bytes(limit);

    let (expected, end) = in_place(stream, dialect, &limits);
    bounded(stream.len(), || {
        let mut decoder = Decoder::with_dialect(limits, dialect);
        let mut sizes = sizes.iter().map(|&size| usize::from(size).max(1)).cycle();
        let mut expected = expected.iter();
        let mut result = Ok(());
        let mut rest = stream;
        while !rest.is_empty() {
            let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
            let (piece, after) = rest.split_at(size);
            rest = after;
            decoder.feed(piece);
            result = drain(&mut decoder, &mut expected);
        }
        assert!(expected.next().is_none(), "a frame is missing");
        match end {
            Ok(held) => {
                assert_eq!(result, Ok(()), "the error depends on the cuts");
                assert_eq!(decoder.held_bytes(), held.len(), "the rest depends on the cuts");
                let header = dialect.header_bytes();
                assert!(held.len() < header.saturating_add(limits.frame_bytes as usize));
            }
            Err(error) => {
                assert_eq!(result, Err(error), "the error depends on the cuts");
                assert_eq!(decoder.held_bytes(), 0);
            }
        }
    });
}

/// All frames of the stream, and the bytes behind them or the error.
fn in_place<'a>(
    mut stream: &'a [u8],
    dialect: Dialect,
    limits: &Limits,
) -> (Vec<Frame<'a>>, Result<&'a [u8], HeaderError>) {
    let mut frames = Vec::new();
    loop {
        match Frame::parse(stream, dialect, limits) {
            Ok(Some((frame, bytes))) => {
                let mut again = Vec::new();
                let body_bytes = u32::try_from(frame.body().len()).expect("the length fits");
                dialect.encode(&Header::new(frame.session(), frame.kind(), body_bytes), &mut again);
                again.extend(frame.body());
                assert_eq!(again, stream[..bytes], "what is encoded is not what was decoded");
                assert_eq!(frame.bytes(), again);
                assert!(body_bytes < limits.frame_bytes, "above the limit");
                frames.push(frame);
                stream = &stream[bytes..];
            }
            Ok(None) => return (frames, Ok(stream)),
            Err(error) => return (frames, Err(error)),
        }
    }
}

/// Takes all whole frames.
fn drain<'a>(
    decoder: &mut Decoder,
    expected: &mut impl Iterator<Item = &'a Frame<'a>>,
) -> Result<(), HeaderError> {
    while let Some(frame) = decoder.next_frame()? {
        assert_eq!(Some(&frame), expected.next(), "the frames depend on the cuts");
    }
    Ok(())
}
