//! A state, the server that the test plays, and a clock that the test moves.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::client::error::{Error, ErrorKind, Fate};
use crate::client::exchange::Taken;
use crate::client::options::Options;
use crate::client::request::Request;
use crate::client::slot::Watcher;
use crate::client::state::State;
use crate::codec::encoder::{Encoder, OutBuffer};
use crate::codec::frame::{Dialect, Frame};
use crate::codec::limits::Limits;
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::codec::proto::generic::ErrorReply;
use crate::codec::proto::session::KillSessionType;
use crate::codec::proto::session::{AuthenticateContinue, AuthenticateOk};
use crate::codec::row::Column;
use crate::sys::clock::Instant;

/// Time for requests in these tests.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Bench {
    pub(super) state: State,
    pub(super) now: Instant,
    /// Bytes that the socket does not take.
    pub(super) unsent: usize,
    /// Watchers that others have replaced.
    pub(super) replaced: Vec<Watcher>,
}

/// Message of a client, as far as tests distinguish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Start,
    Proof,
    Probe,
    New(u64),
    Close(u64),
    KillQuery(u64),
    KillSession(u64),
    Offer(u64),
    /// Statement with its text.
    Text(u64, String),
    /// Statement by its digest alone.
    Digest(u64),
    Timestamps(u64),
    Savepoint(u64),
}

pub(super) fn options() -> Options {
    Options::new("127.0.0.1:1", "root").password("secret").request_timeout(TIMEOUT)
}

impl Bench {
    /// State that is connected and logged in.
    pub(super) fn ready() -> Self {
        Self::ready_with(options())
    }

    pub(super) fn ready_with(options: Options) -> Self {
        let mut bench = Self::connected(options);
        bench.log_in();
        bench
    }

    /// State that is connected, with the first frame of the login taken.
    pub(super) fn connected(options: Options) -> Self {
        options.check().expect("good options");
        let now = Instant::now();
        let state = State::new(Arc::new(options), now);
        let mut bench = Self { state, now, unsent: 0, replaced: Vec::new() };
        bench.state.handle_connected(now);
        assert_eq!(bench.sent(), [Sent::Start]);
        bench
    }

    pub(super) fn log_in(&mut self) {
        self.challenge(&[7; 20]);
        assert_eq!(self.sent(), [Sent::Proof]);
        self.message(0, &ServerMessage::AuthenticateOk(AuthenticateOk::default()));
        assert!(self.state.is_ready());
    }

    pub(super) fn challenge(&mut self, data: &[u8]) {
        let challenge = AuthenticateContinue { auth_data: data.to_vec() };
        self.message(0, &ServerMessage::AuthenticateContinue(challenge));
    }

    fn dialect(&self) -> Dialect {
        self.state.shared.options.dialect
    }

    // ---- the server's side ----

    /// Passes input that the state takes completely.
    #[track_caller]
    pub(super) fn input(&mut self, bytes: &[u8]) {
        let (taken, _) = self.state.handle_input(bytes, self.now);
        assert_eq!(taken, bytes.len(), "whole frames are taken");
    }

    #[track_caller]
    pub(super) fn message(&mut self, session: u64, message: &ServerMessage) {
        self.input(&encoded_in(self.dialect(), session, message));
    }

    #[track_caller]
    pub(super) fn frames(&mut self, session: u64, code: impl FnOnce(&mut Encoder<'_>)) {
        self.input(&frames(session, code));
    }

    #[track_caller]
    pub(super) fn ok(&mut self, session: u64) {
        self.frames(session, |encoder| encoder.ok(None));
    }

    /// Answers with one row.
    #[track_caller]
    pub(super) fn answer(&mut self, session: u64, text: &str) {
        self.input(&answer(session, text));
    }

    #[track_caller]
    pub(super) fn error(&mut self, session: u64, code: u32) {
        let error = ErrorReply::error(code, b"HY000", "it failed");
        self.message(session, &ServerMessage::Error(error));
    }

    #[track_caller]
    pub(super) fn fatal(&mut self, session: u64, code: u32) {
        let error = ErrorReply::fatal(code, b"HY000", "it ended");
        self.message(session, &ServerMessage::Error(error));
    }

    /// Messages sent since the last call.
    #[track_caller]
    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let out = self.state.take_out();
        let (mut rest, mut sent) = (&out[..], Vec::new());
        let (dialect, limits) = (self.dialect(), Limits::default());
        while let Some((frame, bytes)) = Frame::parse(rest, dialect, &limits).expect("good frames")
        {
            let message = frame.client_message(&limits).expect("a good message");
            sent.push(Sent::of(frame.session(), &message));
            rest = &rest[bytes..];
        }
        assert!(rest.is_empty(), "only whole frames are sent");
        sent
    }

    // ---- the client's side ----

    /// Opens a session, also at the server.
    #[track_caller]
    pub(super) fn session(&mut self) -> u64 {
        let session = self.state.try_open().expect("it is ready");
        let seq = self.ask(session, "first");
        let _ = self.sent();
        self.ok(session);
        self.answer(session, "first");
        self.good(session, seq, "first");
        session
    }

    #[track_caller]
    pub(super) fn ask(&mut self, session: u64, text: &str) -> u64 {
        self.request(session, Request::sql(text)).expect("it lives")
    }

    pub(super) fn request(&mut self, session: u64, request: Request) -> Result<u64, Error> {
        let deadline = self.now + request.timeout.unwrap_or(TIMEOUT);
        let wire = request.into_wire(Some(1024));
        self.state.ask(session, wire, deadline)
    }

    /// Makes a statement in a session of its own.
    pub(super) fn ask_once(&mut self, text: &str) -> (u64, u64) {
        let wire = Request::sql(text).into_wire(None);
        let asked = self.state.ask_once(wire, self.now + TIMEOUT);
        asked.expect("it lives")
    }

    pub(super) fn close(&mut self, session: u64) {
        self.state.close(session, self.now);
    }

    /// Ends the request, as a thread does whose deadline has passed.
    pub(super) fn expire(&mut self, session: u64, seq: u64) {
        self.state.expire(session, |slot| slot.seq == seq);
    }

    pub(super) fn take(&mut self, session: u64, seq: u64) -> Taken {
        self.state.take(session, seq)
    }

    /// Asserts that the answer is this one row.
    #[track_caller]
    pub(super) fn good(&mut self, session: u64, seq: u64, text: &str) {
        let taken = self.take(session, seq);
        assert!(matches!(taken.result, Some(Ok(()))), "{text}: {:?}", taken.result);
        assert_eq!(texts(&taken.bytes), [text]);
    }

    /// Asserts that the answer is an error.
    #[track_caller]
    pub(super) fn bad(&mut self, session: u64, seq: u64) -> Error {
        self.take(session, seq).result.expect("an outcome").expect_err("an error")
    }

    #[track_caller]
    pub(super) fn fails(&mut self, session: u64, seq: u64, code: u32, fate: Fate) {
        let error = self.bad(session, seq);
        assert_eq!(error.server_error().expect("of the server").code, code);
        assert_eq!(error.fate(), fate);
    }

    /// Asserts that nothing of the answer has arrived.
    #[track_caller]
    pub(super) fn open(&mut self, session: u64, seq: u64) {
        assert!(self.take(session, seq).is_nothing());
    }

    /// Watches an answer. The returned value counts the notifications.
    pub(super) fn watch(&mut self, session: u64, seq: u64) -> Told {
        let (give, told) = mpsc::channel();
        let watcher = Watcher::Call(Box::new(move || give.send(()).expect("the test listens")));
        self.replaced.extend(self.state.watch(session, seq, usize::MAX, watcher));
        Told(told)
    }

    /// Runs due callbacks.
    pub(super) fn tell(&mut self) {
        for event in self.state.take_events() {
            match event {
                Watcher::Call(job) => job(),
                Watcher::Thread(_) => unreachable!("there is one thread"),
            }
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.state.handle_timeout(self.now, self.unsent);
    }

    /// Asserts that no session keeps any data.
    #[track_caller]
    pub(super) fn is_empty(&self) {
        assert_eq!(self.state.outstanding(), 0);
        assert_eq!(self.state.open_sessions(), 0);
        let left: Vec<_> = self.state.exchanges.keys().collect();
        assert!(left.is_empty(), "{left:?} are left");
    }

    /// Error that ended the connection.
    #[track_caller]
    pub(super) fn lost(&self) -> ErrorKind {
        self.state.lost().expect("it is lost").kind().clone()
    }
}

pub(super) struct Told(Receiver<()>);

impl Told {
    /// Number of notifications since the last call.
    pub(super) fn times(&self) -> usize {
        self.0.try_iter().count()
    }
}

impl Sent {
    fn of(session: u64, message: &ClientMessage) -> Self {
        match message {
            ClientMessage::AuthenticateStart(_) => Self::Start,
            ClientMessage::AuthenticateContinue(_) => Self::Proof,
            ClientMessage::CapabilitiesGet => Self::Probe,
            ClientMessage::SessionNew => Self::New(session),
            ClientMessage::SessionClose => Self::Close(session),
            ClientMessage::SessionKill(kill) if kill.r#type == KillSessionType::Query => {
                Self::KillQuery(session)
            }
            ClientMessage::SessionKill(_) => Self::KillSession(session),
            ClientMessage::TokenOffer(_) => Self::Offer(session),
            ClientMessage::ExecSql(sql) => match &sql.stmt {
                Some(text) => Self::Text(session, String::from_utf8_lossy(text).into_owned()),
                None => Self::Digest(session),
            },
            ClientMessage::GetTso(_) => Self::Timestamps(session),
            ClientMessage::AutoSavepoint(_) => Self::Savepoint(session),
            other => panic!("a client does not send {other:?}"),
        }
    }
}

pub(super) fn text(session: u64, text: &str) -> Sent {
    Sent::Text(session, text.to_owned())
}

pub(super) fn encoded(session: u64, message: &ServerMessage) -> Vec<u8> {
    encoded_in(Dialect::Legacy, session, message)
}

fn encoded_in(dialect: Dialect, session: u64, message: &ServerMessage) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(dialect, session, &mut out).expect("it is short");
    out
}

pub(super) fn frames(session: u64, code: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut buffer = OutBuffer::default();
    code(&mut Encoder::new(&mut buffer, session));
    buffer.to_vec()
}

/// Writes metadata and one row, without the end.
pub(super) fn row(encoder: &mut Encoder<'_>, text: &str) {
    encoder.column(&Column::text("text", 45, 255)).expect("it is short");
    encoder.row(|row| row.text(text)).expect("it is short");
}

/// Answer of one row.
pub(super) fn answer(session: u64, text: &str) -> Vec<u8> {
    frames(session, |encoder| {
        row(encoder, text);
        encoder.fetch_done();
        encoder.execute_ok();
    })
}

/// Texts of the rows in an answer.
pub(super) fn texts(mut bytes: &[u8]) -> Vec<String> {
    let limits = Limits::default();
    let mut texts = Vec::new();
    while let Some((frame, length)) =
        Frame::parse(bytes, Dialect::Legacy, &limits).expect("good frames")
    {
        if let Ok(ServerMessage::Row(row)) = frame.server_message(&limits) {
            let text = row.field[0].strip_suffix(b"\0").expect("a text ends in a zero");
            texts.push(String::from_utf8_lossy(text).into_owned());
        }
        bytes = &bytes[length..];
    }
    texts
}
