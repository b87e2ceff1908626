//! A server against arbitrary input of a client, one step at a time: for the fuzzer, and for tests
//! with random bytes.
//!
//! ```text
//! input = logged in u8 │ (what u8, what it needs …) …
//! ```

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use epoll_group::client::Options;
use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::frame::{Decoder, Dialect, Header};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::session::{KillSession, KillSessionType};
use epoll_group::codec::proto::sql::{StmtExecute, TokenOffer};
use epoll_group::codec::proto::tso::GetTso;
use epoll_group::codec::row::Column;
use epoll_group::internal::simulated::{Client, Simulated, set_random, set_time, socket_pair};
use epoll_group::net::Address;
use epoll_group::session::{
    Account, AuthError, Cancel, Deferred, Login, Peer, Reply, Request, Row, Service, SessionError,
    SessionId,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, stats::Snapshot};

/// Runs what `input` says: bytes, frames and good messages of a client, time, and a service that
/// does what the first letter of a statement says.
///
/// # Panics
///
/// The server sends invalid frames, a handler of the library panics, too much is buffered, or
/// something is left at the end.
pub fn server(input: &[u8]) {
    let mut fuzzed = Fuzzed::new();
    let mut rest = input.iter().copied();
    if rest.next().is_some_and(|first| first % 8 > 0) {
        fuzzed.log_in();
    }
    while let Some(op) = rest.next() {
        fuzzed.act(op, &mut rest);
        fuzzed.serve();
        fuzzed.look();
    }
    fuzzed.finish();
}

struct Fuzzed {
    server: Simulated,
    socket: Option<UnixStream>,
    decoder: Decoder,
    now: Instant,
    _clock: Clock,
}

/// Ends the injected time of this thread when dropped.
struct Clock;

impl Drop for Clock {
    fn drop(&mut self) {
        DEFERRED.take();
        set_time(None);
        set_random(None);
    }
}

const SECRET: &str = "secret";

impl Fuzzed {
    fn new() -> Self {
        let now = Instant::now();
        set_time(Some(now));
        set_random(Some(1));
        let config = Config::default()
            .max_allowed_packet(64 << 10)
            .max_buffered_bytes(MOST_BUFFERED)
            .max_queued_bytes(MOST_QUEUED)
            .max_queued_messages(16)
            .max_sessions_per_connection(8)
            .request_cache_bytes(4096)
            .request_cache_instances(1)
            .worker_read_buf_bytes(4096)
            .write_high_watermark_bytes(16 << 10)
            .write_low_watermark_bytes(4096)
            .request_timeout(Duration::from_secs(2));
        let server = Simulated::new(config, Engine).expect("descriptors");
        let (ours, theirs) = socket_pair(4608).expect("descriptors");
        let _ = server.accept(theirs, Address::Unix("".into()));
        let decoder = Decoder::new(Limits::default());
        Self { server, socket: Some(ours), decoder, now, _clock: Clock }
    }

    fn log_in(&mut self) {
        let mut client = Client::new(Options::new("unix:/", "root").password(SECRET), self.now);
        client.connected(self.now);
        let mut received = Vec::new();
        while !client.is_ready() {
            self.send(&client.out());
            self.serve();
            let mut bytes = [0; 512];
            let count = self.socket.as_mut().expect("open").read(&mut bytes).expect("an answer");
            received.extend_from_slice(&bytes[..count]);
            let taken = client.input(&received, self.now);
            received.drain(..taken);
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        if let Some(socket) = &mut self.socket
            && socket.write(bytes).is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
        {
            self.socket = None;
        }
    }

    fn message(&mut self, session: u64, message: &ClientMessage) {
        let mut bytes = Vec::new();
        message.encode(Dialect::Legacy, session, &mut bytes).expect("it is short");
        self.send(&bytes);
    }

    fn act(&mut self, op: u8, rest: &mut impl Iterator<Item = u8>) {
        let mut byte = || rest.next().unwrap_or(0);
        let which = byte();
        // Few numbers, so that requests meet in one session.
        let session = u64::from(which % 4) | u64::from(which & 0x80) << 56;
        match op % 16 {
            0 | 1 => {
                let bytes: Vec<u8> = (0..which).map(|_| byte()).collect();
                self.send(&bytes);
            }
            2 | 3 => {
                let (kind, length) = (byte(), byte());
                let mut bytes = Header::new(session, kind, length.into()).encode().to_vec();
                bytes.extend((0..length).map(|_| byte()));
                self.send(&bytes);
            }
            4..=6 => {
                let text = vec![byte(), byte()];
                let token = match byte() {
                    more @ 0..100 => Some(i32::from(more % 4)),
                    _ => None,
                };
                let digest = (byte() > 127).then(|| vec![text[0]]);
                let stmt = (byte() > 63).then_some(text);
                let sql =
                    StmtExecute { stmt, stmt_digest: digest, token, ..StmtExecute::default() };
                self.message(session, &ClientMessage::ExecSql(sql));
            }
            7 => self.message(session, &ClientMessage::SessionNew),
            8 => self.message(session, &ClientMessage::SessionClose),
            9 => {
                let kinds = [KillSessionType::Query, KillSessionType::Connection];
                let kind = kinds[usize::from(byte() % 2)];
                let kill = KillSession { r#type: kind, x_session_id: session };
                self.message(session, &ClientMessage::SessionKill(kill));
            }
            10 => {
                let offer = TokenOffer { token: Some(i32::from(byte())) };
                self.message(session, &ClientMessage::TokenOffer(offer));
            }
            11 => {
                let batch_count = i32::from(byte()) - 3;
                let question = GetTso { leader_name: Vec::new(), batch_count };
                self.message(session, &ClientMessage::GetTso(question));
            }
            12 => self.pass(Duration::from_millis(u64::from(which) * 20)),
            13 => answer_one(usize::from(which)),
            14 if which > 250 => {
                let _ = self.socket.as_ref().map(|socket| socket.shutdown(Shutdown::Write));
            }
            _ => self.receive(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        set_time(Some(self.now));
    }

    /// Runs the server until it has no more work.
    fn serve(&self) {
        let server = &self.server;
        loop {
            let mut any = server.take_events() > 0;
            if server.next_deadline().is_some_and(|due| due <= self.now) {
                server.fire_due();
            }
            any |= server.take_task(false);
            while server.in_hands() > 0 {
                server.run(0, 1);
            }
            if !any {
                return;
            }
        }
    }

    /// Reads the server's output and checks that it consists of valid messages.
    fn receive(&mut self) {
        let mut bytes = [0; 16 << 10];
        let Some(socket) = &mut self.socket else { return };
        match socket.read(&mut bytes) {
            Ok(0) => self.socket = None,
            Ok(count) => self.decoder.feed(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.socket = None,
        }
        while let Some(frame) = self.decoder.next_frame().expect("frames are sent") {
            frame.server_message(&Limits::default()).expect("messages are sent");
        }
    }

    fn look(&self) {
        let stats = self.server.stats();
        assert!(stats.buffered_bytes <= MOST_BUFFERED as u64, "{stats}");
        assert!(stats.queued_request_bytes <= MOST_QUEUED as u64, "{stats}");
        assert!(stats.sessions <= 8, "{stats}");
        check_panics(&stats);
    }

    fn finish(mut self) {
        self.receive();
        self.socket = None;
        self.serve();
        loop {
            // The end of a request lets the next one of its session begin, which may be deferred.
            if !DEFERRED.with_borrow(Vec::is_empty) {
                answer_one(0);
            } else if let Some(due) = self.server.next_deadline() {
                self.pass(due.saturating_duration_since(self.now));
            } else {
                break;
            }
            self.serve();
        }
        let stats = self.server.stats();
        check_panics(&stats);
        for left in [
            stats.connections,
            stats.sessions,
            stats.unauthenticated_connections,
            stats.silent_connections,
            stats.buffered_bytes,
            stats.queued_requests,
            stats.queued_request_bytes,
            stats.deferred_requests,
            stats.timers_pending,
            stats.slots_allocated - stats.slots_free,
            self.server.urgent_units() as u64,
        ] {
            assert_eq!(left, 0, "something is left: {stats}");
        }
    }
}

/// Only the service may panic, and its sessions catch that.
fn check_panics(stats: &Snapshot) {
    assert_eq!(stats.get(Counter::Panics), stats.get(Counter::RequestPanics), "{stats}");
    assert_eq!(stats.get(Counter::ClosedPanic), 0, "{stats}");
}

const MOST_BUFFERED: usize = 1 << 20;
const MOST_QUEUED: usize = 64 << 10;

thread_local! {
    static DEFERRED: RefCell<Vec<Deferred>> = const { RefCell::new(Vec::new()) };
}

/// Answers a deferred request, or drops it.
fn answer_one(which: usize) {
    let one = DEFERRED.with_borrow_mut(|deferred| {
        let len = deferred.len();
        (len > 0).then(|| deferred.swap_remove(which % len))
    });
    match one {
        Some(deferred) if which % 3 == 1 => {
            deferred.finish(|reply| rows(reply, which as u64));
        }
        Some(deferred) if which % 3 == 2 => {
            let finish = || deferred.finish(|_| resume_unwind(Box::new("simulated")));
            let _ = catch_unwind(AssertUnwindSafe(finish));
        }
        other => drop(other),
    }
}

fn rows(reply: &mut Reply<'_>, count: u64) -> Result<(), SessionError> {
    reply.columns(&[Column::text("filler", 45, 2000)])?;
    let mut left = count;
    reply.source(move |row: &mut Row<'_>| {
        left = left.saturating_sub(1);
        row.text([b'x'; 700]);
        Ok(left > 0)
    });
    Ok(())
}

struct Engine;

impl Service for Engine {
    type Session = bool;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check(Some(&StoredPassword::of(SECRET.as_bytes())))?;
        Ok(Account::new(&String::from_utf8_lossy(login.user)))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<(bool, Cancel), SessionError> {
        Ok((false, Cancel::default()))
    }

    fn execute(
        &self,
        session: &mut bool,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let text = match request {
            Request::Sql(sql) => sql.text,
            Request::Savepoint(savepoint) => savepoint.name,
            _ => &[],
        };
        match (text.first().map_or(0, |first| first % 8), text.len()) {
            (0, _) => return Err(SessionError::new(1644, b"HY000", text)),
            (1, _) => return Err(SessionError::fatal(1645, b"HY000", text)),
            (2, _) => resume_unwind(Box::new("simulated")),
            (3, _) => {
                let deferred = reply.defer();
                DEFERRED.with_borrow_mut(|all| all.push(deferred));
            }
            (4 | 5, _) => return rows(reply, text.get(1).copied().unwrap_or(0).into()),
            (6, _) => *session = !*session,
            _ => reply.ending().affected = 1,
        }
        Ok(())
    }

    fn in_transaction(&self, session: &bool) -> bool {
        *session
    }

    fn timestamp(&self, _: &Peer, count: u32) -> Result<u64, SessionError> {
        Ok(count.into())
    }
}
