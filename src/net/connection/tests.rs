//! Cost estimates, notifications about the backlog, corks, and early bytes of a Unix server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Connection;
use crate::config::Config;
use crate::net::{Address, Close, Cork, Input, Listener, Protocol, Sent, flush_corked};
use crate::runtime::Runtime;
use crate::stats::Counter;
use crate::sys::clock::{self, Instant};

/// Hands out its connections and reports each call of `drained`.
struct Tells {
    opened: Mutex<Sender<Connection>>,
    drained: Mutex<Sender<usize>>,
}

impl Protocol for Tells {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        let _ = self.opened.lock().expect("nobody panics").send(conn.clone());
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        Ok(())
    }

    fn drained(&self, conn: &Connection) {
        let _ = self.drained.lock().expect("nobody panics").send(conn.pending_bytes());
    }
}

/// Reports each input.
struct Received(Sender<usize>);

impl Protocol for Received {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let _ = self.0.send(input.take_all().len());
        Ok(())
    }
}

const LONG: Duration = Duration::from_secs(30);
const LOW: usize = 16 * 1024;
const HIGH: usize = 4 * 1024 * 1024;

struct Pair {
    runtime: Runtime,
    _listener: Listener,
    conn: Connection,
    peer: TcpStream,
    drained: Receiver<usize>,
}

fn pair() -> Pair {
    let config = Config::default()
        .epoll_groups(1)
        .write_low_watermark_bytes(LOW)
        .write_high_watermark_bytes(HIGH);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let ((open, opened), (drain, drained)) = (mpsc::channel(), mpsc::channel());
    let protocol = Tells { opened: Mutex::new(open), drained: Mutex::new(drain) };
    let listener = runtime.listen("127.0.0.1:0", protocol).expect("a listener");
    let Address::Tcp(to) = listener.local_addr() else { panic!("it is TCP") };
    let mut peer = TcpStream::connect(to).expect("connected");
    peer.set_read_timeout(Some(LONG)).expect("a socket");
    peer.write_all(b"hello").expect("room");
    let conn = opened.recv_timeout(LONG).expect("a connection");
    Pair { runtime, _listener: listener, conn, peer, drained }
}

impl Pair {
    /// Sends bytes that the peer does not read, up to below the high watermark. Returns their
    /// number.
    fn fill(&self) -> usize {
        let mut all = 0;
        // The kernel's buffer for a peer that does not read grows for a while.
        while self.conn.pending_bytes() < HIGH / 2 {
            let bytes = vec![7; HIGH / 4];
            all += bytes.len();
            assert_ne!(self.conn.send(bytes), Sent::Closed);
        }
        all
    }

    fn read(&mut self, count: usize) {
        let mut bytes = vec![0; count];
        self.peer.read_exact(&mut bytes).expect("it was sent");
    }

    fn is_drained(&self) {
        let pending = self.drained.recv_timeout(LONG).expect("drained is called");
        assert!(pending <= LOW, "{pending} bytes wait");
    }
}

#[test]
fn a_new_connection_begins_with_the_estimate_of_first_requests() {
    let runtime =
        Runtime::builder().config(Config::default().epoll_groups(1)).start().expect("a runtime");
    let ((open, opened), (drain, _drained)) = (mpsc::channel(), mpsc::channel());
    let protocol = Tells { opened: Mutex::new(open), drained: Mutex::new(drain) };
    let listener = runtime.listen("127.0.0.1:0", protocol).expect("a listener");
    let Address::Tcp(to) = listener.local_addr() else { panic!("it is TCP") };
    let connect = || {
        let peer = TcpStream::connect(to).expect("connected");
        (peer, opened.recv_timeout(LONG).expect("a connection"))
    };
    let (mut peer, slow) = connect();
    slow.0.cost().add(1_000_000_000);
    slow.0.cost().add(1_000_000_000);
    let expected = || slow.0.protocol().first_cost().nanos();
    let before = expected();
    peer.write_all(b"hello").expect("room");
    let asked = Instant::now();
    while expected() <= before {
        assert!(asked.elapsed() < LONG, "the first request was not charged");
        thread::yield_now();
    }
    let (_peer, conn) = connect();
    assert_eq!(conn.0.cost().nanos(), expected());
}

#[test]
fn who_asks_is_told_at_once_when_the_backlog_is_low() {
    let pair = pair();
    for _ in 0..10 {
        pair.conn.notify_when_drained();
        pair.is_drained();
    }
    assert!(std::ptr::eq(&raw const **pair.conn.group(), &raw const *pair.conn.0.group));
}

#[test]
fn who_asks_is_told_when_the_backlog_is_low_though_reading_never_paused() {
    let mut pair = pair();
    for _ in 0..10 {
        let sent = pair.fill();
        pair.conn.notify_when_drained();
        // On a busy machine the kernel's buffers may take the rest late.
        let early = pair.drained.try_recv().ok();
        assert!(early.is_none_or(|pending| pending <= LOW), "{early:?} bytes wait");
        pair.read(sent);
        if early.is_none() {
            pair.is_drained();
        }
    }
    assert_eq!(pair.runtime.stats().get(Counter::ReadsPaused), 0);
}

#[test]
fn who_asks_while_the_peer_reads_is_told() {
    let mut pair = pair();
    for _ in 0..20 {
        let sent = pair.fill();
        thread::scope(|scope| {
            let conn = pair.conn.clone();
            scope.spawn(move || conn.notify_when_drained());
            pair.read(sent);
        });
        pair.is_drained();
    }
}

#[test]
fn a_sender_that_leaves_the_rest_to_a_runtime_that_has_ended_goes_on_itself() {
    let pair = pair();
    pair.fill();
    let Pair { runtime, conn, peer, .. } = pair;
    let usage = Arc::clone(conn.group().usage());
    // While bytes wait, each turn reads the clock.
    let (mut turns, mut runtime, sender) = (1..=16, Some(runtime), conn.clone());
    clock::at_each_look(move || match turns.next() {
        Some(16) => {
            let runtime = runtime.take().expect("it runs");
            let report = runtime.drain(Duration::ZERO);
            assert_eq!((report.cut, report.stuck.len()), (1, 0));
            assert_eq!(sender.send([7]), Sent::Closed);
        }
        Some(_) => assert!(matches!(sender.send([7]), Sent::Queued(_))),
        None => {}
    });
    conn.send([7]);
    clock::at_each_look(|| ());
    assert_eq!((conn.pending_bytes(), usage.buffered_bytes()), (0, 0));
    drop(peer);
}

#[test]
fn what_is_sent_under_a_cork_leaves_in_one_call_when_it_is_pulled() {
    let mut pair = pair();
    let calls = || pair.runtime.stats().get(Counter::SendCalls);
    let before = calls();
    let cork = Cork::new();
    for _ in 0..3 {
        let inner = Cork::new();
        assert_ne!(pair.conn.send("0123456789"), Sent::Closed);
        drop(inner);
    }
    // One call. More if this thread was preempted for so long that the held bytes became old.
    drop(cork);
    assert_eq!(pair.conn.pending_bytes(), 0);
    assert!((1..=3).contains(&(calls() - before)));
    pair.read(30);
}

#[test]
fn others_take_along_what_a_cork_holds_back_and_so_does_the_end() {
    let mut pair = pair();
    let cork = Cork::new();
    pair.conn.send("first ");
    let conn = pair.conn.clone();
    thread::spawn(move || conn.send("second ")).join().expect("no panic");
    pair.conn.send("third");
    pair.conn.close("enough");
    let mut all = String::new();
    pair.peer.read_to_string(&mut all).expect("the end");
    assert_eq!(all, "first second third");
    drop(cork);
}

#[test]
fn what_a_cork_holds_back_is_sent_by_whoever_comes_for_it() {
    let mut pair = pair();
    let cork = Cork::new();
    pair.conn.send("0123456789");
    let held = Cork::held().expect("it is corked");
    thread::spawn(move || held.relieve()).join().expect("no panic");
    pair.read(10);
    // The other thread comes once.
    pair.conn.send("0123456789");
    assert_eq!(pair.conn.pending_bytes(), 0);
    pair.read(10);
    clock::simulate(Some(Instant::now()));
    assert!(Cork::held().is_some());
    pair.conn.send("0123456789");
    assert_eq!(pair.conn.pending_bytes(), 10, "it can come again");
    clock::simulate(None);
    flush_corked();
    pair.read(10);
    drop(cork);
    assert!(Cork::held().is_none());
}

/// The event for such bytes may come before the connection counts as established.
#[test]
fn bytes_that_a_unix_server_sends_at_once_are_received() {
    const CONNECTIONS: usize = 200;
    let name = format!("sends-at-once-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("a listener");
    let server = thread::spawn(move || {
        let mut before = None;
        for _ in 0..CONNECTIONS {
            let (mut peer, _) = listener.accept().expect("a connection");
            peer.write_all(b"hello").expect("room");
            // Drops the connection before this one. Its end is an event too, which must not hide
            // that its bytes are unread.
            before = Some(peer);
        }
        before
    });
    let runtime = Runtime::builder().start().expect("a runtime");
    let (give, received) = mpsc::channel();
    for number in 0..CONNECTIONS {
        let address = format!("unix:@{name}");
        runtime.connect(address, Received(give.clone())).expect("it begins");
        assert_eq!(received.recv_timeout(LONG / 10), Ok(5), "connection {number}");
    }
    drop(server.join());
}
