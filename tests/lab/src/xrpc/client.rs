//! A client of one connection.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use epoll_group::codec::auth;
use epoll_group::codec::error::MessageError;
use epoll_group::codec::frame::{Decoder, Dialect, HeaderError};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};
use epoll_group::codec::proto::connection::Capabilities;
use epoll_group::codec::proto::expect::Open;
use epoll_group::codec::proto::plan::ExecPlan;
use epoll_group::codec::proto::session::KillSessionType;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::tso::Operation;
use socket2::{Domain, Socket, Type};

use super::super::random::Random;
use super::DEADLINE;
use super::exchange::{Exchange, Outcome};
use super::legal::{Asked, Illegal, Ticket};
use super::reply::{Failure, Reply};
use super::request;

/// Reason why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server closed the connection.
    Closed,
    /// The connection broke, most often by a reset.
    Broken(io::ErrorKind),
    /// Nothing arrived in time.
    Late,
    /// The stream of frames is out of step.
    Header(HeaderError),
    /// A frame that a client would not accept.
    Illegal(Illegal),
}

impl Trouble {
    /// True if the server ended the connection, in order or not.
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Closed | Self::Broken(_))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Broken(kind) => write!(f, "the connection broke: {kind}"),
            Self::Late => f.write_str("nothing came in time"),
            Self::Header(error) => write!(f, "no frame: {error}"),
            Self::Illegal(illegal) => write!(f, "illegal: {illegal}"),
        }
    }
}

/// A frame of the server, not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFrame {
    pub session: u64,
    pub kind: u8,
    pub body: Vec<u8>,
}

impl RawFrame {
    /// Decodes the frame in today's dialect.
    pub fn message(&self) -> Result<ServerMessage, MessageError> {
        ServerMessage::decode(Dialect::Legacy, self.kind, &self.body, &Limits::default())
    }

    /// Returns the error in this frame, and panics if it is another message.
    #[track_caller]
    pub fn failure(&self) -> Failure {
        match self.message() {
            Ok(ServerMessage::Error(error)) => (&error).into(),
            other => panic!("no error: {other:?}"),
        }
    }
}

/// A connection to a server.
///
/// Requests are numbered ([`Ticket`]). Their replies are assembled as frames arrive, for all
/// sessions at once, so that waiting for one reply loses nothing of the others. A late or illegal
/// frame and the end of the connection are panics, except in `try_…`.
pub struct Client {
    socket: TcpStream,
    dialect: Dialect,
    decoder: Decoder,
    out: Vec<u8>,
    /// Writes are cut at random.
    chop: Option<Random>,
    exchange: Exchange,
    /// KiB that are granted after each TOKEN_DONE.
    offers: Option<i32>,
}

impl Client {
    #[track_caller]
    pub fn connect(to: impl ToSocketAddrs) -> Self {
        Self::connect_with(to, Dialect::Legacy)
    }

    #[track_caller]
    pub fn connect_with(to: impl ToSocketAddrs, dialect: Dialect) -> Self {
        Self::over(TcpStream::connect(to).expect("connected"), dialect)
    }

    /// Connects from another address of this host.
    #[track_caller]
    pub fn connect_from(from: impl Into<IpAddr>, to: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(from.into(), 0).into()).expect("bound");
        socket.connect(&to.into()).expect("connected");
        Self::over(socket.into(), Dialect::Legacy)
    }

    fn over(socket: TcpStream, dialect: Dialect) -> Self {
        socket.set_nodelay(true).expect("an option that every socket has");
        socket.set_write_timeout(Some(DEADLINE)).expect("a time above 0");
        Self {
            socket,
            dialect,
            decoder: Decoder::with_dialect(Limits::default(), dialect),
            out: Vec::new(),
            chop: None,
            exchange: Exchange::default(),
            offers: Some(request::TOKEN),
        }
    }

    /// Connected and logged in.
    #[track_caller]
    pub fn logged_in(to: impl ToSocketAddrs, user: &str, password: &str) -> Self {
        let mut client = Self::connect(to);
        client.login(user, password);
        client
    }

    /// Sets the grant after each TOKEN_DONE in KiB, 10 MiB by default. With `None` the test itself
    /// calls [`Self::offer`].
    pub const fn set_offers(&mut self, kib: Option<i32>) {
        self.offers = kib;
    }

    /// Rows are counted and not kept.
    pub const fn forget_rows(&mut self) {
        self.exchange.keep_rows = false;
    }

    /// Writes from here on in small pieces, cut at random.
    pub const fn chop(&mut self, seed: u64) {
        self.chop = Some(Random(seed));
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is connected")
    }

    // Login.

    #[track_caller]
    pub fn login(&mut self, user: &str, password: &str) {
        if let Err(failure) = self.try_login(user, password) {
            panic!("the login of {user} was refused: {failure:?}");
        }
    }

    /// `Err` is the server's refusal; the connection may live on.
    #[track_caller]
    pub fn try_login(&mut self, user: &str, password: &str) -> Result<(), Failure> {
        let challenge = self.challenge()?;
        self.prove(Self::proof(user, password, &challenge))
    }

    /// The first half of a login.
    #[track_caller]
    pub fn challenge(&mut self) -> Result<Vec<u8>, Failure> {
        self.challenge_after(&request::login_start())
    }

    /// The same, of a client that names its user at once.
    #[track_caller]
    pub fn challenge_for(&mut self, user: &str) -> Result<Vec<u8>, Failure> {
        self.challenge_after(&request::login_start_of(user))
    }

    #[track_caller]
    fn challenge_after(&mut self, start: &ClientMessage) -> Result<Vec<u8>, Failure> {
        self.send(0, start);
        let reply = self.reply(0);
        reply.error.map_or_else(|| Ok(reply.challenge.expect("a challenge or an error")), Err)
    }

    /// The second half of a login, with whatever data.
    #[track_caller]
    pub fn prove(&mut self, data: impl Into<Vec<u8>>) -> Result<(), Failure> {
        self.send(0, &request::login_continue(data));
        self.reply(0).error.map_or(Ok(()), Err)
    }

    /// The data of the second half of a login.
    pub fn proof(user: &str, password: &str, challenge: &[u8]) -> Vec<u8> {
        let challenge = auth::Challenge::parse(challenge).expect("a challenge");
        let proof = challenge.prove(password.as_bytes(), 10_000).expect("a password");
        auth::Reply::new(user.as_bytes(), proof).encode().expect("a name without zeros")
    }

    // Sessions.

    #[track_caller]
    pub fn new_session(&mut self, session: u64) -> Reply {
        self.send(session, &ClientMessage::SessionNew);
        self.reply(session).good()
    }

    /// Closes the session and waits for the answer. The replies to earlier requests must have been
    /// taken.
    #[track_caller]
    pub fn close(&mut self, session: u64) -> Reply {
        self.send(session, &ClientMessage::SessionClose);
        self.reply(session)
    }

    /// Interrupts what the session runs; there is no answer.
    #[track_caller]
    pub fn kill_query(&mut self, session: u64) {
        self.send(session, &request::kill(session, KillSessionType::Query));
    }

    /// Ends the session; the answer is a fatal error, to this and to all that is outstanding.
    #[track_caller]
    pub fn kill_connection(&mut self, session: u64) -> Ticket {
        self.send(session, &request::kill(session, KillSessionType::Connection)).expect("answered")
    }

    // Requests that wait for their reply. The replies to earlier requests of the session must have
    // been taken.

    #[track_caller]
    pub fn execute(&mut self, session: u64, sql: &str) -> Reply {
        self.run(session, request::query(sql))
    }

    #[track_caller]
    pub fn run(&mut self, session: u64, statement: StmtExecute) -> Reply {
        self.send_sql(session, statement);
        self.reply(session)
    }

    /// Runs a statement by its digest alone, and with the text only if the server does not have the
    /// text.
    #[track_caller]
    pub fn run_cached(&mut self, session: u64, statement: StmtExecute) -> Reply {
        let text = statement.stmt.clone().expect("a text");
        let digest = Some(request::digest(&text));
        let known = StmtExecute { stmt: None, stmt_digest: digest.clone(), ..statement.clone() };
        let reply = self.run(session, known);
        if !is_miss(&reply) {
            return reply;
        }
        self.run(session, StmtExecute { stmt_digest: digest, ..statement })
    }

    #[track_caller]
    pub fn run_plan(&mut self, session: u64, plan: ExecPlan) -> Reply {
        self.send(session, &ClientMessage::ExecPlan(Box::new(plan)));
        self.reply(session)
    }

    /// Runs a plan by its digest alone, and in full only if the server does not have the plan.
    #[track_caller]
    pub fn run_plan_cached(&mut self, session: u64, plan: ExecPlan) -> Reply {
        let digest = request::plan_digest(plan.plan.as_ref().expect("a plan"));
        let reply = self.run_plan(session, plan.cached(digest.clone()));
        if !is_miss(&reply) {
            return reply;
        }
        self.run_plan(session, ExecPlan { plan_digest: Some(digest), ..plan })
    }

    #[track_caller]
    pub fn savepoint(&mut self, session: u64, op: Operation, name: &str) -> Reply {
        self.send(session, &request::savepoint(op, name));
        self.reply(session)
    }

    /// Timestamps may overtake what was asked before.
    #[track_caller]
    pub fn timestamps(&mut self, session: u64, count: i32) -> Reply {
        let ticket = self.send(session, &request::timestamps(count)).expect("answered");
        self.reply_to(ticket)
    }

    /// Asks for the capabilities. The answer also shows that the server is alive.
    #[track_caller]
    pub fn probe(&mut self) -> Capabilities {
        let ticket = self.send(0, &ClientMessage::CapabilitiesGet).expect("answered");
        self.reply_to(ticket).good().capabilities.expect("capabilities")
    }

    #[track_caller]
    pub fn expect_open(&mut self, session: u64) -> Reply {
        self.send(session, &ClientMessage::ExpectOpen(Open::no_error()));
        self.reply(session)
    }

    #[track_caller]
    pub fn expect_close(&mut self, session: u64) -> Reply {
        self.send(session, &ClientMessage::ExpectClose);
        self.reply(session)
    }

    /// Grants the session so many KiB.
    #[track_caller]
    pub fn offer(&mut self, session: u64, kib: i32) {
        self.send(session, &request::offer(kib));
    }

    // Sending without waiting.

    #[track_caller]
    pub fn send_sql(&mut self, session: u64, statement: StmtExecute) -> Ticket {
        self.send(session, &ClientMessage::ExecSql(statement)).expect("answered")
    }

    /// Sends a message. Returns the number of the request, if it is to be answered.
    #[track_caller]
    pub fn send(&mut self, session: u64, message: &ClientMessage) -> Option<Ticket> {
        let ticket = self.queue(session, message);
        self.flush();
        ticket
    }

    /// Queues a message for the next [`Self::flush`] or [`Self::send`], which sends all in one
    /// write.
    pub fn queue(&mut self, session: u64, message: &ClientMessage) -> Option<Ticket> {
        message.encode(self.dialect, session, &mut self.out).expect("it is small");
        self.exchange.sent(session, message)
    }

    #[track_caller]
    pub fn flush(&mut self) {
        self.try_flush().expect("sent");
    }

    pub fn try_flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let Some(random) = &mut self.chop else {
            return self.socket.write_all(&out);
        };
        let mut rest = &out[..];
        while !rest.is_empty() {
            let piece = 1 + random.below(24) as usize;
            let (piece, after) = rest.split_at(piece.min(rest.len()));
            self.socket.write_all(piece)?;
            rest = after;
        }
        Ok(())
    }

    /// Sends any bytes. If the server must answer them, the test calls [`Self::asked`] as well.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Registers the request in bytes that were sent by hand.
    pub fn asked(&mut self, session: u64, asked: Asked) -> Ticket {
        self.exchange.asked(session, asked)
    }

    /// Shuts down sending.
    pub fn finish(&self) {
        self.socket.shutdown(Shutdown::Write).expect("finished sending");
    }

    /// Closes the connection by a reset.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(&self.socket);
        socket.set_linger(Some(Duration::ZERO)).expect("a reset to come");
    }

    // Receiving.

    /// The reply to the oldest request of the session that was not taken yet.
    #[track_caller]
    pub fn reply(&mut self, session: u64) -> Reply {
        match self.try_reply(session) {
            Ok(reply) => reply,
            Err(trouble) => panic!("session {session:#x}: {trouble}; {}", self.describe()),
        }
    }

    pub fn try_reply(&mut self, session: u64) -> Result<Reply, Trouble> {
        let ticket = self.exchange.oldest(session).expect("something was asked of the session");
        self.try_reply_to(ticket)
    }

    #[track_caller]
    pub fn reply_to(&mut self, ticket: Ticket) -> Reply {
        match self.try_reply_to(ticket) {
            Ok(reply) => reply,
            Err(trouble) => panic!("request {ticket}: {trouble}; {}", self.describe()),
        }
    }

    pub fn try_reply_to(&mut self, ticket: Ticket) -> Result<Reply, Trouble> {
        self.wait(|client| client.so_far(ticket).done)?;
        Ok(self.exchange.take(ticket).expect("nobody else takes it"))
    }

    /// Returns a reply that was not taken yet, as far as it has arrived.
    #[track_caller]
    pub fn so_far(&self, ticket: Ticket) -> &Reply {
        self.exchange.reply(ticket).expect("a request whose reply was not taken")
    }

    /// Reads until enough of a reply has arrived, or all of it.
    #[track_caller]
    pub fn wait_for(&mut self, ticket: Ticket, enough: impl Fn(&Reply) -> bool) -> &Reply {
        let waited = self.wait(|client| {
            let reply = client.so_far(ticket);
            reply.done || enough(reply)
        });
        if let Err(trouble) = waited {
            panic!("request {ticket}: {trouble}; {}", self.describe());
        }
        self.so_far(ticket)
    }

    /// Reads until every request is answered.
    #[track_caller]
    pub fn wait_for_all(&mut self) {
        let waited = self.wait(|client| client.exchange.waiting().is_empty());
        if let Err(trouble) = waited {
            panic!("{trouble}; {}", self.describe());
        }
    }

    /// Reads frames until the condition holds.
    pub fn wait(&mut self, enough: impl Fn(&Self) -> bool) -> Result<(), Trouble> {
        let until = Instant::now() + DEADLINE;
        while !enough(self) {
            self.receive(until)?;
        }
        Ok(())
    }

    /// Reads one frame and adds it to its reply.
    pub fn receive(&mut self, until: Instant) -> Result<Outcome, Trouble> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(Trouble::Header)? {
                let outcome = self.exchange.received(&frame).map_err(Trouble::Illegal)?;
                if let (true, Some(kib)) = (outcome.token_done, self.offers) {
                    self.queue(outcome.session, &request::offer(kib));
                    self.try_flush().map_err(|error| Trouble::Broken(error.kind()))?;
                }
                return Ok(outcome);
            }
            self.fill(until)?;
        }
    }

    /// Reads one frame that is not added to any reply; `None` at the end of the connection.
    #[track_caller]
    pub fn raw_frame(&mut self) -> Option<RawFrame> {
        match self.try_raw_frame() {
            Ok(frame) => Some(frame),
            Err(trouble) if trouble.is_end() => None,
            Err(trouble) => panic!("{trouble}; {}", self.describe()),
        }
    }

    pub fn try_raw_frame(&mut self) -> Result<RawFrame, Trouble> {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(Trouble::Header)? {
                let (session, kind) = (frame.session(), frame.kind());
                return Ok(RawFrame { session, kind, body: frame.body().to_vec() });
            }
            self.fill(until)?;
        }
    }

    /// Reads the rest of the connection as frames that belong to no reply.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<RawFrame> {
        std::iter::from_fn(|| self.raw_frame()).collect()
    }

    fn fill(&mut self, until: Instant) -> Result<(), Trouble> {
        let mut piece = [0; 1 << 16];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Trouble::Late);
            }
            self.socket.set_read_timeout(Some(left)).expect("a time above 0");
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(Trouble::Closed),
                Ok(count) => {
                    self.decoder.feed(&piece[..count]);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        return Err(Trouble::Late);
                    }
                    kind => return Err(Trouble::Broken(kind)),
                },
            }
        }
    }

    /// The requests that are not answered yet.
    pub fn waiting(&self) -> Vec<(u64, Ticket, Asked)> {
        self.exchange.waiting()
    }

    /// Errors beyond the requests of their session.
    pub fn strays(&self) -> &[(u64, Failure)] {
        self.exchange.strays()
    }

    fn describe(&self) -> String {
        let waiting = self.waiting();
        let first = waiting.iter().take(5).collect::<Vec<_>>();
        let strays = self.strays();
        let count = waiting.len();
        format!("{count} requests outstanding, first of them {first:?}; strays {strays:?}")
    }
}

fn is_miss(reply: &Reply) -> bool {
    reply
        .error
        .as_ref()
        .is_some_and(|error| error.code == epoll_group::codec::error::code::CACHE_MISS)
}
