//! [`PendingLogin`]: admits connections, and handles their logins.
//!
//! Before its login a connection may ask for its capabilities and log in, in frames of at most 4
//! KiB, for `login_timeout`. The number of such connections and of failed logins is limited, in all
//! and by address.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::accounts::{Peer, Resource};
use super::auth::{Claim, Handshake, Login, Step, fresh_salt};
use super::error::AuthError;
use super::logins::{Admitted, LoginLimits, Unauthenticated};
use super::server::Reader;
use super::server_conn::{Cancellable, ServerConn};
use super::service::Service;
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::codec::proto::generic::ErrorReply;
use crate::codec::proto::session::{AuthenticateContinue, AuthenticateOk};
use crate::net::{Close, Connection, PeerHost};
use crate::stats::Counter;
use crate::sys::clock;

/// State of a connection that has not logged in.
#[derive(Debug)]
pub(super) struct PendingLogin {
    handshake: Handshake,
    /// Its place among the connections that have not logged in.
    place: Unauthenticated<Connection>,
    /// Time at which the delayed answer is sent. If the client sends a message before then, the message
    /// is out of order.
    answered_after: Option<Instant>,
}

impl PendingLogin {
    /// Admits a new connection, unless its address has too many.
    pub(super) fn admit<S: Service>(server_conn: &Arc<ServerConn<S>>) -> Result<Self, Close> {
        let conn = &server_conn.conn;
        let config = conn.config();
        let from = PeerHost::from(conn.net.client_addr());
        let limits = LoginLimits::from(config);
        let admitted =
            server_conn.server.logins.begin(from, conn.net.clone(), &limits, clock::now());
        let Some(Admitted { place, displaced }) = admitted else {
            conn.count(Counter::LoginsRefused);
            return Err("too many connections that have not logged in".into());
        };
        for oldest in displaced {
            conn.count(Counter::ClosedLoginDisplaced);
            oldest.close("a newcomer took its place before it logged in");
        }
        conn.group().usage().unauthenticated_changed(true);
        let class = conn.login_class();
        conn.net.set_class(class);
        server_conn.later(class, config.login_timeout, Cancellable::Yes, |server_conn| {
            if server_conn.peer.get().is_none() {
                server_conn.conn.count(Counter::ClosedLoginTimeout);
                server_conn.conn.net.close("login_timeout");
            }
        });
        let handshake = Handshake::new(config.max_login_attempts);
        Ok(Self { handshake, place, answered_after: None })
    }
}

impl<S: Service> Reader<S> {
    /// Ends the login after its success, or with the connection.
    pub(super) fn end_login(&mut self) {
        if let Some(login) = self.login.take() {
            self.server_conn.cancel_timer();
            drop(login);
            let conn = &self.server_conn.conn;
            conn.group().usage().unauthenticated_changed(false);
            conn.net.set_class(conn.class);
        }
    }

    /// Handles a message on a connection that has not logged in.
    pub(super) fn log_in(&mut self, session: u64, message: ClientMessage) -> Result<(), Close> {
        let Some(login) = &mut self.login else {
            return Err(Close::new("the login is over"));
        };
        if login.answered_after.is_some_and(|at| self.now < at) {
            let error = AuthError::protocol("Authentication messages out of order.");
            return self.refuse_login(session, error, true);
        }
        login.answered_after = None;
        let step = match message {
            ClientMessage::AuthenticateStart(start) => {
                let salt = fresh_salt().map_err(Close::error)?;
                login.handshake.handle_start(&start, salt)
            }
            ClientMessage::AuthenticateContinue(answer) => {
                login.handshake.handle_continue(&answer.auth_data)
            }
            _ => {
                self.server_conn.conn.count(Counter::ProtocolErrors);
                let error = AuthError::protocol("Log in first.");
                return self.refuse_login(session, error, true);
            }
        };
        self.go_on(session, step)
    }

    fn go_on(&mut self, session: u64, step: Step) -> Result<(), Close> {
        match step {
            Step::SendChallenge(salt) => {
                let auth_data = salt.to_vec();
                let challenge = AuthenticateContinue { auth_data };
                self.send_message(session, ServerMessage::AuthenticateContinue(challenge));
                Ok(())
            }
            Step::Verify(claim) => self.verify(session, &claim),
            Step::Refuse(error) => self.refuse_login(session, error, false),
            Step::Close(error) => self.refuse_login(session, error, true),
        }
    }

    fn verify(&mut self, session: u64, claim: &Claim) -> Result<(), Close> {
        // The service may wait, so earlier answers leave before.
        self.send_answers();
        let conn = Arc::clone(&self.server_conn.conn);
        let Some(login) = &mut self.login else {
            return Err(Close::new("the login is over"));
        };
        let limits = LoginLimits::from(conn.config());
        if !login.place.may_try(&limits, clock::now()) {
            conn.count(Counter::LoginsRefused);
            // The answer is that of a wrong password, so a guessing client cannot tell them apart.
            let step = login.handshake.refused(AuthError::denied());
            return self.go_on(session, step);
        }
        let address = conn.net.client_addr();
        match self.server_conn.server.service.authenticate(&Login::new(claim, address)) {
            Err(error) => {
                login.place.note_failure(&limits, clock::now());
                conn.count(Counter::LoginsFailed);
                let step = login.handshake.refused(error);
                self.go_on(session, step)
            }
            Ok(account) => {
                let used = self.server_conn.server.accounts.of(account.name(), self.now);
                match used.take(Resource::Connection, &account.limits) {
                    Ok(place) => self.place = Some(place),
                    Err(error) => {
                        used.note_refused();
                        conn.count(Counter::LoginsRefused);
                        let error = AuthError::other(error.code(), error.message());
                        return self.refuse_login(session, error, true);
                    }
                }
                if !login.handshake.accepted() {
                    return Err(Close::new("the login had ended"));
                }
                let connection = conn.net.id();
                let peer = Peer { account, address: address.clone(), connection };
                // The values were not set before, because a login succeeds once.
                let _ = self.server_conn.account.set(used);
                let _ = self.server_conn.peer.set(peer);
                conn.count(Counter::Logins);
                self.end_login();
                self.welcome(session);
                Ok(())
            }
        }
    }

    /// Sends the answer of a successful login, after `authenticate_ok_delay`.
    fn welcome(&mut self, session: u64) {
        let ok = ServerMessage::AuthenticateOk(AuthenticateOk { auth_data: Some(Vec::new()) });
        let delay = self.server_conn.conn.config().authenticate_ok_delay;
        self.send_later(session, ok, delay, false);
    }

    /// Answers a failed login after `login_failure_delay`. Closes the connection after its last
    /// attempt.
    fn refuse_login(&mut self, session: u64, error: AuthError, last: bool) -> Result<(), Close> {
        let delay = self.server_conn.conn.config().login_failure_delay;
        let again = self.login.as_ref().is_some_and(|login| login.answered_after.is_some());
        let error = ServerMessage::Error(ErrorReply::from(error));
        if last && (again || delay.is_zero()) {
            self.send_message(session, error);
            return Err(Close::new(LOGIN_FAILED));
        }
        if let Some(login) = &mut self.login {
            login.answered_after = (!delay.is_zero()).then(|| self.now + delay);
        }
        self.send_later(session, error, delay, last);
        Ok(())
    }

    fn send_message(&mut self, session: u64, message: ServerMessage) {
        // The limit of the encoder cannot be exceeded: all these messages are short.
        self.send(session, |encoder| encoder.message(&message));
    }

    /// Sends by a timer, so that no thread waits. Closes the connection afterwards if `last` is
    /// set.
    fn send_later(&mut self, session: u64, message: ServerMessage, delay: Duration, last: bool) {
        if delay.is_zero() {
            return self.send_message(session, message);
        }
        let class = self.server_conn.conn.login_class();
        self.server_conn.later(class, delay, Cancellable::No, move |server_conn| {
            server_conn.conn.answer(session, |encoder| encoder.message(&message));
            if last {
                server_conn.conn.net.close(LOGIN_FAILED);
            }
        });
    }
}

const LOGIN_FAILED: &str = "the login failed";
