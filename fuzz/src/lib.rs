//! Connects the targets to libFuzzer.

/// Bound on the growth of a part by mutations. It is libFuzzer's own bound if no seed is longer.
pub const MAX_PART_BYTES: usize = 4096;

/// Defines a fuzz target by the name of its function.
///
/// A mutation keeps one part of an input. Otherwise the fuzzer would prefer ever longer inputs, because
/// more parts reach higher execution counts, and would spend its time on parts that it did not change.
#[macro_export]
macro_rules! fuzz {
    ($target:ident) => {
        libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::$target(input));

        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            let size = fuzz_targets::keep_one_part(&mut data[..size], seed as usize);
            let max_size = max_size.min(size.max($crate::MAX_PART_BYTES));
            libfuzzer_sys::fuzzer_mutate(data, size, max_size)
        });
    };
}
