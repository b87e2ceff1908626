//! Use of resources by a runtime, compared with its limits, and the flags of its drain.

use std::fmt;

use crossbeam_utils::CachePadded;

use super::draining::{Begun, Changes};
use super::noise::Noise;
use super::slots::Token;
use super::starved::Starved;
use crate::sync::shim::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sys::clock::{self, Instant};

/// Origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The peer connected, and a listener accepted the connection.
    Accepted,
    /// This runtime connected.
    Outgoing,
}

/// Number of things that are in a state at the moment. Relaxed, because nothing else is read by it.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    /// Counts a thing that enters the state, or leaves it.
    pub(crate) fn change(&self, enters: bool) {
        if enters {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of the resources in use, shared by all groups of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    accepted: AtomicUsize,
    outgoing: AtomicUsize,
    /// Accepted connections that have not sent their first bytes.
    pub(crate) silent: Gauge,
    /// Accepted connections whose layers are not ready.
    pub(crate) handshakes: Gauge,
    /// Connections that are not read for a while.
    pub(crate) paused: Gauge,
    /// Connections that are closing.
    pub(crate) closing: Gauge,
    /// Connections that have not logged in.
    pub(crate) unauthenticated: Gauge,
    /// Deferred requests.
    pub(crate) deferred: Gauge,
    /// Handlers that wait for their peer.
    pub(crate) waiting_writers: Gauge,
    buffered_bytes: AtomicUsize,
    sessions: AtomicUsize,
    /// Queued requests, and their bytes.
    queued_requests: AtomicUsize,
    queued_bytes: AtomicUsize,
    /// Connections, sessions and closures of an urgent class, of all groups.
    urgent_units: CachePadded<AtomicUsize>,
    next_connection_id: AtomicU64,
    draining: Begun,
    /// Begun when no accepted connection is left, or at the deadline: the outgoing ones drain too.
    draining_outgoing: Begun,
    /// Number of open listeners.
    listeners: AtomicUsize,
    /// Listeners that ran out of descriptors. They are notified when one is closed.
    starved: Starved<StarvedListener>,
    /// Notified of changes while the runtime drains.
    changes: Changes,
    noise: Noise,
}

impl Usage {
    pub(super) const fn noise(&self) -> &Noise {
        &self.noise
    }

    pub(crate) fn connection_opened(&self, origin: Origin) {
        self.connections_count(origin).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self, origin: Origin) {
        self.connections_count(origin).fetch_sub(1, Ordering::AcqRel);
        self.announce();
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections_of(Origin::Accepted) + self.connections_of(Origin::Outgoing)
    }

    pub(crate) fn connections_of(&self, origin: Origin) -> usize {
        self.connections_count(origin).load(Ordering::Acquire)
    }

    const fn connections_count(&self, origin: Origin) -> &AtomicUsize {
        match origin {
            Origin::Accepted => &self.accepted,
            Origin::Outgoing => &self.outgoing,
        }
    }

    pub(crate) fn urgent_unit_began(&self) {
        self.urgent_units.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn urgent_unit_ended(&self) {
        self.urgent_units.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn urgent_units(&self) -> usize {
        // If two threads change a class up and down, the decrement may be counted first. So the sum
        // may be below zero for a moment.
        usize::try_from(self.urgent_units.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    pub(crate) fn listener_opened(&self) {
        self.listeners.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn listener_closed(&self) {
        self.listeners.fetch_sub(1, Ordering::AcqRel);
        self.announce();
    }

    pub(crate) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Acquire)
    }

    pub(crate) fn next_connection_id(&self) -> u64 {
        self.next_connection_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a buffer's size changed. Returns the new sum.
    pub(crate) fn buffer_changed(&self, before: usize, after: usize) -> usize {
        let change = after.wrapping_sub(before);
        self.buffered_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) -> bool {
        self.draining.begin()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_seen()
    }

    pub(super) fn begun(&self) -> &Begun {
        &self.draining
    }

    /// Starts to drain outgoing connections.
    pub(crate) fn start_draining_outgoing(&self) {
        self.draining_outgoing.begin();
    }

    /// Returns true if connections of this origin drain.
    pub(crate) fn drains(&self, origin: Origin) -> bool {
        self.begun_of(origin).is_seen()
    }

    /// Like [`drains`](Self::drains), for a thread that has just registered a connection. If true,
    /// the connection came too late to be notified.
    pub(crate) fn drains_after(&self, origin: Origin) -> bool {
        self.begun_of(origin).is_seen_after()
    }

    fn begun_of(&self, origin: Origin) -> &Begun {
        match origin {
            Origin::Accepted => &self.draining,
            Origin::Outgoing => &self.draining_outgoing,
        }
    }

    /// Waits until `done` holds or the deadline has passed. Returns true if `done` holds. It is
    /// checked again after each [`announce`](Self::announce).
    pub(crate) fn wait_until(&self, deadline: Instant, done: impl Fn() -> bool) -> bool {
        let left = deadline.duration_since(clock::now());
        self.changes.wait_until(Some(left), done)
    }

    /// Notifies a change that a drain may wait for.
    pub(crate) fn announce(&self) {
        self.changes.tell(&self.draining);
    }

    /// Has `notify` called when a descriptor is closed. `listener`: index of its group, and its token.
    /// The listener tries to accept once more after this call.
    pub(crate) fn starve(&self, listener: (usize, Token), notify: impl FnOnce() + Send + 'static) {
        let starved = StarvedListener { listener, notify: Box::new(notify) };
        self.starved.join(starved, |a, b| a.listener == b.listener);
    }

    /// Notes that a descriptor was closed. Listeners that ran out of descriptors may try again.
    pub(crate) fn descriptor_closed(&self) {
        for starved in self.starved.descriptor_closed() {
            (starved.notify)();
        }
    }
}

/// Listener that ran out of descriptors.
struct StarvedListener {
    /// Index of its group, and its token.
    listener: (usize, Token),
    notify: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for StarvedListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StarvedListener").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// Use by sessions.
impl Usage {
    /// Counts one more session, unless there are `most` already. Returns true if it was counted.
    pub(crate) fn session_opens(&self, most: usize) -> bool {
        let opened = self.sessions.fetch_add(1, Ordering::Relaxed) < most;
        if !opened {
            self.session_closed();
        }
        opened
    }

    pub(crate) fn session_closed(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Counts a queued request and returns true, unless its connection takes too much of `most`.
    /// `own` are the queued bytes of the connection, this request included.
    pub(crate) fn request_queues(&self, bytes: usize, own: usize, most: usize) -> bool {
        let sum = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        self.queued_requests.fetch_add(1, Ordering::Relaxed);
        let queued = leaves_room(own, sum, most);
        if !queued {
            self.request_taken(bytes);
        }
        queued
    }

    /// Notes that a request is no longer queued: it runs, or it is dropped.
    pub(crate) fn request_taken(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.queued_requests.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn queued_requests(&self) -> usize {
        self.queued_requests.load(Ordering::Relaxed)
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }
}

/// Returns true if a connection may use `own` of the `all` bytes in use. It must leave as many
/// bytes free as it has, or be within the share that each connection may have. So no connection can
/// take the whole budget, and all together do not keep another one from a small request.
pub(crate) const fn leaves_room(own: usize, all: usize, limit: usize) -> bool {
    own <= limit.saturating_sub(all) || own <= EVERYBODYS
}

/// Bytes that each connection may use, however much others use.
const EVERYBODYS: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::sync::shim::lock;

    #[test]
    fn listeners_of_two_groups_with_the_same_token_are_both_told_of_a_descriptor() {
        let (usage, token) = (Usage::default(), Token::decode(Token::FIRST));
        let told = Arc::new(Mutex::new(Vec::new()));
        for group in [0, 1, 0, 1] {
            let told = Arc::clone(&told);
            usage.starve((group, token), move || lock(&told).push(group));
        }
        usage.descriptor_closed();
        assert_eq!(*lock(&told), [0, 1]);
    }

    #[test]
    fn what_is_beyond_a_limit_is_not_counted() {
        let usage = Usage::default();
        assert!(usage.session_opens(2) && usage.session_opens(2));
        assert!(!usage.session_opens(2));
        assert_eq!(usage.sessions(), 2);
        usage.session_closed();
        assert!(usage.session_opens(2));

        let queues = |kib: usize, own: usize| usage.request_queues(kib << 10, own << 10, 100 << 10);
        let queued = || (usage.queued_requests(), usage.queued_bytes() >> 10);
        assert!(queues(50, 50) && queues(20, 20));
        assert!(!queues(1, 51) && !queues(16, 16));
        assert_eq!(queued(), (2, 70));
        assert!(queues(0, 20) && queues(15, 15));
        usage.request_taken(50 << 10);
        assert!(!queues(33, 33));
        assert_eq!(queued(), (3, 35));
        assert!(queues(32, 32) && queues(16, 16) && queues(8, 8));
        assert!(!queues(5, 9));
        assert!(queues(8, 8) && queues(8, 8));
        assert_eq!(queued(), (8, 107));
    }
}
