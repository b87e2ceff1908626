//! Number of locked operations that the worker of an echo server needs, see [`Locked`], and the sizes of
//! receives.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::config::Config;
use crate::net::recv_state::PIECE;
use crate::net::{Address, Close, Connection, Input, Protocol, Served};
use crate::runtime::Runtime;
use crate::sync::shim::atomic::{Locked, take_locked};
use crate::sys::clock;

/// Echo server whose only worker also plays the peers. When it has answered all peers, each of them
/// takes its answer and asks again. So the worker gets one batch with an event of each connection.
struct Ring(Mutex<Peers>);

struct Peers {
    peers: Vec<UnixStream>,
    /// Number of events of the current batch that were served.
    served: usize,
    /// Locked operations of each batch so far.
    batches: Vec<Locked>,
    done: mpsc::Sender<Vec<Locked>>,
}

/// Number of batches. The watchdog disturbs a few of them, if the worker is preempted.
const BATCHES: usize = 200;

impl Protocol for Ring {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        // All runs are quick, although tests of other threads may take the CPU.
        clock::simulate(Some(clock::now()));
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send(input.take_all());
        let mut ring = self.0.lock().expect("no panic");
        ring.served += 1;
        if ring.served == ring.peers.len() {
            ring.served = 0;
            ring.batches.push(take_locked());
            if ring.batches.len() == BATCHES {
                let batches = std::mem::take(&mut ring.batches);
                ring.done.send(batches).expect("waited for");
            } else {
                ring.peers.iter_mut().for_each(take_and_ask);
            }
        }
        Ok(())
    }
}

fn take_and_ask(peer: &mut UnixStream) {
    peer.read_exact(&mut [0]).expect("an answer");
    peer.write_all(&[0]).expect("room");
}

/// Returns the number of locked operations that most batches of `events` events need.
fn locked_in_batches_of(events: usize) -> Locked {
    let config = Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(1)
        .reserve_threads_per_group(0)
        .enable_perf_hist(false);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let pairs = (0..events).map(|_| UnixStream::pair().expect("descriptors"));
    let (ours, mut peers): (Vec<_>, Vec<_>) = pairs.unzip();
    peers.iter_mut().for_each(|peer| peer.write_all(&[0]).expect("room"));
    let (done, batches) = mpsc::channel();
    let served = Served::new(Ring(Mutex::new(Peers { peers, served: 0, batches: vec![], done })));
    for ours in ours {
        ours.set_nonblocking(true).expect("a socket");
        let group = runtime.handle().next_group().clone();
        served.accept(&group, ours.into(), Address::Unix("".into())).expect("there is room");
    }
    let batches = batches.recv_timeout(Duration::from_secs(30)).expect("served");
    let mut counts = HashMap::new();
    batches.into_iter().for_each(|locked| *counts.entry(locked).or_insert(0) += 1);
    counts.into_iter().max_by_key(|(_, times)| *times).expect("many batches").0
}

/// The page `design` of the guide explains the numbers.
#[test]
fn an_echo_request_takes_few_locked_operations() {
    let (of_batch, of_request) = ([3, 3], [8, 0]);
    for requests in [1, 8] {
        let [updates, fences] = [0, 1].map(|n| of_batch[n] + requests * of_request[n]);
        assert_eq!(locked_in_batches_of(requests), Locked { updates, fences });
    }
}

/// Server that notes the size of each input. A peer that it plays sends `QUESTION` again and again.
struct Sizes {
    /// Time that a run takes, by the number of inputs before it.
    takes: fn(usize) -> Duration,
    /// True if the threads of its group compete for CPUs.
    crowded: bool,
    peer: Mutex<UnixStream>,
    done: mpsc::Sender<Vec<usize>>,
}

static QUESTION: [u8; 32 << 10] = [0; 32 << 10];
const QUESTIONS: usize = 10;

impl Protocol for Sizes {
    /// Sizes of the inputs, and the number of bytes left of all questions.
    type State = (Vec<usize>, usize);

    fn opened(&self, conn: &Connection) -> Result<Self::State, Close> {
        let now = clock::now();
        clock::simulate(Some(now));
        if self.crowded {
            conn.0.group.note_crowded(now + Duration::from_secs(1000));
        }
        Ok((Vec::new(), QUESTION.len() * QUESTIONS))
    }

    fn received(
        &self,
        _: &Connection,
        (sizes, left): &mut Self::State,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let takes = (self.takes)(sizes.len());
        sizes.push(input.len());
        *left -= input.take_all().len();
        if !self.crowded {
            // A run without a wait would be charged for its CPU time only.
            std::thread::sleep(Duration::from_nanos(1));
        }
        clock::simulate(Some(clock::now() + takes));
        if *left == 0 {
            self.done.send(std::mem::take(sizes)).expect("waited for");
        } else if *left % QUESTION.len() == 0 {
            self.peer.lock().expect("no panic").write_all(&QUESTION).expect("room");
        }
        Ok(())
    }
}

fn sizes_if_a_run_takes(takes: fn(usize) -> Duration, crowded: bool) -> Vec<usize> {
    let config = Config::default().epoll_groups(1).epoll_threads_per_group(1);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let (ours, mut peer) = UnixStream::pair().expect("descriptors");
    peer.write_all(&QUESTION).expect("room");
    ours.set_nonblocking(true).expect("a socket");
    let (done, sizes) = mpsc::channel();
    let served = Served::new(Sizes { takes, crowded, peer: Mutex::new(peer), done });
    let group = runtime.handle().next_group().clone();
    served.accept(&group, ours.into(), Address::Unix("".into())).expect("there is room");
    sizes.recv_timeout(Duration::from_secs(30)).expect("served")
}

#[test]
fn in_a_crowded_group_quick_input_comes_in_pieces_that_grow_and_slow_input_in_small_ones() {
    const QUICK: Duration = Duration::from_micros(5);
    let quick = sizes_if_a_run_takes(|_| QUICK, true);
    assert_eq!(quick[..3], [PIECE, 2 * PIECE, PIECE]);
    assert_eq!(quick[3..], [QUESTION.len(); QUESTIONS - 1]);
    let long = sizes_if_a_run_takes(|_| Duration::from_millis(2), false);
    assert!(long.ends_with(&[PIECE; 8]), "{long:?}");
    // Runs are slow from the sixth input on. The first of these inputs are smaller than the receive
    // allowed.
    let slow_later = |before| if before < 5 { QUICK } else { Duration::from_micros(300) };
    let later = sizes_if_a_run_takes(slow_later, true);
    assert_eq!(later[3..6], [QUESTION.len(); 3]);
    assert!(later.ends_with(&[PIECE; 8]), "{later:?}");
}
