//! [`Conn`]: the state behind a [`Connection`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::address::Address;
use super::close::CloseReason;
use super::connection::{Connection, ConnectionId};
use super::extensions::Extensions;
use super::handler::Erased;
use super::layers::Layers;
use super::phase::Phase;
use super::receive;
use super::recv_state::Recv;
use super::send_queue::{Outbound, TellDrained};
use crate::runtime::source::{CUT, DRAIN, FIRST_OWN_MARK, OVER, Source, TIMER, WorkerContext};
use crate::runtime::{Class, Cost, Group, Origin, Serving, TimerId, Token, Usage, log};
use crate::stats::Counter;
use crate::sync::runner::{Bell, Marks, Runner, Running};
use crate::sync::shim::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};
use crate::sys::epoll::{Interest, Readiness};
use crate::sys::socket::{self, Family};

/// State of a connection.
///
/// Locks and Runners are taken in this order: `recv`, then `layers`, then `inbox`, or `recv`, then `send`,
/// then `inbox`. `deadline` is taken alone.
pub(super) struct Conn {
    pub(super) group: Arc<Group>,
    pub(super) id: ConnectionId,
    pub(super) origin: Origin,
    /// Address of the peer. For an outgoing connection the first one of its server.
    peer: Address,
    /// Address to which the connection was established, if it is a later one of its server.
    later_peer: OnceLock<Box<Address>>,
    /// Present until the connection is dropped.
    parts: Option<Parts>,
    /// Set before the connection is published.
    token: OnceLock<Token>,
    pub(super) phase: AtomicU8,
    /// A [`Class`].
    class: AtomicU8,
    /// Each hold of it is a request in progress beyond `received`.
    pub(super) recv: Runner<Recv>,
    /// Wakes a callback that waits for bytes.
    pub(super) bell: Bell,
    pub(super) send: Runner<Outbound>,
    /// Bytes of senders that found another sender at work or hold a cork, and bytes that layers
    /// have encoded.
    pub(super) inbox: Mutex<Vec<u8>>,
    /// Set when a cork holder or a layer has left bytes in the inbox. Cleared when a sender takes
    /// them.
    pub(super) corked: AtomicBool,
    /// Bytes in the backlog and the inbox, and bytes that wait until the layers are ready. Written
    /// by the owner of `send`, under the lock of `inbox`, and by the layers; read by all threads.
    pub(super) pending: AtomicUsize,
    /// Set while the user has paused reading. Written by all threads; read by the receiver.
    pub(super) paused: AtomicBool,
    /// Set since the user has paused reading. Cleared when the deadlines of the input have begun anew.
    pub(super) was_paused: AtomicBool,
    /// Set while bytes pass through `layers`. Written under their lock; read by all threads.
    pub(super) layered: AtomicBool,
    /// Present from the first layer on.
    pub(super) layers: OnceLock<Box<Layers>>,
    /// Set when `opened` has returned a state. Written once by the receiver; read by `TellDrained`.
    pub(super) has_opened: AtomicBool,
    /// Set once by a protocol that needs input during a drain, until the last hold is dropped. Read
    /// by the drain.
    pub(super) reads_while_held: AtomicBool,
    /// Set when bytes were sent. A reset at the close could destroy a reply that the peer has not read.
    pub(super) sent_any: AtomicBool,
    /// Set when bytes were sent since the last check for idleness.
    pub(super) sent_lately: AtomicBool,
    /// Set when the caller of `start` got the error, so the protocol is not notified of the
    /// failure.
    pub(super) told: AtomicBool,
    /// Set at the end of the connection, before the number of connections is lowered. Read by a
    /// drain.
    retired: AtomicBool,
    /// Number of requests in progress on an outgoing connection, or [`UNANSWERED`].
    requests: AtomicU32,
    /// Reason of the close, until the receiving side takes it.
    pub(super) reason: Mutex<Option<Box<CloseReason>>>,
    cost: Cost,
    /// Family of the socket. A Unix socket is watched for room only while a send is blocked.
    pub(super) family: Family,
    /// Nanoseconds of the idle time-out that the user has set for this connection, or [`NOT_SET`].
    idle_timeout: AtomicU64,
    /// Earliest deadline of this connection, and its entry in the group's timers.
    deadline: Mutex<Option<(Instant, TimerId)>>,
}

/// Value of `requests` when the server of an outgoing connection has finished and answers no
/// request.
const UNANSWERED: u32 = u32::MAX;

/// Value of `idle_timeout` while the user has set none. `set_idle_timeout` stores at most
/// `NOT_SET - 1`.
const NOT_SET: u64 = u64::MAX;

/// Bytes can be read, or the end of the stream.
pub(super) const READABLE: Marks = Marks::bit(FIRST_OWN_MARK);
/// The socket is hung up or in error, or has an urgent byte.
pub(super) const HUNG_UP: Marks = Marks::bit(FIRST_OWN_MARK + 1);
/// The socket has room again. For an outgoing connection: the attempt to connect has succeeded or
/// failed.
pub(super) const WRITABLE: Marks = Marks::bit(FIRST_OWN_MARK + 2);
/// `reason` is set: end gracefully.
pub(super) const CLOSE: Marks = Marks::bit(FIRST_OWN_MARK + 3);
/// `reason` is set: end at once.
pub(super) const ABORT: Marks = Marks::bit(FIRST_OWN_MARK + 4);
/// The backlog is at the low watermark again, or input that was set aside may come again.
pub(super) const RESUME: Marks = Marks::bit(FIRST_OWN_MARK + 5);
/// The backlog is empty, and no later bytes will be sent.
pub(super) const FLUSHED: Marks = Marks::bit(FIRST_OWN_MARK + 6);
/// The last hold was dropped.
pub(super) const HOLDS_DONE: Marks = Marks::bit(FIRST_OWN_MARK + 7);
/// The user asks for a call of `notified`.
pub(super) const NOTIFIED: Marks = Marks::bit(FIRST_OWN_MARK + 8);
/// The user has resumed reading.
pub(super) const UNPAUSED: Marks = Marks::bit(FIRST_OWN_MARK + 9);
/// `reason` is set: end at once, by a reset.
pub(super) const RESET: Marks = Marks::bit(FIRST_OWN_MARK + 10);
/// Marks that end a connection at once.
pub(super) const AT_ONCE: Marks = ABORT.or(RESET).or(CUT).or(OVER);

impl Conn {
    /// Makes the state for a socket and registers the socket. From then on the connection is
    /// served.
    pub(super) fn start(
        group: Arc<Group>,
        socket: OwnedFd,
        peer: Address,
        protocol: Arc<dyn Erased>,
        class: Class,
        recv: Recv,
    ) -> io::Result<Connection> {
        // An urgent class is counted until the connection is retired or dropped.
        group.note_urgent(Class::Ordinary, class);
        let is_silent = recv.silent_until.is_some();
        let handshakes = recv.handshake_until.is_some();
        let layers = OnceLock::new();
        let layered = !protocol.options().layers.is_empty();
        if layered {
            layers.get_or_init(Box::<Layers>::default);
        }
        let deadlines = [recv.silent_until, recv.handshake_until, recv.stage.deadline()];
        let first_deadline = deadlines.into_iter().flatten().min();
        let origin = recv.origin();
        let family = peer.family();
        let (cost, outbound) = match origin {
            Origin::Accepted => (Cost::like(protocol.first_cost()), Outbound::default()),
            Origin::Outgoing => (Cost::unknown(), Outbound::connecting()),
        };
        let conn = Arc::new(Self {
            id: ConnectionId { number: group.next_connection_id() },
            origin,
            peer,
            later_peer: OnceLock::new(),
            parts: Some(Parts {
                socket,
                _starved: TellStarved(Arc::clone(group.usage())),
                protocol,
                extensions: Extensions::default(),
            }),
            token: OnceLock::new(),
            phase: AtomicU8::new(Phase::Opening as u8),
            class: AtomicU8::new(class as u8),
            recv: Runner::new(recv),
            bell: Bell::new(),
            send: Runner::new(outbound),
            inbox: Mutex::new(Vec::new()),
            corked: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            was_paused: AtomicBool::new(false),
            layered: AtomicBool::new(layered),
            layers,
            has_opened: AtomicBool::new(false),
            reads_while_held: AtomicBool::new(false),
            sent_any: AtomicBool::new(false),
            sent_lately: AtomicBool::new(false),
            told: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            reason: Mutex::new(None),
            cost,
            family,
            idle_timeout: AtomicU64::new(NOT_SET),
            deadline: Mutex::new(None),
            group,
        });
        let connection = Connection(conn);
        let conn = &connection.0;
        // The token is set and the connection counted before it is published: a drain may end it at
        // any time afterwards.
        let source = |token| -> Box<dyn Source> {
            let _ = conn.token.set(token);
            conn.group.usage().connection_opened(origin);
            if is_silent {
                conn.group.usage().silent.change(true);
            }
            if handshakes {
                conn.group.usage().handshakes.change(true);
            }
            Box::new(connection.clone())
        };
        let Some(token) = conn.group.prepare(source) else {
            conn.leave_listener();
            return Err(io::Error::other("all slots of the group are in use"));
        };
        let interest = match family {
            Family::Tcp => Interest::STREAM,
            Family::Unix => Interest::INPUT,
        };
        if let Err(error) = conn.group.watch(conn.fd(), interest, token) {
            // The caller gets the error.
            conn.told.store(true, Ordering::Relaxed);
            // A drain may be about to end the connection too. The receiving side decides.
            let reason = CloseReason::Io(Arc::new(io::Error::new(error.kind(), "epoll_ctl")));
            conn.begin_close(reason, ABORT);
            return Err(error);
        }
        if family == Family::Unix {
            // A TCP socket gets this as its first event, because it has room. A Unix socket is not
            // watched for room.
            conn.notify_recv(WRITABLE);
        }
        if let Some(deadline) = first_deadline {
            conn.arm(deadline);
        }
        if conn.group.drains(origin) {
            conn.notify_recv(DRAIN);
        }
        Ok(connection)
    }

    pub(super) fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("taken by drop only")
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.parts().socket.as_fd()
    }

    pub(super) fn protocol(&self) -> &Arc<dyn Erased> {
        &self.parts().protocol
    }

    pub(super) fn first_bytes_timeout(&self) -> Option<Duration> {
        self.protocol().options().time_for_first_bytes(self.group.config())
    }

    pub(super) fn handshake_timeout(&self) -> Duration {
        let own = self.protocol().options().handshake_timeout;
        own.unwrap_or_else(|| self.group.config().handshake_timeout)
    }

    pub(super) fn frame_timeout(&self) -> Duration {
        let own = self.protocol().options().frame_timeout;
        own.unwrap_or_else(|| self.group.config().frame_timeout)
    }

    pub(super) fn net_write_timeout(&self) -> Duration {
        let own = self.protocol().options().net_write_timeout;
        own.unwrap_or_else(|| self.group.config().net_write_timeout)
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        match self.idle_timeout.load(Ordering::Relaxed) {
            NOT_SET => {
                let own = self.protocol().options().idle_timeout;
                own.unwrap_or_else(|| self.group.config().idle_timeout)
            }
            nanos => Duration::from_nanos(nanos),
        }
    }

    /// Returns true if the user has set the idle time-out of this connection.
    pub(super) fn has_own_idle_timeout(&self) -> bool {
        self.idle_timeout.load(Ordering::Relaxed) != NOT_SET
    }

    /// Sets the idle time-out of this connection. The receiving side sets its timer by it.
    pub(super) fn set_idle_timeout(&self, limit: Duration) {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(NOT_SET - 1).min(NOT_SET - 1);
        self.idle_timeout.store(nanos, Ordering::Relaxed);
        // The time begins now.
        self.sent_lately.store(true, Ordering::Relaxed);
        self.notify_recv(TIMER);
    }

    /// Tells the listener that this connection is no longer open.
    fn leave_listener(&self) {
        if let Some(admissions) = &self.protocol().options().admissions {
            admissions.leave(&self.peer, self.named_client());
        }
    }

    /// Returns the address that a layer has named, or that of the peer.
    pub(super) fn client_addr(&self) -> &Address {
        self.named_client().unwrap_or_else(|| self.peer())
    }

    /// Returns the address that a layer has named.
    pub(super) fn named_client(&self) -> Option<&Address> {
        self.layers.get().and_then(|layers| layers.client.get())
    }

    pub(super) fn peer(&self) -> &Address {
        self.later_peer.get().map_or(&self.peer, |peer| peer)
    }

    /// Puts a socket that connects to a later address of the server in place of the present one,
    /// under the same descriptor.
    pub(super) fn change_socket(&self, socket: OwnedFd) -> io::Result<()> {
        socket::replace(self.fd(), socket)?;
        let token = self.token.get().copied().expect("set before the connection is published");
        // The earlier socket had no other descriptor, so it is closed and no longer watched.
        self.group.watch(self.fd(), Interest::STREAM, token)
    }

    /// Notes the address to which the connection was established, if it is not the first one.
    pub(super) fn set_later_peer(&self, peer: Address) {
        let _ = self.later_peer.set(Box::new(peer));
    }

    /// Returns true if bytes pass through layers.
    pub(super) fn is_layered(&self) -> bool {
        // Acquire: pairs with the Release of the thread that changed it.
        self.layered.load(Ordering::Acquire)
    }

    /// Returns true while the user has paused reading.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Pauses or resumes reading.
    pub(super) fn pause(&self, paused: bool) {
        // A receiver that still sees the old value sees the mark and checks again.
        self.paused.store(paused, Ordering::Relaxed);
        if paused {
            self.was_paused.store(true, Ordering::Relaxed);
        } else {
            self.notify_recv(UNPAUSED);
        }
    }

    pub(super) fn cost(&self) -> &Cost {
        &self.cost
    }

    pub(super) fn class(&self) -> Class {
        Class::from_u8(self.class.load(Ordering::Relaxed))
    }

    /// Sets the class. If it becomes urgent, a queued run is queued again before ordinary work: all
    /// threads may wait for bytes that the peer has sent.
    pub(super) fn set_class(&self, class: Class) {
        let before = self.replace_class(class);
        if class.is_urgent()
            && !before.is_urgent()
            && self.recv.is_queued()
            && let Some(token) = self.token.get()
        {
            // The other task finds nothing to run.
            self.group.push_source(*token);
        }
        // After `retire`, no other code would undo the count.
        if self.phase() == Phase::Closed {
            self.replace_class(Class::Ordinary);
        }
    }

    fn replace_class(&self, class: Class) -> Class {
        // AcqRel: a thread that swaps after `retire` sees that the phase is `Closed`.
        let before = Class::from_u8(self.class.swap(class as u8, Ordering::AcqRel));
        self.group.note_urgent(before, class);
        before
    }

    pub(super) fn count(&self, counter: Counter, n: u64) {
        self.group.count(counter, n);
    }

    /// Leaves marks for the receiving side. Returns the right to run if it does not run.
    fn leave_marks(&self, marks: Marks) -> Option<Running<'_, Recv>> {
        self.recv.notify_or_wake(marks, &self.bell)
    }

    /// Leaves marks for the receiving side. If it does not run, it runs as a task.
    pub(super) fn notify_recv(&self, marks: Marks) {
        if let Some(running) = self.leave_marks(marks) {
            self.schedule(running);
        }
    }

    /// Leaves marks for the receiving side. If that is at work, a callback may wait for `drained`, which
    /// only a worker beside it can call.
    pub(super) fn notify_recv_and_callback(self: &Arc<Self>, marks: Marks) {
        match self.leave_marks(marks) {
            Some(running) => self.schedule(running),
            None => self.group.queue_drop(TellDrained(Arc::clone(self))),
        }
    }

    /// Queues the run at the back.
    pub(super) fn schedule(&self, running: Running<'_, Recv>) {
        running.queue();
        self.push();
    }

    /// Queues the run after a whole turn, after connections that have not had theirs.
    pub(super) fn schedule_spent(&self, running: Running<'_, Recv>) {
        running.queue();
        self.push_by(Group::push_spent_source);
    }

    /// Like [`schedule_spent`](Self::schedule_spent), at the end of a run in which no code of the user
    /// follows.
    pub(super) fn requeue(&self, running: Running<'_, Recv>) {
        running.queue();
        self.push_by(Group::requeue_source);
    }

    /// Pushes a run that is marked as queued.
    pub(super) fn push(&self) {
        self.push_by(Group::push_source);
    }

    fn push_by(&self, push: impl FnOnce(&Group, Token) -> bool) {
        if let Some(token) = self.token.get()
            && push(&self.group, *token)
        {
            return;
        }
        // The connection has ended, so no worker will take the run.
        drop(self.recv.resume());
    }

    /// Notes that a hold has ended.
    pub(super) fn end_hold(&self) {
        if let Some(running) = self.recv.end_hold(HOLDS_DONE) {
            self.schedule(running);
        }
    }

    /// Notes that a request beyond `received` begins.
    pub(super) fn begin_request(&self) {
        self.recv.hold();
        if self.origin == Origin::Outgoing && !self.count_request(1) {
            self.end_hold();
        }
    }

    /// Notes that a request beyond `received` is done.
    pub(super) fn end_request(&self) {
        if self.origin == Origin::Accepted || self.count_request(-1) {
            self.end_hold();
        }
    }

    /// Ends the requests on an outgoing connection whose server has finished.
    pub(super) fn end_requests(&self) {
        if self.origin == Origin::Outgoing {
            // Acquire: pairs with the Release in `count_request`, so a hold that is ended here has begun.
            let requests = self.requests.swap(UNANSWERED, Ordering::Acquire);
            let held = if requests == UNANSWERED { 0 } else { requests };
            (0..held).for_each(|_| self.end_hold());
        }
    }

    /// Counts a request on an outgoing connection. Returns false if its server has finished.
    fn count_request(&self, change: i32) -> bool {
        let changed =
            |requests: u32| (requests != UNANSWERED).then(|| requests.wrapping_add_signed(change));
        self.requests.fetch_update(Ordering::Release, Ordering::Relaxed, changed).is_ok()
    }

    /// Ensures that a timer fires at `at` or earlier.
    pub(super) fn arm(&self, at: Instant) {
        let Some(token) = self.token.get() else { return };
        let mut deadline = lock(&self.deadline);
        // After `retire`, no other code would cancel the timer. `retire` takes this lock once the
        // phase is `Closed`.
        if self.phase() == Phase::Closed {
            return;
        }
        match *deadline {
            Some((armed, _)) if armed <= at => return,
            Some((_, id)) => self.group.cancel_deadline(id),
            None => {}
        }
        *deadline = Some((at, self.group.insert_deadline(at, *token)));
    }

    /// Forgets the timer entry that has just fired.
    pub(super) fn disarm_passed(&self, now: Instant) {
        let mut deadline = lock(&self.deadline);
        if deadline.is_some_and(|(armed, _)| armed <= now) {
            *deadline = None;
        }
    }

    /// Changes the interest of the socket.
    pub(super) fn rewatch(&self, interest: Interest) {
        if let Some(token) = self.token.get()
            && let Err(error) = self.group.rewatch(self.fd(), interest, *token)
        {
            // The socket has been deregistered meanwhile.
            log!(debug, %error, "epoll_ctl(MOD)");
        }
    }

    /// Ends the connection: no event or timer reaches it afterwards. A TCP peer gets a reset, or the end of
    /// the stream.
    pub(super) fn retire(&self, resets: bool) {
        let deadline = lock(&self.deadline).take();
        if let Some((_, id)) = deadline {
            self.group.cancel_deadline(id);
        }
        if !(resets && self.family == Family::Tcp && socket::reset(self.fd()).is_ok()) {
            // An error means that the peer is gone already, which is fine.
            let _ = socket::shutdown_both(self.fd());
        }
        if let Some(token) = self.token.get() {
            self.group.unwatch(self.fd(), *token);
        }
        // Handles may live much longer. An ended connection must not count as urgent.
        self.replace_class(Class::Ordinary);
        self.retired.store(true, Ordering::Release);
        self.group.usage().connection_closed(self.origin);
        self.leave_listener();
    }
}

impl Source for Connection {
    fn ready(&self, readiness: Readiness, context: &mut WorkerContext<'_>) {
        let conn = &self.0;
        let marks = conn.marks_of(readiness);
        if marks.is_empty() {
            return;
        }
        if let Some(running) = conn.leave_marks(marks) {
            let _serving = conn.serve();
            receive::run(self, running, context);
        }
    }

    fn queue_ready(&self, readiness: Readiness) -> bool {
        let marks = self.0.marks_of(readiness);
        !marks.is_empty() && self.queue_marks(marks)
    }

    fn queue_marks(&self, marks: Marks) -> bool {
        let conn = &self.0;
        if marks == DRAIN && !conn.group.usage().drains(conn.origin) {
            // The connection stays open for requests that wait for its answers.
            return false;
        }
        if marks.has(CUT) {
            // A handler that outlives the drain learns of it from `is_closed` and `send`.
            conn.advance_to_closing();
        }
        let queued = conn.leave_marks(marks).map(Running::queue).is_some();
        if !queued && marks.has(CUT) {
            conn.group.queue_drop(TellDrained(Arc::clone(conn)));
        }
        if !queued && marks.has(TIMER) {
            // A handler that waits for its peer to read must learn when that takes too long.
            conn.disarm_passed(clock::now());
            conn.check_due();
        }
        queued
    }

    fn resume(&self, context: &mut WorkerContext<'_>) {
        if let Some(running) = self.0.recv.resume() {
            let _serving = self.0.serve();
            receive::run(self, running, context);
        }
    }

    fn cost(&self) -> &Cost {
        &self.0.cost
    }

    fn class(&self) -> Class {
        self.0.class()
    }

    fn watch_end(&self) -> Option<Box<dyn Fn() -> bool>> {
        let conn = self.clone();
        Some(Box::new(move || !conn.0.retired.load(Ordering::Acquire)))
    }
}

impl Conn {
    /// Notes that this thread runs code for the connection, until the result is dropped.
    pub(super) fn serve(&self) -> Option<Serving> {
        self.token.get().map(|token| Serving::begin(self.origin, &self.group, *token))
    }

    /// Serves the sending side. Returns the marks for the receiving side.
    fn marks_of(self: &Arc<Self>, readiness: Readiness) -> Marks {
        let mut marks = Marks::NONE;
        if readiness.is_writable() {
            if matches!(self.phase(), Phase::Opening | Phase::HalfClosing) {
                marks |= WRITABLE;
            }
            // If no sender is at work and none was blocked, the next sender begins after this
            // check. It finds the room that this event reports.
            if self.send.is_owned_or_flagged() {
                self.mark_send(WRITABLE);
            }
        }
        if readiness.is_readable() {
            marks |= READABLE;
        }
        // A receive stops at an urgent byte, so a short receive does not mean that the socket is
        // empty.
        if readiness.is_hung_up() || readiness.is_urgent() {
            marks |= HUNG_UP;
        }
        marks
    }
}

/// Parts that the last handle leaves behind. To drop them is work and runs user code, and the last
/// handle may be dropped under a lock of the user.
pub(super) struct Parts {
    /// Closed only when the `Conn` is dropped.
    socket: OwnedFd,
    /// Notifies listeners without descriptors when it is dropped, after the socket: fields are
    /// dropped in this order.
    _starved: TellStarved,
    protocol: Arc<dyn Erased>,
    pub(super) extensions: Extensions,
}

struct TellStarved(Arc<Usage>);

impl Drop for TellStarved {
    fn drop(&mut self) {
        self.0.descriptor_closed();
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.group.note_urgent(self.class(), Class::Ordinary);
        if let Some(parts) = self.parts.take() {
            self.group.discard(parts);
        }
    }
}
