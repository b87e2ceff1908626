//! Differences between recordings and changed copies of them. The tests of `select1` show that a
//! server with the recorded values has none.

use std::collections::BTreeMap;

use lab::xrpc::conversation::{Act, Line, judge};
use lab::xrpc::{Asked, Chop, Conversation, Pair, Ticket, Transcript, What};

/// The transcript of playing `recorded` to a server that answers as in `live`.
fn transcript(recorded: &[Line], live: &[Line]) -> Transcript {
    let mut replies = [recorded, live].map(|lines| judge(lines).expect("it is legal"));
    let mut tickets = BTreeMap::<u64, Ticket>::new();
    let mut pairs = Vec::new();
    for line in recorded.iter().filter(|line| line.act == Act::Client) {
        let (connection, request) = (line.connection, line.request());
        if Asked::of(&request).is_none() {
            continue;
        }
        let next = tickets.entry(connection).or_default();
        let ticket = *next;
        *next += 1;
        let [recorded, live] = replies.each_mut().map(|replies| {
            let exchange = replies.get_mut(&connection).expect("both have the same requests");
            exchange.take(ticket).expect("both have the same requests")
        });
        let session = line.frame().session();
        pairs.push(Pair { connection, ticket, session, request, recorded, live });
    }
    Transcript { name: String::new(), chop: Chop::Whole, pairs }
}

/// Returns the only difference that is found if the last frame of this kind has `to` in place of
/// `from`.
fn difference(name: &str, kind: u8, from: &[u8], to: &[u8]) -> What {
    let recorded = Conversation::named(name).lines;
    let mut live = recorded.clone();
    let is = |line: &&mut Line| line.act == Act::Server && line.bytes[12] == kind;
    let line = live.iter_mut().rfind(is).expect("a frame of this kind");
    let at = line.bytes.windows(from.len()).position(|bytes| bytes == from).expect("the bytes");
    line.bytes[at..at + to.len()].copy_from_slice(to);
    let differences = transcript(&recorded, &live).differences();
    assert_eq!(differences.len(), 1, "{differences:?}");
    differences[0].what
}

#[test]
fn other_values_are_differences() {
    assert_eq!(difference("jdbc", 13, b"\x0a\x01\x02", b"\x0a\x01\x04"), What::Rows);
    assert_eq!(difference("jdbc", 12, b"\x1a\x011", b"\x1a\x012"), What::Labels);
    assert_eq!(difference("plan", 13, b"seven", b"eight"), What::Rows);
    assert_eq!(difference("update", 11, b"\x18\x03", b"\x18\x04"), What::Affected);
    assert_eq!(difference("abandon", 1, b"70100", b"42000"), What::Error);
    assert_eq!(difference("tso", 20, b"\x8c\x80", b"\x81\x80"), What::Timestamp);
}
