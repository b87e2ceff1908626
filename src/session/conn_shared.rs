//! [`ConnShared`]: the part of a connection that does not depend on the type of the service.

use std::any::Any;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use super::accounts::{Account, AccountUse, Peer};
use super::server_shared::ServerShared;
use super::writers::WaitsForRoom;
use crate::codec::encoder::{Encoder, OutBuffer};
use crate::codec::frame::Dialect;
use crate::config::Config;
use crate::net::{Connection, FULL, Sent};
use crate::runtime::{Class, Cost, Group};
use crate::stats::Counter;
use crate::sync::shim::lock;

pub(super) struct ConnShared {
    pub(super) net: Connection,
    /// [`Class::Admin`] if the listener has that class, otherwise ordinary. Class of the connection
    /// after its login, and of its sessions outside of transactions.
    pub(super) class: Class,
    pub(super) dialect: Dialect,
    pub(super) server: Arc<ServerShared>,
    /// Peer and use of its account. Set by the login, before the first session.
    login: OnceLock<(Peer, Arc<AccountUse>)>,
    /// Set while the answer to a successful login is delayed. Only requests for capabilities are answered
    /// before it.
    login_delayed: AtomicBool,
    /// Cost of a statement in a session of its own.
    pub(super) statement_cost: Cost,
    /// Number of sessions that were opened and have not ended.
    pub(super) sessions: AtomicUsize,
    /// Bytes of requests in the mailboxes of the connection.
    queued_bytes: AtomicUsize,
    /// Send lock. Senders hold it for reading. The end of a session holds it for writing, so that
    /// no frame of the session is sent after the message about its end.
    send_lock: RwLock<()>,
    /// Number of sessions with an urgent class, and of handlers that wait for the peer.
    urgent: Mutex<usize>,
    /// Set when the peer sends no more or the server drains. A request without credit then fails.
    finished: AtomicBool,
    /// Set when the server drains. The writer locks each session's mail afterwards and wakes the
    /// busy sessions. So a session that has missed the flag is closed as idle, or runs again.
    draining: AtomicBool,
    /// Set when the peer gets no more answers.
    ended: AtomicBool,
    /// Sessions that wait until the peer has read.
    waiting: Mutex<Vec<Weak<dyn WaitsForRoom>>>,
}

impl ConnShared {
    pub(super) fn new(net: Connection, dialect: Dialect, server: Arc<ServerShared>) -> Self {
        Self {
            class: if net.class() == Class::Admin { Class::Admin } else { Class::Ordinary },
            net,
            dialect,
            server,
            login: OnceLock::new(),
            login_delayed: AtomicBool::new(false),
            statement_cost: Cost::unknown(),
            sessions: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            send_lock: RwLock::new(()),
            urgent: Mutex::new(0),
            finished: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Notes the login, which succeeds once.
    pub(super) fn log_in(&self, peer: Peer, used: Arc<AccountUse>) {
        let _ = self.login.set((peer, used));
    }

    pub(super) fn is_logged_in(&self) -> bool {
        self.login.get().is_some()
    }

    /// Holds requests back until the answer to the login was sent.
    pub(super) fn delay_login(&self) {
        self.login_delayed.store(true, Ordering::Relaxed);
    }

    /// Notes that the delayed answer to a login was sent.
    pub(super) fn login_answered(&self) {
        // Release: the reader that sees this sends behind the answer.
        if self.login_delayed.swap(false, Ordering::Release) {
            self.net.resume();
        }
    }

    pub(super) fn is_login_delayed(&self) -> bool {
        self.login_delayed.load(Ordering::Acquire)
    }

    fn login(&self) -> &(Peer, Arc<AccountUse>) {
        self.login.get().expect("sessions are opened after the login only")
    }

    /// The peer after its login.
    pub(super) fn peer(&self) -> &Peer {
        &self.login().0
    }

    pub(super) fn account(&self) -> &Account {
        &self.peer().account
    }

    /// Use of the account after the login.
    pub(super) fn account_use(&self) -> &Arc<AccountUse> {
        &self.login().1
    }

    /// Class of the connection until its login. The login of an operator does not wait for others.
    pub(super) fn login_class(&self) -> Class {
        self.class.or(Class::Login)
    }

    pub(super) fn group(&self) -> &Arc<Group> {
        self.net.group()
    }

    pub(super) fn config(&self) -> &Config {
        self.group().config()
    }

    pub(super) fn count(&self, counter: Counter) {
        self.group().count(counter, 1);
    }

    pub(super) fn note_panic(&self, payload: Box<dyn Any + Send>) {
        self.count(Counter::RequestPanics);
        self.group().note_panic("session", payload);
    }

    /// Sends frames, or drops them if their session is dead.
    pub(super) fn send_frames(&self, is_dead: impl FnOnce() -> bool, buffer: &OutBuffer) -> Sent {
        // Held during the send, which does not wait.
        let _sending = self.send_lock.read().unwrap_or_else(PoisonError::into_inner);
        if is_dead() {
            self.count(Counter::FramesOfDeadSessionsDropped);
            return Sent::Sent;
        }
        let mut slices = buffer.slices();
        match (slices.next(), slices.next()) {
            (Some(only), None) => self.net.send(only),
            _ => {
                let slices: Vec<_> = buffer.slices().map(IoSlice::new).collect();
                self.net.send_slices(&slices)
            }
        }
    }

    /// Runs `end` while no thread sends.
    pub(super) fn exclude_sends(&self, end: impl FnOnce()) {
        let _alone = self.send_lock.write().unwrap_or_else(PoisonError::into_inner);
        end();
    }

    /// Reserves bytes for a request. Returns the exceeded limit if there is no room.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), usize> {
        let config = self.config();
        let limit = config.max_queued_bytes_per_connection;
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if queued > limit {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(limit);
        }
        if !self.group().usage().request_queues(bytes, queued, config.max_queued_bytes) {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(config.max_queued_bytes);
        }
        Ok(())
    }

    /// Releases the bytes of a request.
    pub(super) fn release(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.group().usage().request_taken(bytes);
    }

    /// Returns true if the backlog is above the high watermark.
    pub(super) fn is_full(&self) -> bool {
        self.net.is_backlogged()
    }

    /// Returns true if the backlog is at most the low watermark, or the connection is closed. Its
    /// sender then learns of the close.
    pub(super) fn has_room(&self) -> bool {
        self.net.pending_bytes() <= self.config().write_low_watermark_bytes || self.net.is_closed()
    }

    /// Notes that a session changes its class.
    pub(super) fn note_class(&self, before: Class, after: Class) {
        self.group().note_urgent(before, after);
        if before.is_urgent() != after.is_urgent() {
            self.note_urgent(after.is_urgent());
        }
    }

    /// Notes that a session becomes urgent, or is no longer. While one is urgent, the connection is urgent
    /// too. Otherwise no thread would read the requests of a session that all threads wait for.
    pub(super) fn note_urgent(&self, is: bool) {
        let mut urgent = lock(&self.urgent);
        if is {
            *urgent += 1;
        } else {
            *urgent -= 1;
        }
        let class = if *urgent == 0 { self.class } else { self.class.or(Class::InProgress) };
        if class != self.net.class() {
            self.net.set_class(class);
        }
    }

    /// Notes that the peer sends no more. The caller wakes the sessions that wait for credit.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Returns true if requests must not wait for credit.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Begins the drain: idle sessions end, and requests do not wait for credit.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.finish();
    }

    /// Notes that the peer gets no more answers.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns true if a session must end as soon as it is idle.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Wakes `session` once when the peer has read enough, or at once if it has already.
    pub(super) fn wake_when_room(&self, session: Weak<dyn WaitsForRoom>) {
        lock(&self.waiting).push(session);
        self.net.notify_when_drained();
    }

    /// Wakes all sessions that wait for room.
    pub(super) fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for session in waiting.iter().filter_map(Weak::upgrade) {
            session.wake_for_room();
        }
    }
}

/// Frames that are written outside of any run of a session. They leave at the end of a receive, or
/// before a session runs.
pub(super) struct Answers {
    conn: Arc<ConnShared>,
    unsent: Vec<u8>,
}

impl Answers {
    pub(super) const fn new(conn: Arc<ConnShared>) -> Self {
        Self { conn, unsent: Vec::new() }
    }

    /// Writes frames of a session. Many answers leave before the end of the receive.
    pub(super) fn write<R>(&mut self, session: u64, code: impl FnOnce(&mut Encoder<'_>) -> R) {
        let mut buffer = OutBuffer::new(&self.conn.server.pages);
        code(&mut Encoder::with_dialect(&mut buffer, self.conn.dialect, session));
        buffer.slices().for_each(|slice| self.unsent.extend_from_slice(slice));
        if self.unsent.len() >= FULL {
            self.send();
        }
    }

    pub(super) fn send(&mut self) {
        if !self.unsent.is_empty() {
            self.conn.net.send(std::mem::take(&mut self.unsent));
        }
    }
}
