//! [`Links`]: the connections of a client, and when to make others.
//!
//! A session goes to the connection with the fewest sessions. While there are fewer connections
//! than sessions, more are made, up to the limit. After a failure, one connection is tried at a
//! time, with growing pauses, until one has lasted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::{Error, ErrorKind, Stage};
use super::link::Link;
use super::options::Options;
use super::retry::Retry;
use super::session::Session;
use super::state::State;
use super::status::{ConnectionPhase, ConnectionStatus, Status};
use super::waiting::{Caller, Waiting};
use crate::sys::clock::Instant;
use crate::sys::random;

/// Connections of a client, by number.
#[derive(Default)]
pub(super) struct Links {
    by_number: BTreeMap<u64, Progress>,
    next_number: u64,
    retry: Retry,
    /// Set while the last attempt to connect has failed.
    failing: bool,
    last_error: Option<Error>,
    connected: u64,
    failed: u64,
}

enum Progress {
    /// The connection is to be made, or was begun.
    Connecting(Option<Arc<Link>>),
    Ready(Arc<Link>),
    /// The server shuts down. The client may make another connection in place of this one.
    Leaving(Arc<Link>),
}

impl Links {
    /// Returns true if a connection of this number is still needed.
    pub(super) fn awaits(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }

    /// Notes that a connection has begun. Returns false if it is not needed any more.
    pub(super) fn begun(&mut self, link: &Arc<Link>) -> bool {
        let progress = self.by_number.get_mut(&link.number);
        if let Some(Progress::Connecting(begun)) = progress {
            *begun = Some(Arc::clone(link));
        }
        self.awaits(link.number)
    }

    /// Notes that a connection has logged in.
    pub(super) fn logged_in(&mut self, link: &Arc<Link>) {
        self.failing = false;
        self.connected += 1;
        if let Some(progress) = self.by_number.get_mut(&link.number) {
            *progress = Progress::Ready(Arc::clone(link));
        }
    }

    /// Notes that a connection has ended for this reason. Returns true if it was an attempt to
    /// connect and no other connection is left to wait for.
    pub(super) fn lost(
        &mut self,
        link: &Link,
        reason: &Error,
        now: Instant,
        options: &Options,
    ) -> bool {
        self.reset_retry(now, options);
        let failed = match self.by_number.remove(&link.number) {
            Some(Progress::Connecting(_)) => true,
            Some(Progress::Ready(_)) => false,
            Some(Progress::Leaving(_)) | None => return false,
        };
        if failed || !Retry::has_lasted(link.since, now, options) {
            self.retry.fail(now, options, random_part());
        }
        if failed {
            self.failing = true;
            self.failed += 1;
            self.last_error = Some(reason.clone());
        }
        failed && self.usable() == 0
    }

    /// Marks the connections whose server shuts down.
    pub(super) fn let_go(&mut self, now: Instant, options: &Options) {
        for progress in self.by_number.values_mut() {
            if let Progress::Ready(link) = progress
                && link.look_at(State::is_leaving)
            {
                // A proxy may pass on error 1053 of a server behind it at each login. The client
                // must not connect in a loop.
                if !Retry::has_lasted(link.since, now, options) {
                    self.retry.fail(now, options, random_part());
                }
                *progress = Progress::Leaving(Arc::clone(link));
            }
        }
    }

    /// Returns the ready connection with the fewest sessions, if these are fewer than `limit`.
    pub(super) fn least_loaded(&self, limit: usize) -> Option<Arc<Link>> {
        let load = |state: &State| state.is_ready().then(|| state.open_sessions());
        let (sessions, link) = ready(&self.by_number)
            .filter_map(|link| Some((link.look_at(load)?, link)))
            .min_by_key(|&(sessions, _)| sessions)?;
        (sessions < limit).then(|| Arc::clone(link))
    }

    /// Returns the numbers of the connections to make now, for open sessions and `waiting` callers.
    pub(super) fn plan(&mut self, waiting: usize, now: Instant, options: &Options) -> Vec<u64> {
        self.reset_retry(now, options);
        if self.retry.due(now).is_some() {
            return Vec::new();
        }
        let sessions: usize =
            ready(&self.by_number).map(|link| link.look_at(State::open_sessions)).sum();
        let usable = self.usable();
        let connecting = usable - ready(&self.by_number).count();
        let at_a_time = if self.retry.is_failing() { 1 } else { options.max_connecting };
        let missing = (sessions + waiting).min(options.connections).saturating_sub(usable);
        let more = missing.min(at_a_time.saturating_sub(connecting));
        let numbers: Vec<u64> = (self.next_number..).take(more).collect();
        self.next_number += more as u64;
        self.by_number.extend(numbers.iter().map(|&number| (number, Progress::Connecting(None))));
        numbers
    }

    /// Time of the next attempt to connect. `None` if it may begin now.
    pub(super) fn retry_due(&self, now: Instant) -> Option<Instant> {
        self.retry.due(now)
    }

    /// Result of a caller that has waited too long.
    pub(super) fn too_late(
        &self,
        caller: Caller,
        now: Instant,
    ) -> (Caller, Result<Session, Error>) {
        let error = match &self.last_error {
            Some(error) if self.failing => as_connect(error),
            _ => {
                let waited = now.duration_since(caller.since);
                Error::not_sent(ErrorKind::Deadline(Stage::Session(waited)))
            }
        };
        (caller, Err(error))
    }

    /// Removes all connections. Returns those that have begun.
    pub(super) fn take(&mut self) -> Vec<Arc<Link>> {
        let all = std::mem::take(&mut self.by_number).into_values();
        all.filter_map(|progress| match progress {
            Progress::Connecting(link) => link,
            Progress::Ready(link) | Progress::Leaving(link) => Some(link),
        })
        .collect()
    }

    /// Status of the connections. Adds those that may be made.
    pub(super) fn status(&self, waiting: &Waiting, options: &Options) -> Status {
        let mut connections: Vec<_> = self
            .by_number
            .values()
            .map(|progress| match progress {
                Progress::Connecting(_) => ConnectionStatus {
                    phase: ConnectionPhase::Connecting,
                    ..ConnectionStatus::default()
                },
                Progress::Ready(link) | Progress::Leaving(link) => ConnectionStatus::of(link),
            })
            .collect();
        let absent = options.connections.saturating_sub(self.usable());
        connections.resize(connections.len() + absent, ConnectionStatus::default());
        Status {
            connections,
            waiting: waiting.len(),
            refused: waiting.refused(),
            connected: self.connected,
            failed: self.failed,
            last_error: self.last_error.clone(),
        }
    }

    /// Forgets failures after connections that have lasted.
    fn reset_retry(&mut self, now: Instant, options: &Options) {
        for link in ready(&self.by_number) {
            self.retry.see(link.since, now, options);
        }
    }

    /// Number of connections that are ready or being made.
    fn usable(&self) -> usize {
        let all = self.by_number.values();
        all.filter(|progress| !matches!(progress, Progress::Leaving(_))).count()
    }
}

fn ready(links: &BTreeMap<u64, Progress>) -> impl Iterator<Item = &Arc<Link>> {
    links.values().filter_map(|progress| match progress {
        Progress::Ready(link) => Some(link),
        Progress::Connecting(_) | Progress::Leaving(_) => None,
    })
}

/// Error of a caller without a session: the reason why there is no connection.
pub(super) fn as_connect(error: &Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Connect(_)
        | ErrorKind::Login(_)
        | ErrorKind::Deadline(_)
        | ErrorKind::Closed
        | ErrorKind::Protocol(_)) => Error::not_sent(kind.clone()),
        other => Error::not_sent(ErrorKind::Connect(other.to_string().into())),
    }
}

/// Random number from 0 up to but not including 1; 0.5 if the system has no random numbers.
fn random_part() -> f64 {
    let mut bytes = [0; 8];
    match random::fill(&mut bytes) {
        Ok(()) => (u64::from_le_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64,
        Err(_) => 0.5,
    }
}
