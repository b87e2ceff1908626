//! How long a session may keep a worker, and how long a reply may be held back, in simulated time. The
//! handlers take the time that the tests say.

use std::cmp::Reverse;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epoll_group::Config;
use epoll_group::client::Options;
use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::row::Column;
use epoll_group::internal::simulated::{Client, Simulated, set_time, socket_pair};
use epoll_group::net::{Address, Connection};
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Row, Service, SessionError, SessionId,
};
use lab::xrpc::request::{query, timestamps};

const SECRET: &str = "secret";
/// Age at which replies that wait for others leave.
const OLD: Duration = Duration::from_micros(100);
/// Default of `write_high_watermark_bytes`.
const HIGH_WATERMARK: usize = 1 << 20;
/// Most bytes that a session writes before it sends them: 16 KiB and a row.
const LONGEST_SEND: usize = (16 << 10) + 2048;
/// Session that is in a transaction after its first request.
const IN_TRANSACTION: u64 = 4;

/// State that handlers and tests share.
struct World {
    now: Mutex<Instant>,
    /// The client's end.
    socket: Mutex<UnixStream>,
    /// Wire numbers of the sessions, one for each request that has begun; 0 for a timestamp.
    begun: Mutex<Vec<u64>>,
    /// Bytes that had reached the client when each request began, or when each row was written.
    received: Mutex<Vec<usize>>,
}

impl World {
    fn pass(&self, time: Duration) {
        let mut now = self.now.lock().expect("no panic");
        *now += time;
        set_time(Some(*now));
    }

    /// Reads what has reached the client, and notes how much that is by now.
    fn look(&self) {
        let mut received = self.received.lock().expect("no panic");
        let bytes = received.last().copied().unwrap_or(0) + self.read().len();
        received.push(bytes);
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = self.socket.lock().expect("no panic").read_to_end(&mut bytes);
        assert_eq!(read.expect_err("the connection stays").kind(), ErrorKind::WouldBlock);
        bytes
    }
}

impl Drop for World {
    fn drop(&mut self) {
        set_time(None);
    }
}

/// Work of each request.
#[derive(Clone, Copy)]
enum Does {
    Takes(Duration),
    /// Writes rows of 2 KiB, and takes so long for each.
    Rows(usize, Duration),
    /// The same in session 3. In session 2 as many rows take no time.
    SlowRowsIn3(usize, Duration),
    /// Leaves rows of 2 KiB without end to the server.
    Source,
}

struct Engine(Arc<World>, Does);

impl Service for Engine {
    type Session = u64;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check(Some(&StoredPassword::of(SECRET.as_bytes())))?;
        Ok(Account::new("root"))
    }

    fn open(&self, _: &Peer, id: SessionId) -> Result<(u64, Cancel), SessionError> {
        Ok((id.wire, Cancel::default()))
    }

    fn execute(
        &self,
        session: &mut u64,
        _: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let Self(world, does) = self;
        world.begun.lock().expect("no panic").push(*session);
        match *does {
            Does::Takes(time) => {
                world.look();
                world.pass(time);
            }
            Does::Rows(count, time) | Does::SlowRowsIn3(count, time) => {
                let quick = matches!(does, Does::SlowRowsIn3(..)) && *session == 2;
                let time = if quick { Duration::ZERO } else { time };
                reply.columns(&[Column::text("filler", 45, 4000)])?;
                for _ in 0..count {
                    reply.row(|row| row.text([b'x'; 2000]))?;
                    world.look();
                    world.pass(time);
                }
            }
            Does::Source => {
                reply.columns(&[Column::text("filler", 45, 4000)])?;
                reply.source(|row: &mut Row<'_>| {
                    row.text([b'x'; 2000]);
                    Ok(true)
                });
            }
        }
        Ok(())
    }

    fn in_transaction(&self, session: &u64) -> bool {
        *session == IN_TRANSACTION
    }

    fn timestamp(&self, _: &Peer, _: u32) -> Result<u64, SessionError> {
        let Self(world, does) = self;
        world.begun.lock().expect("no panic").push(0);
        if let Does::Takes(time) = *does {
            world.pass(time);
        }
        Ok(1)
    }
}

/// A server whose client has logged in and opened sessions 2 and 3.
struct Scene {
    world: Arc<World>,
    server: Simulated,
    conn: Connection,
}

impl Scene {
    fn new(does: Does) -> Self {
        let now = Instant::now();
        set_time(Some(now));
        let (ours, theirs) = socket_pair(0).expect("descriptors");
        let world = Arc::new(World {
            now: Mutex::new(now),
            socket: Mutex::new(ours),
            begun: Mutex::default(),
            received: Mutex::default(),
        });
        let service = Engine(Arc::clone(&world), does);
        let server = Simulated::new(Config::default(), service).expect("descriptors");
        let conn = server.accept(theirs, Address::Unix("".into())).expect("there is room");
        let scene = Self { world, server, conn };
        let mut client = Client::new(Options::new("unix:/", "root").password(SECRET), now);
        client.connected(now);
        while !client.is_ready() {
            scene.send(&client.out());
            assert!(client.input(&scene.world.read(), now) > 0, "whole frames");
        }
        scene.send(&[]);
        for session in [2, 3] {
            scene.send(&encoded(&[(session, ClientMessage::SessionNew)]));
        }
        scene.world.read();
        scene
    }

    /// Sends the bytes in one write, and runs the server until it has nothing more to do.
    fn send(&self, bytes: &[u8]) {
        self.world.socket.lock().expect("no panic").write_all(bytes).expect("there is room");
        loop {
            let mut any = self.server.take_events() > 0;
            any |= self.server.take_task(false);
            while self.server.in_hands() > 0 {
                self.server.run(0, 1);
            }
            if !any {
                return;
            }
        }
    }

    fn send_requests(&self, sessions: &[u64]) {
        let request = || ClientMessage::ExecSql(query("any"));
        let requests: Vec<_> = sessions.iter().map(|&session| (session, request())).collect();
        self.send(&encoded(&requests));
    }
}

fn encoded(messages: &[(u64, ClientMessage)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (session, message) in messages {
        message.encode(Dialect::Legacy, *session, &mut bytes).expect("it is short");
    }
    bytes
}

#[test]
fn a_session_that_has_run_for_a_turn_lets_the_other_go_on() {
    let scene = Scene::new(Does::Takes(Duration::from_micros(600)));
    scene.send_requests(&[[2; 12], [3; 12]].concat());
    let begun = scene.world.begun.lock().expect("no panic");
    assert_eq!(begun.len(), 24);
    // While both have requests, two of them make a turn of 1 ms.
    let runs: Vec<_> = begun[..12].chunk_by(|one, other| one == other).map(<[_]>::len).collect();
    assert!(runs.iter().all(|&run| run <= 2), "{runs:?}");
}

#[test]
fn timestamps_that_have_run_for_a_turn_let_a_transaction_go_on() {
    let scene = Scene::new(Does::Takes(Duration::from_micros(600)));
    let query = || (IN_TRANSACTION, ClientMessage::ExecSql(query("any")));
    scene.send(&encoded(&[(IN_TRANSACTION, ClientMessage::SessionNew), query()]));
    scene.world.begun.lock().expect("no panic").clear();
    scene.send(&encoded(&[vec![(7, timestamps(1)); 12], vec![query(); 12]].concat()));
    let begun = scene.world.begun.lock().expect("no panic");
    assert_eq!(begun.len(), 24);
    // While both have requests, two timestamps make a turn of 1 ms.
    let runs: Vec<_> = begun[..12].chunk_by(|one, other| one == other).map(<[_]>::len).collect();
    assert!(runs.iter().all(|&run| run <= 2), "{runs:?}");
}

#[test]
fn replies_that_wait_for_others_leave_when_they_are_old() {
    let time = Duration::from_micros(10);
    let scene = Scene::new(Does::Takes(time));
    scene.send_requests(&[2; 40]);
    let all = {
        scene.world.look();
        scene.world.received.lock().expect("no panic").clone()
    };
    let reply = all[40] / 40;
    // A reply is old after ten more requests, and the next one of them sends it.
    let most = usize::try_from(OLD.as_micros() / time.as_micros()).expect("few") + 1;
    let held = (0..40).map(|n| n - all[n] / reply);
    let longest = held.max().expect("some");
    assert!((2..=most).contains(&longest), "{longest} replies were held back: {all:?}");
}

#[test]
fn rows_leave_when_they_are_old() {
    let scene = Scene::new(Does::Rows(40, Duration::from_micros(40)));
    scene.send_requests(&[2]);
    let all = scene.world.received.lock().expect("no panic");
    let held = all.iter().enumerate().map(|(n, bytes)| ((n + 1) * 2000).saturating_sub(*bytes));
    let (longest, _) = held.enumerate().map(|(n, held)| (held, Reverse(n))).max().expect("some");
    // Three rows take the 0.1 ms, and the one behind them sends them.
    assert!(longest <= 4 * 2000, "{longest} bytes were held back: {all:?}");
}

#[test]
fn rows_leave_when_they_are_old_behind_a_long_reply_that_was_kept() {
    let scene = Scene::new(Does::SlowRowsIn3(7, Duration::from_micros(40)));
    scene.send_requests(&[2, 3]);
    assert_eq!(*scene.world.begun.lock().expect("no panic"), [2, 3]);
    let all = scene.world.received.lock().expect("no panic");
    let (quick, slow) = all.split_at(7);
    assert_eq!(quick[6], quick[0], "the reply of session 2 waits: {all:?}");
    let held = slow.iter().take_while(|&bytes| *bytes == quick[6]).count();
    assert!(held <= 4, "{held} slow rows were held back: {all:?}");
}

#[test]
fn a_session_whose_turn_begins_behind_a_full_backlog_adds_no_rows() {
    let scene = Scene::new(Does::Source);
    let sessions: Vec<u64> = (2..18).collect();
    let open = sessions[2..].iter().map(|&session| (session, ClientMessage::SessionNew));
    scene.send(&encoded(&open.collect::<Vec<_>>()));
    scene.send_requests(&sessions);
    let (pending, full) = (scene.conn.pending_bytes(), HIGH_WATERMARK + LONGEST_SEND);
    assert!((HIGH_WATERMARK..=full).contains(&pending), "{pending} bytes wait");
}
