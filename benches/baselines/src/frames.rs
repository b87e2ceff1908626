//! Frames: where they end, and the kinds that need work before they are echoed: burn CPU time, sleep, take
//! a lock, give it back.
//!
//! ```text
//!  0         8        12     13
//!  +---------+--------+------+------ - -
//!  | session | length | kind | body         length counts the kind and the body
//!  +---------+--------+------+------ - -
//! ```

use std::io::{self, ErrorKind};
use std::thread;
use std::time::Duration;

use lab::cpu;

use super::lock_table::{self, NoSuchLock};

/// The stream cannot be parsed. The connection is closed.
#[derive(Debug)]
pub struct Broken;

/// A whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    pub session: u64,
    pub bytes: usize,
}

const HEADER_BYTES: usize = 13;
/// Bytes of the header that the length does not count.
const KIND_AT: usize = 12;
const LONGEST: usize = 64 << 20;
const BURN: u8 = 0x7e;
const SLEEP: u8 = 0x7d;
const LOCK: u8 = 0x7c;
const UNLOCK: u8 = 0x7b;

/// Does the work of the whole frames at the start of `bytes`. Returns where the last of them ends. A wait
/// for a lock is not announced.
///
/// # Errors
/// A frame is broken.
pub fn perform(bytes: &[u8]) -> Result<usize, Broken> {
    perform_in(bytes, |wait| wait())
}

/// Like [`perform`], for a server that can announce waits. A wait for a lock happens inside `wait`,
/// which must call its argument once.
///
/// # Errors
/// A frame is broken.
pub fn perform_in(bytes: &[u8], wait: impl Fn(&mut dyn FnMut())) -> Result<usize, Broken> {
    let mut end = 0;
    while let Some(whole) = first(&bytes[end..])? {
        let frame = &bytes[end..end + whole.bytes];
        let kind = frame[KIND_AT];
        if let BURN | SLEEP | LOCK | UNLOCK = kind {
            let number = frame[HEADER_BYTES..].first_chunk().ok_or(Broken)?;
            let number = u32::from_le_bytes(*number);
            let micros = Duration::from_micros(number.into());
            match kind {
                BURN => cpu::burn(micros),
                SLEEP => thread::sleep(micros),
                LOCK => lock_table::take(number, &wait)?,
                _ => lock_table::give_back(number)?,
            }
        }
        end += whole.bytes;
    }
    Ok(end)
}

/// The frame that `bytes` begin with. `None`: its end has not arrived.
///
/// # Errors
/// The frame is broken.
pub fn first(bytes: &[u8]) -> Result<Option<Whole>, Broken> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (session, rest) = header.split_first_chunk().ok_or(Broken)?;
    let length = u32::from_le_bytes(*rest.first_chunk().ok_or(Broken)?) as usize;
    if !(1..=LONGEST).contains(&length) {
        return Err(Broken);
    }
    let whole = Whole { session: u64::from_le_bytes(*session), bytes: KIND_AT + length };
    Ok(Some(whole).filter(|whole| whole.bytes <= bytes.len()))
}

impl From<NoSuchLock> for Broken {
    fn from(_: NoSuchLock) -> Self {
        Self
    }
}

impl From<Broken> for io::Error {
    fn from(_: Broken) -> Self {
        ErrorKind::InvalidData.into()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::client::frame;

    #[test]
    fn whole_frames_end_where_their_length_says() {
        let two = [frame(1, b"abc"), frame(1, b"")].concat();
        for cut in 0..=two.len() {
            let expected = match cut {
                0..16 => 0,
                16..29 => 16,
                _ => 29,
            };
            assert_eq!(perform(&two[..cut]).unwrap(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn the_first_frame_is_found_once_it_is_whole() {
        let two = [frame(1, b"abc"), frame(1, b"")].concat();
        for cut in 0..=two.len() {
            let expected = (cut >= 16).then_some(Whole { session: 7, bytes: 16 });
            assert_eq!(first(&two[..cut]).unwrap(), expected, "cut at {cut}");
        }
        assert!(first(&[0; HEADER_BYTES]).is_err());
    }

    #[test]
    fn length_zero_and_slow_frames_without_a_time_are_broken() {
        let mut empty = frame(1, b"");
        empty[8] = 0;
        assert!(perform(&empty).is_err());
        assert!(perform(&frame(BURN, b"abc")).is_err());
    }

    #[test]
    fn a_burning_frame_takes_cpu_time() {
        let before = cpu::of_thread();
        perform(&frame(BURN, &2000u32.to_le_bytes())).unwrap();
        assert!(cpu::of_thread() - before >= Duration::from_millis(2));
    }

    #[test]
    fn only_a_wait_for_a_taken_lock_is_announced() {
        let lock = frame(LOCK, &(lock_table::LOCKS as u32 - 1).to_le_bytes());
        let unlock = frame(UNLOCK, &(lock_table::LOCKS as u32 - 1).to_le_bytes());
        let waits = Cell::new(0);
        let counted = |wait: &mut dyn FnMut()| {
            waits.set(waits.get() + 1);
            perform(&unlock).unwrap();
            wait();
        };
        perform_in(&lock, counted).unwrap();
        assert_eq!(waits.get(), 0);
        perform_in(&lock, counted).unwrap();
        assert_eq!(waits.get(), 1);
        perform_in(&unlock, counted).unwrap();
        perform_in(&lock, counted).unwrap();
        assert_eq!(waits.get(), 1);
    }

    #[test]
    fn a_lock_beyond_the_last_is_broken() {
        assert!(perform(&frame(LOCK, &(lock_table::LOCKS as u32).to_le_bytes())).is_err());
    }
}
