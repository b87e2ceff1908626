//! [`Gate`]: who comes in, and the login of each connection.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::auth::{Claim, Handshake, Login, Step, fresh_salt};
use super::error::AuthError;
use super::link::Link;
use super::logins::{self, Logins};
use super::server::Reader;
use super::service::{Peer, Service};
use crate::codec::encoder::Encoder;
use crate::codec::message::generic::ErrorReply;
use crate::codec::message::session::{AuthenticateContinue, AuthenticateOk};
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::net::{Close, Connection};
use crate::runtime::{Class, Timer, after};
use crate::stats::Counter;

/// Who may try to log in.
#[derive(Debug, Default)]
pub(super) struct Gate {
    logins: Arc<Logins>,
}

/// Somebody who has not logged in.
#[derive(Debug)]
pub(super) struct Guest {
    handshake: Handshake,
    /// Its place among those who have not; none if there was none left.
    place: Option<logins::Guest>,
    /// Ends the connection when it takes too long.
    timer: Timer,
    /// Why it is not let in at all.
    refused: bool,
}

impl Gate {
    /// A connection has come.
    pub(super) fn admit<S: Service>(&self, link: &Arc<Link<S>>) -> Option<Guest> {
        let line = &link.line;
        let config = line.config();
        // Until it is logged in, it is a login that waits for its turn.
        line.conn.set_class(Class::Login);
        let limits = logins::Limits::of(config);
        let place = self.logins.begin(line.conn.peer_addr(), Instant::now(), limits);
        let refused = place.is_err();
        if refused {
            line.count(Counter::LoginsRefused);
            line.conn.close("too many connections that have not logged in");
        }
        let conn = line.conn.clone();
        let weak: Weak<Link<S>> = Arc::downgrade(link);
        let late = move || {
            if let Some(link) = weak.upgrade()
                && link.peer.get().is_none()
            {
                link.line.count(Counter::ClosedLoginTimeout);
                conn.close("login_timeout");
            }
        };
        let timer = after(line.group(), Class::Login, config.login_timeout, Box::new(late));
        let handshake = Handshake::new(config.max_login_attempts);
        Some(Guest { handshake, place: place.ok(), timer, refused })
    }
}
