//! HTTP requests. A request that was read from a part of the stream stays the same when more bytes
//! arrive.

use epoll_group::internal::status_request;

const MAX_HEAD_BYTES: usize = 8 << 10;

pub(crate) fn check(mut input: &[u8]) {
    loop {
        let whole = status_request(input);
        for end in 0..input.len().min(MAX_HEAD_BYTES + 1) {
            let part = status_request(&input[..end]);
            assert!(part == Ok(None) || part == whole, "{part:?}, then {whole:?}");
        }
        let Ok(Some((length, _))) = whole else { return };
        let (head, rest) = input.split_at(length);
        let line = head.trim_ascii_start();
        assert!(line.starts_with(b"GET ") || line.starts_with(b"HEAD "), "{head:?}");
        assert!(head.ends_with(b"\n") && length <= MAX_HEAD_BYTES, "{head:?}");
        input = rest;
    }
}
