//! [`Server`]: reads the frames of a connection and passes each to its session.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use super::accounts::{Accounts, Place};
use super::cache::Cache;
use super::conn_shared::{ConnShared, Writers};
use super::error::{CancelReason, SessionError, put_error};
use super::glitches::Glitches;
use super::login::PendingLogin;
use super::logins::Logins;
use super::queued::{Queued, SessionCommand};
use super::run::Session;
use super::server_conn::{KeptPlan, Opening, ServerConn};
use super::service::{AUTO_COMMIT, Service};
use super::session_shared::NotQueued;
use crate::codec::encoder::{Encoder, PagePool};
use crate::codec::error::{MessageError, PACKET_TOO_LARGE_STATE, Scope, code};
use crate::codec::frame::{Dialect, Frame, HeaderError};
use crate::codec::limits::Limits;
use crate::codec::message::{ClientKind, ClientMessage, ServerMessage};
use crate::codec::proto::connection::{Capabilities, Capability};
use crate::codec::proto::session::{KillSession, KillSessionType};
use crate::codec::proto::value::Scalar;
use crate::net::{Close, CloseReason, Connection, FULL, HalfClose, Input, Protocol, Turn};
use crate::runtime::log_some;
use crate::stats::Counter;
use crate::sys::clock;

/// Serves a [`Service`] on connections. [`listen`](crate::Handle::listen) takes it.
///
/// One value may serve several listeners of one runtime. They share the caches.
pub struct Server<S: Service> {
    service: Arc<S>,
    accounts: Accounts,
    /// Created at the first connection, with the configuration of its runtime.
    shared: OnceLock<Arc<ServerShared<S>>>,
}

/// Data that all connections of a server share.
pub(super) struct ServerShared<S> {
    pub(super) service: Arc<S>,
    pub(super) accounts: Accounts,
    pub(super) sql: Cache<[u8]>,
    pub(super) plans: Cache<KeptPlan>,
    pub(super) logins: Arc<Logins<Connection>>,
    writers: Arc<Writers>,
    pages: PagePool,
    last_number: AtomicU32,
}

impl<S> ServerShared<S> {
    /// Returns the next session number, which is never 0.
    pub(super) fn next_number(&self) -> u32 {
        let next = || self.last_number.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        match next() {
            0 => next(),
            number => number,
        }
    }
}

impl<S: Service> Server<S> {
    /// Serves `service`.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self::shared(Arc::new(service))
    }

    /// Serves a service to which the caller keeps a reference.
    #[must_use]
    pub fn shared(service: Arc<S>) -> Self {
        Self { service, accounts: Accounts::default(), shared: OnceLock::new() }
    }

    /// Returns the accounts of this server, to look at what they use while it serves.
    #[must_use]
    pub fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }

    /// The state of a connection that is not given to the call, until the connection has ended.
    fn conn_of(&self, conn: &Connection) -> Option<Arc<ServerConn<S>>> {
        conn.extension::<Weak<ServerConn<S>>>()?.upgrade()
    }

    pub(super) fn of(&self, conn: &Connection) -> &Arc<ServerShared<S>> {
        self.shared.get_or_init(|| {
            let config = conn.group().config();
            let (entries, shards) = (config.request_cache_number, config.request_cache_instances);
            let bytes = config.request_cache_bytes;
            Arc::new(ServerShared {
                service: Arc::clone(&self.service),
                accounts: self.accounts.clone(),
                sql: Cache::new(entries, bytes, shards),
                plans: Cache::new(entries, bytes, shards),
                logins: Arc::new(Logins::new()),
                writers: Arc::default(),
                pages: PagePool::default(),
                last_number: AtomicU32::new(0),
            })
        })
    }
}

impl<S: Service> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Reader of one connection. It is public only because the trait requires it.
pub struct Reader<S: Service> {
    pub(super) server_conn: Arc<ServerConn<S>>,
    /// Set until the login has succeeded, unless the connection was refused.
    pub(super) login: Option<PendingLogin>,
    /// Time of the current receive.
    pub(super) now: Instant,
    pub(super) glitches: Glitches,
    /// Size limit of an incomplete or unconsumed frame, as it was when the frame began.
    frame_limit: Option<u32>,
    /// Set if the mailbox had no place for the last frame: end of the wait for one.
    unconsumed_until: Option<Instant>,
    /// Answers written during this receive, to leave in one send.
    answers: Vec<u8>,
    /// Place of the connection among those of its account.
    pub(super) place: Option<Place>,
    /// Time that the rate of the account gives to the next request in the input.
    slot: Option<Instant>,
}

impl<S: Service> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl<S: Service> Protocol for Server<S> {
    type State = Reader<S>;

    fn opened(&self, conn: &Connection) -> Result<Reader<S>, Close> {
        let shared = Arc::clone(self.of(conn));
        let config = conn.group().config();
        let dialect = if config.galaxy_protocol {
            Dialect::Galaxy { version: config.galaxy_version }
        } else {
            Dialect::Legacy
        };
        let pages = shared.pages.clone();
        let writers = Arc::clone(&shared.writers);
        let server_conn = Arc::new(ServerConn::new(
            ConnShared::new(conn.clone(), dialect, pages, writers),
            shared,
        ));
        // For calls without the state. It is weak, because `server_conn` holds the connection.
        let _ = conn.set_extension(Arc::downgrade(&server_conn));
        let login = Some(PendingLogin::admit(&server_conn)?);
        Ok(Reader {
            server_conn,
            login,
            now: clock::now(),
            glitches: Glitches::default(),
            frame_limit: None,
            unconsumed_until: None,
            answers: Vec::new(),
            place: None,
            slot: None,
        })
    }

    fn received(
        &self,
        _conn: &Connection,
        reader: &mut Reader<S>,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let read = reader.read(input);
        reader.send_answers();
        read
    }

    fn released(&self, conn: &Connection, turn: Turn) {
        if let Some(server_conn) = self.conn_of(conn) {
            if turn.is_ending() {
                server_conn.push_ready();
            } else {
                server_conn.dispatch(clock::now(), turn.is_last());
            }
        }
    }

    fn drained(&self, conn: &Connection) {
        if let Some(server_conn) = self.conn_of(conn) {
            server_conn.conn.wake_waiting();
        }
    }

    fn ended(&self, _conn: &Connection, reader: &mut Reader<S>) -> Result<HalfClose, Close> {
        // The requests that were read are answered, as far as credit suffices, within a limited
        // time.
        reader.server_conn.conn.finish();
        reader.server_conn.sessions().iter().for_each(|session| session.shared.wake());
        reader.server_conn.end_later();
        Ok(HalfClose::End)
    }

    fn draining(&self, conn: &Connection, reader: &mut Reader<S>) {
        // A client whose probe has no answer gives the connection up, with the requests in
        // progress.
        conn.read_while_held();
        reader.server_conn.conn.drain();
        for session in reader.server_conn.sessions() {
            // A busy session finishes its requests, as far as credit suffices, and then ends
            // itself.
            if session.shared.close_if_idle() {
                reader.kill_and_answer(session.shared.id.wire(), &SessionError::shutdown());
            } else {
                session.shared.wake();
            }
        }
        reader.send_answers();
        // Sessions end at once, because other sessions may wait for their locks.
        reader.server_conn.push_ready();
    }

    fn closed(&self, _conn: &Connection, mut reader: Reader<S>, _reason: &CloseReason) {
        reader.end_login();
        reader.server_conn.end();
        reader.server_conn.conn.wake_waiting();
    }
}

impl<S: Service> Reader<S> {
    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Close> {
        let dialect = self.server_conn.conn.dialect;
        self.now = clock::now();
        loop {
            let mut limits = self.limits();
            if let Some(begun) = self.frame_limit.take() {
                limits.frame_bytes = begun;
            }
            match Frame::parse(input.bytes(), dialect, &limits) {
                Ok(Some((frame, bytes))) => {
                    self.route(&frame, &limits)?;
                    if let Some(until) = self.unconsumed_until.take() {
                        input.set_aside(until);
                        self.frame_limit = Some(limits.frame_bytes);
                        return Ok(());
                    }
                    if self.glitches.is_spent() {
                        return Err(self.too_many_glitches(frame.session()));
                    }
                    input.consume(bytes);
                    self.slot = None;
                }
                Ok(None) => {
                    if let Ok(Some(header)) = dialect.parse(input.bytes(), limits.frame_bytes) {
                        input.need(dialect.frame_bytes(&header));
                        self.frame_limit = Some(limits.frame_bytes);
                    }
                    return Ok(());
                }
                Err(error) => return Err(self.bad_header(input.bytes(), &error)),
            }
        }
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        let most = self.server_conn.conn.config().max_allowed_packet;
        limits.frame_bytes = u32::try_from(most).unwrap_or(u32::MAX);
        if self.is_logged_in() { limits } else { limits.before_login() }
    }

    /// Takes in no request during a drain. Returns false for a probe, a kill and an offer of credit,
    /// because requests in progress need them.
    fn refuses_in_drain(&mut self, session: u64, kind: u8) -> bool {
        let kind = ClientKind::from_number(kind);
        if matches!(
            kind,
            Some(ClientKind::CapabilitiesGet | ClientKind::SessionKill | ClientKind::TokenOffer)
        ) {
            return false;
        }
        self.late();
        // The end of a session is sent behind its replies and answers further requests. An answer
        // from here could overtake them.
        if self.server_conn.find(session).is_none() {
            self.refuse(session, &SessionError::shutdown());
        }
        true
    }

    fn is_logged_in(&self) -> bool {
        self.server_conn.peer.get().is_some()
    }

    /// Closes the connection: the begin of the next frame is unknown.
    fn bad_header(&mut self, input: &[u8], error: &HeaderError) -> Close {
        self.server_conn.conn.count(Counter::ProtocolErrors);
        let session = input.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let answer = match error {
            HeaderError::TooLong { .. } => SessionError::fatal(
                code::PACKET_TOO_LARGE,
                PACKET_TOO_LARGE_STATE,
                "Got a packet bigger than 'polarx_rpc_max_allowed_packet' bytes",
            ),
            _ => SessionError::unsupported(error.to_string()).into_fatal(),
        };
        self.refuse(session, &answer);
        Close::error(*error)
    }

    fn route(&mut self, frame: &Frame<'_>, limits: &Limits) -> Result<(), Close> {
        let session = frame.session();
        if self.server_conn.conn.is_draining() && self.refuses_in_drain(session, frame.kind()) {
            return Ok(());
        }
        let message = match frame.client_message(limits) {
            Ok(message) => message,
            Err(error) => return self.bad_message(session, &error),
        };
        if let ClientMessage::CapabilitiesGet = message {
            self.send(session, |encoder| encoder.message(&capabilities()));
            return Ok(());
        }
        if !self.is_logged_in() {
            return self.log_in(session, message);
        }
        let bytes = frame.bytes().len();
        // Lists take far more memory than bytes on the wire. The frame was decoded, so this
        // succeeds.
        let memory = || {
            ClientMessage::memory_bytes(frame.kind(), frame.body(), limits)
                .map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        match message {
            ClientMessage::ExecSql(sql) => {
                let bytes = if sql.args.is_empty() { bytes } else { memory() };
                self.queue(session, SessionCommand::Sql(Box::new(sql)), bytes, true);
            }
            ClientMessage::ExecPlan(plan) => {
                self.queue(session, SessionCommand::Plan(plan), memory(), false);
            }
            ClientMessage::AutoSavepoint(savepoint) => {
                self.queue(session, SessionCommand::Savepoint(savepoint), bytes, false);
            }
            ClientMessage::ExpectOpen(open) => {
                self.queue(session, SessionCommand::ExpectOpen(open), memory(), false);
            }
            ClientMessage::ExpectClose => {
                self.queue(session, SessionCommand::ExpectClose, bytes, false);
            }
            ClientMessage::GetFileInfo(_)
            | ClientMessage::TransferFileData(_)
            | ClientMessage::ManageFile(_) => {
                self.queue(session, SessionCommand::File, bytes, false);
            }
            ClientMessage::SessionClose => {
                let is_unused = |session: Arc<Session<S>>| session.shared.is_unused();
                let unused = self.server_conn.find(session).is_some_and(is_unused);
                self.queue(session, SessionCommand::Close, bytes, false);
                if unused && self.unconsumed_until.is_none() {
                    self.glitch();
                }
            }
            ClientMessage::SessionNew => self.open(session, bytes),
            ClientMessage::SessionKill(kill) => self.kill(session, kill),
            ClientMessage::TokenOffer(offer) => self.offer(session, offer.token()),
            ClientMessage::GetTso(request) => {
                return self.ask_time(session, request.batch_count);
            }
            ClientMessage::AuthenticateStart(_) | ClientMessage::AuthenticateContinue(_) => {
                let unexpected = "Unexpected message for polarx rpc.";
                self.glitch();
                self.refuse(session, &SessionError::unsupported(unexpected).into_fatal());
            }
            other => {
                self.server_conn.conn.count(Counter::ProtocolErrors);
                let text = format!("message of kind {} is not supported", other.kind());
                self.refuse(session, &SessionError::unsupported(&*text).into_fatal());
                return Err(Close::new(text));
            }
        }
        Ok(())
    }

    fn bad_message(&mut self, session: u64, error: &MessageError) -> Result<(), Close> {
        let answer = SessionError::unsupported(error.to_string());
        if error.scope() != Scope::Connection && self.is_logged_in() {
            // The frame exceeds a limit but is whole, so only this request fails, in its turn.
            let found = self.server_conn.find(session);
            if self.refuse_in_turn(session, found, answer, true) {
                self.server_conn.conn.count(Counter::ProtocolErrors);
                self.glitch();
            }
            return Ok(());
        }
        self.server_conn.conn.count(Counter::ProtocolErrors);
        self.refuse(session, &answer.into_fatal());
        Err(Close::error(*error))
    }

    fn open(&mut self, id: u64, bytes: usize) {
        if id & AUTO_COMMIT != 0 {
            return self.unsupported(id);
        }
        match self.server_conn.open(id) {
            Opening::Opened(session) => {
                self.glitches.excuse();
                let queued = Queued::new(SessionCommand::Open, bytes, self.now);
                self.queue_in(session, &mut Some(queued));
            }
            Opening::Duplicate => {
                self.glitch();
                let error = SessionError::unsupported("Duplicate session ID.");
                self.refuse(id, &error.into_fatal());
            }
            Opening::Limit(error) => self.too_many(id, error),
        }
    }

    fn too_many(&mut self, id: u64, error: SessionError) {
        self.glitch();
        self.server_conn.conn.count(Counter::SessionsRefusedLimit);
        self.refuse(id, &error.into_fatal());
    }

    fn queue(&mut self, id: u64, command: SessionCommand, bytes: usize, is_sql: bool) {
        let found = self.server_conn.find(id);
        let mut queued = Queued::new(command, bytes, self.now);
        // Other requests of the account may wait for a session in a transaction.
        let is_urgent = found.as_ref().is_some_and(|session| session.shared.class().is_urgent());
        if queued.is_request()
            && !is_urgent
            && let Err(error) = self.ask_account(&mut queued)
        {
            // Not a glitch: a client cannot know what the others of its account use.
            if self.refuse_in_turn(id, found, error, is_sql) {
                self.server_conn.account().note_refused();
                self.server_conn.conn.count(Counter::RequestsRefusedAccount);
            }
        } else if self.unconsumed_until.is_none() {
            self.queue_to(id, found, queued, is_sql);
        }
    }

    /// Answers a request with an error, behind the other answers of its session. Returns false if the
    /// mailbox has no place for it.
    fn refuse_in_turn(
        &mut self,
        id: u64,
        found: Option<Arc<Session<S>>>,
        error: SessionError,
        is_sql: bool,
    ) -> bool {
        let queued = Queued::new(SessionCommand::Broken(error), 0, self.now);
        self.queue_to(id, found, queued, is_sql);
        self.unconsumed_until.is_none()
    }

    fn queue_to(&mut self, id: u64, found: Option<Arc<Session<S>>>, queued: Queued, is_sql: bool) {
        let mut queued = Some(queued);
        if id & AUTO_COMMIT == 0 {
            match found {
                Some(session) => self.queue_in(session, &mut queued),
                None => self.not_found(id),
            }
            return;
        }
        if !is_sql {
            return self.unsupported(id);
        }
        if let Some(session) = found {
            match self.try_queue(&session, &mut queued) {
                // The session is about to end, and the statement gets a new one.
                Err(NotQueued::Closed) => {}
                result => return self.after_queueing(session, result),
            }
        }
        match self.server_conn.open(id) {
            Opening::Opened(session) => self.queue_in(session, &mut queued),
            // Not `Duplicate`: the old session was closed, and only this thread opens sessions.
            Opening::Duplicate => self.not_found(id),
            Opening::Limit(error) => self.too_many(id, error),
        }
    }

    /// Applies the limits of the account to a request. If the request must wait, its frame stays
    /// unconsumed.
    fn ask_account(&mut self, queued: &mut Queued) -> Result<(), SessionError> {
        let account = self.server_conn.account();
        let limits = &self.server_conn.peer().account().limits;
        let slot = match self.slot {
            Some(slot) => slot,
            None => account.slot(limits, self.now)?,
        };
        self.slot = Some(slot);
        if slot > self.now {
            self.unconsumed_until = Some(slot);
            return Ok(());
        }
        queued.place = account.take_request(limits)?;
        Ok(())
    }

    fn queue_in(&mut self, session: Arc<Session<S>>, queued: &mut Option<Queued>) {
        let result = self.try_queue(&session, queued);
        self.after_queueing(session, result);
    }

    fn try_queue(
        &mut self,
        session: &Session<S>,
        queued: &mut Option<Queued>,
    ) -> Result<(), NotQueued> {
        let is_request = queued.as_ref().is_some_and(Queued::is_request);
        let result = session.shared.queue(queued);
        if is_request && result.is_ok() {
            self.glitches.excuse();
        }
        result
    }

    fn after_queueing(&mut self, session: Arc<Session<S>>, result: Result<(), NotQueued>) {
        let id = session.shared.id.wire();
        match result {
            Ok(()) => {
                self.server_conn.watch();
                if session.becomes_runnable() {
                    self.send_answers();
                    self.server_conn.make_ready(session);
                }
            }
            Err(NotQueued::Closed) => self.not_found(id),
            Err(NotQueued::Later(until)) => self.unconsumed_until = Some(until),
            Err(NotQueued::Full) => {
                self.glitch();
                self.server_conn.conn.count(Counter::RequestsRefusedQueue);
                let error = SessionError::unsupported("Session max_queued_messages limit exceed.");
                self.kill_and_answer(id, &error.into_fatal());
            }
            Err(NotQueued::Bytes(limit)) => {
                self.glitch();
                self.server_conn.conn.count(Counter::RequestsRefusedBytes);
                let text = format!("Session max_queued_bytes {limit} limit exceed.");
                self.kill_and_answer(id, &SessionError::unsupported(text).into_fatal());
            }
        }
    }

    /// Ends a session because of a message of its client.
    fn kill_and_answer(&mut self, id: u64, error: &SessionError) {
        if let Some(session) = self.server_conn.find(id) {
            self.server_conn.forget(session.shared.id);
            session.shared.kill(CancelReason::Session);
            session.linger();
        }
        self.refuse(id, error);
    }

    fn kill(&mut self, id: u64, kill: KillSession) {
        let Some(session) = self.server_conn.find(id) else { return self.not_found(id) };
        let conn = Arc::clone(&self.server_conn.conn);
        let named = kill.x_session_id;
        if named != id {
            let text = "kill names another session; the header counts";
            log_some!(conn.group(), Kill, DEBUG, debug, id, named, text);
        }
        let ends_session = kill.r#type == KillSessionType::Connection;
        // A client kills a request after it got something or waited. A kill in the same write as
        // the request, or of an unused session, is a glitch.
        if session.shared.arrived_at(self.now) || ends_session && session.shared.is_unused() {
            self.glitch();
        }
        let hit = if ends_session {
            conn.count(Counter::SessionsKilled);
            self.kill_and_answer(id, &SessionError::killed());
            true
        } else {
            session.shared.cancel(CancelReason::Query)
        };
        if hit && conn.config().enable_kill_log {
            let (session, kind) = (session.shared.id, kill.r#type as i32);
            log_some!(conn.group(), Kill, INFO, info, %session, kind, "kill");
        }
    }

    fn offer(&mut self, id: u64, kilobytes: i32) {
        match self.server_conn.find(id) {
            Some(session) if kilobytes >= 0 => {
                if !session.shared.offer(i64::from(kilobytes) * 1024) {
                    self.late();
                }
            }
            Some(_) => self.glitch(),
            // The session of one statement may have ended just now, unknown to the client.
            None if id & AUTO_COMMIT != 0 => self.late(),
            None => self.not_found(id),
        }
    }

    fn ask_time(&mut self, id: u64, count: i32) -> Result<(), Close> {
        if id & AUTO_COMMIT != 0 {
            self.unsupported(id);
            return Ok(());
        }
        if let Some(session) = self.server_conn.find(id) {
            session.shared.set_used(self.now);
        }
        let timestamps = Arc::clone(self.server_conn.timestamps());
        if !timestamps.ask(id, count, &self.server_conn.conn.net) {
            self.server_conn.conn.count(Counter::RequestsRefusedQueue);
            let text =
                format!("requests for timestamps exceed {}", super::timestamps::MOST_WAITING);
            // Answers have no number: a refusal would answer the oldest waiting request.
            return Err(Close::new(text));
        }
        if timestamps.becomes_runnable() {
            self.send_answers();
            self.server_conn.make_ready(timestamps);
        }
        Ok(())
    }

    pub(super) fn refuse(&mut self, session: u64, error: &SessionError) {
        self.send(session, |encoder| put_error(encoder, error));
    }

    /// Writes an answer of the reader. It leaves at the end of the receive, or before a session
    /// runs.
    pub(super) fn send<R>(&mut self, session: u64, write: impl FnOnce(&mut Encoder<'_>) -> R) {
        self.server_conn.conn.append_answer(session, write, &mut self.answers);
        if self.answers.len() >= FULL {
            self.send_answers();
        }
    }

    pub(super) fn send_answers(&mut self) {
        if !self.answers.is_empty() {
            self.server_conn.conn.net.send(std::mem::take(&mut self.answers));
        }
    }
}

fn capabilities() -> ServerMessage {
    let capability = Capability { name: b"polarx_rpc".to_vec(), value: Scalar::unsigned(1).into() };
    ServerMessage::Capabilities(Capabilities { capabilities: vec![capability] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_last_session_number_comes_1_and_never_0() {
        let shared = ServerShared {
            service: Arc::new(()),
            accounts: Accounts::default(),
            sql: Cache::new(1, 1, 1),
            plans: Cache::new(1, 1, 1),
            logins: Arc::new(Logins::new()),
            writers: Arc::default(),
            pages: PagePool::default(),
            last_number: AtomicU32::new(u32::MAX - 2),
        };
        let numbers = [(); 4].map(|()| shared.next_number());
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 1, 2]);
    }
}
