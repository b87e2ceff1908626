//! Guesses the sender and the dialect: those that read the bytes with the fewest faults.

use epoll_group::codec::frame::{Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};

use super::Options;
use super::dissector::Side;
use super::input::Part;

/// The dialect with headers of 14 bytes, in the one version that there is.
pub(crate) const GALAXY: Dialect = Dialect::Galaxy { version: 0 };

/// As many frames as it takes to be sure.
const FRAMES: usize = 50;

pub(crate) fn guess(parts: &[Part], options: Options) -> (Dialect, Side) {
    let mut all = Vec::new();
    for dialect in [Dialect::Legacy, GALAXY] {
        for side in [Side::Client, Side::Server] {
            all.push((dialect, side));
        }
    }
    all.retain(|&(dialect, side)| {
        options.dialect.is_none_or(|wanted| wanted == dialect)
            && options.direction.is_none_or(|wanted| wanted == side)
    });
    let best = all.into_iter().min_by_key(|&(dialect, side)| -> usize {
        parts.iter().map(|part| faults(&part.bytes, dialect, part.from.unwrap_or(side))).sum()
    });
    best.unwrap_or_default()
}

/// How badly the bytes fit.
fn faults(mut bytes: &[u8], dialect: Dialect, side: Side) -> usize {
    let limits = Limits::default();
    let mut faults = 0;
    for at in 0..FRAMES {
        match Frame::parse(bytes, dialect, &limits) {
            Ok(Some((frame, length))) => {
                faults += match side {
                    Side::Client => match frame.client_message(&limits) {
                        Ok(ClientMessage::Unknown(..)) => 1,
                        message => 2 * usize::from(message.is_err()),
                    },
                    Side::Server => match frame.server_message(&limits) {
                        Ok(ServerMessage::Unknown(..)) => 1,
                        message => 2 * usize::from(message.is_err()),
                    },
                };
                bytes = &bytes[length..];
            }
            Ok(None) if bytes.is_empty() => return faults,
            // Without one whole frame, the count is higher than for a bad header. Otherwise 13
            // bytes that are no header would pass as the start of a header of 14.
            Ok(None) => return faults + if at == 0 { FRAMES + 1 } else { 1 },
            Err(_) => return faults + FRAMES,
        }
    }
    faults
}
