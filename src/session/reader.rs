//! [`Reader`]: reads the frames of a connection and passes each to its session.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::Place;
use super::cache::MOST_DIGEST_BYTES;
use super::conn_shared::Answers;
use super::error::{CancelReason, SessionError, put_error};
use super::glitches::Glitches;
use super::login::PendingLogin;
use super::mailbox::{NotQueued, Queued, SessionCommand};
use super::run::{ServedConn, Session};
use super::server_conn::{AnySession, NotOpened, Runnable, ServerConn};
use super::service::Service;
use super::session_shared::AUTO_COMMIT;
use super::timestamps::{MOST_WAITING, TimestampQueue, TimestampRequest};
use crate::codec::error::{MessageError, Scope, code};
use crate::codec::frame::{Frame, HeaderError};
use crate::codec::limits::Limits;
use crate::codec::message::{ClientKind, ClientMessage, ServerMessage, plan_memory_bytes};
use crate::codec::proto::connection::{Capabilities, Capability};
use crate::codec::proto::session::{KillSession, KillSessionType};
use crate::codec::proto::value::Scalar;
use crate::net::{Close, Input};
use crate::runtime::{Origin, log_some};
use crate::stats::{Counter, Stage};
use crate::sys::clock::{self, Instant};

/// Reader of one connection. It is public only because [`Protocol`](crate::net::Protocol) requires it.
pub struct Reader<S: Service> {
    pub(super) server_conn: Arc<ServerConn>,
    served: Arc<ServedConn<S>>,
    /// Present until the login has succeeded.
    pub(super) login: Option<PendingLogin>,
    /// Time of the current receive.
    now: Instant,
    glitches: Glitches,
    /// Size limit of an incomplete or unconsumed frame, as it was when the frame began.
    frame_limit: Option<u32>,
    /// Set if the last frame must wait, for a place in the mailbox, the rate of the account or the answer
    /// to the login: end of the wait.
    unconsumed_until: Option<Instant>,
    pub(super) answers: Answers,
    /// Present after the first request for a timestamp.
    timestamps: Option<Arc<TimestampQueue<S>>>,
    /// Place of the connection among those of its account.
    place: Option<Place>,
    /// Time that the rate of the account gives to the next request in the input.
    slot: Option<Instant>,
}

impl<S: Service> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl<S: Service> Reader<S> {
    pub(super) fn new(server_conn: Arc<ServerConn>, service: Arc<S>, login: PendingLogin) -> Self {
        Self {
            answers: Answers::new(Arc::clone(&server_conn.conn)),
            served: Arc::new(ServedConn { server_conn: Arc::clone(&server_conn), service }),
            server_conn,
            login: Some(login),
            now: clock::now(),
            glitches: Glitches::default(),
            frame_limit: None,
            unconsumed_until: None,
            timestamps: None,
            place: None,
            slot: None,
        }
    }

    /// Passes the complete frames of the input to their sessions.
    pub(super) fn read(&mut self, input: &mut Input<'_>) -> Result<(), Close> {
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
        if self.login.is_none() { limits } else { limits.before_login() }
    }

    /// Takes in no request during a drain. Returns false for a probe, a kill and an offer of credit,
    /// because requests in progress need them.
    fn refuses_in_drain(&mut self, session: u64, kind: u8) -> Result<bool, Close> {
        let kind = ClientKind::from_number(kind);
        if matches!(
            kind,
            Some(ClientKind::CapabilitiesGet | ClientKind::SessionKill | ClientKind::TokenOffer)
        ) {
            return Ok(false);
        }
        self.late();
        let error = SessionError::shutdown();
        match self.server_conn.find(session) {
            // Answers with timestamps have no number, so the refusal keeps their order.
            None if kind == Some(ClientKind::GetTso) && self.timestamps.is_some() => {
                self.ask_time(session, None)?;
            }
            None => self.refuse(session, &error),
            // The session of one statement sends no message at its end.
            Some(_) if session & AUTO_COMMIT != 0 => self.refuse_behind(session, &error),
            // The end of a session is sent behind its replies and answers further requests. An answer
            // from here could overtake them.
            Some(_) => {}
        }
        Ok(true)
    }

    /// Closes the connection: the begin of the next frame is unknown.
    fn bad_header(&mut self, input: &[u8], error: &HeaderError) -> Close {
        self.server_conn.conn.count(Counter::ProtocolErrors);
        let session = input.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let answer = match error {
            HeaderError::TooLong { .. } => {
                let text = if self.login.is_some() {
                    error.to_string()
                } else {
                    "Got a packet bigger than 'polarx_rpc_max_allowed_packet' bytes".to_owned()
                };
                SessionError::fatal(code::PACKET_TOO_LARGE, b"S1000", text)
            }
            _ => SessionError::unsupported(error.to_string()).into_fatal(),
        };
        self.refuse(session, &answer);
        Close::error(*error)
    }

    fn route(&mut self, frame: &Frame<'_>, limits: &Limits) -> Result<(), Close> {
        let session = frame.session();
        let asks_capabilities = frame.kind() == ClientKind::CapabilitiesGet.number();
        if self.server_conn.conn.is_login_delayed() && !asks_capabilities {
            self.unconsumed_until = Some(self.now + LONGEST_LOGIN_DELAY);
            return Ok(());
        }
        if self.server_conn.conn.is_draining() && self.refuses_in_drain(session, frame.kind())? {
            return Ok(());
        }
        let decode = || frame.client_message(limits);
        let message = match self.server_conn.conn.group().timed(Stage::Decode, decode) {
            Ok(message) => message,
            Err(error) => return self.bad_message(session, &error),
        };
        if let ClientMessage::CapabilitiesGet = message {
            self.answers.write(session, |encoder| encoder.message(&capabilities()));
            return Ok(());
        }
        if let Some(login) = &mut self.login {
            let service = &*self.served.service;
            let place = login.handle(service, &mut self.answers, session, message, self.now)?;
            if place.is_some() {
                (self.login, self.place) = (None, place);
            }
            return Ok(());
        }
        let bytes = frame.bytes().len();
        // Lists take far more memory than bytes on the wire. The frame was decoded, so this
        // succeeds.
        let size = |bytes: Result<u64, MessageError>| {
            bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        let memory = || size(ClientMessage::memory_bytes(frame.kind(), frame.body(), limits));
        match message {
            ClientMessage::ExecSql(sql) => {
                let has_lists = !sql.args.is_empty() || !sql.session_variables.is_empty();
                let bytes = if has_lists { memory() } else { bytes };
                self.queue(session, SessionCommand::Sql(Box::new(sql)), bytes, true);
            }
            ClientMessage::ExecPlan(plan) => {
                let plan_bytes = match (&plan.plan, &plan.plan_digest) {
                    (Some(_), Some(digest)) if digest.len() <= MOST_DIGEST_BYTES => {
                        size(plan_memory_bytes(frame.body(), limits))
                    }
                    _ => 0,
                };
                self.queue(session, SessionCommand::Plan(plan, plan_bytes), memory(), false);
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
            ClientMessage::PrepareExecute(_)
            | ClientMessage::GetFileInfo(_)
            | ClientMessage::TransferFileData(_)
            | ClientMessage::ManageFile(_) => {
                self.queue(session, SessionCommand::Unsupported, bytes, false);
            }
            ClientMessage::SessionClose => {
                let found = self.server_conn.find(session);
                let unused =
                    found.is_some_and(|session| session.shared().mail(|mail| mail.is_unused()));
                self.queue(session, SessionCommand::Close, bytes, false);
                if unused && self.unconsumed_until.is_none() {
                    self.glitch();
                }
            }
            ClientMessage::SessionNew => self.open(session, bytes),
            ClientMessage::SessionKill(kill) => self.kill(session, kill),
            ClientMessage::TokenOffer(offer) => self.offer(session, offer.token.unwrap_or(-1)),
            ClientMessage::GetTso(request) => {
                return self.ask_time(session, Some(request.batch_count));
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
                return Err(text.into());
            }
        }
        Ok(())
    }

    fn bad_message(&mut self, session: u64, error: &MessageError) -> Result<(), Close> {
        let answer = SessionError::unsupported(error.to_string());
        if error.scope() != Scope::Connection && self.login.is_none() {
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
        match self.open_session(id) {
            Ok(session) => {
                self.glitches.excuse();
                let queued = Queued::new(SessionCommand::Open, bytes, self.now);
                self.queue_in(session, queued);
            }
            Err(NotOpened::Duplicate) => {
                self.glitch();
                let error = SessionError::unsupported("Duplicate session ID.");
                self.refuse(id, &error.into_fatal());
            }
            Err(NotOpened::Limit(error)) => self.too_many(id, error),
        }
    }

    fn open_session(&self, id: u64) -> Result<Arc<dyn AnySession>, NotOpened> {
        self.server_conn.open(id, |id, place| Session::new(id, &self.served, place))
    }

    fn too_many(&mut self, id: u64, error: SessionError) {
        self.glitch();
        self.server_conn.conn.count(Counter::SessionsRefusedLimit);
        self.refuse(id, &error.into_fatal());
    }

    fn queue(&mut self, id: u64, command: SessionCommand, bytes: usize, is_sql: bool) {
        let found = self.server_conn.find(id);
        let mut queued = Queued::new(command, bytes, self.now);
        // Other requests of the account may wait for a session in a transaction. A new session of an
        // operator has the class of its connection.
        let is_urgent = self.server_conn.conn.class.is_urgent()
            || found.as_ref().is_some_and(|session| session.shared().class().is_urgent());
        if queued.is_request()
            && !is_urgent
            && let Err(error) = self.ask_account(&mut queued)
        {
            // Not a glitch: a client cannot know what the others of its account use.
            if self.refuse_in_turn(id, found, error, is_sql) {
                self.server_conn.conn.account_use().note_refused();
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
        found: Option<Arc<dyn AnySession>>,
        error: SessionError,
        is_sql: bool,
    ) -> bool {
        let queued = Queued::new(SessionCommand::Broken(error), 0, self.now);
        self.queue_to(id, found, queued, is_sql);
        self.unconsumed_until.is_none()
    }

    fn queue_to(
        &mut self,
        id: u64,
        found: Option<Arc<dyn AnySession>>,
        queued: Queued,
        is_sql: bool,
    ) {
        if id & AUTO_COMMIT == 0 {
            return match found {
                Some(session) => self.queue_in(session, queued),
                None => self.not_found(id),
            };
        }
        if !is_sql {
            return self.unsupported(id);
        }
        let queued = match found {
            // The session may be about to end. Then the statement gets a new one.
            Some(session) => match self.try_queue(session, queued) {
                Some(queued) => queued,
                None => return,
            },
            None => queued,
        };
        match self.open_session(id) {
            Ok(session) => self.queue_in(session, queued),
            // Impossible: the old session was closed, and only this thread opens sessions.
            Err(NotOpened::Duplicate) => self.not_found(id),
            Err(NotOpened::Limit(error)) => self.too_many(id, error),
        }
    }

    /// Applies the limits of the account to a request. If the request must wait, its frame stays
    /// unconsumed. In a drain it does not wait: as long as frames wait, the drain would not begin.
    fn ask_account(&mut self, queued: &mut Queued) -> Result<(), SessionError> {
        let conn = &self.server_conn.conn;
        let (account, limits) = (conn.account_use(), &conn.account().limits);
        // Before the slot: a request that is refused at once uses up none.
        let place = account.take_request(limits)?;
        let slot = match self.slot {
            Some(slot) => slot,
            None => account.slot(limits, self.now)?,
        };
        self.slot = Some(slot);
        if slot > self.now && !conn.group().drains(Origin::Accepted) {
            self.unconsumed_until = Some(slot);
            return Ok(());
        }
        queued.place = place;
        Ok(())
    }

    fn queue_in(&mut self, session: Arc<dyn AnySession>, queued: Queued) {
        let id = session.shared().id.wire;
        if self.try_queue(session, queued).is_some() {
            self.not_found(id);
        }
    }

    /// Queues a command, or refuses it. Returns it if its session has ended or is ending.
    fn try_queue(&mut self, session: Arc<dyn AnySession>, queued: Queued) -> Option<Queued> {
        let (id, is_request) = (session.shared().id.wire, queued.is_request());
        match session.shared().queue(queued) {
            Ok(()) => {
                if is_request {
                    self.glitches.excuse();
                }
                self.server_conn.watch();
                self.start(session);
            }
            Err((NotQueued::Closed, queued)) => return Some(queued),
            Err((NotQueued::Later(until), _)) => self.unconsumed_until = Some(until),
            Err((NotQueued::Full, _)) => {
                self.glitch();
                self.server_conn.conn.count(Counter::RequestsRefusedQueue);
                let error = SessionError::unsupported("Session max_queued_messages limit exceed.");
                self.kill_and_answer(id, &error.into_fatal());
            }
            Err((NotQueued::Bytes(limit), _)) => {
                self.glitch();
                self.server_conn.conn.count(Counter::RequestsRefusedBytes);
                let text = format!("Session max_queued_bytes {limit} limit exceed.");
                self.kill_and_answer(id, &SessionError::unsupported(text).into_fatal());
            }
        }
        None
    }

    /// Lets the work run after the receive, unless it runs already.
    fn start(&mut self, work: Arc<dyn Runnable>) {
        if work.becomes_runnable() {
            self.answers.send();
            self.server_conn.make_ready(work);
        }
    }

    /// Ends a session because of a message of its client.
    pub(super) fn kill_and_answer(&mut self, id: u64, error: &SessionError) {
        if let Some(session) = self.server_conn.find(id) {
            self.server_conn.forget(session.shared().id);
            session.shared().kill(CancelReason::Session);
        }
        self.refuse(id, error);
    }

    fn kill(&mut self, id: u64, kill: KillSession) {
        let Some(session) = self.server_conn.find(id) else { return self.not_found(id) };
        let session = session.shared();
        let conn = Arc::clone(&self.server_conn.conn);
        let named = kill.x_session_id;
        if named != id {
            let text = "kill names another session; the header counts";
            log_some!(conn.group(), Kill, DEBUG, debug, id, named, text);
        }
        let ends_session = kill.r#type == KillSessionType::Connection;
        // A client kills a request after it got something or waited. A kill in the same write as
        // the request, or of an unused session, is a glitch.
        let is_early =
            session.mail(|mail| mail.arrived_at(self.now) || ends_session && mail.is_unused());
        if is_early && !ends_session && id & AUTO_COMMIT != 0 {
            // A client gives up a single statement, which the server may not have read yet.
            self.late();
        } else if is_early {
            self.glitch();
        }
        let hit = if ends_session {
            conn.count(Counter::SessionsKilled);
            self.kill_and_answer(id, &SessionError::killed());
            true
        } else {
            session.cancel(CancelReason::Query)
        };
        if hit && conn.config().enable_kill_log {
            let (session, kind) = (session.id, kill.r#type as i32);
            log_some!(conn.group(), Kill, INFO, info, %session, kind, "kill");
        }
    }

    fn offer(&mut self, id: u64, kilobytes: i32) {
        match self.server_conn.find(id) {
            Some(session) if kilobytes >= 0 => {
                if !session.shared().offer(i64::from(kilobytes) * 1024) {
                    self.late();
                }
            }
            Some(_) => self.glitch(),
            // The session of one statement may have ended just now, unknown to the client.
            None if id & AUTO_COMMIT != 0 => self.late(),
            None => self.not_found(id),
        }
    }

    /// Returns true if a request for timestamps waits or runs.
    pub(super) fn asks_time(&self) -> bool {
        self.timestamps.as_ref().is_some_and(|timestamps| timestamps.is_asked())
    }

    /// Queues a request for timestamps. Without `count` a drain refuses it.
    fn ask_time(&mut self, id: u64, count: Option<i32>) -> Result<(), Close> {
        if id & AUTO_COMMIT != 0 {
            self.unsupported(id);
            return Ok(());
        }
        let found = self.server_conn.find(id).map(|session| Arc::clone(session.shared()));
        let session = found.filter(|session| session.mail(|mail| mail.ask_timestamps(self.now)));
        let timestamps = Arc::clone(self.timestamps.get_or_insert_with(|| {
            let conn = Arc::clone(&self.server_conn.conn);
            Arc::new(TimestampQueue::new(conn, Arc::clone(&self.served.service)))
        }));
        if !timestamps.ask(TimestampRequest { id, session, count }) {
            self.server_conn.conn.count(Counter::RequestsRefusedQueue);
            let text = format!("requests for timestamps exceed {MOST_WAITING}");
            // Answers have no number: a refusal would answer the oldest waiting request.
            return Err(text.into());
        }
        self.start(timestamps);
        Ok(())
    }

    fn refuse(&mut self, session: u64, error: &SessionError) {
        self.answers.write(session, |encoder| put_error(encoder, error));
    }

    fn glitch(&mut self) {
        let conn = &self.server_conn.conn;
        conn.count(Counter::Glitches);
        let config = conn.config();
        self.glitches.add(config.max_glitches, config.glitch_window, self.now);
    }

    /// Handles a late message: its session or request has ended or never existed, or a drain refuses it.
    fn late(&mut self) {
        if self.glitches.is_late() {
            self.glitch();
        }
    }

    fn not_found(&mut self, session: u64) {
        self.late();
        self.refuse(session, &SessionError::not_found());
    }

    /// Refuses a message that the session of one statement does not support, behind the answer to its
    /// statement.
    fn unsupported(&mut self, id: u64) {
        self.refuse_behind(id, &SessionError::unsupported("Not support for polarx rpc."));
        if self.unconsumed_until.is_none() {
            self.glitch();
        }
    }

    /// Refuses a message to the session of one statement, behind the answer to that if it runs.
    fn refuse_behind(&mut self, id: u64, error: &SessionError) {
        let queued = Queued::new(SessionCommand::Broken(error.clone()), 0, self.now);
        let found = self.server_conn.find(id);
        if found.is_none_or(|session| self.try_queue(session, queued).is_some()) {
            self.refuse(id, error);
        }
    }

    /// Answers and returns the close of a connection with too many glitches.
    fn too_many_glitches(&mut self, session: u64) -> Close {
        let conn = &self.server_conn.conn;
        conn.count(Counter::ClosedGlitches);
        let (most, window) = (conn.config().max_glitches, conn.config().glitch_window);
        let text = format!("more than max_glitches {most} in {window:?}");
        self.refuse(session, &SessionError::unsupported(&*text).into_fatal());
        text.into()
    }
}

/// Time after which the reader looks again if the login is answered. The answer resumes it earlier.
const LONGEST_LOGIN_DELAY: Duration = Duration::from_secs(1);

fn capabilities() -> ServerMessage {
    let capability = Capability { name: b"polarx_rpc".to_vec(), value: Scalar::unsigned(1).into() };
    ServerMessage::Capabilities(Capabilities { capabilities: vec![capability] })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::codec::proto::plan::{AnyPlan, ExecPlan, Expr, GetExpr, TableInfo};

    fn body(filters: usize, keys: usize, parameters: usize) -> Vec<u8> {
        let key = || GetExpr::new([(Scalar::string("id", None), Scalar::placeholder(0))]);
        let table = TableInfo::new(Scalar::string("t", None), None);
        let plan = AnyPlan::get(table, None, (0..keys).map(|_| key()));
        let plan = (0..filters).fold(plan, |plan, _| plan.filter(Expr::reference(0)));
        let parameters = vec![Scalar::unsigned(7); parameters];
        ExecPlan { plan: Some(plan), parameters, ..ExecPlan::default() }.encode_to_vec()
    }

    #[test]
    fn the_memory_of_a_plan_is_counted_without_its_parameters() {
        let limits = Limits::default();
        let memory = |body: &[u8]| plan_memory_bytes(body, &limits).expect("within the limits");
        let alone = memory(&body(2, 10, 0));
        let kind = ClientKind::ExecPlan.number();
        assert_eq!(ClientMessage::memory_bytes(kind, &body(2, 10, 0), &limits), Ok(alone));
        assert_eq!(memory(&body(2, 10, 100)), alone);
        assert!(memory(&body(2, 20, 0)) > alone);
    }
}
