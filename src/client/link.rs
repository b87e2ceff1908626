//! [`Link`]: one connection of a client on the runtime's workers. The only file with a socket.
//!
//! The worker that receives sorts the frames into the answers and notifies the callers. It wakes
//! threads at once, and runs callbacks on this worker after it has handled the whole input.
//!
//! If several threads send at the same time, the first one sends for all in one call.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use super::error::{Error, ErrorKind};
use super::fleet::Fleet;
use super::options::Options;
use super::slot::Watcher;
use super::state::State;
use crate::net::{
    Address, Calls, Close, CloseReason, ConnectError, ConnectOptions, Connection, FullBacklog,
    HalfClose, Hold, Input, Protocol,
};
use crate::runtime::{Class, Group, Timer, Turn, after, is_late};
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

/// Connection of a client.
pub(super) struct Link {
    fleet: Weak<Fleet>,
    /// Number for logs and callers. It is not reused.
    pub(super) number: u64,
    pub(super) since: Instant,
    inner: Mutex<Inner>,
    /// Group that serves the connection, set when it begins.
    group: OnceLock<Arc<Group>>,
    calls: Arc<Calls>,
}

struct Inner {
    state: State,
    /// Set until the connection ends.
    conn: Option<Connection>,
    /// Set while requests are unanswered: a drain waits for them.
    hold: Option<Hold>,
    /// Set while a thread sends for all.
    sending: bool,
    timer: Option<(Instant, Timer)>,
    /// Time of the last second look at a deadline. No deadline is handled before it.
    second_look: Instant,
    /// Set when the fleet was notified that the connection is ready.
    ready_reported: bool,
    lost_reported: bool,
}

/// Actions to take after the lock was released.
#[derive(Default)]
struct After {
    events: Vec<Watcher>,
    close: Option<(Connection, String)>,
    ready: bool,
    lost: bool,
    freed: bool,
    dropped: Option<Hold>,
}

impl Link {
    fn new(fleet: Weak<Fleet>, options: &Arc<Options>, number: u64, now: Instant) -> Arc<Self> {
        let inner = Inner {
            state: State::new(Arc::clone(options), now),
            conn: None,
            hold: None,
            sending: false,
            timer: None,
            second_look: now,
            ready_reported: false,
            lost_reported: false,
        };
        Arc::new(Self {
            fleet,
            number,
            since: now,
            inner: Mutex::new(inner),
            group: OnceLock::new(),
            calls: Calls::new(),
        })
    }

    /// Begins to connect to the addresses of the server's name.
    pub(super) fn connect(
        fleet: &Arc<Fleet>,
        number: u64,
        found: io::Result<Vec<Address>>,
    ) -> Arc<Self> {
        let Fleet { handle, options, .. } = &**fleet;
        let link = Self::new(Arc::downgrade(fleet), options, number, clock::now());
        lock(&link.inner).state.limit_frames(handle.settings().max_allowed_packet);
        // The client must read even with a large backlog. Otherwise both sides could wait for each
        // other to read.
        let notify = ConnectOptions::new().full_backlog(FullBacklog::Notify);
        let notify = notify.layers(options.layers.clone());
        // Without a limit the first address could take all the time of the connection.
        let notify = notify.connect_timeout(options.connect_timeout);
        let wire = Wire(Arc::clone(&link));
        let found = found.map_err(ConnectError::Address);
        match found.and_then(|found| handle.connect_to(found, notify, wire)) {
            Ok(conn) => {
                let _ = link.group.set(Arc::clone(conn.group()));
                link.attach(&conn);
            }
            Err(error) => {
                link.end(&Error::not_sent(ErrorKind::Connect(error.to_string().into())));
            }
        }
        link
    }

    fn attach(&self, conn: &Connection) {
        let mut inner = lock(&self.inner);
        if inner.conn.is_none() && inner.state.lost().is_none() {
            inner.conn = Some(conn.clone());
        }
    }

    /// Reads the state without an effect.
    pub(super) fn look_at<R>(&self, code: impl FnOnce(&State) -> R) -> R {
        code(&lock(&self.inner).state)
    }

    /// Error that ended the connection.
    pub(super) fn lost(&self) -> Option<Error> {
        self.look_at(|state| state.lost().cloned())
    }

    /// Opens a session. The server learns of it with the first request.
    pub(super) fn open(&self) -> Option<u64> {
        lock(&self.inner).state.try_open()
    }

    /// Changes the state and takes the resulting actions.
    pub(super) fn act<R>(self: &Arc<Self>, code: impl FnOnce(&mut State, Instant) -> R) -> R {
        let (result, after) = self.change(code);
        self.follow(after, false);
        result
    }

    /// Ends the connection and all its requests.
    pub(super) fn end(self: &Arc<Self>, error: &Error) {
        self.act(|state, _| state.lose(error));
    }

    fn change<R>(self: &Arc<Self>, code: impl FnOnce(&mut State, Instant) -> R) -> (R, After) {
        let now = clock::now();
        let mut inner = lock(&self.inner);
        let result = code(&mut inner.state, now);
        let after = self.look(&mut inner, now);
        self.flush(inner);
        (result, after)
    }

    /// Collects the actions that follow from a change.
    fn look(self: &Arc<Self>, inner: &mut Inner, now: Instant) -> After {
        inner.state.end_if_done();
        let mut after = After {
            events: inner.state.take_events(),
            freed: inner.state.take_freed(),
            ..After::default()
        };
        if let Some(error) = inner.state.lost() {
            after.close = inner.conn.take().map(|conn| (conn, error.to_string()));
            after.lost = !std::mem::replace(&mut inner.lost_reported, true);
            inner.timer = None;
        } else {
            after.ready =
                inner.state.is_ready() && !std::mem::replace(&mut inner.ready_reported, true);
            self.arm(inner, now);
        }
        let idle = inner.state.outstanding() == 0;
        match &inner.conn {
            Some(conn) if !idle && inner.hold.is_none() => inner.hold = Some(conn.hold()),
            Some(_) if !idle => {}
            _ => after.dropped = inner.hold.take(),
        }
        after
    }

    /// Sends the output, unless another thread is sending. If the backlog is too long, or other threads
    /// add output in each of many rounds, a worker goes on when the backlog is low.
    fn flush<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) {
        if inner.sending {
            return;
        }
        for rounds in 1.. {
            let Some(conn) = inner.conn.clone() else { return };
            let out = inner.state.take_out();
            if out.is_empty() {
                return;
            }
            inner.sending = true;
            drop(inner);
            conn.send(&out);
            inner = lock(&self.inner);
            inner.sending = false;
            if conn.pending_bytes() > inner.state.max_unsent_bytes() {
                inner.state.set_full(true);
            }
            if inner.state.is_full() || rounds == ROUNDS {
                drop(inner);
                return conn.notify_when_drained();
            }
        }
    }

    /// Takes the actions. Called without the lock.
    fn follow(self: &Arc<Self>, after: After, here: bool) {
        if let Some((conn, reason)) = after.close {
            conn.close(reason);
        }
        drop(after.dropped);
        let mut calls = false;
        for event in after.events {
            match event {
                Watcher::Thread(thread) => thread.unpark(),
                Watcher::Call(job) => {
                    self.calls.add(job);
                    calls = true;
                }
            }
        }
        if calls && !here {
            // Without a group the connection never began, so it has no callbacks.
            self.group.get().into_iter().for_each(|group| self.calls.hand_out(group));
        }
        match self.fleet.upgrade() {
            Some(fleet) if after.lost => fleet.link_lost(self),
            Some(fleet) if after.ready => fleet.link_ready(self),
            Some(fleet) if after.freed => fleet.session_closed(),
            _ => {}
        }
    }

    /// Sets the timer for the next timeout of the state.
    fn arm(self: &Arc<Self>, inner: &mut Inner, now: Instant) {
        let Some(due) = inner.state.poll_timeout() else { return };
        let due = due.max(inner.second_look);
        if inner.timer.as_ref().is_some_and(|&(armed, _)| armed <= due) {
            return;
        }
        let delay = due.duration_since(now).max(SHORTEST_LOOK);
        self.set_timer(inner, now, delay, move |link| {
            let fired = clock::now();
            if is_late(now + delay, fired) {
                // Input that arrived in time may still be in the socket. It is handled first.
                let mut inner = lock(&link.inner);
                inner.second_look = fired + SECOND_LOOK;
                link.set_timer(&mut inner, fired, SECOND_LOOK, Self::act_on_time);
            } else {
                link.act_on_time();
            }
        });
    }

    fn set_timer(
        self: &Arc<Self>,
        inner: &mut Inner,
        now: Instant,
        delay: Duration,
        code: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let Some(group) = self.group.get() else { return };
        let link = Arc::downgrade(self);
        let look = move || {
            if let Some(link) = link.upgrade() {
                code(&link);
            }
        };
        inner.timer = None;
        inner.timer = Some((now + delay, after(group, Class::InProgress, delay, Box::new(look))));
    }

    fn act_on_time(self: &Arc<Self>) {
        let mut inner = lock(&self.inner);
        inner.timer = None;
        let unsent = inner.conn.as_ref().map_or(0, Connection::pending_bytes);
        drop(inner);
        self.act(|state, now| state.handle_timeout(now, unsent));
    }
}

/// Most rounds of one flush.
const ROUNDS: u32 = 16;
/// Shortest time between two timeouts.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
/// Time to read input that arrived while the process was stopped.
pub(super) const SECOND_LOOK: Duration = Duration::from_millis(50);

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Protocol on the socket of a connection.
struct Wire(Arc<Link>);

impl Protocol for Wire {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        let _ = self.0.group.set(Arc::clone(conn.group()));
        self.0.attach(conn);
        conn.set_class(Class::InProgress);
        self.0.act(State::handle_connected);
        Ok(())
    }

    fn connect_failed(&self, _conn: &Connection, reason: &CloseReason) {
        let reason = match reason {
            // `connect_timeout` has passed. The timer of the state has the same limit.
            CloseReason::ConnectFailed(error)
                if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() =>
            {
                return self.0.act(|state, _| state.handle_connect_timeout());
            }
            CloseReason::ConnectFailed(error) => error.to_string(),
            other => other.to_string(),
        };
        self.0.end(&Error::not_sent(ErrorKind::Connect(reason.into())));
    }

    fn received(
        &self,
        _conn: &Connection,
        (): &mut (),
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let bytes = input.bytes();
        let ((taken, need), after) = self.0.change(|state, now| state.handle_input(bytes, now));
        input.consume(taken);
        if let Some(total) = need {
            input.need(total);
        }
        self.0.follow(after, true);
        Ok(())
    }

    fn released(&self, _conn: &Connection, turn: Turn) {
        let Some(group) = self.0.group.get() else { return };
        if turn.ending {
            // The connection ends after this call. A callback may wait for that.
            self.0.calls.hand_out(group);
        } else {
            self.0.calls.call_here(group);
        }
    }

    /// A server that sends no more will not answer, so the connection ends.
    fn ended(&self, _conn: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        let reason = "the server closed the connection".into();
        self.0.end(&Error::unknown(ErrorKind::Lost(reason)));
        Ok(HalfClose::End)
    }

    fn drained(&self, _conn: &Connection) {
        self.0.act(|state, _| state.set_full(false));
    }

    fn closed(&self, _conn: &Connection, (): (), reason: &CloseReason) {
        self.0.end(&Error::unknown(ErrorKind::Lost(reason.to_string().into())));
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::sync::mpsc;
    use std::thread;

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::client::error::Stage;
    use crate::client::pending::Outstanding;
    use crate::client::request::Request;
    use crate::codec::encoder::{Encoder, OutBuffer};
    use crate::codec::frame::Header;
    use crate::config::Config;
    use crate::net::{Address, Served};
    use crate::runtime::Simulated;
    use crate::stats::Counter;
    use crate::sys::clock;

    const MORE_THAN_A_SOCKET_TAKES: usize = 4 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    fn link(options: Options) -> Arc<Link> {
        let now = Instant::now();
        let link = Link::new(Weak::new(), &Arc::new(options), 1, now);
        lock(&link.inner).state.handle_connected(now);
        link
    }

    fn run(runtime: &Simulated) {
        runtime.take_events();
        while runtime.take_task(false) {}
        while runtime.in_hands() > 0 {
            runtime.run(0, Some((0, 1)));
            while runtime.take_task(false) {}
        }
    }

    fn ask(state: &mut State) -> (u64, u64) {
        ask_within(state, Duration::from_secs(60), "select 1")
    }

    fn ask_within(state: &mut State, limit: Duration, text: &str) -> (u64, u64) {
        let wire = Request::sql(text).into_wire(None);
        let due = Instant::now() + limit;
        state.ask_once(wire, due).expect("it lives")
    }

    /// A link whose server reads nothing by itself.
    struct Scene {
        runtime: Simulated,
        link: Arc<Link>,
        conn: Connection,
        server: UnixStream,
    }

    impl Scene {
        fn new(options: fn(Options) -> Options) -> Self {
            let runtime = Simulated::new(Config::default()).expect("descriptors");
            let (ours, server) = UnixStream::pair().expect("descriptors");
            ours.set_nonblocking(true).expect("a socket");
            server.set_nonblocking(true).expect("a socket");
            let link = link(options(Options::new("127.0.0.1:1", "root")));
            let served = Served::new(Wire(Arc::clone(&link)));
            let address = Address::Unix("".into());
            let conn = served.accept(runtime.group(), ours.into(), address).expect("there is room");
            run(&runtime);
            let scene = Self { runtime, link, conn, server };
            scene.drain();
            scene
        }

        /// Reads all that the client has for the server. Returns the number of bytes.
        fn drain(&self) -> usize {
            let (mut bytes, mut drained) = (vec![0; 1 << 20], 0);
            while let Ok(some @ 1..) = (&self.server).read(&mut bytes) {
                drained += some;
                run(&self.runtime);
            }
            drained
        }
    }

    /// Listener to which the kernel lets no further client connect, with the clients that fill it.
    fn full() -> (TcpListener, Vec<TcpStream>) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        socket.listen(0).expect("it listens");
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("there is one place");
        (listener, vec![client])
    }

    /// Begins to connect to these addresses, within two seconds.
    fn connect(runtime: &Simulated, addresses: [&TcpListener; 2]) -> (Arc<Fleet>, Arc<Link>) {
        let address = |listener: &TcpListener| listener.local_addr().expect("an address");
        let addresses = addresses.map(|listener| Address::Tcp(address(listener))).to_vec();
        let options = Options::new("", "root").connect_timeout(2 * SECOND);
        let fleet = Fleet::new(runtime.handle().clone(), options);
        let link = Link::connect(&fleet, 1, Ok(addresses));
        (fleet, link)
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (silent, _clients) = full();
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        server.set_nonblocking(true).expect("a socket");
        let (_fleet, link) = connect(&runtime, [&silent, &server]);
        assert!(server.accept().is_err(), "the first address is tried");
        for passed in [SHORTEST_LOOK, SECOND + SHORTEST_LOOK] {
            clock::simulate(Some(now + passed));
            runtime.fire_due();
            run(&runtime);
        }
        assert!(server.accept().is_ok(), "the second address is tried");
        assert!(link.lost().is_none());
        clock::simulate(None);
    }

    #[test]
    fn if_no_address_answers_the_error_names_the_timeout() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let ((first, _clients), (second, _other_clients)) = (full(), full());
        let (_fleet, link) = connect(&runtime, [&first, &second]);
        // The two timers of the last address may fire in any order. Only one is left.
        lock(&link.inner).timer = None;
        for passed in [SECOND + SHORTEST_LOOK, 2 * SECOND + SHORTEST_LOOK] {
            assert!(link.lost().is_none());
            clock::simulate(Some(now + passed));
            runtime.fire_due();
            run(&runtime);
        }
        let error = link.lost().expect("the time is over");
        let stage = Stage::Connect(2 * SECOND);
        assert!(matches!(error.kind(), ErrorKind::Deadline(late) if *late == stage), "{error}");
        clock::simulate(None);
    }

    /// Otherwise the bytes of two threads could change places.
    #[test]
    fn while_another_thread_sends_output_stays_for_it() {
        let scene = Scene::new(|options| options);
        lock(&scene.link.inner).sending = true;
        scene.link.act(|state, _| ask(state));
        assert_eq!(scene.drain(), 0);
        let mut inner = lock(&scene.link.inner);
        inner.sending = false;
        scene.link.flush(inner);
        assert!(scene.drain() > 0);
    }

    #[test]
    fn an_earlier_deadline_takes_the_place_of_a_later_one() {
        let scene = Scene::new(|options| options);
        let timers = || {
            let stats = scene.runtime.handle().stats();
            stats.get(Counter::TimersSet) - stats.get(Counter::TimersCancelled)
        };
        let before = timers();
        for seconds in [3, 2, 1] {
            let limit = Duration::from_secs(seconds);
            scene.link.act(|state, _| ask_within(state, limit, "select 1"));
        }
        assert_eq!((before, timers()), (1, 1));
    }

    /// Fires the timer of the login a second after its deadline. Then calls `code` and fires the
    /// timer at each of the times after that. Returns whether the connection was lost each time.
    fn lost_after<const N: usize>(times: [Duration; N], code: fn(&Scene)) -> (bool, [bool; N]) {
        clock::simulate(Some(Instant::now()));
        let scene = Scene::new(|options| options.login_timeout(Duration::from_secs(1)));
        let armed = lock(&scene.link.inner).timer.as_ref().map(|&(due, _)| due);
        let late = armed.expect("the login has a deadline") + Duration::from_secs(1);
        let look = |now| {
            clock::simulate(Some(now));
            scene.runtime.fire_due();
            run(&scene.runtime);
            scene.link.lost().is_some()
        };
        let first = look(late);
        let later = times.map(|time| {
            code(&scene);
            look(late + time)
        });
        clock::simulate(None);
        (first, later)
    }

    /// The answer may be in the socket already.
    #[test]
    fn a_deadline_that_is_noticed_late_is_looked_at_again() {
        let times = [SECOND_LOOK - SHORTEST_LOOK, SECOND_LOOK];
        assert_eq!(lost_after(times, |_| ()), (false, [false, true]));
    }

    #[test]
    fn requests_do_not_advance_the_second_look_at_a_deadline() {
        let times = [2 * SHORTEST_LOOK, SECOND_LOOK - SHORTEST_LOOK, SECOND_LOOK];
        let request = |scene: &Scene| {
            scene.link.act(|state, _| ask_within(state, Duration::ZERO, "select 1"));
        };
        assert_eq!(lost_after(times, request), (false, [false, false, true]));
    }

    /// The answer may be in the socket already.
    #[test]
    fn a_thread_that_notices_its_deadline_late_waits_for_an_answer_that_is_being_read() {
        let mut scene = Scene::new(|options| options);
        let fleet = Fleet::new(scene.runtime.handle().clone(), Options::new("", "root"));
        let asked = scene.link.act(|state, _| ask(state));
        let (link, now) = (Arc::clone(&scene.link), Instant::now());
        let (give, looks) = mpsc::channel();
        let waiting = thread::spawn(move || {
            // The time stands still, so the second look ends with the answer only.
            clock::simulate(Some(now + 2 * SECOND));
            clock::at_each_look(move || {
                let _ = give.send(());
            });
            Outstanding::new(link, asked, now + SECOND, fleet).wait().result
        });
        // A thread that ends its request at once looks at the clock fewer times.
        let looked = looks.iter().take(10).count();
        let mut out = OutBuffer::default();
        Encoder::new(&mut out, asked.0).execute_ok();
        scene.server.write_all(&out.to_vec()).expect("there is room");
        run(&scene.runtime);
        let result = waiting.join().expect("no panic");
        assert!(matches!(result, Some(Ok(()))), "{result:?} after {looked} looks");
    }

    #[test]
    fn the_memory_for_a_long_frame_follows_its_length() {
        let scene = Scene::new(|options| options);
        let config = Config::default();
        let header = Header::new(0, 100, (config.worker_read_buf_bytes + 1) as u32).encode();
        let total = header.len() + config.worker_read_buf_bytes + 1;
        let mut frame = header.to_vec();
        frame.resize(total - 1, 0);
        (&scene.server).write_all(&frame).expect("there is room");
        run(&scene.runtime);
        assert_eq!(scene.runtime.handle().usage().buffered_bytes(), total);
    }

    #[test]
    fn a_request_waits_while_the_backlog_is_long() {
        let scene = Scene::new(|options| options.max_unsent_bytes(1 << 20));
        scene.link.act(|state, _| ask(state));
        let request = scene.drain();
        scene.conn.send(vec![0; MORE_THAN_A_SOCKET_TAKES]);
        let mut backlogs = Vec::new();
        for _ in 0..3 {
            scene.link.act(|state, _| ask(state));
            backlogs.push(scene.conn.pending_bytes());
        }
        // The first request joins the backlog. The later ones are held.
        assert_eq!(backlogs, [backlogs[0]; 3]);
        assert_eq!(scene.drain(), MORE_THAN_A_SOCKET_TAKES + 3 * request);
    }

    /// A callback may wait for the end of its connection, or for another answer on it.
    #[test]
    fn callbacks_run_after_the_connection_has_ended() {
        // Otherwise a slow turn could end between the answer and the end of the stream.
        clock::simulate(Some(clock::now()));
        let mut scene = Scene::new(|options| options);
        let (session, seq) = scene.link.act(|state, _| ask(state));
        scene.drain();
        let (give, seen) = mpsc::channel();
        let link = Arc::clone(&scene.link);
        let watcher = Watcher::Call(Box::new(move || {
            give.send(link.lost().is_some()).expect("the test listens");
        }));
        let before = scene.link.act(|state, _| state.watch(session, seq, usize::MAX, watcher));
        assert!(before.is_none());
        let mut out = OutBuffer::default();
        Encoder::new(&mut out, session).execute_ok();
        scene.server.write_all(&out.to_vec()).expect("there is room");
        drop(scene.server);
        run(&scene.runtime);
        assert_eq!(seen.try_recv(), Ok(true));
        clock::simulate(None);
    }

    #[test]
    fn requests_held_behind_long_output_are_sent_behind_it() {
        const LONG: usize = 100 << 10;
        let scene = Scene::new(|options| options.max_unsent_bytes(64 << 10));
        lock(&scene.link.inner).sending = true;
        for _ in 0..3 {
            let (limit, long) = (Duration::from_secs(60), "x".repeat(LONG));
            scene.link.act(|state, _| ask_within(state, limit, &long));
        }
        let mut inner = lock(&scene.link.inner);
        inner.sending = false;
        scene.link.flush(inner);
        let first = scene.conn.pending_bytes();
        assert!(first < 2 * LONG, "{first} bytes wait");
        assert!(scene.drain() > 3 * LONG);
    }

    #[test]
    fn a_caller_beside_others_leaves_the_rest_to_a_worker_after_sixteen_rounds() {
        let scene = Scene::new(|options| options);
        let link = &scene.link;
        link.act(|state, _| ask(state));
        let request = scene.drain();
        scene.conn.send(vec![0; MORE_THAN_A_SOCKET_TAKES]);
        // While the connection has a backlog, each send looks at the clock.
        let (asked, here) = (Rc::new(Cell::new(0)), Arc::clone(link));
        let count = Rc::clone(&asked);
        clock::at_each_look(move || {
            // 1000 requests are far more than a caller sends in its rounds.
            if count.get() < 1000
                && let Ok(mut inner) = here.inner.try_lock()
                && inner.sending
            {
                count.set(count.get() + 1);
                ask(&mut inner.state);
            }
        });
        link.act(|state, _| ask(state));
        clock::at_each_look(|| ());
        assert_eq!(asked.get(), 16);
        assert_eq!(scene.drain(), MORE_THAN_A_SOCKET_TAKES + (1 + 16) * request);
        assert_eq!(link.look_at(State::outstanding), 1 + 1 + 16);
    }
}
