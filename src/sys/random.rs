//! Random numbers: the system's; on a thread of a simulation those of a seed.

#[cfg(any(test, feature = "internal"))]
use std::cell::Cell;
use std::io;

#[cfg(any(test, feature = "internal"))]
thread_local! {
    static SIMULATED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Fills `bytes` with unpredictable numbers.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    #[cfg(any(test, feature = "internal"))]
    if let Some(seed) = SIMULATED.get() {
        SIMULATED.set(Some(fill_from(seed, bytes)));
        return Ok(());
    }
    Ok(getrandom::fill(bytes)?)
}

/// Fills `bytes` with the numbers of a seed. Returns the seed of the next ones.
#[cfg(any(test, feature = "internal"))]
fn fill_from(mut state: u64, bytes: &mut [u8]) -> u64 {
    for chunk in bytes.chunks_mut(8) {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = state;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^= number >> 31;
        chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
    }
    state
}

/// Makes the numbers on this thread those of `seed`; `None` restores the system's.
#[cfg(any(test, feature = "internal"))]
pub(crate) fn simulate(seed: Option<u64>) {
    SIMULATED.set(seed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> [u8; 21] {
        let mut bytes = [0; 21];
        fill(&mut bytes).expect("there are some");
        bytes
    }

    #[test]
    fn those_of_a_seed_come_again_and_those_of_the_system_do_not() {
        simulate(Some(7));
        let (first, second) = (some(), some());
        assert_ne!(first, second);
        simulate(Some(7));
        assert_eq!((some(), some()), (first, second));
        simulate(None);
        assert_ne!(some(), some());
    }
}
