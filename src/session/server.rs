//! [`Server`]: serves a service on connections.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::accounts::Accounts;
use super::conn_shared::ConnShared;
use super::error::SessionError;
use super::login::PendingLogin;
use super::reader::Reader;
use super::server_conn::ServerConn;
use super::server_shared::ServerShared;
use super::service::Service;
use crate::codec::frame::Dialect;
use crate::net::{Close, CloseReason, Connection, HalfClose, Input, Protocol, Turn};
use crate::sys::clock;

/// Serves a [`Service`] on connections. [`listen`](crate::Handle::listen) takes it.
///
/// A value serves one listener, which may have several sockets ([`listen_on`](crate::Handle::listen_on)).
/// For another listener of the same service, such as one with TLS, make another value with
/// [`shared`](Self::shared). It has caches and limits of its own: those of logins and of waiting writers.
pub struct Server<S: Service> {
    service: Arc<S>,
    accounts: Accounts,
    /// Created at the first connection, with the configuration of its runtime.
    shared: OnceLock<Arc<ServerShared>>,
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

    pub(super) fn of(&self, conn: &Connection) -> &Arc<ServerShared> {
        self.shared.get_or_init(|| {
            Arc::new(ServerShared::new(conn.group().config(), self.accounts.clone()))
        })
    }
}

/// State of a connection, for calls that do not get the reader, until the connection has ended.
fn conn_of(conn: &Connection) -> Option<Arc<ServerConn>> {
    conn.extension::<Weak<ServerConn>>()?.upgrade()
}

impl<S: Service> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl<S: Service> Protocol for Server<S> {
    type State = Reader<S>;

    fn opened(&self, conn: &Connection) -> Result<Reader<S>, Close> {
        let config = conn.group().config();
        let dialect = if config.galaxy_protocol {
            Dialect::Galaxy { version: config.galaxy_version }
        } else {
            Dialect::Legacy
        };
        let shared = ConnShared::new(conn.clone(), dialect, Arc::clone(self.of(conn)));
        let server_conn = Arc::new(ServerConn::new(shared));
        // For calls without the state. It is weak, because `server_conn` holds the connection.
        let _ = conn.set_extension(Arc::downgrade(&server_conn));
        let login = PendingLogin::admit(&server_conn)?;
        Ok(Reader::new(server_conn, Arc::clone(&self.service), login))
    }

    fn received(
        &self,
        _conn: &Connection,
        reader: &mut Reader<S>,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let read = reader.read(input);
        reader.answers.send();
        read
    }

    fn released(&self, conn: &Connection, turn: Turn) {
        if let Some(server_conn) = conn_of(conn) {
            if turn.ending {
                server_conn.push_ready();
            } else {
                server_conn.dispatch(clock::now(), turn.last);
            }
        }
    }

    fn drained(&self, conn: &Connection) {
        if let Some(server_conn) = conn_of(conn) {
            server_conn.conn.wake_waiting();
        }
    }

    fn ended(&self, _conn: &Connection, reader: &mut Reader<S>) -> Result<HalfClose, Close> {
        // The requests that were read are answered, as far as credit suffices, within a limited
        // time.
        reader.server_conn.conn.finish();
        reader.server_conn.sessions().iter().for_each(|session| session.shared().wake());
        reader.server_conn.end_later(reader.asks_time());
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
            let session = session.shared();
            if session.mail(|mail| mail.close_if_idle()) {
                reader.kill_and_answer(session.id.wire, &SessionError::shutdown());
            } else {
                session.wake();
            }
        }
        reader.answers.send();
        // Sessions end at once, because other sessions may wait for their locks.
        reader.server_conn.push_ready();
    }

    fn closed(&self, _conn: &Connection, mut reader: Reader<S>, _reason: &CloseReason) {
        drop(reader.login.take());
        reader.server_conn.end();
        reader.server_conn.conn.wake_waiting();
    }
}
