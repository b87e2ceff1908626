//! What all of these tests need: a process to themselves, bystanders, and a look at what is left.

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

/// Faults are for the whole process: one test at a time. At its end nothing is left of it, and nobody
/// has panicked but the test.
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

    /// Nothing is left of what was done since.
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

/// Open descriptors of this process, with what they are, but for that which reads this.
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

/// Without `getrandom` std opens a file for its random numbers, and keeps it.
fn keep_random_numbers() {
    let hash = || on_behalf(Side::Server, || drop(RandomState::new()));
    let _fault =
        Fault::new(Side::Server, Call::Getrandom, Effect::Fails(libc::EPERM)).always().arm();
    thread::spawn(hash).join().expect("random numbers");
}

/// Well-behaved peers, who go on all the time and get their answers.
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

    /// They get answers to what they ask from now on.
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

/// Asks who it is that asks.
pub(crate) const WHO: &[u8] = b"who?";

/// Sends back what comes; in two pieces when it begins with a 2. Who asks who it is hears the number of
/// its process.
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
