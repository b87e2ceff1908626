//! Inputs that consist of several parts, and parts that consist of several pieces.

/// Bytes between two parts of an input. A separator survives mutations of the parts better than a
/// length before each part does.
const SEPARATOR: [u8; 4] = *b"\xffNEW";

/// Parts of an input, of which there is at least one.
pub fn parts(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(input);
    std::iter::from_fn(move || {
        let input = rest?;
        let end = input.windows(SEPARATOR.len()).position(|bytes| bytes == SEPARATOR);
        rest = end.map(|end| &input[end + SEPARATOR.len()..]);
        Some(&input[..end.unwrap_or(input.len())])
    })
}

/// Joins parts to an input.
pub fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.join(&SEPARATOR[..])
}

/// Replaces an input with one of its parts, and returns the length of that.
pub fn keep_one_part(input: &mut [u8], number: usize) -> usize {
    let part = number % parts(input).count();
    let part = parts(input).nth(part).expect("an input has so many parts").to_vec();
    input[..part.len()].copy_from_slice(&part);
    part.len()
}

/// Calls `check` with each part of `input`. A part has an allocation of its own, so that the address
/// sanitizer sees a read beyond its end.
pub(crate) fn each_part(input: &[u8], check: fn(&[u8])) {
    parts(input).map(<[u8]>::to_vec).for_each(|part| check(&part));
}

/// Takes a piece off the front of `input`, whose length is the first byte. Returns `None` if the input
/// is shorter than that.
pub(crate) fn short_piece<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = input.split_first()?;
    take(input, rest, usize::from(length))
}

/// Does the same with a length of two bytes, little-endian.
pub(crate) fn piece<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = input.split_first_chunk::<2>()?;
    take(input, rest, usize::from(u16::from_le_bytes(length)))
}

fn take<'a>(input: &mut &'a [u8], rest: &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (piece, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some(piece)
}
