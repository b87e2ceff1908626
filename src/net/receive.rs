//! The receiving side of a connection: from readiness to the protocol.

use std::io;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::close::{Close, CloseReason};
use super::conn::{
    ABORT, AT_ONCE, CLOSE, Conn, FLUSHED, HOLDS_DONE, HUNG_UP, NOTIFIED, READABLE, RESUME,
    UNPAUSED, WRITABLE,
};
use super::connection::Connection;
use super::handler::Handler;
use super::layers::Pass;
use super::options::FullBacklog;
use super::phase::Phase;
use super::read_buf::{Input, Outcome, ReadBuf};
use super::read_more::Reader;
use super::route::{Attempt, Route};
use crate::runtime::source::{DRAIN, TIMER, Turn, WorkerContext};
use crate::runtime::{Excuse, Origin, Pace, guard, in_span, leaves_room};
use crate::stats::Counter;
use crate::sync::runner::{Marks, Running};
use crate::sys::clock;
use crate::sys::socket::{self, Received};

/// State that only one receiver at a time may touch.
pub(super) struct Recv {
    pub(super) stage: Stage,
    /// Number of times that the size of a receive in pieces was doubled.
    doublings: u8,
    /// Set when the socket is hung up or in error. Reads then continue to the end, however many
    /// bytes a read returns.
    hung_up: bool,
    /// Set when the end of the stream was read.
    pub(super) ended: bool,
    /// End that takes effect once the received bytes have been released.
    pub(super) ending: Option<Ending>,
    /// Marks that wait for `opened`.
    later: Marks,
    /// Set until `opened` is called, for an outgoing connection.
    pub(super) unopened: bool,
    /// Further addresses of the server, until an outgoing connection is established.
    route: Option<Box<Route>>,
    /// Time by which the layers must be ready.
    pub(super) handshake_until: Option<Instant>,
    /// Set if the next step of the handshake has been left to the background once.
    deferred: bool,
    /// Set if the layers can decode more although nothing arrives.
    pub(super) undecoded: bool,
    /// Set while a layer keeps the beginning of a record.
    partial: bool,
    /// Set if the unconsumed bytes are to be delivered again, although none have arrived.
    pub(super) again: bool,
    /// Set when the drain came while the connection was paused, or held and not yet established.
    pub(super) drain_later: bool,
    /// Set when the drain will end the connection with its last hold. Until then it is read.
    pub(super) awaiting: bool,
    /// Set while the connection is counted as paused.
    pub(super) paused: bool,
    /// Set from the time at which the backlog stopped the reads until it is low.
    full: bool,
    closing: bool,
    /// Set if input had arrived when the drain came.
    pub(super) busy: bool,
    /// Set when all input that had arrived before the drain has been received.
    dry: bool,
    /// Set if no input had arrived and no output waited when the drain came.
    pub(super) idle: bool,
    /// Time by which a peer that has not sent anything must send its first bytes.
    pub(super) silent_until: Option<Instant>,
    /// Set when the peer has sent its first bytes; those of a handshake do not count when it is over.
    has_spoken: bool,
    /// Time of the last receive.
    pub(super) heard_at: Option<Instant>,
    /// Time by which the unconsumed bytes must be a whole frame.
    pub(super) frame_until: Option<Instant>,
    /// Set when that time has passed. Unless the bytes that have arrived complete the frame, the
    /// connection ends.
    pub(super) frame_late: bool,
    /// Excuse of the peer for late first bytes, a late handshake or a late frame.
    pub(super) frame_excuse: Excuse,
    /// Set while the protocol has no room for the unconsumed bytes. Nothing is received before
    /// [`RESUME`] or this time.
    pub(super) aside_until: Option<Instant>,
    /// Time at which a large empty buffer is freed.
    pub(super) shrink_at: Option<Instant>,
    pub(super) buf: ReadBuf,
    pub(super) handler: Option<Box<dyn Handler>>,
    /// Reason for which the connection closes. On the heap, as few connections close at a time.
    pub(super) reason: Option<Box<CloseReason>>,
}

/// State of the receiving side; see the picture in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Outgoing connection that is not established, with the time by which it must be.
    Connecting {
        until: Option<Instant>,
    },
    /// No event has been handled yet.
    New,
    /// The layers are not ready.
    Handshaking,
    Open,
    /// No longer read. The connection closes when its held requests have ended.
    Finishing,
    /// No new sends. The connection waits for its backlog to leave.
    Flushing,
    /// The sending direction is shut down. The rest of the peer's bytes is read and dropped.
    Lingering {
        until: Instant,
        left: usize,
    },
    Closed,
}

impl Stage {
    pub(super) const fn is_connecting(self) -> bool {
        matches!(self, Self::Connecting { .. })
    }

    /// Returns true if the connection is read.
    pub(super) const fn reads(self) -> bool {
        matches!(self, Self::Open | Self::Handshaking)
    }

    /// Returns the time at which this stage must be over, if it has one.
    pub(super) const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Lingering { until, .. } | Self::Connecting { until: Some(until) } => Some(until),
            _ => None,
        }
    }
}

/// Result of the last receive.
#[derive(Debug)]
pub(super) enum Ending {
    EndOfStream,
    Close(CloseReason),
    Abort(CloseReason),
}

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// No work until a mark comes.
    Rest,
    /// More work is left, but other connections have their turn first.
    Requeue,
    /// Reading stops because the backlog is high or the protocol has no room. [`RESUME`] will come.
    Paused,
    /// The connection is about to end, but the received bytes must be released first. These marks
    /// are left for afterwards.
    Release(Marks),
}

impl Recv {
    /// State of an accepted connection.
    pub(super) fn accepted(
        silent_until: Option<Instant>,
        handshake_until: Option<Instant>,
    ) -> Self {
        Self { silent_until, handshake_until, ..Self::new(Stage::New) }
    }

    /// State of an outgoing connection.
    pub(super) fn outgoing(until: Option<Instant>, route: Route) -> Self {
        let route = Some(Box::new(route));
        Self { unopened: true, route, ..Self::new(Stage::Connecting { until }) }
    }

    pub(super) const fn origin(&self) -> Origin {
        match self.stage {
            Stage::Connecting { .. } => Origin::Outgoing,
            _ => Origin::Accepted,
        }
    }

    /// Returns the next step if no receive is allowed: the connection ends, or the protocol has no
    /// room.
    const fn stops(&self) -> Option<Next> {
        if self.ending.is_some() {
            Some(Next::Rest)
        } else if self.aside_until.is_some() {
            Some(Next::Paused)
        } else {
            None
        }
    }

    /// Returns the marks to handle now. Those for the protocol wait for `opened`.
    fn due(&mut self, marks: Marks) -> Marks {
        if self.handler.is_some() {
            return marks | mem::take(&mut self.later);
        }
        let for_protocol = NOTIFIED | RESUME | UNPAUSED;
        self.later |= marks.only(for_protocol);
        marks.without(for_protocol)
    }

    /// Notes how long a receive took. `full` if it was of [`PIECE`]` << doublings` bytes. A receive is
    /// never larger than the buffer of the worker.
    fn note_piece(&mut self, took: Duration, full: bool, buffer: usize) {
        if took > PIECE_TIME {
            self.doublings = self.doublings.saturating_sub(1);
        } else if full && took <= PIECE_TIME / 2 && PIECE << self.doublings < buffer {
            self.doublings += 1;
        }
    }

    fn new(stage: Stage) -> Self {
        Self {
            stage,
            doublings: 0,
            hung_up: false,
            ended: false,
            ending: None,
            later: Marks::NONE,
            unopened: false,
            route: None,
            handshake_until: None,
            deferred: false,
            undecoded: false,
            partial: false,
            again: false,
            drain_later: false,
            awaiting: false,
            paused: false,
            full: false,
            closing: false,
            busy: false,
            dry: false,
            idle: false,
            silent_until: None,
            has_spoken: false,
            heard_at: None,
            frame_until: None,
            frame_late: false,
            frame_excuse: Excuse::default(),
            aside_until: None,
            shrink_at: None,
            buf: ReadBuf::default(),
            handler: None,
            reason: None,
        }
    }
}

/// Time after which a connection that keeps receiving goes to the back of the queue.
const TURN: Duration = Duration::from_millis(1);

/// Least size of a receive if the turn must end in time. It doubles after a quick receive of that size, and
/// is halved after a slow one of any size.
const PIECE: usize = 8 << 10;
/// A receive and its delivery are slow if they take longer, and quick if they take at most half of it.
const PIECE_TIME: Duration = Duration::from_micros(250);

/// Number of times in a row that the receiving side takes new marks and handles them. After that,
/// other connections have their turn.
const ROUNDS: u32 = 16;

/// Runs the receiving side until it has no work or its budget is spent.
pub(super) fn run<'a>(
    connection: &'a Connection,
    mut running: Running<'a, Recv>,
    context: &mut WorkerContext<'_>,
) {
    let conn = &connection.0;
    let mut round = Round {
        connection,
        conn,
        marks: Marks::NONE,
        received: 0,
        encoded: 0,
        timed: false,
        first: false,
        observed: conn.group.note_scheduled(context),
        first_at: None,
    };
    for rounds in 1.. {
        let marks = running.take_marks();
        let next = round.turn(&mut running, marks, context);
        let over = rounds >= ROUNDS || round.received >= conn.group.config().read_budget_bytes;
        if next == Next::Requeue {
            round.hold();
            running.mark(READABLE);
            conn.count(Counter::TurnsRequeued, 1);
            if round.received > 0 {
                // `released` follows.
                conn.schedule_spent(running);
            } else {
                conn.requeue(running);
            }
            break;
        }
        if let Next::Release(marks) = next {
            running.mark(marks);
            // The right to run is kept meanwhile, so no other worker ends the connection.
            round.release(context.turn.ending());
            // If more input waits, other connections have their turn first.
            if over || marks.has(READABLE) {
                conn.schedule(running);
                break;
            }
            continue;
        }
        let finished =
            if round.received > 0 { running.finish_and_hold() } else { running.finish() };
        match finished {
            None => break,
            Some(again) if over => {
                round.hold();
                conn.count(Counter::TurnsRequeued, 1);
                conn.schedule_spent(again);
                break;
            }
            Some(again) => running = again,
        }
    }
    let held = round.received > 0;
    round.release(context.turn);
    if held {
        conn.end_hold();
    }
    if round.timed {
        context.charge(conn.cost());
        if round.first {
            conn.protocol().first_cost().follow(conn.cost());
        }
        conn.group.note_run(round.first_at, context);
    }
}

/// One period in which a worker owns the Runner.
pub(super) struct Round<'a> {
    pub(super) connection: &'a Connection,
    pub(super) conn: &'a Arc<Conn>,
    /// Marks that the turn has taken.
    pub(super) marks: Marks,
    /// Bytes delivered to the protocol.
    pub(super) received: usize,
    /// Bytes received for the layers.
    pub(super) encoded: usize,
    /// Set when `received` of the protocol was called. Then the time of this run is a valid sample.
    timed: bool,
    /// Set when the peer has sent its first bytes.
    first: bool,
    /// True if histograms are on.
    observed: bool,
    /// Time of the first receive, taken only if histograms are on.
    first_at: Option<Instant>,
}

impl Round<'_> {
    /// Takes a hold before the Runner is given up. Another worker may then receive, even the end of
    /// the stream. The end must wait until the bytes received here have been released.
    fn hold(&self) {
        if self.received > 0 {
            self.conn.recv.hold();
        }
    }

    /// Calls `released` of the protocol, once for all bytes received in this run.
    fn release(&mut self, turn: Turn) {
        if mem::take(&mut self.received) > 0 {
            let released = || self.conn.protocol().released(self.connection, turn);
            if guard(&self.conn.group, "released", released).is_none() {
                self.conn.begin_close(CloseReason::Panic, ABORT);
            }
        }
    }

    /// Handles the marks once. An end takes effect only if all received bytes have been released.
    fn turn(&mut self, recv: &mut Recv, mut marks: Marks, context: &mut WorkerContext<'_>) -> Next {
        self.marks = marks;
        recv.hung_up |= marks.has(HUNG_UP);
        if recv.stage == Stage::Closed {
            return Next::Rest;
        }
        // Nothing may end the connection before the received bytes have been released.
        if self.received > 0 && (marks.has(ENDING) || recv.ending.is_some()) {
            recv.busy |= marks.has(DRAIN);
            return Next::Release(marks);
        }
        match recv.ending.take() {
            None => {}
            Some(Ending::EndOfStream) => self.end_of_stream(recv),
            Some(Ending::Close(reason)) => self.start_closing(recv, reason),
            Some(Ending::Abort(reason)) => {
                self.finish(recv, Some(reason));
                return Next::Rest;
            }
        }
        if marks.has(AT_ONCE) {
            self.end_at_once(recv, marks);
            return Next::Rest;
        }
        // Before more is received: a peer that never stops sending would keep the holds from ever being
        // looked at.
        if marks.has(HOLDS_DONE) && recv.awaiting && self.received == 0 {
            self.look_at_holds(recv);
        }
        let overdue = marks.has(TIMER) && self.look_at_deadlines(recv);
        if recv.stage.is_connecting() {
            self.establish(recv, marks);
        }
        if recv.stage == Stage::New {
            self.begin(recv);
        }
        if marks.has(HUNG_UP) {
            self.look_for_reset(recv);
        }
        marks = recv.due(marks);
        if marks.has(RESUME) {
            self.room_again(recv);
        }
        if marks.has(UNPAUSED) && !self.conn.is_paused() && recv.ending.is_none() {
            self.unpaused(recv);
        }
        if marks.has(NOTIFIED) && recv.ending.is_none() {
            self.notified(recv);
        }
        let mut next = Next::Rest;
        // A peer that answers each reply with a request would keep the socket from ever running
        // dry. So a drain reads until it is dry once. Bytes that a pause has kept come before its end.
        let kept = recv.again || self.keeps_input(recv);
        let served = marks.has(DRAIN) && recv.dry && !recv.awaiting && !kept;
        let wanted = recv.stage.reads() && !recv.ended && !served && !marks.has(CLOSE);
        // If the bytes came in time and were not read in time, the fault is ours. So the socket is
        // read before the deadline counts against the peer.
        if wanted && (marks.has(READABLE | HUNG_UP | RESUME | UNPAUSED | DRAIN) || overdue) {
            next = if self.defers(recv, overdue || marks.has(DRAIN)) {
                Next::Requeue
            } else if is_aside(recv, marks) {
                Next::Paused
            } else {
                self.receive(recv, context)
            };
            self.note_pause(recv, next);
            if next == Next::Rest && recv.frame_late && recv.ending.is_none() {
                let limit = self.conn.frame_timeout();
                recv.ending = Some(Ending::Close(CloseReason::FrameTimeout(limit)));
            }
        }
        if overdue && self.received == 0 && recv.ending.is_none() {
            self.look_at_silence(recv);
        }
        if recv.ending.is_some() || self.received > 0 && marks.has(ENDING) {
            recv.busy |= marks.has(DRAIN);
            recv.dry |= marks.has(DRAIN) && next == Next::Rest;
            let more = if next == Next::Requeue { READABLE } else { Marks::NONE };
            return Next::Release(marks.only(ENDING) | more);
        }
        if marks.has(CLOSE) {
            self.start_closing(recv, CloseReason::ByPeer);
        }
        if marks.has(DRAIN) {
            self.look_at_drain(recv, next);
        }
        if marks.has(HOLDS_DONE) {
            self.look_at_holds(recv);
        }
        if marks.has(FLUSHED) {
            self.close_if_finished(recv);
            if recv.stage == Stage::Flushing {
                self.flushed(recv);
            }
        }
        if let Stage::Lingering { .. } = recv.stage
            && marks.has(READABLE | HUNG_UP)
        {
            self.linger(recv, context.read_buf);
        }
        next
    }

    /// Returns true if the backlog is above the high watermark, or has been and is not yet at the low
    /// one. A peer that does not read is not read from either.
    fn is_full(&self, recv: &Recv) -> bool {
        let config = self.conn.group.config();
        let most = if recv.full {
            config.write_low_watermark_bytes
        } else {
            config.write_high_watermark_bytes
        };
        self.conn.pending.load(Ordering::Relaxed) > most
            && self.conn.protocol().options().full_backlog == FullBacklog::PauseReads
    }

    /// Notes if the connection is read. Events of a paused connection come here too, so only the change
    /// is counted.
    fn set_paused(&self, recv: &mut Recv, paused: bool) {
        if mem::replace(&mut recv.paused, paused) != paused {
            self.conn.group.usage().pause_changed(paused);
            let counter = if paused { Counter::ReadsPaused } else { Counter::ReadsResumed };
            self.conn.count(counter, 1);
        }
    }

    /// Notes that the user has paused a connection that has no input.
    fn note_pause(&self, recv: &mut Recv, next: Next) {
        if next == Next::Rest && self.conn.is_paused() && recv.stage == Stage::Open {
            self.set_paused(recv, true);
        }
    }

    /// Ends a pause with the connection.
    pub(super) fn forget_pause(&self, recv: &mut Recv) {
        if mem::take(&mut recv.paused) {
            self.conn.group.usage().pause_changed(false);
        }
    }

    pub(super) fn set_closing(&self, recv: &mut Recv, closing: bool) {
        if mem::replace(&mut recv.closing, closing) != closing {
            self.conn.group.usage().closing_changed(closing);
        }
    }

    /// Handles [`RESUME`]: the backlog is low again.
    fn room_again(&self, recv: &mut Recv) {
        recv.full = false;
        if recv.paused {
            self.set_paused(recv, self.conn.is_paused());
            self.renew_deadlines(recv);
        }
        self.drain_if_late(recv);
        let drained = || self.conn.protocol().drained(self.connection);
        if guard(&self.conn.group, "drained", drained).is_none() {
            recv.ending = Some(Ending::Close(CloseReason::Panic));
        }
    }

    /// Handles [`UNPAUSED`]: the user has resumed reading. If the backlog is full, the pause goes on.
    fn unpaused(&mut self, recv: &mut Recv) {
        if !self.is_full(recv) {
            let was_paused = self.conn.was_paused.swap(false, Ordering::Relaxed);
            if recv.paused || was_paused {
                self.set_paused(recv, false);
                self.renew_deadlines(recv);
            }
        }
        self.drain_if_late(recv);
        if recv.buf.is_empty() || !self.delivers(recv) {
            return;
        }
        if recv.ended {
            // No more is received, so the bytes that were kept come now.
            self.deliver_again(recv, received);
        } else {
            recv.again = true;
        }
    }

    /// Lets the deadlines of the input begin anew after a pause, in which the peer was not heard.
    fn renew_deadlines(&self, recv: &mut Recv) {
        let now = clock::now();
        self.renew_silence(recv, now);
        if recv.silent_until.is_none() {
            self.arm_idle(recv, now);
        }
        self.time_frame(recv, true);
    }

    /// Returns true if the protocol gets input: a callback, or the user, has not closed the connection.
    fn delivers(&self, recv: &Recv) -> bool {
        recv.stage == Stage::Open && self.conn.phase() < Phase::Closing
    }

    /// Handles [`NOTIFIED`].
    fn notified(&mut self, recv: &mut Recv) {
        let outcome =
            self.deliver_again(recv, |handler, conn, input| handler.notified(conn, input));
        let breaks = matches!(recv.ending, Some(Ending::Close(_) | Ending::Abort(_)));
        let goes_on = self.delivers(recv) && !breaks && !self.conn.is_paused();
        // Of what it has read, the rest is for `received`.
        if outcome.has_read && outcome.left > 0 && goes_on {
            self.deliver_again(recv, received);
        }
    }

    /// Calls the protocol with the bytes that were kept. Consumed ones count as received.
    fn deliver_again(&mut self, recv: &mut Recv, call: Call) -> Outcome {
        self.timed = true;
        let outcome = self.deliver(recv, None, call);
        self.received += outcome.all_consumed();
        outcome
    }

    /// Finds out whether an outgoing connection was established or has failed.
    fn establish(&self, recv: &mut Recv, marks: Marks) {
        // The first bytes of a server may be noticed before the connection.
        let told = marks.has(WRITABLE | READABLE | HUNG_UP);
        if !told && recv.stage.deadline().is_none_or(|until| clock::now() < until) {
            return;
        }
        let error = match socket::take_error(self.conn.fd()) {
            // At the deadline, the event that reports success may not have been handled yet.
            Ok(None) => socket::peer_addr(self.conn.fd()).err(),
            Ok(error) => error,
            Err(error) => Some(error),
        };
        match error {
            None => {
                recv.stage = Stage::New;
                if let Some(later) = recv.route.take().and_then(|route| route.later) {
                    self.conn.set_later_peer(later);
                }
                self.conn.send_early();
                self.conn.count(Counter::ConnectionsConnected, 1);
            }
            Some(mut error) => {
                if error.kind() == io::ErrorKind::NotConnected {
                    let late = recv.stage.deadline().is_some_and(|until| until <= clock::now());
                    if late && let Some(route) = &recv.route {
                        error = route.timed_out(self.conn.peer());
                    } else if matches!(socket::hang_ups(self.conn.fd()), Ok((_, false))) {
                        // The event was of the attempt before, and this one goes on.
                        return;
                    }
                }
                // The next socket is prepared by code of the user.
                let reason = match guard(&self.conn.group, "prepare_socket", || {
                    self.go_on_connecting(recv, error)
                }) {
                    Some(Ok(())) => return,
                    Some(Err(error)) => CloseReason::ConnectFailed(Arc::new(error)),
                    None => CloseReason::Panic,
                };
                self.finish(recv, Some(reason));
            }
        }
    }

    /// Tries the next address of the server.
    fn go_on_connecting(&self, recv: &mut Recv, failed: io::Error) -> io::Result<()> {
        let Some(route) = &mut recv.route else { return Err(failed) };
        let Attempt { address, socket, until } = route.go_on(failed)?;
        self.conn.change_socket(socket)?;
        route.later = Some(address);
        recv.hung_up = false;
        recv.stage = Stage::Connecting { until };
        until.into_iter().for_each(|until| self.conn.arm(until));
        Ok(())
    }

    /// Begins to serve an established connection: with the handshakes of its layers if it has some.
    #[inline(never)]
    fn begin(&mut self, recv: &mut Recv) {
        if !self.conn.is_layered() {
            self.open(recv);
            return;
        }
        recv.stage = Stage::Handshaking;
        self.begin_handshake(recv);
        let layers = || self.conn.protocol().options().layers.make(self.connection);
        match guard(&self.conn.group, "layer", layers) {
            Some(Ok(layers)) => {
                self.conn.add_layers(layers);
                self.decode(recv, &[]);
            }
            Some(Err(close)) => self.start_closing(recv, close.0.of_layer()),
            None => self.finish(recv, Some(CloseReason::Panic)),
        }
    }

    /// Sets the deadline of a handshake. That of an accepted connection has begun when it was accepted.
    fn begin_handshake(&self, recv: &mut Recv) {
        if recv.handshake_until.is_none() {
            let until = clock::now() + self.conn.handshake_timeout();
            recv.handshake_until = Some(until);
            self.conn.arm(until);
            self.count_handshake(true);
        }
    }

    pub(super) fn end_handshake(&self, recv: &mut Recv) {
        if recv.handshake_until.take().is_some() {
            self.count_handshake(false);
        }
    }

    fn count_handshake(&self, begins: bool) {
        if self.conn.origin == Origin::Accepted {
            self.conn.group.usage().handshakes_changed(begins);
        }
    }

    /// Returns true if the next step of a stranger's handshake goes to the background first, because it
    /// may take much CPU time.
    fn defers(&self, recv: &mut Recv, is_urgent: bool) -> bool {
        if recv.handshake_until.is_none() || self.conn.origin == Origin::Outgoing {
            return false;
        }
        recv.deferred = !is_urgent && !recv.deferred;
        recv.deferred
    }

    /// Counts the connection under the address that a layer has named. If that has too many, the
    /// connection ends.
    fn rename(&self, recv: &mut Recv) {
        let (peer, client) = (self.conn.peer(), self.conn.client_addr());
        if let Some(admissions) = &self.conn.protocol().options().admissions
            && let Err(limit) = admissions.rename(peer, client)
        {
            self.conn.count(Counter::ConnectionsRefusedLimit, 1);
            let text = format!("{client} has max_connections_per_address {limit} already");
            recv.ending = Some(Ending::Close(CloseReason::ByLayer(text.into())));
        }
    }

    /// Handles the end of the last layer's handshake.
    fn layers_ready(&self, recv: &mut Recv) {
        self.end_handshake(recv);
        self.conn.count(Counter::HandshakesCompleted, 1);
        if recv.stage != Stage::Handshaking {
            if self.conn.phase() == Phase::HalfClosing {
                self.conn.end_stream();
            }
            self.conn.notify_recv(NOTIFIED);
            return;
        }
        if recv.buf.is_empty() && !recv.undecoded {
            // Earlier bytes were of a proxy or of a handshake.
            recv.has_spoken = false;
            if self.conn.origin == Origin::Accepted && recv.silent_until.is_none() {
                self.await_first_bytes(recv, clock::now());
            }
        }
        self.open(recv);
        let later = mem::take(&mut recv.later);
        if !later.is_empty() {
            self.conn.notify_recv(later);
        }
    }

    fn open(&self, recv: &mut Recv) {
        recv.stage = Stage::Open;
        recv.unopened = false;
        if self.conn.advance(Phase::Open) == Phase::HalfClosing {
            self.conn.end_stream();
        }
        self.drain_if_late(recv);
        let protocol = Arc::clone(self.conn.protocol());
        match guard(&self.conn.group, "opened", || protocol.open(self.connection)) {
            Some(Ok(handler)) => {
                recv.handler = Some(handler);
                // Release: pairs with the Acquire in `TellDrained`, so its call follows `opened`.
                self.conn.has_opened.store(true, Ordering::Release);
                if self.conn.origin == Origin::Accepted && recv.silent_until.is_none() {
                    // The first bytes have no limit, or have come with the end of a handshake.
                    let now = clock::now();
                    recv.heard_at = Some(now);
                    self.arm_idle(recv, now);
                }
            }
            Some(Err(close)) => self.start_closing(recv, close.0),
            None => self.finish(recv, Some(CloseReason::Panic)),
        }
    }

    /// Receives and delivers until the socket is empty, the budget or the time is spent, or the
    /// backlog is high.
    fn receive(&mut self, recv: &mut Recv, context: &mut WorkerContext<'_>) -> Next {
        // A connection that counted as quick has other work queued after it.
        let in_pieces = self.in_pieces(context);
        let quick = in_pieces && self.conn.cost().pace() == Pace::Cheap;
        let turn = if quick { TURN / 4 } else { TURN };
        loop {
            // A callback, or the user, has closed the connection: what is left of the input is dropped.
            if self.conn.phase() >= Phase::Closing {
                return Next::Rest;
            }
            // A handshake goes on: without its end, the user could not resume, and bytes that were sent
            // meanwhile could not leave.
            if self.conn.is_paused() && recv.stage == Stage::Open {
                self.set_paused(recv, true);
                if recv.hung_up {
                    self.look_for_reset(recv);
                }
                return Next::Paused;
            }
            if self.is_full(recv) && recv.stage == Stage::Open && recv.handshake_until.is_none() {
                recv.full = true;
                // If the backlog is low again already, the mark comes back at once.
                self.set_paused(recv, true);
                self.conn.resume_when_low();
                return Next::Paused;
            }
            let again = recv.aside_until.take().is_some()
                || recv.stage == Stage::Open && mem::take(&mut recv.again);
            if again && recv.ending.is_none() {
                if !recv.buf.is_empty() {
                    self.deliver_again(recv, received);
                }
                // A drain that waited for this is checked again, whatever the protocol did.
                self.drain_if_late(recv);
            }
            if let Some(next) = recv.stops() {
                return next;
            }
            if self.is_spent(self.received, turn, context) {
                return Next::Requeue;
            }
            let most = if in_pieces { PIECE << recv.doublings } else { usize::MAX };
            let began = in_pieces.then(clock::now);
            let arrived = if self.conn.is_layered() {
                if self.is_spent(self.encoded, turn, context) {
                    return Next::Requeue;
                }
                let arrived = self.recv_and_decode(recv, context, most);
                if !recv.stage.reads() {
                    return Next::Rest;
                }
                arrived
            } else {
                self.recv_and_deliver(recv, context, most)
            };
            let (asked, received) = match arrived {
                Ok(counts) => counts,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Rest,
                Err(error) => {
                    recv.ending = Some(Ending::Abort(CloseReason::from_io(error)));
                    return Next::Rest;
                }
            };
            if let Some(next) = recv.stops() {
                return next;
            }
            let full = received.bytes >= most;
            if let Some(began) = began
                && (full || recv.doublings > 0)
            {
                recv.note_piece(clock::since(began), full, context.read_buf.len());
            }
            if received.bytes == 0 {
                if self.conn.is_paused() && recv.stage == Stage::Open {
                    // The protocol has paused again, perhaps with input left. The end comes after it.
                    continue;
                }
                recv.ending = Some(Ending::EndOfStream);
                return Next::Rest;
            }
            // If fewer bytes came than asked for, the socket is empty and the next arrival is an
            // edge. Not so if the socket has hung up: that edge may have been the one handled now.
            // Nor if something else cut the receive short.
            if received.bytes < asked && !received.cut && !recv.hung_up {
                return Next::Rest;
            }
        }
    }

    /// Returns true if so many bytes, or the time since the first of them, end the turn.
    fn is_spent(&self, bytes: usize, turn: Duration, context: &WorkerContext<'_>) -> bool {
        // Small requests cost more work than their bytes say, so time limits the turn too.
        bytes >= self.conn.group.config().read_budget_bytes
            || bytes > 0 && clock::now().saturating_duration_since(context.lap.now) >= turn
    }

    /// Returns true if the turn must end in time, whatever arrives.
    fn in_pieces(&self, context: &WorkerContext<'_>) -> bool {
        self.conn.cost().is_long() || self.conn.group.is_crowded(context.lap.now)
    }

    /// Receives once, at most `most` bytes unless it continues a large frame. Calls the protocol
    /// once if bytes came.
    fn recv_and_deliver(
        &mut self,
        recv: &mut Recv,
        context: &mut WorkerContext<'_>,
        most: usize,
    ) -> io::Result<(usize, Received)> {
        let partial = recv.buf.bytes().len();
        // A frame that fits is completed in the worker's buffer, with the bytes that follow it.
        // That needs fewer receives and no growth of the connection's own buffer. A larger frame is
        // received into the connection's own buffer.
        let own =
            recv.buf.needed() > context.read_buf.len() || partial > context.read_buf.len() / 2;
        let (asked, arrived) = if own {
            self.recv_into_own(recv)?
        } else {
            let size = context.read_buf.len().min(partial.saturating_add(most));
            let (front, space) = context.read_buf[..size].split_at_mut(partial);
            front.copy_from_slice(recv.buf.bytes());
            (space.len(), self.recv_into(space)?)
        };
        let Received { bytes, .. } = arrived;
        if bytes == 0 {
            return Ok((asked, arrived));
        }
        self.heard(recv, bytes, context.lap.now);
        self.observe(context);
        self.received += bytes;
        self.deliver(recv, (!own).then(|| &context.read_buf[..partial + bytes]), received);
        Ok((asked, arrived))
    }

    /// Receives once behind the bytes that the connection keeps. Returns the number of bytes asked for. If
    /// memory is short, that is 0, and the connection ends.
    pub(super) fn recv_into_own(&self, recv: &mut Recv) -> io::Result<(usize, Received)> {
        let growth = recv.buf.growth(self.conn.group.config().tcp_fixed_dealing_buf);
        if growth > 0 {
            if !self.reserve(recv, growth) {
                return Ok((0, Received { bytes: 0, cut: false }));
            }
            recv.buf.grow(growth);
        }
        self.conn.count(Counter::RecvCalls, 1);
        recv.buf.recv(self.conn.fd(), self.conn.family)
    }

    /// Receives once, at most as many bytes as there is space for.
    pub(super) fn recv_into(&self, space: &mut [u8]) -> io::Result<Received> {
        self.conn.count(Counter::RecvCalls, 1);
        socket::recv(self.conn.fd(), self.conn.family, space)
    }

    /// Notes that bytes have come from the peer.
    #[inline(always)]
    pub(super) fn heard(&mut self, recv: &mut Recv, bytes: usize, now: Instant) {
        recv.heard_at = Some(now);
        if !mem::replace(&mut recv.has_spoken, true) {
            self.first = true;
            self.end_silence(recv);
            self.arm_idle(recv, now);
        }
        self.conn.count(Counter::BytesReceived, bytes as u64);
    }

    /// Notes the time of the first receive of the turn.
    fn observe(&mut self, context: &WorkerContext<'_>) {
        if !mem::replace(&mut self.timed, true) && self.observed {
            self.first_at = Some(self.conn.group.note_received(context));
        }
    }

    /// Receives once for the layers, unless they have more to decode, and delivers the bytes that they decode.
    #[inline(never)]
    fn recv_and_decode(
        &mut self,
        recv: &mut Recv,
        context: &mut WorkerContext<'_>,
        most: usize,
    ) -> io::Result<(usize, Received)> {
        let asked = context.read_buf.len().min(most);
        // The rest of the last receive goes first. Counted as cut, so that the next one follows.
        if mem::take(&mut recv.undecoded) {
            self.decode(recv, &[]);
            return Ok((asked, Received { bytes: asked, cut: true }));
        }
        let mut arrived = self.recv_into(&mut context.read_buf[..asked])?;
        if arrived.bytes > 0 {
            self.heard(recv, arrived.bytes, context.lap.now);
            self.observe(context);
            self.encoded += arrived.bytes;
            self.decode(recv, &context.read_buf[..arrived.bytes]);
            arrived.cut |= recv.undecoded;
        }
        Ok((asked, arrived))
    }

    /// Passes bytes through the layers, behind those that they keep. Delivers the bytes that they decode.
    #[inline(never)]
    fn decode(&mut self, recv: &mut Recv, raw: &[u8]) {
        let (decoded, mut pass) = self.pass_up(recv, raw);
        // Bytes that were decoded before the layers were ready are delivered with these.
        recv.again |= decoded > 0;
        let delivers = self.delivers(recv) && recv.ending.is_none();
        // Noted first, so that a callback which reads more finds the end of the layers, or their error.
        recv.undecoded |= pass.ended;
        if pass.error.is_some() {
            self.look_at_pass(recv, &mut pass);
        }
        if delivers {
            if recv.again && !self.conn.is_paused() {
                recv.again = false;
                let consumed = self.deliver(recv, None, received).all_consumed();
                self.received += consumed.max(decoded);
            } else {
                self.time_frame(recv, false);
            }
        }
        self.look_at_pass(recv, &mut pass);
    }

    /// Passes bytes through the layers. Returns the number of bytes that they have decoded.
    pub(super) fn pass_up(&mut self, recv: &mut Recv, raw: &[u8]) -> (usize, Pass) {
        let (before, len) = (recv.buf.capacity(), recv.buf.bytes().len());
        let client = self.conn.client_addr();
        let pass = self.conn.receive_layered(self.connection, raw, recv.buf.tail());
        let decoded = recv.buf.bytes().len() - len;
        recv.undecoded = pass.again;
        recv.partial = pass.left > 0;
        self.timed = true;
        self.account(recv, before);
        // Also if another layer has panicked.
        if !ptr::eq(client, self.conn.client_addr()) {
            self.rename(recv);
        }
        if pass.ready && recv.ending.is_none() {
            self.layers_ready(recv);
        }
        (decoded, pass)
    }

    /// Looks at the end of the stream, and at errors of the layers. They take effect behind the bytes that
    /// the layers have decoded.
    pub(super) fn look_at_pass(&self, recv: &mut Recv, pass: &mut Pass) {
        if recv.ending.is_some() || !recv.stage.reads() {
            return;
        }
        if let Some(reason) = pass.error.take() {
            recv.ending = Some(Ending::Close(reason));
        } else if pass.ended {
            // Bytes that a layer can still decode come before the end, and those that wait for the user to
            // resume or for the protocol to have room.
            let opened = recv.stage == Stage::Open;
            let paused = opened && (recv.again || self.conn.is_paused());
            if pass.again || recv.aside_until.is_some() || paused {
                recv.undecoded = true;
            } else {
                recv.ending = Some(Ending::EndOfStream);
            }
        } else if !pass.again {
            self.check_left_over(recv, pass.left);
        }
    }

    /// Calls the protocol once with all unconsumed bytes. They are in `elsewhere`, after a copy of
    /// the connection's own buffer, or in that buffer.
    fn deliver(&mut self, recv: &mut Recv, elsewhere: Option<&[u8]>, call: Call) -> Outcome {
        let first_size = self.conn.group.config().tcp_fixed_dealing_buf;
        let mut before = recv.buf.capacity();
        let (partial, announced) = (recv.buf.bytes().len(), recv.buf.needed());
        // The callback may read more into the connection's own buffer.
        let own = elsewhere.is_none().then(|| mem::take(&mut recv.buf));
        let bytes = elsewhere.or_else(|| own.as_ref().map(ReadBuf::bytes)).unwrap_or_default();
        let (mut handler, aside_until) = (recv.handler.take(), recv.aside_until);
        let (conn, connection) = (self.conn, self.connection);
        let mut reader = Reader { round: self, recv };
        let mut input = Input::new(bytes, announced, aside_until);
        input.set_more(&mut reader);
        conn.count(Counter::Receives, 1);
        let result = match &mut handler {
            None => Ok(()),
            Some(handler) => {
                let call = || {
                    in_span!(
                        call(&mut **handler, connection, &mut input),
                        "received",
                        connection = conn.id.number(),
                        class = conn.class().name()
                    )
                };
                // A panic closes the connection.
                guard(&conn.group, "received", call).unwrap_or(Err(Close(CloseReason::Panic)))
            }
        };
        let outcome = input.outcome();
        let Outcome { mut consumed, needed, left, cut, .. } = outcome;
        recv.handler = handler;
        recv.aside_until = outcome.aside_until;
        if cut {
            consumed = if outcome.has_read { recv.buf.bytes().len() } else { bytes.len() };
        }
        let total = outcome.consumed_before + consumed;
        if outcome.has_read {
            if let Some(own) = own {
                conn.group.usage().buffer_changed(own.capacity(), 0);
            }
            before = recv.buf.capacity();
            recv.buf.consume(consumed, needed, first_size);
        } else if let Some(own) = own {
            recv.buf = own;
            recv.buf.consume(consumed, needed, first_size);
        } else if consumed == 0 {
            recv.buf.append(&bytes[partial..], needed, first_size);
        } else {
            recv.buf.replace(&bytes[consumed..], needed, first_size);
        }
        self.account(recv, before);
        if cut {
            self.begin_handshake(recv);
            recv.undecoded = true;
            conn.notify_recv(READABLE);
        }
        if total > 0 {
            recv.frame_excuse = Excuse::default();
        }
        self.time_frame(recv, total > 0);
        match (result, recv.aside_until) {
            // The connection broke while the callback waited for bytes.
            (Err(_), _) if matches!(recv.ending, Some(Ending::Abort(_))) => {}
            (Err(close), _) => recv.ending = Some(Ending::Close(close.0)),
            (Ok(()), Some(until)) => self.conn.arm(until),
            // A frame length that was announced before keeps its limit.
            (Ok(()), None) if total == 0 && left.max(needed) <= announced => {}
            (Ok(()), None) => self.check_left_over(recv, left.max(needed)),
        }
        outcome
    }

    pub(super) fn check_left_over(&self, recv: &mut Recv, bytes: usize) {
        let limit = self.conn.group.config().max_allowed_packet;
        if bytes > limit + HEADER_ALLOWANCE {
            recv.ending = Some(Ending::Close(CloseReason::InputTooLong { bytes, limit }));
        }
    }

    /// Takes the growth of a buffer from the runtime's budget. If the budget is spent, this
    /// connection ends.
    fn reserve(&self, recv: &mut Recv, growth: usize) -> bool {
        let usage = self.conn.group.usage();
        let limit = self.conn.group.config().max_buffered_bytes;
        let (own, bytes) = (recv.buf.capacity() + growth, usage.buffer_changed(0, growth));
        let granted = leaves_room(own, bytes, limit);
        if !granted {
            usage.buffer_changed(growth, 0);
            recv.ending = Some(Ending::Abort(CloseReason::MemoryBudget { own, bytes, limit }));
        }
        granted
    }

    /// Sets the deadline of an unconsumed frame. If `begun`, its time begins now.
    #[inline(always)]
    pub(super) fn time_frame(&self, recv: &mut Recv, begun: bool) {
        // Input that was set aside is a whole frame, or follows one. The peer of a paused connection
        // cannot complete a frame.
        if recv.buf.is_empty() && !recv.partial
            || recv.aside_until.is_some()
            || self.conn.is_paused()
        {
            recv.frame_until = None;
            recv.frame_late = false;
        } else if begun || recv.frame_until.is_none() && !recv.frame_late {
            let until = clock::now() + self.conn.frame_timeout();
            recv.frame_until = Some(until);
            recv.frame_late = false;
            self.conn.arm(until);
        }
    }

    /// Updates the sum of buffer sizes and arms the timer that frees a large buffer.
    #[inline(always)]
    pub(super) fn account(&self, recv: &mut Recv, before: usize) {
        let config = self.conn.group.config();
        let after = recv.buf.capacity();
        if before != after {
            let bytes = self.conn.group.usage().buffer_changed(before, after);
            let limit = config.max_buffered_bytes;
            if after > before && !leaves_room(after, bytes, limit) {
                let reason = CloseReason::MemoryBudget { own: after, bytes, limit };
                recv.ending = Some(Ending::Close(reason));
            }
        }
        let used = before != after || !recv.buf.is_empty();
        if after > config.tcp_fixed_dealing_buf && (used || recv.shrink_at.is_none()) {
            let at = clock::now() + config.big_buf_release_after;
            recv.shrink_at = Some(at);
            self.conn.arm(at);
        }
    }
}

/// Callback that gets the unconsumed bytes.
type Call = fn(&mut dyn Handler, &Connection, &mut Input<'_>) -> Result<(), Close>;

fn received(
    handler: &mut dyn Handler,
    conn: &Connection,
    input: &mut Input<'_>,
) -> Result<(), Close> {
    handler.received(conn, input)
}

/// Returns true if the protocol still has no room for the input that was set aside, as far as this
/// side knows.
fn is_aside(recv: &Recv, marks: Marks) -> bool {
    !marks.has(RESUME) && recv.aside_until.is_some_and(|until| clock::now() < until)
}

/// Marks that may end the connection.
const ENDING: Marks = AT_ONCE.or(CLOSE).or(DRAIN).or(TIMER).or(HOLDS_DONE).or(FLUSHED);

/// Bytes that a frame's header may add to `max_allowed_packet`.
const HEADER_ALLOWANCE: usize = 64;

#[cfg(all(test, feature = "internal"))]
mod tests;
