//! [`Served`]: a protocol on sockets that are connected already, for simulations.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Protocol;
use super::accept::admit;
use super::address::Address;
use super::connection::Connection;
use super::handler::{Erased, Typed};
use super::options::ConnOptions;
#[cfg(test)]
use super::{Close, Input};
use crate::runtime::{Class, Group};

/// A protocol and its connections, as if a listener had accepted them.
pub(crate) struct Served(Arc<dyn Erased>);

impl Served {
    pub(crate) fn new(protocol: impl Protocol) -> Self {
        Self(Arc::new(Typed::new(protocol, ConnOptions::default())))
    }

    /// Serves a non-blocking socket. If there are too many connections, the socket is closed.
    pub(crate) fn accept(
        &self,
        group: &Arc<Group>,
        socket: OwnedFd,
        peer: Address,
    ) -> Option<Connection> {
        admit(group, socket, peer, &self.0, Class::Ordinary)
    }
}

/// A protocol that reads no input.
#[cfg(test)]
pub(crate) struct Deaf;

#[cfg(test)]
impl Protocol for Deaf {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
    use std::time::Duration;

    use socket2::SockRef;

    use super::super::conn::{HUNG_UP, READABLE};
    use super::super::layer::Makers;
    use super::super::{
        Close, CloseReason, ConnectOptions, Decoded, HalfClose, Hold, Input, Layer, LayerState,
        Sent, Turn,
    };
    use super::*;
    use crate::config::Config;
    use crate::runtime::source::{Source, TIMER, WorkerContext};
    use crate::runtime::{Cost, Simulated};
    use crate::stats::Counter;
    use crate::sync::runner::Marks;
    use crate::sync::shim::lock;
    use crate::sys::clock::{self, Instant};
    use crate::sys::epoll::Readiness;

    const TIMEOUT: Duration = Duration::from_secs(10);
    /// Delay with which each deadline is handled, as if other work were queued.
    const LATE: Duration = Duration::from_millis(150);
    /// Idle time-out of a [`Noting`].
    const IDLE: Duration = Duration::from_secs(60);
    const FRAME: &[u8] = b"a frame.";
    const MORE_THAN_A_SOCKET_TAKES: usize = 4 << 20;
    /// Turns after which a test assumes that a sender never returns.
    const WITHOUT_END: u32 = 1000;

    /// Answers each frame with this number of bytes.
    struct Answers(usize);

    impl Protocol for Answers {
        type State = ();

        fn opened(&self, _: &Connection) -> Result<(), Close> {
            Ok(())
        }

        fn received(
            &self,
            conn: &Connection,
            (): &mut (),
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            if input.len() >= FRAME.len() {
                input.take(FRAME.len());
                conn.send(vec![0; self.0]);
            }
            Ok(())
        }
    }

    /// A server that handles each deadline too late, and its peer.
    struct World {
        runtime: Simulated,
        conn: Connection,
        peer: UnixStream,
        now: Instant,
    }

    impl World {
        fn new(answers: usize, idle: Duration) -> Self {
            let config = Config::default().net_write_timeout(TIMEOUT).frame_timeout(TIMEOUT);
            Self::serving(config.idle_timeout(idle), |_| Answers(answers))
        }

        /// `protocol` gets the socket of the peer.
        fn serving<P: Protocol>(config: Config, protocol: impl FnOnce(&UnixStream) -> P) -> Self {
            Self::layered(config, Makers::default(), protocol)
        }

        fn layered<P: Protocol>(
            config: Config,
            layers: Makers,
            protocol: impl FnOnce(&UnixStream) -> P,
        ) -> Self {
            let now = Instant::now();
            clock::simulate(Some(now));
            let runtime = Simulated::new(config).expect("descriptors");
            let (ours, peer) = UnixStream::pair().expect("descriptors");
            ours.set_nonblocking(true).expect("a socket");
            let options = ConnOptions { layers, ..ConnOptions::default() };
            let served = Served(Arc::new(Typed::new(protocol(&peer), options)));
            let peer_addr = Address::Unix("".into());
            let conn =
                served.accept(runtime.group(), ours.into(), peer_addr).expect("there is room");
            Self { runtime, conn, peer, now }
        }

        fn sends(&mut self, bytes: &[u8]) {
            self.peer.write_all(bytes).expect("there is room");
            self.run();
        }

        /// Moves the clock to this time, and handles what is due.
        fn looks_at(&mut self, time: Instant) {
            self.now = time;
            clock::simulate(Some(time));
            self.runtime.fire_due();
            self.run();
        }

        /// Runs until no work is left.
        fn run(&self) {
            loop {
                self.runtime.take_events();
                while self.runtime.take_task(false) {}
                if self.runtime.in_hands() == 0 {
                    return;
                }
                self.runtime.run(0, Some((0, 1)));
            }
        }

        /// Moves the clock past the next deadline and runs.
        fn looks(&mut self) {
            self.looks_at(self.runtime.next_deadline().expect("there is one") + LATE);
        }

        /// Sends while another sender sends in each turn. Returns the total number of bytes sent,
        /// and the turns of this sender.
        fn sends_beside_others(&self) -> (usize, u32) {
            self.conn.send(vec![0; MORE_THAN_A_SOCKET_TAKES]);
            // While bytes wait, each turn reads the clock.
            let (turns, conn) = (Rc::new(Cell::new(0)), self.conn.clone());
            let count = Rc::clone(&turns);
            clock::at_each_look(move || {
                if count.get() < WITHOUT_END {
                    count.set(count.get() + 1);
                    assert!(matches!(conn.send([0]), Sent::Queued(_)));
                }
            });
            self.conn.send([0]);
            clock::at_each_look(|| ());
            (MORE_THAN_A_SOCKET_TAKES + 1 + turns.get() as usize, turns.get())
        }

        /// Reads up to `count` bytes while bytes come.
        fn reads(&mut self, count: usize) -> usize {
            self.peer.set_nonblocking(true).expect("a socket");
            let (mut bytes, mut all) = (vec![0; count], 0);
            while let Ok(some @ 1..) = self.peer.read(&mut bytes[all..]) {
                all += some;
                self.run();
            }
            all
        }

        fn count(&self, counter: Counter) -> u64 {
            self.runtime.handle().stats().get(counter)
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            clock::simulate(None);
        }
    }

    #[test]
    fn who_never_reads_is_cut_though_all_his_deadlines_are_looked_at_late() {
        // A peer that has not taken its reply is not idle.
        let mut world = World::new(MORE_THAN_A_SOCKET_TAKES, TIMEOUT / 4);
        world.sends(FRAME);
        let began = world.now;
        world.looks();
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 0, "that may be our fault");
        while world.now < began + 3 * TIMEOUT && world.count(Counter::ConnectionsClosed) == 0 {
            let closing = world.runtime.handle().stats().closing_connections;
            assert_eq!(closing, 0, "it is not idle");
            world.looks();
        }
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 1);
        assert!(world.now <= began + 2 * (TIMEOUT + LATE));
    }

    /// A world whose peer has a short backlog.
    fn with_a_backlog() -> World {
        let mut world = World::new(0, Duration::ZERO);
        world.sends(FRAME);
        while world.conn.send([0; 4096]) == Sent::Sent {}
        world
    }

    /// Lets the socket have room for some of the backlog, though the peer has taken nothing.
    fn make_room(world: &World) {
        let socket = world.conn.0.fd();
        SockRef::from(&socket).set_send_buffer_size(1 << 18).expect("the kernel may lower it");
    }

    #[test]
    fn a_backlog_that_grows_at_once_counts_as_a_whole() {
        let mut world = with_a_backlog();
        let began = world.now;
        world.conn.send([0; 1 << 20]);
        world.looks_at(began + TIMEOUT / 10);
        make_room(&world);
        world.looks_at(began + TIMEOUT - Duration::from_nanos(1));
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 0);
        world.looks_at(began + TIMEOUT);
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 1);
    }

    #[test]
    fn bytes_that_come_late_count_in_the_next_period() {
        let mut world = with_a_backlog();
        let began = world.now;
        world.looks_at(began + TIMEOUT / 10);
        world.conn.send([0; 1 << 20]);
        make_room(&world);
        world.looks_at(began + TIMEOUT);
        world.looks_at(began + TIMEOUT + TIMEOUT / 10);
        world.looks_at(began + 2 * TIMEOUT - Duration::from_nanos(1));
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 0);
        world.looks_at(began + 2 * TIMEOUT);
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 1);
    }

    #[test]
    fn room_of_which_no_event_tells_is_used_before_the_share_is_fixed() {
        let share = 4096;
        let mut config = Config::default().net_write_timeout(TIMEOUT).frame_timeout(TIMEOUT);
        config = config.write_low_watermark_bytes(share).write_high_watermark_bytes(share);
        let mut world = World::serving(config, |_| Answers(MORE_THAN_A_SOCKET_TAKES));
        world.sends(FRAME);
        let began = world.now;
        world.peer.read_exact(&mut vec![0; 16 * share]).expect("that much was sent");
        assert_eq!(world.runtime.take_events(), 0);
        world.looks_at(began + TIMEOUT / 10);
        world.looks_at(began + TIMEOUT);
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 1);
    }

    #[test]
    fn who_takes_the_share_and_is_sent_more_is_not_cut() {
        let mut world = with_a_backlog();
        for _ in 0..5 {
            world.looks_at(world.now + TIMEOUT / 10);
            assert_ne!(world.reads(1 << 20), 0);
            while world.conn.send([0; 4096]) == Sent::Sent {}
            world.looks_at(world.now + TIMEOUT - TIMEOUT / 10);
        }
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 0);
    }

    #[test]
    fn a_sender_beside_others_leaves_the_rest_to_a_task_after_sixteen_turns() {
        let mut world = World::new(0, Duration::ZERO);
        world.run();
        let (sent, turns) = world.sends_beside_others();
        // One more reading of the clock is that of the queue.
        assert_eq!(turns, 16 + 1);
        assert_eq!(world.runtime.queued(), 1);
        // Another sender leaves its bytes to the task as well.
        assert!(matches!(world.conn.send([0]), Sent::Queued(_)));
        assert_eq!(world.runtime.queued(), 1);
        world.run();
        assert_eq!(world.reads(sent + 2), sent + 1);
        assert_eq!(world.conn.pending_bytes(), 0);
        assert_eq!(world.runtime.queued(), 0);
    }

    #[test]
    fn what_a_sender_has_left_to_a_task_leaves_before_a_drain_ends_the_connection() {
        let mut world = World::new(0, Duration::ZERO);
        world.run();
        let (sent, _) = world.sends_beside_others();
        world.runtime.start_draining();
        world.run();
        assert_eq!(world.reads(sent + 1), sent);
        assert_eq!(world.count(Counter::ConnectionsClosed), 0, "it lingers");
        assert_eq!(world.peer.read(&mut [0]).expect("the end"), 0);
    }

    #[test]
    fn a_task_that_no_worker_runs_sends_when_the_queue_is_swept() {
        let mut world = World::new(0, Duration::ZERO);
        world.run();
        let (sent, _) = world.sends_beside_others();
        // The peer makes room, and the worker that takes the event leaves a mark for the task.
        let mut bytes = vec![0; sent];
        let read = world.peer.read(&mut bytes).expect("something was sent");
        assert_eq!(world.runtime.take_events(), 1);
        world.runtime.run(0, None);
        let (usage, conn) = (Arc::clone(world.runtime.handle().usage()), world.conn.clone());
        assert_eq!(usage.buffered_bytes(), conn.pending_bytes());
        let mut peer = world.peer.try_clone().expect("a descriptor");
        drop(world);
        assert!(conn.is_closed());
        assert_eq!((conn.pending_bytes(), usage.buffered_bytes()), (0, 0));
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).expect("it was cut in order");
        assert!(!rest.is_empty() && read + rest.len() < sent, "{read} of {sent}, {}", rest.len());
    }

    /// The limit for the first bytes is longer.
    #[test]
    fn a_connection_that_is_silent_after_its_first_bytes_has_the_limit_of_an_idle_one() {
        let mut world = World::new(0, TIMEOUT / 4);
        world.sends(FRAME);
        let due = world.now + TIMEOUT / 4;
        assert!(world.runtime.next_deadline().is_some_and(|next| next <= due));
    }

    #[test]
    fn a_connection_counts_as_paused_until_its_backlog_is_low() {
        let mut world = World::new(MORE_THAN_A_SOCKET_TAKES, TIMEOUT);
        let paused = |world: &World| world.runtime.handle().stats().paused_connections;
        world.sends(FRAME);
        // The second frame arrives while the backlog is high.
        world.sends(FRAME);
        assert_eq!(paused(&world), 1);
        assert_eq!(world.reads(2 * MORE_THAN_A_SOCKET_TAKES), 2 * MORE_THAN_A_SOCKET_TAKES);
        assert_eq!(paused(&world), 0);
    }

    #[test]
    fn what_a_sender_leaves_to_another_counts_against_the_budget() {
        let world = World::new(0, Duration::ZERO);
        world.run();
        world.conn.send(vec![0; MORE_THAN_A_SOCKET_TAKES]);
        // While bytes wait, each turn reads the clock.
        let (closed, conn) = (Rc::new(Cell::new(None)), world.conn.clone());
        let seen = Rc::clone(&closed);
        clock::at_each_look(move || {
            if seen.get().is_none() {
                seen.set(Some(false));
                let (usage, limit) =
                    (conn.group().usage(), conn.group().config().max_buffered_bytes);
                usage.buffer_changed(0, limit);
                conn.send([0]);
                seen.set(Some(conn.is_closed()));
                usage.buffer_changed(limit, 0);
            }
        });
        world.conn.send([0]);
        clock::at_each_look(|| ());
        assert_eq!(closed.get(), Some(true));
    }

    /// Notes at each release whether the connection is held.
    struct Releases(Arc<Mutex<Vec<bool>>>);

    impl Protocol for Releases {
        type State = ();

        fn opened(&self, _: &Connection) -> Result<(), Close> {
            Ok(())
        }

        fn received(
            &self,
            _: &Connection,
            (): &mut (),
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            input.take_all();
            Ok(())
        }

        fn released(&self, conn: &Connection, _: Turn) {
            lock(&self.0).push(conn.0.recv.is_held());
        }
    }

    #[test]
    fn a_request_that_begins_when_another_ends_keeps_the_connection() {
        let world = World::new(0, TIMEOUT);
        world.run();
        let hold = world.conn.hold();
        world.runtime.start_draining();
        world.run();
        drop(hold);
        let hold = world.conn.hold();
        world.run();
        assert!(!world.conn.is_closed());
        drop(hold);
        world.run();
        assert!(world.conn.is_closed());
    }

    #[test]
    fn a_handler_that_outlives_a_drain_learns_of_it() {
        let world = World::new(0, TIMEOUT);
        world.run();
        let handler = world.conn.0.recv.notify(READABLE).expect("it is idle");
        world.runtime.end_draining(true);
        assert!(world.conn.is_closed());
        world.conn.0.schedule(handler);
        world.run();
    }

    #[test]
    fn a_handler_that_waits_for_its_peer_learns_that_the_peer_takes_too_long() {
        let mut world = World::new(0, Duration::ZERO);
        world.run();
        let conn = world.conn.clone();
        conn.send(vec![0; MORE_THAN_A_SOCKET_TAKES]);
        let handler = conn.0.recv.notify(READABLE).expect("it is idle");
        // The backlog settles, and the first delay may be the fault of this process.
        for closed in [false, false, true] {
            world.looks();
            assert_eq!(conn.is_closed(), closed);
        }
        world.conn.0.schedule(handler);
        world.run();
    }

    #[test]
    fn the_sending_side_looks_at_deadlines_beside_a_handler_only_if_a_timer_fires() {
        let world = World::new(0, TIMEOUT);
        world.run();
        let conn = &world.conn;
        let handler = conn.0.recv.notify(READABLE).expect("it is idle");
        let looks = Rc::new(Cell::new(false));
        let look = Rc::clone(&looks);
        clock::at_each_look(move || look.set(true));
        let looks = [READABLE, TIMER].map(|marks| {
            assert!(!conn.queue_marks(marks), "the handler runs");
            looks.get()
        });
        clock::at_each_look(|| ());
        world.conn.0.schedule(handler);
        world.run();
        assert_eq!(looks, [false, true]);
    }

    /// Protocol that leaves marks for its own connection in each call.
    struct Marking(Marks);

    impl Protocol for Marking {
        type State = ();

        fn opened(&self, _: &Connection) -> Result<(), Close> {
            Ok(())
        }

        fn received(
            &self,
            conn: &Connection,
            (): &mut (),
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            input.take_all();
            conn.0.notify_recv(self.0);
            Ok(())
        }
    }

    #[test]
    fn other_connections_go_first_if_input_waits_when_bytes_are_released() {
        let queued = [TIMER, TIMER | READABLE].map(|marks| {
            let runtime = Simulated::new(Config::default()).expect("descriptors");
            let (ours, mut peer) = UnixStream::pair().expect("descriptors");
            ours.set_nonblocking(true).expect("a socket");
            let served = Served::new(Marking(marks));
            let conn = served.accept(runtime.group(), ours.into(), Address::Unix("".into()));
            conn.expect("there is room");
            while runtime.take_task(false) {
                runtime.run(0, None);
            }
            peer.write_all(FRAME).expect("there is room");
            runtime.take_events();
            runtime.run(0, Some((0, 1)));
            runtime.queued()
        });
        assert_eq!(queued, [0, 1]);
    }

    /// Notes the reason why a connection could not be made.
    struct Fails(Arc<Mutex<Vec<String>>>);

    impl Protocol for Fails {
        type State = ();

        fn opened(&self, _: &Connection) -> Result<(), Close> {
            Ok(())
        }

        fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
            lock(&self.0).push(reason.to_string());
        }

        fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
            Ok(())
        }
    }

    #[test]
    fn a_drain_ends_an_attempt_to_connect_when_no_request_needs_it() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let reasons = Arc::default();
        let conn = runtime.handle().connect(address, Fails(Arc::clone(&reasons)));
        let hold = conn.expect("it begins").hold();
        let run = || {
            while runtime.take_task(false) {
                runtime.run(0, None);
            }
        };
        runtime.handle().usage().start_draining_outgoing();
        runtime.start_draining();
        run();
        assert!(lock(&reasons).is_empty());
        drop(hold);
        run();
        assert_eq!(*lock(&reasons), [CloseReason::Draining.to_string()]);
    }

    #[test]
    fn a_connection_that_was_established_in_time_is_not_late() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let reasons = Arc::default();
        let options = ConnectOptions::new().connect_timeout(Duration::from_secs(1));
        let conn = runtime.handle().connect_with(address, options, Fails(Arc::clone(&reasons)));
        let _conn = conn.expect("it begins");
        // The timer is handled before the event that tells of the success.
        clock::simulate(Some(now + Duration::from_secs(5)));
        runtime.fire_due();
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        clock::simulate(None);
        assert_eq!(*lock(&reasons), Vec::<String>::new());
        assert_eq!(runtime.handle().stats().get(Counter::ConnectionsConnected), 1);
    }

    /// Another worker may read the end of the stream meanwhile.
    #[test]
    fn a_connection_is_held_until_the_bytes_of_a_whole_turn_are_released() {
        let config = Config::default().read_budget_bytes(4 << 10);
        let runtime = Simulated::new(config).expect("descriptors");
        let (ours, mut peer) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        peer.set_nonblocking(true).expect("a socket");
        let releases = Arc::default();
        let served = Served::new(Releases(Arc::clone(&releases)));
        let conn = served.accept(runtime.group(), ours.into(), Address::Unix("".into()));
        conn.expect("there is room");
        assert!(peer.write(&vec![0; MORE_THAN_A_SOCKET_TAKES]).is_ok());
        runtime.take_events();
        while runtime.take_task(false) || runtime.in_hands() > 0 {
            runtime.run(0, Some((0, 1)));
        }
        assert!(runtime.handle().stats().get(Counter::TurnsRequeued) > 0);
        let releases = lock(&releases);
        assert!(releases.len() > 1 && releases.iter().all(|&held| held), "{releases:?}");
    }

    /// A listener that waits for a descriptor.
    struct Listener {
        told: Arc<AtomicBool>,
        cost: Cost,
    }

    impl Source for Listener {
        fn ready(&self, _: Readiness, _: &mut WorkerContext<'_>) {}

        fn queue_ready(&self, _: Readiness) -> bool {
            false
        }

        fn queue_marks(&self, marks: Marks) -> bool {
            self.told.fetch_or(marks.has(TIMER), Ordering::Relaxed);
            false
        }

        fn resume(&self, _: &mut WorkerContext<'_>) {}

        fn cost(&self) -> &Cost {
            &self.cost
        }

        fn class(&self) -> Class {
            Class::Ordinary
        }
    }

    #[test]
    fn a_listener_without_descriptors_is_told_that_a_connection_has_given_one_back() {
        let mut world = World::new(0, TIMEOUT);
        world.run();
        let told = Arc::new(AtomicBool::new(false));
        let listener = Listener { told: Arc::clone(&told), cost: Cost::unknown() };
        let group = Arc::clone(world.runtime.group());
        let token = group.prepare(|_| Box::new(listener)).expect("there is room");
        let group_2 = Arc::clone(&group);
        let notify = move || group_2.notify_source(token, TIMER);
        group.usage().starve((group.index(), token), notify);
        world.peer.shutdown(Shutdown::Both).expect("it is open");
        world.run();
        assert_eq!(world.count(Counter::ConnectionsClosed), 1);
        assert!(!told.load(Ordering::Relaxed), "the last handle keeps the descriptor");
        let (ours, _) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        let other = Served::new(Deaf).accept(&group, ours.into(), Address::Unix("".into()));
        world.conn = other.expect("there is room");
        world.run();
        assert!(told.load(Ordering::Relaxed));
    }

    #[test]
    fn who_never_completes_a_frame_is_cut_though_all_his_deadlines_are_looked_at_late() {
        let mut world = World::new(0, Duration::ZERO);
        world.sends(&FRAME[..3]);
        world.looks();
        // The next frame gets its own excuse.
        world.sends(&FRAME[3..]);
        world.sends(&FRAME[..3]);
        let began = world.now;
        world.looks();
        assert_eq!(world.count(Counter::ClosedFrameTimeout), 0, "that may be our fault");
        while world.now < began + 3 * TIMEOUT && world.count(Counter::ConnectionsClosed) == 0 {
            world.looks();
        }
        assert_eq!(world.count(Counter::ClosedFrameTimeout), 1);
    }

    type Calls = Arc<Mutex<Vec<&'static str>>>;

    /// Protocol that notes its calls, and runs code in those that may read.
    struct Noting<F> {
        calls: Calls,
        code: F,
    }

    impl<F> Noting<F>
    where
        F: Fn(&Connection, &mut Input<'_>) -> Result<(), Close> + Send + Sync + 'static,
    {
        /// `code` gets the socket of the peer.
        fn world(code: impl FnOnce(UnixStream) -> F) -> (World, Calls) {
            let calls = Calls::default();
            let world = World::serving(Config::default().idle_timeout(IDLE), |peer| Self {
                calls: Arc::clone(&calls),
                code: code(peer.try_clone().expect("a descriptor")),
            });
            world.run();
            (world, calls)
        }

        fn note(&self, call: &'static str) {
            lock(&self.calls).push(call);
        }
    }

    impl<F> Protocol for Noting<F>
    where
        F: Fn(&Connection, &mut Input<'_>) -> Result<(), Close> + Send + Sync + 'static,
    {
        type State = ();

        fn opened(&self, _: &Connection) -> Result<(), Close> {
            Ok(())
        }

        fn received(
            &self,
            conn: &Connection,
            (): &mut (),
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            self.note(if input.is_empty() { "received nothing" } else { "received" });
            (self.code)(conn, input)
        }

        fn notified(
            &self,
            conn: &Connection,
            (): &mut (),
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            self.note("notified");
            (self.code)(conn, input)
        }

        fn released(&self, conn: &Connection, _: Turn) {
            self.note("released");
            conn.set_class(Class::InProgress);
            if conn.0.recv.resume().is_some() {
                self.note("another worker takes the connection");
            }
        }

        fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
            self.note("ended");
            Ok(HalfClose::KeepOpen)
        }

        fn draining(&self, _: &Connection, (): &mut ()) {
            self.note("draining");
        }

        fn closed(&self, _: &Connection, (): (), _: &CloseReason) {
            self.note("closed");
        }
    }

    /// Returns code that takes all input. After each of its calls more input has arrived, and
    /// another worker has taken the event.
    fn floods(peer: UnixStream) -> impl Fn(&Connection, &mut Input<'_>) -> Result<(), Close> {
        let calls = AtomicU32::new(0);
        move |conn, input| {
            input.take_all();
            if calls.fetch_add(1, Ordering::Relaxed) < WITHOUT_END {
                (&peer).write_all(FRAME).expect("there is room");
                conn.0.notify_recv(READABLE);
            }
            Ok(())
        }
    }

    #[test]
    fn a_close_ends_a_connection_whose_peer_never_stops_sending() {
        let (mut world, calls) = Noting::world(|peer| {
            let flood = floods(peer);
            move |conn: &Connection, input: &mut Input<'_>| {
                conn.close("enough");
                flood(conn, input)
            }
        });
        world.sends(FRAME);
        assert_eq!(*lock(&calls), ["received", "released", "closed"]);
        assert_eq!(world.count(Counter::ClosedByHandler), 1);
    }

    #[test]
    fn the_last_hold_ends_a_drain_though_the_peer_never_stops_sending() {
        let held = Arc::new(Mutex::new(None));
        let (mut world, calls) = Noting::world(|peer| {
            let (flood, held) = (floods(peer), Arc::clone(&held));
            move |conn: &Connection, input: &mut Input<'_>| {
                drop(lock(&held).take());
                flood(conn, input)
            }
        });
        world.conn.read_while_held();
        *lock(&held) = Some(world.conn.hold());
        world.runtime.start_draining();
        world.run();
        assert!(!world.conn.is_closed());
        world.sends(FRAME);
        assert_eq!(*lock(&calls), ["draining", "received", "released", "closed"]);
    }

    /// Another worker could end the connection, and the answer that `released` sends would be lost.
    #[test]
    fn no_other_worker_takes_a_connection_that_is_about_to_end_while_it_is_released() {
        let (mut world, calls) = Noting::world(|_| {
            |_: &Connection, input: &mut Input<'_>| {
                input.take_all();
                Err("done".into())
            }
        });
        world.sends(FRAME);
        assert_eq!(*lock(&calls), ["received", "released", "closed"]);
    }

    #[test]
    fn the_time_for_the_first_bytes_ends_with_the_close() {
        let mut world = World::new(0, Duration::ZERO);
        let due = world.now + Config::default().first_bytes_timeout;
        world.run();
        let parts = [MORE_THAN_A_SOCKET_TAKES / 2, MORE_THAN_A_SOCKET_TAKES / 2];
        world.looks_at(due - TIMEOUT / 2);
        for part in parts {
            world.conn.send(vec![0; part]);
        }
        world.conn.close("come back later");
        world.run();
        world.looks_at(due + LATE);
        assert_eq!(world.reads(MORE_THAN_A_SOCKET_TAKES), MORE_THAN_A_SOCKET_TAKES);
        assert_eq!(world.count(Counter::ClosedFirstBytesTimeout), 0);
    }

    #[test]
    fn a_peer_that_has_finished_without_a_byte_counts_as_idle() {
        let (mut world, calls) = Noting::world(|_| |_: &Connection, _: &mut Input<'_>| Ok(()));
        world.peer.shutdown(Shutdown::Write).expect("it is open");
        world.run();
        world.looks_at(world.now + Config::default().first_bytes_timeout);
        assert_eq!(*lock(&calls), ["ended"]);
        world.looks_at(world.now + IDLE);
        assert!(world.conn.is_closed());
    }

    #[test]
    fn a_peer_that_has_taken_all_is_not_late_if_a_send_comes_before_the_event() {
        let mut world = World::new(0, Duration::ZERO);
        world.run();
        while world.conn.send(FRAME) == Sent::Sent {}
        let mut taken = vec![0; MORE_THAN_A_SOCKET_TAKES];
        assert!(matches!(world.peer.read(&mut taken), Ok(1..)));
        // The deadline is missed by 1 ms, too little to be the fault of this runtime.
        world.now += TIMEOUT + Duration::from_millis(1);
        clock::simulate(Some(world.now));
        assert_eq!(world.conn.send([0]), Sent::Sent);
        world.run();
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 0);
    }

    #[test]
    fn what_a_notified_protocol_has_left_comes_again_only_if_there_is_some_and_it_goes_on() {
        for ends in [true, false] {
            let (mut world, calls) = Noting::world(|_| {
                let calls = AtomicU32::new(0);
                move |_: &Connection, input: &mut Input<'_>| {
                    match (calls.fetch_add(1, Ordering::Relaxed), ends) {
                        (0, _) => {}
                        (_, true) => return Err("done".into()),
                        (_, false) => {
                            input.take_all();
                        }
                    }
                    Ok(())
                }
            });
            world.sends(FRAME);
            world.conn.pause_reads();
            // One worker handles both.
            let handler = world.conn.0.recv.notify(Marks::NONE).expect("it is idle");
            world.conn.resume_reads();
            world.conn.notify();
            world.conn.0.schedule(handler);
            world.run();
            let last = if ends { "closed" } else { "released" };
            assert_eq!(*lock(&calls), ["received", "released", "notified", last]);
        }
    }

    #[test]
    fn a_drain_waits_for_the_last_bytes_of_a_paused_connection_whose_peer_has_finished() {
        let (mut world, calls) = Noting::world(|_| {
            let calls = AtomicU32::new(0);
            move |_: &Connection, input: &mut Input<'_>| {
                if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                    input.take_all();
                }
                Ok(())
            }
        });
        world.sends(FRAME);
        world.peer.shutdown(Shutdown::Write).expect("it is open");
        world.run();
        world.conn.pause_reads();
        world.runtime.start_draining();
        world.run();
        world.conn.resume_reads();
        world.run();
        let all = ["received", "released", "ended", "received", "released", "draining", "closed"];
        assert_eq!(*lock(&calls), all);
    }

    /// A protocol that takes nothing and pauses in its first calls, then takes all.
    fn pausing(calls: u32) -> (World, Calls) {
        Noting::world(|_| {
            let paused = AtomicU32::new(0);
            move |conn: &Connection, input: &mut Input<'_>| {
                if paused.fetch_add(1, Ordering::Relaxed) < calls {
                    conn.pause_reads();
                } else {
                    input.take_all();
                }
                Ok(())
            }
        })
    }

    #[test]
    fn what_a_handler_leaves_when_it_pauses_again_comes_before_the_end_of_the_stream() {
        let (mut world, calls) = Noting::world(|_| {
            |conn: &Connection, input: &mut Input<'_>| {
                input.take(FRAME.len());
                conn.pause_reads();
                Ok(())
            }
        });
        world.sends(&FRAME.repeat(3));
        world.peer.shutdown(Shutdown::Write).expect("it is open");
        let mut all = vec!["received", "released"];
        for _ in 0..2 {
            world.conn.resume_reads();
            world.run();
            all.extend(["received", "released"]);
            assert_eq!(*lock(&calls), all);
        }
        world.conn.resume_reads();
        world.run();
        all.push("ended");
        assert_eq!(*lock(&calls), all);
    }

    #[test]
    fn no_input_is_delivered_after_a_close() {
        let (mut world, calls) = Noting::world(|_| {
            |conn: &Connection, input: &mut Input<'_>| {
                input.take_all();
                conn.close("enough");
                Ok(())
            }
        });
        // More than one receive takes.
        world.sends(&[0; 100_000]);
        assert_eq!(*lock(&calls), ["received", "released", "closed"]);
    }

    #[test]
    fn the_time_of_a_pause_does_not_count_for_the_first_bytes() {
        let limit = Config::default().first_bytes_timeout;
        let mut world = World::serving(Config::default(), |_| Deaf);
        world.run();
        world.conn.pause_reads();
        world.looks_at(world.now + limit - LATE);
        world.conn.resume_reads();
        world.looks_at(world.now + LATE);
        assert!(!world.conn.is_closed());
        world.looks_at(world.now + limit);
        assert_eq!(world.count(Counter::ClosedFirstBytesTimeout), 1);
    }

    #[test]
    fn a_drain_waits_for_the_bytes_that_a_paused_handler_has_left() {
        let (mut world, calls) = pausing(1);
        world.runtime.start_draining();
        world.sends(FRAME);
        assert_eq!(*lock(&calls), ["received", "released"]);
        assert!(!world.conn.is_closed());
        world.conn.resume_reads();
        world.run();
        let all = ["received", "released", "received", "released", "draining", "closed"];
        assert_eq!(*lock(&calls), all);
    }

    #[test]
    fn a_drain_waits_for_a_handler_that_pauses_again() {
        let (mut world, calls) = pausing(2);
        world.sends(FRAME);
        // One worker handles both.
        let handler = world.conn.0.recv.notify(Marks::NONE).expect("it is idle");
        world.runtime.start_draining();
        world.conn.resume_reads();
        world.conn.0.schedule(handler);
        world.run();
        assert_eq!(*lock(&calls), ["received", "released", "received"]);
        world.conn.resume_reads();
        world.run();
        let all =
            ["received", "released", "received", "received", "released", "draining", "closed"];
        assert_eq!(*lock(&calls), all);
    }

    #[test]
    fn a_drain_delivers_the_bytes_of_a_pause_that_is_over_at_once() {
        let (mut world, calls) = Noting::world(|_| {
            let calls = AtomicU32::new(0);
            move |conn: &Connection, input: &mut Input<'_>| {
                if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                    conn.pause_reads();
                    conn.resume_reads();
                } else {
                    input.take_all();
                }
                Ok(())
            }
        });
        world.runtime.start_draining();
        world.sends(FRAME);
        let all = ["received", "released", "received", "released", "draining", "closed"];
        assert_eq!(*lock(&calls), all);
    }

    /// Greets each peer, and reads no input.
    struct Greets;

    impl Protocol for Greets {
        type State = ();

        fn opened(&self, conn: &Connection) -> Result<(), Close> {
            conn.send(FRAME);
            Ok(())
        }

        fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
            Ok(())
        }
    }

    #[test]
    fn a_peer_that_waits_for_a_late_greeting_gets_the_time_for_its_first_bytes_again() {
        let limit = Config::default().first_bytes_timeout;
        for answers in [true, false] {
            let mut world = World::serving(Config::default(), |_| Greets);
            world.looks_at(world.now + limit + LATE);
            assert_eq!(world.reads(FRAME.len()), FRAME.len());
            assert_eq!(world.count(Counter::ClosedFirstBytesTimeout), 0, "the greeting was late");
            world.looks_at(world.now + limit - LATE);
            if answers {
                world.sends(FRAME);
            }
            world.looks_at(world.now + 2 * LATE);
            assert_eq!(world.count(Counter::ClosedFirstBytesTimeout), u64::from(!answers));
            assert_eq!(world.conn.is_closed(), !answers);
        }
    }

    /// Layer whose handshake waits for the peer.
    struct Waits;

    impl Layer for Waits {
        fn received(
            &mut self,
            _: &Connection,
            _: &mut Input<'_>,
            _: &mut Decoded<'_>,
            _: &mut Vec<u8>,
        ) -> Result<LayerState, Close> {
            Ok(LayerState::Handshaking)
        }

        fn send(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Close> {
            Ok(())
        }
    }

    /// Layer whose stream begins behind a byte `<` and ends at a byte `>`.
    #[derive(Default)]
    struct Brackets {
        began: bool,
    }

    impl Layer for Brackets {
        fn received(
            &mut self,
            _: &Connection,
            input: &mut Input<'_>,
            decoded: &mut Decoded<'_>,
            _: &mut Vec<u8>,
        ) -> Result<LayerState, Close> {
            while let Some(byte) = input.take(1).first() {
                match byte {
                    b'<' => self.began = true,
                    b'>' => return Ok(LayerState::Ended),
                    byte => decoded.push(&[*byte]),
                }
            }
            Ok(if self.began { LayerState::Ready } else { LayerState::Handshaking })
        }

        fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
            encoded.extend(bytes);
            Ok(())
        }
    }

    fn in_brackets<P: Protocol>(config: Config, protocol: P) -> World {
        let mut layers = Makers::default();
        layers.push(|_: &Connection| Ok(Box::new(Brackets::default()) as _));
        World::layered(config, layers, |_| protocol)
    }

    #[test]
    fn a_stream_that_ends_in_a_layer_is_followed_by_the_rest_of_the_socket() {
        let mut world = in_brackets(Config::default(), Answers(100_000));
        world.sends(b"<a frame.>");
        // Unread bytes would turn the close into a reset, which drops the answer.
        world.peer.write_all(b"of no use").expect("it is open");
        assert_eq!(world.reads(200_000), 100_000);
        assert_eq!(world.peer.read(&mut [0]).expect("no reset"), 0);
    }

    /// Closes each connection as soon as it is open, and notes if input comes nevertheless.
    struct Bans(Arc<AtomicBool>);

    impl Protocol for Bans {
        type State = ();

        fn opened(&self, conn: &Connection) -> Result<(), Close> {
            conn.close("banned");
            Ok(())
        }

        fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
            self.0.store(true, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_request_in_one_piece_with_a_handshake_is_dropped_if_opened_closes() {
        let received = Arc::new(AtomicBool::new(false));
        let mut world = in_brackets(Config::default(), Bans(Arc::clone(&received)));
        world.sends(b"<a frame.");
        assert!(world.conn.is_closed());
        assert!(!received.load(Ordering::Relaxed));
    }

    #[test]
    fn a_first_request_in_one_piece_with_a_handshake_begins_the_idle_time() {
        let idle = Duration::from_secs(2);
        let mut world = in_brackets(Config::default().idle_timeout(idle), Answers(0));
        world.sends(b"<a frame.");
        let due = world.now + idle;
        assert!(world.runtime.next_deadline().is_some_and(|next| next <= due));
    }

    #[test]
    fn the_idle_time_does_not_begin_with_a_handshake() {
        let (idle, first) = (Duration::from_secs(5), Duration::from_secs(60));
        let config = Config::default().idle_timeout(idle).first_bytes_timeout(first);
        let handshake = config.handshake_timeout;
        let mut world = in_brackets(config, Answers(0));
        world.sends(b"<");
        let began = world.now;
        world.looks_at(began + handshake + LATE);
        world.looks_at(world.now + idle + LATE);
        assert!(!world.conn.is_closed());
        world.looks_at(began + first);
        assert_eq!(world.count(Counter::ClosedFirstBytesTimeout), 1);
    }

    #[test]
    fn a_peer_that_waits_for_a_late_handshake_gets_its_time_again() {
        let limit = Config::default().first_bytes_timeout;
        assert_eq!(limit, Config::default().handshake_timeout);
        let mut layers = Makers::default();
        layers.push(|_: &Connection| Ok(Box::new(Waits) as _));
        let mut world = World::layered(Config::default(), layers, |_| Deaf);
        world.looks_at(world.now + limit + LATE);
        assert!(!world.conn.is_closed());
        world.looks_at(world.now + limit + LATE);
        assert_eq!(world.count(Counter::ClosedFirstBytesTimeout), 1);
    }

    #[test]
    fn a_drain_ends_a_connection_whose_peer_sends_more_than_is_read() {
        let config = Config::default().worker_read_buf_bytes(4 << 10).read_budget_bytes(4 << 10);
        let calls = Calls::default();
        let mut world = World::serving(config, |peer| {
            let (peer, calls) = (peer.try_clone().expect("a descriptor"), Arc::clone(&calls));
            let sent = AtomicU32::new(0);
            let code = move |_: &Connection, input: &mut Input<'_>| {
                input.take_all();
                if sent.fetch_add(1, Ordering::Relaxed) < WITHOUT_END {
                    (&peer).write_all(&[0; 4 << 10]).expect("there is room");
                }
                Ok(())
            };
            Noting { calls, code }
        });
        world.runtime.start_draining();
        world.sends(&[0; 16 << 10]);
        let received = lock(&calls).iter().position(|call| *call == "draining");
        // The 16 KiB, and what has come until the end of the first turn.
        assert!(received.is_some_and(|calls| calls <= 2 * 6), "{received:?} {:?}", lock(&calls));
        assert!(world.conn.is_closed());
    }

    /// Decodes each byte to many.
    struct Inflates;

    impl Inflates {
        const FACTOR: usize = 256;
    }

    impl Layer for Inflates {
        fn received(
            &mut self,
            _: &Connection,
            input: &mut Input<'_>,
            decoded: &mut Decoded<'_>,
            _: &mut Vec<u8>,
        ) -> Result<LayerState, Close> {
            while decoded.room() > 0 && !input.is_empty() {
                input.consume(1);
                decoded.push(&[0; Self::FACTOR]);
            }
            Ok(LayerState::Ready)
        }

        fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
            encoded.extend_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn a_drain_delivers_what_had_arrived_and_is_not_decoded_yet() {
        for raw in [1 << 10, 16 << 10] {
            let config = Config::default().worker_read_buf_bytes(4 << 10);
            let mut layers = Makers::default();
            layers.push(|_: &Connection| Ok(Box::new(Inflates) as _));
            let (calls, count) = (Calls::default(), Arc::new(AtomicUsize::new(0)));
            let mut world = World::layered(config.read_budget_bytes(4 << 10), layers, |_| {
                let (calls, count) = (Arc::clone(&calls), Arc::clone(&count));
                let code = move |_: &Connection, input: &mut Input<'_>| {
                    count.fetch_add(input.take_all().len(), Ordering::Relaxed);
                    Ok(())
                };
                Noting { calls, code }
            });
            world.runtime.start_draining();
            world.sends(&vec![0; raw]);
            assert_eq!(count.load(Ordering::Relaxed), raw * Inflates::FACTOR);
            assert!(lock(&calls).contains(&"draining"));
        }
    }

    /// Drops the peer. Bytes that it has not read make its close a reset.
    fn resets(world: &mut World) {
        world.conn.send(FRAME);
        world.peer = UnixStream::pair().expect("descriptors").0;
    }

    #[test]
    fn a_reset_is_noticed_while_input_is_set_aside() {
        for together in [false, true] {
            let (mut world, calls) = Noting::world(|_| {
                |_: &Connection, input: &mut Input<'_>| {
                    input.set_aside(clock::now() + IDLE);
                    Ok(())
                }
            });
            world.peer.write_all(FRAME).expect("there is room");
            if !together {
                world.run();
            }
            resets(&mut world);
            world.run();
            let all = ["received", "released", "closed"];
            assert_eq!(*lock(&calls), all, "together: {together}");
            assert_eq!(world.count(Counter::ClosedReset), 1);
        }
    }

    /// Takes a hold for all bytes. When they are released, the peer resets the connection, and another
    /// worker takes the event.
    struct ResetWhenReleased {
        peer: Mutex<Option<UnixStream>>,
        holds: Mutex<Vec<Hold>>,
    }

    impl Protocol for ResetWhenReleased {
        type State = ();

        fn opened(&self, _: &Connection) -> Result<(), Close> {
            Ok(())
        }

        fn received(
            &self,
            conn: &Connection,
            (): &mut (),
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            input.take_all();
            lock(&self.holds).push(conn.hold());
            Ok(())
        }

        fn released(&self, conn: &Connection, _: Turn) {
            drop(lock(&self.peer).take());
            conn.0.notify_recv(READABLE | HUNG_UP);
        }
    }

    #[test]
    fn a_reset_right_before_the_effect_of_a_drain_is_noticed() {
        let mut world = World::serving(Config::default(), |peer| ResetWhenReleased {
            peer: Mutex::new(peer.try_clone().ok()),
            holds: Mutex::default(),
        });
        world.run();
        world.peer.write_all(FRAME).expect("there is room");
        // The protocol has the last handle of the peer.
        resets(&mut world);
        world.runtime.start_draining();
        // No further event tells of the reset.
        while world.runtime.take_task(false) {
            world.runtime.run(0, None);
        }
        assert_eq!(world.count(Counter::ClosedReset), 1);
    }

    #[test]
    fn an_idle_time_out_that_is_set_before_the_first_event_counts() {
        let mut world = World::new(0, Duration::ZERO);
        world.conn.set_idle_timeout(TIMEOUT / 4);
        world.run();
        world.looks_at(world.now + TIMEOUT / 4 - Duration::from_nanos(1));
        assert!(!world.conn.is_closed());
        world.looks_at(world.now + Duration::from_nanos(1));
        assert_eq!(world.count(Counter::ClosedIdleTimeout), 1);
    }

    #[test]
    fn a_drain_does_not_wait_for_answers_of_a_server_that_has_finished() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let calls = Calls::default();
        let code = |_: &Connection, _: &mut Input<'_>| Ok(());
        let noting = Noting { calls: Arc::clone(&calls), code };
        let conn = runtime.handle().connect(address, noting).expect("it begins");
        let (server, _) = listener.accept().expect("it connects");
        let _hold = conn.hold();
        let run = || {
            runtime.take_events();
            while runtime.take_task(false) || runtime.in_hands() > 0 {
                runtime.run(0, None);
            }
        };
        run();
        server.shutdown(Shutdown::Write).expect("it is open");
        run();
        assert_eq!(*lock(&calls), ["ended"]);
        runtime.handle().usage().start_draining_outgoing();
        runtime.start_draining();
        run();
        assert_eq!(*lock(&calls), ["ended", "draining", "closed"]);
    }
}
