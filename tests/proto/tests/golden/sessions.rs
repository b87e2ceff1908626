//! Whole conversations: their frames, and the streams they make however they are cut.

use std::collections::BTreeMap;

use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use proptest::prelude::*;

use crate::messages::compare;
use crate::{Vector, folder, vectors};

#[test]
fn every_frame_decodes_to_its_fields_and_encodes_to_its_bytes() {
    for vector in conversations().iter().filter(|vector| vector.text("direction") != "close") {
        compare(vector, Dialect::Legacy);
    }
}

#[test]
fn a_stream_gives_the_same_frames_wherever_it_is_cut_in_two() {
    for (name, frames) in streams() {
        let stream = frames.concat();
        for cut in 0..=stream.len() {
            let (left, right) = stream.split_at(cut);
            assert!(gives(&frames, &[left, right]), "{name} cut at {cut}");
        }
    }
}

#[test]
fn a_stream_gives_the_same_frames_byte_by_byte() {
    for (name, frames) in streams() {
        let stream = frames.concat();
        assert!(gives(&frames, &stream.chunks(1).collect::<Vec<_>>()), "{name}");
    }
}

#[test]
fn a_stream_gives_the_same_frames_in_any_pieces() {
    let streams = streams();
    if streams.is_empty() {
        return;
    }
    let sizes = prop::collection::vec(1_usize..300, 1..40);
    proptest!(|(which in 0..streams.len(), sizes in sizes)| {
        let (name, frames) = &streams[which];
        let stream = frames.concat();
        let mut rest = &stream[..];
        let mut pieces = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(rest.len().min(*size));
            pieces.push(piece);
            rest = after;
        }
        prop_assert!(gives(frames, &pieces), "{}", name);
    });
}

/// Checks that the pieces give exactly these frames.
fn gives(frames: &[Vec<u8>], pieces: &[&[u8]]) -> bool {
    let mut decoder = Decoder::new(Limits::default());
    let mut frames = frames.iter();
    for piece in pieces {
        decoder.feed(piece);
        while let Some(frame) = decoder.next_frame().expect("every header is right") {
            if frames.next().is_none_or(|expected| *expected != frame.bytes()) {
                return false;
            }
        }
    }
    frames.next().is_none() && decoder.held_bytes() == 0
}

/// The frames of each direction of each connection.
fn streams() -> Vec<(String, Vec<Vec<u8>>)> {
    let mut streams: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for vector in conversations() {
        let direction = vector.text("direction");
        if direction != "close" {
            let (file, _) = vector.name.split_once(": ").expect("a name has a file");
            let name = format!("{file}, connection {}, {direction}", vector.number("conn"));
            streams.entry(name).or_default().push(vector.bytes("frame_hex"));
        }
    }
    streams.into_iter().collect()
}

fn conversations() -> Vec<Vector> {
    let Ok(files) = std::fs::read_dir(folder().join("sessions")) else {
        return Vec::new();
    };
    let mut names: Vec<_> = files
        .map(|file| file.expect("a conversation").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    names.sort();
    names.iter().flat_map(|name| vectors(&format!("sessions/{name}"))).collect()
}
