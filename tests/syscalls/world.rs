//! Shared parts of these tests: exclusive use of the process, bystanders, and a check for
//! leftovers.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fs;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};

use epoll_group::net::{Address, Close, Connection, Input};

use crate::shims::{Call, Effect, Fault, Side, on_behalf};
use lab::{LONG, Peer, eventually, eventually_or};

/// Exclusive use of the process for one test, because faults hit the whole process. At the end of
/// the test no descriptor is left of it, and no other code has panicked.
pub(crate) struct World {
    descriptors: BTreeSet<String>,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());
static PANICS: AtomicU64 = AtomicU64::new(0);

impl World {
    pub(crate) fn enter() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                PANICS.fetch_add(1, Ordering::SeqCst);
                before(info);
            }));
        });
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        RANDOM.call_once(keep_random_numbers);
        PANICS.store(0, Ordering::SeqCst);
        Self { descriptors: descriptors(), _alone: alone }
    }

    /// Checks that the descriptors are those from the start of the test, and that no code has
    /// panicked.
    #[track_caller]
    pub(crate) fn is_as_before(&self) {
        eventually_or(
            LONG,
            || descriptors() == self.descriptors,
            || format!("descriptors before and now: {:#?}", (&self.descriptors, descriptors())),
        );
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "nobody panics");
    }
}

/// Open descriptors of this process with their targets, except the one of this listing.
fn descriptors() -> BTreeSet<String> {
    let all = fs::read_dir("/proc/self/fd").expect("Linux").filter_map(Result::ok);
    let named = all.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().into_string().ok()?;
        (!target.ends_with("fd")).then(|| format!("{number} {}", target.display()))
    });
    named.collect()
}

static RANDOM: Once = Once::new();

/// Makes std open its file for random numbers now. Without `getrandom` std opens that file and
/// keeps it.
fn keep_random_numbers() {
    let hash = || on_behalf(Side::Server, || drop(RandomState::new()));
    let _fault =
        Fault::new(Side::Server, Call::Getrandom, Effect::Fails(libc::EPERM)).always().arm();
    thread::spawn(hash).join().expect("random numbers");
}

/// Well-behaved peers that ask all the time and get their answers.
pub(crate) struct Bystanders {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

const BYSTANDERS: usize = 2;

impl Bystanders {
    pub(crate) fn start(address: &Address) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let threads = (0..BYSTANDERS).map(|_| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let mut peer = Peer::connect(address);
            peer.echo(b"here");
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    peer.echo(b"a question like any other");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let threads = threads.collect();
        Self { stop, answered, threads }
    }

    /// Waits until the bystanders have answers to questions asked from now on.
    #[track_caller]
    pub(crate) fn go_on(&self) {
        let enough = self.answered.load(Ordering::Relaxed) + 4 * BYSTANDERS as u64;
        eventually(LONG, || self.answered.load(Ordering::Relaxed) >= enough);
    }

    #[track_caller]
    pub(crate) fn end(self) {
        self.go_on();
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("all were answered"));
    }
}

/// Request for the process id of the peer that sends it.
pub(crate) const WHO: &[u8] = b"who?";

/// Sends back the input, in two pieces if it begins with a 2. [`WHO`] is answered with the process
/// id of the peer.
pub(crate) fn answer(conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    let bytes = input.take_all();
    if bytes == WHO {
        let pid = conn.credentials().map(|credentials| credentials.pid);
        conn.send(format!("{pid:?}"));
    } else if bytes.starts_with(b"2") {
        let (one, two) = bytes.split_at(1);
        conn.send_slices(&[std::io::IoSlice::new(one), std::io::IoSlice::new(two)]);
    } else {
        conn.send(bytes);
    }
    Ok(())
}
