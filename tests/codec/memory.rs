//! Memory that a peer's bytes take, counted by the allocator. It is a small multiple of the bytes
//! that came. For messages it is at most what the limits say, however many elements a short body
//! packs.

use std::cell::Cell;

use epoll_group::codec::error::MessageError;
use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};

thread_local! {
    /// Bytes that this thread holds, and the most it held.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

pub(crate) fn note(more: usize, less: usize) {
    // A thread may allocate when its thread-locals are gone already.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = (now + more).saturating_sub(less);
        held.set((now, most.max(now)));
    });
}

/// Bytes that this thread holds.
fn held() -> usize {
    HELD.with(Cell::get).0
}

/// Returns the result, and the most memory that was held while `run` ran.
fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(|held| {
        let (now, _) = held.get();
        held.set((now, now));
        now
    });
    let result = run();
    (result, HELD.with(Cell::get).1 - before)
}

/// A field with a length, in front of what it holds.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).expect("seven bits"));
    out.extend(value);
    out
}

fn nested(levels: usize, start: &[u8], wrap: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    (0..levels).fold(start.to_vec(), |inside, _| wrap(&inside))
}

/// Kind and body of requests that take much memory for their length.
fn greedy() -> Vec<(&'static str, u8, Vec<u8>)> {
    let argument = b"\x08\x01";
    let array = |inside: &[u8]| [b"\x08\x03".as_slice(), &field(4, &field(1, inside))].concat();
    let many = [b"\x08\x03".as_slice(), &field(4, &field(1, argument).repeat(60_000))].concat();
    // FILTER nodes that hold one another, each behind a pointer, with an expression that is empty.
    let filter = |inside: &[u8]| {
        let filter = [field(1, inside), field(2, b"\x08\x09")].concat();
        [b"\x08\x05".as_slice(), &field(6, &filter)].concat()
    };
    let again = filter(b"\x08\x01")[2..].repeat(1000);
    let keys = field(3, b"").repeat(60_000);
    let get =
        [b"\x08\x01".as_slice(), &field(2, &[field(1, &field(2, b"\x08\x03")), keys].concat())];
    vec![
        ("arguments", 101, field(2, argument).repeat(65_000)),
        ("arguments in arguments", 101, field(2, &many).repeat(10)),
        ("arrays in arrays", 101, field(2, &nested(49, argument, array)).repeat(500)),
        ("an array in pieces", 101, {
            let piece = field(4, &field(1, argument).repeat(4));
            field(2, &[b"\x08\x03".as_slice(), &piece.repeat(4000)].concat())
        }),
        ("variables", 101, field(6, b"\x0a\x00\x12\x02\x08\x03").repeat(65_000)),
        ("parameters", 100, field(4, b"\x08\x03").repeat(65_000)),
        ("filters", 100, field(2, &nested(40, b"\x08\x01", filter))),
        ("the same filter again", 100, field(2, &[b"\x08\x05".as_slice(), &again].concat())),
        ("keys", 100, field(2, &get.concat())),
        ("text", 101, field(1, &vec![b'x'; 1 << 20])),
        (
            "texts one after the other",
            101,
            nested(200, b"", |texts| {
                [texts, &field(1, &vec![b'x'; 5_000 + texts.len() / 5_000])].concat()
            }),
        ),
        (
            "partitions",
            116,
            [
                b"\x08\x01".as_slice(),
                &field(
                    2,
                    &[b"\x0a\x00\x12\x00\x18\x00".as_slice(), &field(4, b"x").repeat(60_000)]
                        .concat(),
                ),
            ]
            .concat(),
        ),
    ]
}

#[test]
fn a_message_takes_no_more_memory_than_the_limits_say() {
    // An error or a message takes this much besides its lists.
    let own = 4096;
    for overhead_bytes in [0, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28] {
        let mut limits = Limits::default();
        limits.overhead_bytes = overhead_bytes;
        let mut accepted = 0;
        for (what, kind, body) in greedy() {
            let (result, bytes) = peak(|| ClientMessage::decode(kind, &body, &limits));
            let most = body.len() * 4 + overhead_bytes as usize + own;
            assert!(bytes <= most, "{what}: {bytes} for {} and {overhead_bytes}", body.len());
            match result {
                Ok(_) => accepted += 1,
                Err(error) => {
                    assert!(matches!(error, MessageError::Memory { .. }), "{what}: {error}");
                    assert!(bytes <= own, "{what}: {bytes} before it was refused");
                }
            }
        }
        assert!(accepted > 0, "nothing is accepted with {overhead_bytes}");
        if overhead_bytes == 1 << 28 {
            assert_eq!(accepted, greedy().len());
        }
    }
}

#[test]
fn rows_of_nothing_are_bounded_by_the_number_of_columns() {
    let body = field(1, b"").repeat(4096);
    let limits = Limits::default();
    let (row, bytes) = peak(|| ServerMessage::decode(Dialect::Legacy, 13, &body, &limits));
    assert!(row.is_ok() && bytes < 1 << 18, "{bytes}");
}

#[test]
fn a_decoder_holds_a_small_multiple_of_what_came() {
    // A header that announces 64 MiB costs nothing but itself.
    let mut announces = vec![0; 8];
    announces.extend((64_u32 << 20).to_le_bytes());
    announces.push(101);
    let (_, bytes) = peak(|| {
        let mut decoder = Decoder::new(Limits::default());
        decoder.feed(&announces);
        assert_eq!(decoder.next_frame(), Ok(None));
        decoder
    });
    assert!(bytes < 1 << 10, "{bytes}");

    // A large frame comes in small pieces. Afterwards its memory is freed.
    let mut decoder = Decoder::new(Limits::default());
    let body = vec![0; (4 << 20) - 1];
    let length = u32::try_from(body.len() + 1).expect("it fits");
    let frame = [&[0; 8][..], &length.to_le_bytes(), &[101], &body].concat();
    let before = held();
    let ((), bytes) = peak(|| {
        for piece in frame.chunks(1000) {
            decoder.feed(piece);
            assert!(held() - before <= 2 * decoder.held_bytes() + 1024);
            let whole = decoder.next_frame().expect("the header is right").is_some();
            assert!(!whole || decoder.held_bytes() == 0);
        }
    });
    assert!(bytes <= 4 * frame.len(), "{bytes}");
    assert_eq!(decoder.next_frame(), Ok(None));
    assert_eq!(held(), before);

    // The memory is freed as well if the first bytes of another frame follow.
    for rest in 1..20 {
        for piece in [&frame[..], &frame[..rest]].concat().chunks(1 << 16) {
            decoder.feed(piece);
            while decoder.next_frame().expect("the header is right").is_some() {}
        }
        assert_eq!(decoder.held_bytes(), rest);
        assert!(held() - before <= 16 << 10, "{} behind", held() - before);
        decoder.feed(&frame[rest..]);
        assert!(decoder.next_frame().is_ok_and(|frame| frame.is_some()));
        assert_eq!(decoder.next_frame(), Ok(None));
    }

    // Small frames that never end at the end of a piece do not pile up.
    let small = [&[0; 8][..], &2_u32.to_le_bytes(), &[101, 0]].concat();
    let stream = small.repeat(10_000);
    let ((), bytes) = peak(|| {
        for piece in stream.chunks(1001) {
            decoder.feed(piece);
            while decoder.next_frame().expect("the header is right").is_some() {}
        }
    });
    assert_eq!(decoder.held_bytes(), 0);
    assert!(bytes < 16 << 10, "{bytes}");
}
