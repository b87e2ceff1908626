//! Connections that close while events are in flight, with descriptor numbers reused at once.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use epoll_group::net::{Close, CloseReason, Connection, Input, Protocol};
use epoll_group::{Handle, Interest, Runtime};
use lab::random::{Random, seed};
use lab::{Kind, LONG, Peer, Server, config, eventually, often};

const CONNECTIONS: u64 = 10_000;
const THREADS: u64 = 4;
/// Set in the number of a message that another thread sends, perhaps after the end.
const LATE: u64 = 1 << 63;

/// Echoes messages of a tag and a number. All messages of a connection have one tag, and their
/// numbers count up.
#[derive(Clone)]
struct Tagged {
    opened: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
    faults: Arc<Mutex<Vec<String>>>,
    late: Arc<Mutex<mpsc::Sender<(Connection, u64)>>>,
}

#[derive(Default)]
struct State {
    tag: Option<u64>,
    next: u64,
    connection: u64,
}

impl Tagged {
    fn fault(&self, text: String) {
        self.faults.lock().expect("unpoisoned").push(text);
    }
}

impl Protocol for Tagged {
    type State = State;

    fn opened(&self, conn: &Connection) -> Result<State, Close> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(State { connection: conn.id().number, ..State::default() })
    }

    fn received(
        &self,
        conn: &Connection,
        state: &mut State,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        if state.connection != conn.id().number {
            self.fault(format!("state of {} at {conn:?}", state.connection));
        }
        while let Some((tag, number)) = message(input.bytes()) {
            let expected = *state.tag.get_or_insert(tag);
            if (tag, number) != (expected, state.next) {
                self.fault(format!("{tag}:{number} at {expected}:{}", state.next));
            }
            state.next += 1;
            conn.send(input.take(16));
            if number % 2 == 1 {
                let late = self.late.lock().expect("unpoisoned");
                let _ = late.send((conn.clone(), tag));
            }
        }
        Ok(())
    }

    fn closed(&self, conn: &Connection, state: State, _: &CloseReason) {
        if state.connection != conn.id().number {
            self.fault(format!("closed with the state of {}: {conn:?}", state.connection));
        }
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

fn message(bytes: &[u8]) -> Option<(u64, u64)> {
    let (tag, rest) = bytes.split_first_chunk()?;
    let (number, _) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*tag), u64::from_le_bytes(*number)))
}

fn encode(tag: u64, number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&tag.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// One client thread. Its connections overlap and end in all possible ways.
fn client(server: &Server, first: u64, seed: u64) {
    let mut random = Random(seed);
    let mut open: Vec<(Peer, u64, u64)> = Vec::new();
    for tag in first..first + CONNECTIONS / THREADS {
        let mut peer = server.peer();
        let messages = random.below(6);
        let bytes: Vec<u8> = (0..messages).flat_map(|number| encode(tag, number)).collect();
        peer.send(&bytes);
        open.push((peer, tag, messages));
        if open.len() > 8 {
            let which = random.below(open.len() as u64);
            let (peer, tag, messages) = open.swap_remove(which as usize);
            end(peer, tag, messages, random.below(5), seed);
        }
    }
    for (peer, tag, messages) in open {
        end(peer, tag, messages, random.below(5), seed);
    }
}

fn end(mut peer: Peer, tag: u64, messages: u64, how: u64, seed: u64) {
    match how {
        0 => drop(peer),
        1 => peer.reset(),
        2 => {
            peer.finish();
            let answers = check(&peer.receive_to_finish(), tag, seed);
            assert_eq!(answers, messages, "tag {tag}, seed {seed}");
        }
        3 => {
            let bytes = peer.receive(16 * messages as usize);
            check(&bytes, tag, seed);
        }
        _ => {
            // A partial message is never answered. Earlier answers may still be in flight.
            peer.send(&encode(tag, messages)[..7]);
            let mut some = [0; 32];
            if messages > 0 {
                let count = peer.read(&mut some).expect("something");
                check(&some[..count - count % 16], tag, seed);
            }
            peer.reset();
        }
    }
}

/// Checks that all messages carry this tag and are in order. Returns the number of answers.
fn check(bytes: &[u8], tag: u64, seed: u64) -> u64 {
    assert_eq!(bytes.len() % 16, 0, "whole messages, seed {seed}");
    let mut next = 0;
    for chunk in bytes.chunks(16) {
        let (seen, number) = message(chunk).expect("a whole one");
        assert_eq!(seen, tag, "bytes of another connection, seed {seed}");
        if number & LATE == 0 {
            assert_eq!(number, next, "tag {tag}, seed {seed}");
            next += 1;
        }
    }
    next
}

/// Ends the thread that sends late messages, also if the test fails, so that the scope can end.
struct EndOfLate<'a>(&'a Tagged);

impl Drop for EndOfLate<'_> {
    fn drop(&mut self) {
        let mut late = self.0.late.lock().unwrap_or_else(PoisonError::into_inner);
        *late = mpsc::channel().0;
    }
}

fn no_event_or_byte_reaches_a_newer_connection(kind: Kind) {
    let seed = seed();
    let (late, to_send) = mpsc::channel();
    let protocol = Tagged {
        opened: Arc::default(),
        closed: Arc::default(),
        faults: Arc::default(),
        late: Arc::new(Mutex::new(late)),
    };
    let server = Server::start(kind, config().epoll_groups(2), protocol.clone());
    thread::scope(|scope| {
        let end = EndOfLate(&protocol);
        scope.spawn(move || {
            for (conn, tag) in to_send {
                conn.send(encode(tag, LATE));
            }
        });
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (server, first) = (&server, thread * CONNECTIONS / THREADS + 1);
                scope.spawn(move || client(server, first, seed.wrapping_add(thread)))
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no fault at a client"));
        // The last ones may wait to be accepted.
        eventually(LONG, || protocol.opened.load(Ordering::Relaxed) == CONNECTIONS);
        server.wait_until_empty();
        drop(end);
    });
    let faults = protocol.faults.lock().expect("unpoisoned").clone();
    assert!(faults.is_empty(), "{kind:?}, seed {seed}: {faults:?}");
    eventually(LONG, || protocol.closed.load(Ordering::Relaxed) == CONNECTIONS);
    eventually(LONG, || {
        let stats = server.stats();
        stats.slots_allocated - stats.slots_free <= 2 && stats.buffered_bytes == 0
    });
}

#[test]
fn no_event_or_byte_reaches_a_newer_connection_over_tcp() {
    no_event_or_byte_reaches_a_newer_connection(Kind::Tcp);
}

#[test]
fn no_event_or_byte_reaches_a_newer_connection_over_unix_sockets() {
    no_event_or_byte_reaches_a_newer_connection(Kind::Unix);
}

/// One thread that registers descriptors one after the other. From each descriptor a number can be
/// read that no other has. The registration ends before, while or after the number is read, and the
/// next registration reuses the descriptor.
fn watcher(handle: &Handle, first: u64, seed: u64, faults: &Arc<Mutex<Vec<String>>>) {
    let mut random = Random(seed);
    for tag in first..first + u64::from(often(2000)) {
        let (watched, mut other) = UnixStream::pair().expect("two descriptors");
        watched.set_nonblocking(true).expect("set");
        let (faults, heard) = (Arc::clone(faults), Arc::new(AtomicU64::new(0)));
        let heard_2 = Arc::clone(&heard);
        let read = move |fd: BorrowedFd<'_>, _| {
            let mut socket = File::from(fd.try_clone_to_owned().expect("a descriptor"));
            let mut bytes = [0; 8];
            while let Ok(8) = socket.read(&mut bytes) {
                let number = u64::from_le_bytes(bytes);
                if number != tag {
                    faults.lock().expect("unpoisoned").push(format!("{number} at {tag}"));
                }
                heard_2.fetch_add(1, Ordering::SeqCst);
            }
        };
        let registration = handle.register(watched, Interest::READABLE, read).expect("watched");
        match random.below(3) {
            0 => drop(registration),
            1 => {
                other.write_all(&tag.to_le_bytes()).expect("sent");
                drop(registration);
            }
            _ => {
                other.write_all(&tag.to_le_bytes()).expect("sent");
                eventually(LONG, || heard.load(Ordering::SeqCst) > 0);
                drop(registration);
            }
        }
    }
}

#[test]
fn no_event_reaches_a_newer_registration() {
    let seed = seed();
    let runtime = Runtime::builder().config(config().epoll_groups(2)).start().expect("a runtime");
    let faults = Arc::<Mutex<Vec<String>>>::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (handle, faults) = (runtime.handle(), &faults);
            let (first, seed) = (thread << 32, seed.wrapping_add(thread));
            scope.spawn(move || watcher(&handle, first, seed, faults));
        }
    });
    let faults = faults.lock().expect("unpoisoned").clone();
    assert!(faults.is_empty(), "seed {seed}: {faults:?}");
    eventually(LONG, || {
        let stats = runtime.stats();
        stats.slots_allocated == stats.slots_free
    });
}
