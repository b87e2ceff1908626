//! CPUs that a thread may run on: query and binding.
//!
//! The masks of the C library's `cpu_set_t` end at 1024 CPUs. The system calls do not: they accept
//! a buffer of any length, and refuse a shorter one than the machine needs with `EINVAL`.
//! Therefore the buffer grows until it is accepted.

use std::io;
use std::num::NonZero;
use std::thread;

use super::check;
use super::cpu_set::{CpuSet, MAX_CPU};

/// Part of the machine that a thread may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usable {
    /// CPUs that it may run on.
    pub(crate) cpus: CpuSet,
    /// Number of threads that can really run at once, at least 1: the CPUs, or fewer if a quota
    /// gives the process less time.
    ///
    /// [`thread::available_parallelism`] finds the quota. On Linux that is the smaller of two
    /// numbers. One is the number of CPUs in the calling thread's mask. The other is the smallest
    /// quota from the process's cgroup up to the root, rounded down to whole CPUs. The quota is
    /// `cpu.max`, in version 1 `cpu.cfs_quota_us` by `cpu.cfs_period_us`. (Sources: its
    /// documentation, and std's `sys/thread/unix.rs`, of Rust 1.95.) It knows masks up to 1024 CPUs
    /// only, so this field is also bounded by our mask.
    pub(crate) parallelism: usize,
}

impl Usable {
    /// CPUs of the calling thread's mask. They are those of the process, unless this thread was
    /// bound to fewer.
    ///
    /// # Errors
    ///
    /// A sandbox forbids the query.
    pub(crate) fn by_mask() -> io::Result<Self> {
        let cpus = allowed()?;
        let parallelism = thread::available_parallelism().map_or(usize::MAX, NonZero::get);
        let parallelism = parallelism.min(cpus.len()).max(1);
        Ok(Self { cpus, parallelism })
    }

    /// CPUs of `wanted` that the kernel would allow the calling thread. A mask (taskset) can be
    /// widened, a cpuset (of a container) cannot. Therefore a later binding to the result is not
    /// refused.
    ///
    /// It binds the calling thread to `wanted`, reads the result, and binds it back.
    ///
    /// # Errors
    ///
    /// The kernel allows none of `wanted`, or a sandbox forbids the query or the binding.
    pub(crate) fn by_force(wanted: &CpuSet) -> io::Result<Self> {
        let before = allowed()?;
        bind(wanted)?;
        let usable = Self::by_mask();
        bind(&before)?;
        usable
    }
}

/// CPUs that the calling thread may run on.
///
/// # Errors
///
/// A sandbox forbids the query.
pub(crate) fn allowed() -> io::Result<CpuSet> {
    let mut words = WORDS_AT_FIRST;
    loop {
        match mask(words) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && words < WORDS_AT_MOST => {
                words *= 2;
            }
            result => return result.map(|mask| cpus_of(&mask)),
        }
    }
}

/// Restricts the calling thread to these CPUs. The kernel ignores CPUs that are offline or outside
/// of the process's cpuset, as long as one is left.
///
/// # Errors
///
/// `EINVAL` when the thread may run on none of them; others if a sandbox forbids it. The binding of
/// the thread is then unchanged.
pub(crate) fn bind(cpus: &CpuSet) -> io::Result<()> {
    let mask = mask_of(cpus);
    let bytes = size_of_val(mask.as_slice());
    // SAFETY: `mask` is live for the call and has as many bytes as are passed. The kernel only
    // reads them, as an array of longs, whatever the length of `cpu_set_t`.
    check(unsafe { libc::sched_setaffinity(0, bytes, mask.as_ptr().cast()) })?;
    Ok(())
}

/// Word of a mask. A CPU is bit `cpu % 64` of word `cpu / 64` (32 if a long has 32 bits), in the
/// machine's own order.
type Word = libc::c_ulong;

const BITS: usize = Word::BITS as usize;
const WORDS_AT_FIRST: usize = 1024 / BITS;
const WORDS_AT_MOST: usize = (MAX_CPU + 1) / BITS;

fn mask(words: usize) -> io::Result<Vec<Word>> {
    let mut mask: Vec<Word> = vec![0; words];
    let bytes = size_of_val(mask.as_slice());
    // SAFETY: `mask` is live for the call and has as many bytes as are passed. The kernel writes no
    // more bytes than that, as an array of longs, whatever the length of `cpu_set_t`.
    check(unsafe { libc::sched_getaffinity(0, bytes, mask.as_mut_ptr().cast()) })?;
    Ok(mask)
}

fn cpus_of(mask: &[Word]) -> CpuSet {
    let is_set = |cpu: &usize| mask[cpu / BITS] >> (cpu % BITS) & 1 == 1;
    (0..mask.len() * BITS).filter(is_set).collect()
}

fn mask_of(cpus: &CpuSet) -> Vec<Word> {
    let mut mask = vec![0; WORDS_AT_FIRST];
    for cpu in cpus.iter().take_while(|&cpu| cpu <= MAX_CPU) {
        let word = cpu / BITS;
        mask.resize(mask.len().max(word + 1), 0);
        mask[word] |= 1 << (cpu % BITS);
    }
    mask
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs a test on a thread of its own, so that no other test is bound.
    fn apart<T: Send>(test: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(test).join().expect("the test's thread"))
    }

    #[test]
    fn a_thread_runs_where_it_is_bound_and_can_be_bound_back() {
        apart(|| {
            let before = allowed().expect("asking is allowed");
            assert!(!before.is_empty());
            for cpu in before.iter() {
                let one = CpuSet::from_iter([cpu]);
                bind(&one).expect("an allowed CPU");
                assert_eq!(allowed().expect("asking is allowed"), one);
            }
            bind(&before).expect("what was allowed before");
            assert_eq!(allowed().expect("asking is allowed"), before);
        });
    }

    #[test]
    fn cpus_that_are_not_there_are_left_out_and_alone_refused() {
        apart(|| {
            let before = allowed().expect("asking is allowed");
            let beyond = [MAX_CPU, MAX_CPU + 1, usize::MAX];
            bind(&before.iter().chain(beyond).collect()).expect("some are there");
            assert_eq!(allowed().expect("asking is allowed"), before);
            for nowhere in [CpuSet::default(), beyond.into_iter().collect()] {
                let error = bind(&nowhere).expect_err("no such CPU");
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            }
            assert_eq!(allowed().expect("asking is allowed"), before);
        });
    }

    #[test]
    fn force_goes_beyond_the_mask_and_leaves_it_as_it_was() {
        apart(|| {
            let all = allowed().expect("asking is allowed");
            let one: CpuSet = all.iter().take(1).collect();
            bind(&one).expect("an allowed CPU");
            let bound = Usable::by_mask().expect("asking is allowed");
            assert_eq!(bound, Usable { cpus: one.clone(), parallelism: 1 });

            let wanted = all.iter().chain([MAX_CPU]).collect();
            let forced = Usable::by_force(&wanted).expect("some are there");
            assert_eq!(forced.cpus, all);
            assert!((1..=all.len()).contains(&forced.parallelism));
            assert_eq!(allowed().expect("asking is allowed"), one);
        });
    }

    #[test]
    fn a_mask_of_any_length_is_taken() {
        let all = mask(WORDS_AT_FIRST).or_else(|_| mask(WORDS_AT_MOST)).expect("long enough");
        let longer = mask(WORDS_AT_MOST).expect("long enough");
        assert_eq!(cpus_of(&all), cpus_of(&longer));
    }

    proptest! {
        #[test]
        fn a_mask_says_the_same_as_its_set(
            cpus in prop::collection::btree_set(0..=MAX_CPU, 0..50),
        ) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(cpus_of(&mask_of(&set)), set);
        }
    }
}
