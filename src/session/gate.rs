//! [`Gate`]: admits connections, and handles their logins.
//!
//! Before its login a connection may ask for its capabilities and log in, in frames of at most 4
//! KiB, for `login_timeout`. The number of such connections and of failed logins is limited, in all
//! and by address.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::auth::{Claim, Handshake, Login, Step, fresh_salt};
use super::error::AuthError;
use super::link::{Canceller, Link};
use super::logins::{self, Admitted, Limits, Logins, Origin};
use super::server::Reader;
use super::service::{Peer, Service};
use crate::codec::message::generic::ErrorReply;
use crate::codec::message::session::{AuthenticateContinue, AuthenticateOk};
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::net::{Close, Connection};
use crate::runtime::Class;
use crate::stats::Counter;
use crate::sys::clock;

/// Admits or refuses new connections.
#[derive(Debug)]
pub(super) struct Gate {
    logins: Arc<Logins<Connection>>,
}

/// State of a connection that has not logged in.
#[derive(Debug)]
pub(super) struct Guest {
    handshake: Handshake,
    /// Its place among the connections that have not logged in.
    place: logins::Guest<Connection>,
    /// Time of the delayed answer. An earlier message is out of order.
    answered_after: Option<Instant>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { logins: Arc::new(Logins::new()) }
    }

    /// Admits a new connection. Returns `None`, and closes the connection, if its address has too
    /// many.
    pub(super) fn admit<S: Service>(&self, link: &Arc<Link<S>>) -> Option<Guest> {
        let line = &link.line;
        let config = line.config();
        let from = Origin::from(line.conn.peer_addr());
        let limits = Limits::from(config);
        let admitted = self.logins.begin(from, line.conn.clone(), &limits, clock::now());
        let Some(Admitted { guest: place, displaced }) = admitted else {
            line.count(Counter::LoginsRefused);
            line.conn.close("too many connections that have not logged in");
            return None;
        };
        for conn in displaced {
            line.count(Counter::ClosedLoginDisplaced);
            conn.close("a newcomer took its place before it logged in");
        }
        line.group().usage().unauthenticated_changed(true);
        // The login of an operator does not wait behind a flood of others.
        line.conn.set_class(line.class.or(Class::Login));
        link.later(Class::Login, config.login_timeout, Canceller::Link, |link| {
            if link.peer.get().is_none() {
                link.line.count(Counter::ClosedLoginTimeout);
                link.line.conn.close("login_timeout");
            }
        });
        let handshake = Handshake::new(config.max_login_attempts);
        Some(Guest { handshake, place, answered_after: None })
    }
}

impl<S: Service> Reader<S> {
    /// Ends the login after its success, or with the connection.
    pub(super) fn end_login(&mut self) {
        if let Some(guest) = self.guest.take() {
            self.link.cancel_timer();
            guest.place.logged_in();
            let line = &self.link.line;
            line.group().usage().unauthenticated_changed(false);
            line.conn.set_class(line.class);
        }
    }

    /// Handles a message on a connection that has not logged in.
    pub(super) fn log_in(&mut self, session: u64, message: ClientMessage) -> Result<(), Close> {
        let Some(guest) = &mut self.guest else { return Err(Close::new("not let in")) };
        if guest.answered_after.is_some_and(|at| self.now < at) {
            let error = AuthError::protocol("Authentication messages out of order.");
            return self.refuse_login(session, error, true);
        }
        guest.answered_after = None;
        let step = match message {
            ClientMessage::AuthenticateStart(start) => {
                let salt = fresh_salt().map_err(Close::error)?;
                guest.handshake.handle_start(&start, salt)
            }
            ClientMessage::AuthenticateContinue(answer) => {
                guest.handshake.handle_continue(&answer.auth_data)
            }
            _ => {
                self.link.line.count(Counter::ProtocolErrors);
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
        let line = Arc::clone(&self.link.line);
        let Some(guest) = &mut self.guest else { return Err(Close::new("not let in")) };
        let limits = Limits::from(line.config());
        if !guest.place.may_try(&limits, clock::now()) {
            line.count(Counter::LoginsRefused);
            // The answer is that of a wrong password, so a guessing client cannot tell them apart.
            let step = guest.handshake.refused(AuthError::denied());
            return self.go_on(session, step);
        }
        let address = line.conn.peer_addr();
        match self.link.server.service.authenticate(&Login::new(claim, address)) {
            Err(error) => {
                guest.place.note_failure(&limits, clock::now());
                line.count(Counter::LoginsFailed);
                let step = guest.handshake.refused(error);
                self.go_on(session, step)
            }
            Ok(account) => {
                if !guest.handshake.accepted() {
                    return Err(Close::new("the login was over"));
                }
                let connection = line.conn.id();
                let peer = Peer { account, address: address.clone(), connection };
                // The value was not set before, because a login succeeds once.
                let _ = self.link.peer.set(peer);
                line.count(Counter::Logins);
                self.end_login();
                self.welcome(session);
                Ok(())
            }
        }
    }

    /// Sends the answer of a successful login, after `authenticate_ok_delay`.
    fn welcome(&mut self, session: u64) {
        let ok = ServerMessage::AuthenticateOk(AuthenticateOk { auth_data: Some(Vec::new()) });
        let delay = self.link.line.config().authenticate_ok_delay;
        self.send_later(session, ok, delay, false);
    }

    /// Answers a failed login after `login_failure_delay`. Closes the connection after its last
    /// attempt.
    fn refuse_login(&mut self, session: u64, error: AuthError, last: bool) -> Result<(), Close> {
        let delay = self.link.line.config().login_failure_delay;
        let again = self.guest.as_ref().is_some_and(|guest| guest.answered_after.is_some());
        let error = ServerMessage::Error(ErrorReply::from(error));
        if last && (again || delay.is_zero()) {
            self.send_message(session, error);
            return Err(Close::new(LOGIN_FAILED));
        }
        if let Some(guest) = &mut self.guest {
            guest.answered_after = (!delay.is_zero()).then(|| self.now + delay);
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
        self.link.later(Class::Login, delay, Canceller::Nobody, move |link| {
            link.line.answer(session, |encoder| encoder.message(&message));
            if last {
                link.line.conn.close(LOGIN_FAILED);
            }
        });
    }
}

const LOGIN_FAILED: &str = "the login failed";
