//! [`PendingLogin`]: admits connections, and handles their logins.
//!
//! Before its login a connection may ask for its capabilities and log in, in frames of at most 4
//! KiB, for `login_timeout`. The number of such connections and of failed logins is limited, in all
//! and by address.

use std::sync::Arc;
use std::time::Duration;

use super::accounts::{Peer, Place, Resource};
use super::auth::{Claim, Handshake, Login, OUT_OF_ORDER, Step, fresh_salt};
use super::conn_shared::Answers;
use super::error::AuthError;
use super::logins::{Admitted, LoginLimits, Unauthenticated};
use super::server_conn::{Cancellable, ServerConn};
use super::service::Service;
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::codec::proto::session::{AuthenticateContinue, AuthenticateOk};
use crate::net::{Close, Connection, PeerHost};
use crate::stats::{Counter, Stage};
use crate::sys::clock::{self, Instant};

/// State of a connection that has not logged in.
pub(super) struct PendingLogin {
    server_conn: Arc<ServerConn>,
    handshake: Handshake,
    /// Its place among the connections that have not logged in.
    place: Unauthenticated<Connection>,
    /// Time at which the delayed answer is sent. If the client sends a message before then, the message
    /// is out of order.
    answered_after: Option<Instant>,
}

impl PendingLogin {
    /// Admits a new connection, unless its address has too many.
    pub(super) fn admit(server_conn: &Arc<ServerConn>) -> Result<Self, Close> {
        let conn = &server_conn.conn;
        let config = conn.config();
        let from = PeerHost::from(conn.net.client_addr());
        let limits = LoginLimits::from(config);
        let admitted = conn.server.logins.begin(from, conn.net.clone(), &limits, clock::now());
        let Some(Admitted { place, displaced }) = admitted else {
            conn.count(Counter::LoginsRefused);
            return Err("too many connections that have not logged in".into());
        };
        for oldest in displaced {
            conn.count(Counter::ClosedLoginDisplaced);
            oldest.close("a newcomer took its place before it logged in");
        }
        conn.group().usage().unauthenticated.change(true);
        let class = conn.login_class();
        conn.net.set_class(class);
        server_conn.later(class, config.login_timeout, Cancellable::UntilLogin, |server_conn| {
            if !server_conn.conn.is_logged_in() && !server_conn.conn.net.is_closed() {
                server_conn.conn.count(Counter::ClosedLoginTimeout);
                server_conn.conn.net.close("login_timeout");
            }
        });
        let handshake = Handshake::new(config.max_login_attempts);
        Ok(Self { server_conn: Arc::clone(server_conn), handshake, place, answered_after: None })
    }

    /// Handles a message. Returns the place of the connection among those of its account when the
    /// login has succeeded.
    pub(super) fn handle<S: Service>(
        &mut self,
        service: &S,
        answers: &mut Answers,
        session: u64,
        message: ClientMessage,
        now: Instant,
    ) -> Result<Option<Place>, Close> {
        let step = if self.answered_after.is_some_and(|at| now < at) {
            Step::Close(AuthError::protocol(OUT_OF_ORDER))
        } else {
            self.answered_after = None;
            match message {
                ClientMessage::AuthenticateStart(start) => {
                    let salt = fresh_salt().map_err(Close::error)?;
                    let conn = &self.server_conn.conn;
                    self.handshake.handle_start(&start, salt, |user| {
                        // The service may wait, so earlier answers leave before.
                        answers.send();
                        conn.group().timed(Stage::Auth, || service.digest_salt(user))
                    })
                }
                ClientMessage::AuthenticateContinue(answer) => {
                    self.handshake.handle_continue(&answer.auth_data)
                }
                _ => {
                    self.server_conn.conn.count(Counter::ProtocolErrors);
                    Step::Close(AuthError::protocol("Log in first."))
                }
            }
        };
        self.go_on(service, answers, session, step, now)
    }

    fn go_on<S: Service>(
        &mut self,
        service: &S,
        answers: &mut Answers,
        session: u64,
        step: Step,
        now: Instant,
    ) -> Result<Option<Place>, Close> {
        match step {
            Step::SendChallenge(auth_data) => {
                let challenge = AuthenticateContinue { auth_data };
                send(answers, session, &ServerMessage::AuthenticateContinue(challenge));
            }
            Step::Verify(claim) => {
                answers.send();
                return match self.verify(service, &claim, now) {
                    Ok(place) => {
                        let auth_data = Some(Vec::new());
                        let ok = ServerMessage::AuthenticateOk(AuthenticateOk { auth_data });
                        let conn = &self.server_conn.conn;
                        let delay = conn.config().authenticate_ok_delay;
                        if !delay.is_zero() {
                            conn.delay_login();
                        }
                        self.send_later(answers, session, ok, delay, false);
                        Ok(Some(place))
                    }
                    Err(step) => self.go_on(service, answers, session, step, now),
                };
            }
            Step::Refuse(error) => self.refuse(answers, session, error, false, now)?,
            Step::Close(error) => self.refuse(answers, session, error, true, now)?,
        }
        Ok(None)
    }

    /// Asks the service, and logs the connection in. Returns the answer to a login that fails.
    fn verify<S: Service>(
        &mut self,
        service: &S,
        claim: &Claim,
        now: Instant,
    ) -> Result<Place, Step> {
        let conn = &self.server_conn.conn;
        let limits = LoginLimits::from(conn.config());
        if !self.place.may_try(&limits, clock::now()) {
            conn.count(Counter::LoginsRefused);
            // The answer is that of a wrong password, so a guessing client cannot tell them apart.
            return Err(self.handshake.refused(AuthError::Denied));
        }
        let address = conn.net.client_addr();
        let check = || service.authenticate(&Login::new(claim, address));
        let account = conn.group().timed(Stage::Auth, check).map_err(|error| {
            self.place.note_failure(&limits, clock::now());
            conn.count(Counter::LoginsFailed);
            self.handshake.refused(error)
        })?;
        let used = conn.server.accounts.of(account.name(), now);
        let place = used.take(Resource::Connection, &account.limits).map_err(|error| {
            used.note_refused();
            conn.count(Counter::LoginsRefused);
            Step::Close(AuthError::Other { code: error.code, message: error.message })
        })?;
        if !self.handshake.accepted() {
            return Err(Step::Close(AuthError::protocol(OUT_OF_ORDER)));
        }
        conn.log_in(Peer { account, address: address.clone(), connection: conn.net.id() }, used);
        conn.count(Counter::Logins);
        Ok(place)
    }

    /// Answers a failed login after `login_failure_delay`. Closes the connection after its last
    /// attempt.
    fn refuse(
        &mut self,
        answers: &mut Answers,
        session: u64,
        error: AuthError,
        last: bool,
        now: Instant,
    ) -> Result<(), Close> {
        let delay = self.server_conn.conn.config().login_failure_delay;
        let error = ServerMessage::Error(error.to_reply());
        if last && (self.answered_after.is_some() || delay.is_zero()) {
            send(answers, session, &error);
            return Err(LOGIN_FAILED.into());
        }
        self.answered_after = (!delay.is_zero()).then(|| now + delay);
        self.send_later(answers, session, error, delay, last);
        Ok(())
    }

    /// Sends by a timer, so that no thread waits. Closes the connection afterwards if `last` is
    /// set.
    fn send_later(
        &self,
        answers: &mut Answers,
        session: u64,
        message: ServerMessage,
        delay: Duration,
        last: bool,
    ) {
        if delay.is_zero() {
            return send(answers, session, &message);
        }
        let class = self.server_conn.conn.login_class();
        self.server_conn.later(class, delay, Cancellable::No, move |server_conn| {
            let mut answers = Answers::new(Arc::clone(&server_conn.conn));
            send(&mut answers, session, &message);
            answers.send();
            server_conn.conn.login_answered();
            if last {
                server_conn.conn.net.close(LOGIN_FAILED);
            }
        });
    }
}

/// Ends the login, after its success or with the connection.
impl Drop for PendingLogin {
    fn drop(&mut self) {
        self.server_conn.cancel_timer();
        let conn = &self.server_conn.conn;
        conn.group().usage().unauthenticated.change(false);
        conn.net.set_class(conn.class);
    }
}

fn send(answers: &mut Answers, session: u64, message: &ServerMessage) {
    // The limit of the encoder cannot be exceeded: all these messages are short.
    answers.write(session, |encoder| encoder.message(message));
}

const LOGIN_FAILED: &str = "the login failed";
