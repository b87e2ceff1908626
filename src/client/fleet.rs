//! [`Fleet`]: serves callers that wait for a session, and makes connections for them.
//!
//! Waiting callers are served in order. If an attempt to connect fails and no other connection is
//! ready or being made, they all get its error. The lock is held for decisions only: connections
//! are made and callers get their results after it was released.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::error::{Error, ErrorKind};
use super::link::{Link, SECOND_LOOK};
use super::links::{Links, as_connect};
use super::options::Options;
use super::session::Session;
use super::status::Status;
use super::waiting::{Callback, Caller, Outcome, Receiver, Waiting};
use crate::net::{Address, Calls, ToAddress};
use crate::runtime::{Class, Handle, Timer, after, is_late};
use crate::sync::shim::lock;
use crate::sys::clock::{self, Instant};

/// The connections of a client, and the callers that wait for a session.
pub(super) struct Fleet {
    pub(super) handle: Handle,
    pub(super) options: Arc<Options>,
    /// Address of the server. Tests pass another type than the text in the options.
    address: Arc<dyn ToAddress + Send + Sync>,
    /// Callbacks of callers, and connections to make.
    calls: Arc<Calls>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    links: Links,
    waiting: Waiting,
    /// Set when the client was closed or its runtime has ended.
    closed: bool,
    timer: Option<Armed>,
    /// Time of the last second look at the deadlines. No deadline is handled before it.
    second_look: Option<Instant>,
}

/// The timer, and its time.
struct Armed {
    at: Instant,
    _timer: Timer,
    done: Arc<AtomicBool>,
}

type Served = (Caller, Outcome);

/// Actions to take after the lock was released.
#[derive(Default)]
struct Todo {
    served: Vec<Served>,
    /// Numbers of the connections to make.
    connect: Vec<u64>,
    /// Time of the next timeout.
    due: Option<Instant>,
}

impl Fleet {
    pub(super) fn new(handle: Handle, options: Options) -> Arc<Self> {
        let address = Arc::new(options.address.clone());
        Self::with_address(handle, options, address)
    }

    /// Like [`new`](Self::new), with an address in place of that of the options.
    pub(super) fn with_address(
        handle: Handle,
        options: Options,
        address: Arc<dyn ToAddress + Send + Sync>,
    ) -> Arc<Self> {
        let (options, calls) = (Arc::new(options), Calls::new());
        Arc::new(Self { handle, options, address, calls, inner: Mutex::default() })
    }

    /// Gives `receiver` a session as soon as there is one, if possible before this call returns.
    /// Returns the ticket of the caller.
    pub(super) fn open(self: &Arc<Self>, deadline: Instant, receiver: Receiver) -> u64 {
        let now = clock::now();
        let mut inner = lock(&self.inner);
        let ticket = inner.waiting.add(now, deadline, receiver);
        let mut todo = Todo::default();
        self.settle(&mut inner, &mut todo, now);
        drop(inner);
        self.follow(todo, Some(ticket));
        ticket
    }

    /// Ends the wait of a caller, unless it was served before.
    pub(super) fn expire(self: &Arc<Self>, ticket: u64) {
        self.change(|inner, todo, now| {
            let late = inner.waiting.remove(ticket);
            todo.served.extend(late.into_iter().map(|caller| inner.links.too_late(caller, now)));
        });
    }

    /// Returns the ready connection with the fewest sessions, for an auto-commit statement or for
    /// timestamps.
    pub(super) fn least_loaded(&self) -> Option<Arc<Link>> {
        lock(&self.inner).links.least_loaded(usize::MAX)
    }

    /// Serves waiting callers after a session was closed.
    pub(super) fn session_closed(self: &Arc<Self>) {
        if !lock(&self.inner).waiting.is_empty() {
            self.change(|_, _, _| ());
        }
    }

    pub(super) fn link_ready(self: &Arc<Self>, link: &Arc<Link>) {
        self.change(|inner, _, _| inner.links.logged_in(link));
    }

    pub(super) fn link_lost(self: &Arc<Self>, link: &Arc<Link>) {
        let reason = link.lost().unwrap_or_else(|| Error::not_sent(ErrorKind::Closed));
        self.change(|inner, todo, now| {
            if inner.links.lost(link, &reason, now, &self.options) {
                todo.fail_all(&mut inner.waiting, &as_connect(&reason));
            }
        });
    }

    /// Closes the client: it gives out no more sessions, and ends the open ones.
    pub(super) fn close(self: &Arc<Self>) {
        let links = self.change(|inner, _, _| {
            inner.closed = true;
            inner.links.take()
        });
        links.iter().for_each(|link| link.end(&Error::unknown(ErrorKind::Closed)));
    }

    /// Fails all waiting callers: after the end of the runtime no connection can be made, and no
    /// timer fires.
    fn runtime_ended(self: &Arc<Self>) {
        self.change(|inner, _, _| {
            inner.timer = None;
            inner.closed = true;
        });
    }

    /// Ends the waits that are too long. `due` is the time of the timer.
    fn handle_timeout(self: &Arc<Self>, due: Instant) {
        self.change(|inner, todo, now| {
            inner.timer = None;
            if is_late(due, now) && inner.second_look != Some(due) {
                // Input that arrived in time may still be in a socket. It is handled first.
                inner.second_look = Some(now + SECOND_LOOK);
                return;
            }
            let late = inner.waiting.remove_late(now).into_iter();
            todo.served.extend(late.map(|caller| inner.links.too_late(caller, now)));
        });
    }

    pub(super) fn status(&self) -> Status {
        let inner = lock(&self.inner);
        inner.links.status(&inner.waiting, &self.options)
    }

    /// Changes the state, decides what follows from that, and does it without the lock.
    fn change<R>(self: &Arc<Self>, code: impl FnOnce(&mut Inner, &mut Todo, Instant) -> R) -> R {
        let now = clock::now();
        let mut inner = lock(&self.inner);
        let mut todo = Todo::default();
        let result = code(&mut inner, &mut todo, now);
        self.settle(&mut inner, &mut todo, now);
        drop(inner);
        self.follow(todo, None);
        result
    }

    /// Serves waiting callers while there is room, and decides which connections to make.
    fn settle(self: &Arc<Self>, inner: &mut Inner, todo: &mut Todo, now: Instant) {
        let Inner { links, waiting, closed, timer, second_look } = inner;
        links.let_go(now, &self.options);
        if *closed {
            return todo.fail_all(waiting, &Error::not_sent(ErrorKind::Closed));
        }
        while !waiting.is_empty()
            && let Some(link) = links.least_loaded(self.options.sessions_per_connection)
        {
            let Some(id) = link.open() else { continue };
            let session = Session::new(Arc::clone(self), link, id);
            todo.served.extend(waiting.pop().map(|caller| (caller, Ok(session))));
        }
        todo.connect = links.plan(waiting.len(), now, &self.options);
        // A connection is made for a refused caller too. Otherwise a client with `max_waiting` 0
        // would never get one.
        let limit = self.options.max_waiting;
        if let Some(caller) = waiting.refuse(limit) {
            todo.served.push((caller, Err(Error::not_sent(ErrorKind::TooManyWait(limit)))));
        }
        // The timer fires for the deadline of a caller, and for the next attempt to connect.
        if let Some(due) = waiting.next_due() {
            let due = links.retry_due(now).map_or(due, |retry| retry.min(due));
            let due = second_look.map_or(due, |look| look.max(due));
            todo.due = Some(due).filter(|due| timer.as_ref().is_none_or(|armed| armed.at > *due));
        }
    }

    /// Sets the timer. Called without the lock: if the runtime has ended, the callback is dropped
    /// at once, and its drop takes the lock.
    fn arm(self: &Arc<Self>, due: Instant) {
        let now = clock::now();
        let done = Arc::new(AtomicBool::new(false));
        let delay = due.duration_since(now).max(Duration::from_millis(1));
        let look = Look { fleet: Arc::downgrade(self), at: now + delay, done: Arc::clone(&done) };
        let group = self.handle.group_here();
        let timer = after(group, Class::InProgress, delay, Box::new(move || look.fire()));
        let mut armed = Some(Armed { at: now + delay, _timer: timer, done: Arc::clone(&done) });
        let mut inner = lock(&self.inner);
        let earlier = inner.timer.as_ref().is_some_and(|other| other.at <= now + delay);
        // If the timer has fired already, its callback takes the lock before or after this, and
        // handles the timeout.
        if !earlier && !done.load(Ordering::Relaxed) {
            armed = std::mem::replace(&mut inner.timer, armed);
        }
        drop(inner);
        drop(armed);
    }

    /// Takes the actions, without the lock. The callback of the caller `here` may run on this
    /// thread. It runs last, because it is foreign code.
    fn follow(self: &Arc<Self>, todo: Todo, here: Option<u64>) {
        let own = self.give(todo.served, here);
        if let Some(due) = todo.due {
            self.arm(due);
        }
        if !todo.connect.is_empty() {
            // To look up a name may take long. This thread may have a deadline, or be reading a
            // connection.
            for number in todo.connect {
                let fleet = Arc::downgrade(self);
                let connect = move || Self::look_up(&fleet, number);
                // A runtime that ends refuses the connection at once, and may have no worker left.
                if self.handle.usage().is_draining() {
                    connect();
                } else {
                    self.calls.add(Box::new(connect));
                }
            }
            self.calls.hand_out(self.handle.group_here());
        }
        if let Some((code, result)) = own {
            code(result);
        }
    }

    /// Looks up the server's name for a connection, and makes it. Waits without a reference to the client,
    /// which may be dropped meanwhile.
    fn look_up(fleet: &Weak<Self>, number: u64) {
        let Some(this) = fleet.upgrade() else { return };
        if !lock(&this.inner).links.awaits(number) {
            return;
        }
        if this.handle.usage().is_draining() {
            // The runtime refuses the connection, wherever it leads, so no lookup is needed.
            return this.connect(number, Ok(Vec::new()));
        }
        let address = Arc::clone(&this.address);
        drop(this);
        let found = address.to_addresses();
        if let Some(fleet) = fleet.upgrade() {
            fleet.connect(number, found);
        }
    }

    /// Makes a connection to these addresses, unless the client was closed.
    fn connect(self: &Arc<Self>, number: u64, found: io::Result<Vec<Address>>) {
        let link = Link::connect(self, number, found);
        if !lock(&self.inner).links.begun(&link) {
            link.end(&Error::unknown(ErrorKind::Closed));
        }
    }

    /// Gives callers their results. Returns the callback of the caller `here`, which was not run.
    fn give(&self, served: Vec<Served>, here: Option<u64>) -> Option<(Callback, Outcome)> {
        let mut own = None;
        let mut calls = false;
        for (caller, result) in served {
            match caller.receiver {
                // The thread waits until it gets a result, so the send succeeds.
                Receiver::Thread(sender) => drop(sender.send(result)),
                Receiver::Call(code) if here == Some(caller.ticket) => own = Some((code, result)),
                Receiver::Call(code) => {
                    self.calls.add(Box::new(move || code(result)));
                    calls = true;
                }
            }
        }
        if calls {
            self.calls.hand_out(self.handle.group_here());
        }
        own
    }
}

impl Todo {
    fn fail_all(&mut self, waiting: &mut Waiting, error: &Error) {
        let callers = std::iter::from_fn(|| waiting.pop());
        self.served.extend(callers.map(|caller| (caller, Err(error.clone()))));
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // The timer is cancelled after this. The drop of its callback then does not mean that the
        // runtime has ended, and takes no lock.
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Callback of the timer. Its drop without a call shows that the runtime has ended.
struct Look {
    fleet: Weak<Fleet>,
    at: Instant,
    /// Set when the timer has fired or is not needed.
    done: Arc<AtomicBool>,
}

impl Look {
    fn fire(self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(fleet) = self.fleet.upgrade() {
            fleet.handle_timeout(self.at);
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if !self.done.swap(true, Ordering::Relaxed)
            && let Some(fleet) = self.fleet.upgrade()
        {
            fleet.runtime_ended();
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let mut todo = Todo::default();
        let mut inner = lock(&self.inner);
        let links = inner.links.take();
        todo.fail_all(&mut inner.waiting, &Error::not_sent(ErrorKind::Closed));
        drop(inner);
        links.iter().for_each(|link| link.end(&Error::unknown(ErrorKind::Closed)));
        self.give(todo.served, None);
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::io::{self, Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::sync::atomic::AtomicUsize;
    use std::sync::{OnceLock, mpsc};

    use super::*;
    use crate::client::error::Stage;
    use crate::client::pending::Outstanding;
    use crate::client::request::Request;
    use crate::codec::encoder::{Encoder, OutBuffer};
    use crate::codec::frame::Dialect;
    use crate::codec::message::ServerMessage;
    use crate::codec::proto::session::{AuthenticateContinue, AuthenticateOk};
    use crate::config::Config;
    use crate::net::Address;
    use crate::runtime::{Runtime, Simulated};
    use crate::stall::{Wait, run_as};

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a server that accepts no connection, and its address.
    fn silent_server(name: &str) -> (UnixListener, String) {
        let name = format!("{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        (UnixListener::bind_addr(&address).expect("a listener"), format!("unix:@{name}"))
    }

    fn run(runtime: &Simulated) {
        while runtime.take_task(false) || runtime.in_hands() > 0 {
            runtime.run(0, None);
        }
    }

    fn open(fleet: &Arc<Fleet>, deadline: Instant, told: &Arc<Mutex<Vec<Instant>>>) {
        let told = Arc::clone(told);
        let call = Receiver::Call(Box::new(move |_| lock(&told).push(deadline)));
        fleet.open(deadline, call);
    }

    #[test]
    fn a_caller_keeps_its_deadline_although_another_one_sets_the_timer_to_a_later_one() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (_server, address) = silent_server("fleet");
        let options = Options::new(address, "root");
        let fleet = Fleet::new(runtime.handle().clone(), options);
        let told = Arc::new(Mutex::new(Vec::new()));
        let (here, also) = (Arc::clone(&fleet), Arc::clone(&told));
        clock::at_each_look(move || {
            // The first caller waits and has not set the timer yet.
            let waits = here.inner.try_lock().is_ok_and(|inner| inner.waiting.len() == 1);
            if waits {
                open(&here, now + SECOND, &also);
            }
        });
        open(&fleet, now + 2 * SECOND, &told);
        clock::at_each_look(|| ());
        for passed in [1, 2] {
            clock::simulate(Some(now + passed * SECOND));
            runtime.fire_due();
            run(&runtime);
            let expected: Vec<_> = (1..=passed).map(|number| now + number * SECOND).collect();
            assert_eq!(*lock(&told), expected);
        }
        clock::simulate(None);
    }

    /// The answer to the login may be unread in the socket.
    #[test]
    fn a_deadline_that_is_noticed_late_is_looked_at_again() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (_server, address) = silent_server("late");
        let options = Options::new(address, "root").connect_timeout(60 * SECOND);
        let fleet = Fleet::new(runtime.handle().clone(), options.login_timeout(60 * SECOND));
        let told = Arc::new(Mutex::new(Vec::new()));
        open(&fleet, now + SECOND, &told);
        let late = now + 2 * SECOND;
        // The process may be stopped again. A third look would not help.
        for (time, ended) in [(late, 0), (late + SECOND_LOOK / 2, 0), (late + SECOND, 1)] {
            clock::simulate(Some(time));
            runtime.fire_due();
            run(&runtime);
            assert_eq!(lock(&told).len(), ended);
        }
        clock::simulate(None);
    }

    /// To connect may take long, because it looks up a name.
    #[test]
    fn the_timer_is_set_before_a_connection_begins() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (listener, address) = silent_server("timer");
        listener.set_nonblocking(true).expect("a socket");
        let fleet = Fleet::new(runtime.handle().clone(), Options::new(address, "root"));
        let begun_with_timer = Arc::new(Mutex::new(None));
        let (here, seen) = (Arc::clone(&fleet), Arc::clone(&begun_with_timer));
        clock::at_each_look(move || {
            if let Ok(inner) = here.inner.try_lock()
                && listener.accept().is_ok()
            {
                *lock(&seen) = Some(inner.timer.is_some());
            }
        });
        open(&fleet, clock::now() + SECOND, &Arc::default());
        run(&runtime);
        clock::at_each_look(|| ());
        assert_eq!(*lock(&begun_with_timer), Some(true));
    }

    #[test]
    fn a_caller_whose_time_is_over_is_told_so() {
        let now = Instant::now();
        clock::simulate(Some(now));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (_server, address) = silent_server("expired");
        let options = Options::new(address, "root");
        let fleet = Fleet::new(runtime.handle().clone(), options);
        let (give, given) = mpsc::sync_channel(1);
        let ticket = fleet.open(now + SECOND, Receiver::Thread(give));
        clock::simulate(Some(now + SECOND));
        fleet.expire(ticket);
        let error = given.try_recv().expect("an outcome").expect_err("no connection");
        let stage = Stage::Session(SECOND);
        assert!(matches!(error.kind(), ErrorKind::Deadline(late) if *late == stage), "{error}");
        clock::simulate(None);
    }

    #[test]
    fn a_callback_that_waits_when_its_client_is_dropped_gets_an_error() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (_server, address) = silent_server("dropped");
        let fleet = Fleet::new(runtime.handle().clone(), Options::new(address, "root"));
        let (give, given) = mpsc::channel();
        let call = move |result| give.send(result).expect("the test listens");
        fleet.open(Instant::now() + SECOND, Receiver::Call(Box::new(call)));
        run(&runtime);
        assert!(given.try_recv().is_err(), "it waits for a connection");
        drop(fleet);
        run(&runtime);
        let error = given.try_recv().expect("one call").expect_err("no session");
        assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    }

    /// Asserts that the client has closed the connection to this server.
    fn assert_closed(runtime: &Simulated, mut server: &UnixStream) {
        run(runtime);
        server.set_nonblocking(true).expect("a socket");
        assert_eq!(server.read(&mut [0; 4096]).ok(), Some(0));
    }

    #[test]
    fn a_connection_that_logs_in_is_closed_with_its_client() {
        let close = |fleet: Arc<Fleet>| {
            fleet.close();
            Some(fleet)
        };
        let end = |fleet| {
            drop(fleet);
            None
        };
        let ends: [(_, fn(_) -> _); 2] = [("login-closed", close), ("login-dropped", end)];
        for (name, end) in ends {
            let runtime = Simulated::new(Config::default()).expect("descriptors");
            let (listener, address) = silent_server(name);
            let fleet = Fleet::new(runtime.handle().clone(), Options::new(address, "root"));
            fleet.open(Instant::now() + SECOND, Receiver::Call(Box::new(|_| ())));
            run(&runtime);
            let (mut server, _) = listener.accept().expect("a connection");
            runtime.take_events();
            run(&runtime);
            assert!(server.read(&mut [0; 4096]).expect("the start of the login") > 0);
            let _kept = end(fleet);
            assert_closed(&runtime, &server);
        }
    }

    /// Address of a server. Its lookup closes the client.
    struct Closes {
        address: Address,
        fleet: Arc<OnceLock<Weak<Fleet>>>,
    }

    impl ToAddress for Closes {
        fn to_addresses(&self) -> io::Result<Vec<Address>> {
            self.fleet.get().and_then(Weak::upgrade).expect("it is set").close();
            Ok(vec![self.address.clone()])
        }
    }

    #[test]
    fn a_connection_that_begins_while_its_client_is_closed_is_closed() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (listener, address) = silent_server("begins");
        let address = address.to_addresses().expect("an address").remove(0);
        let here = Arc::<OnceLock<_>>::default();
        let name = Closes { address, fleet: Arc::clone(&here) };
        let options = Options::new("", "root");
        let fleet = Fleet::with_address(runtime.handle().clone(), options, Arc::new(name));
        here.set(Arc::downgrade(&fleet)).expect("set once");
        open(&fleet, Instant::now() + SECOND, &Arc::default());
        run(&runtime);
        let (server, _) = listener.accept().expect("a connection");
        assert_closed(&runtime, &server);
    }

    #[test]
    fn a_connection_that_has_not_begun_when_its_client_is_closed_never_begins() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (listener, address) = silent_server("never");
        let fleet = Fleet::new(runtime.handle().clone(), Options::new(address, "root"));
        open(&fleet, Instant::now() + SECOND, &Arc::default());
        fleet.close();
        run(&runtime);
        listener.set_nonblocking(true).expect("a socket");
        assert!(listener.accept().is_err());
    }

    #[test]
    fn a_caller_is_told_at_once_that_the_only_connection_has_failed_at_once() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let options = Options::new(format!("unix:@nothing-{}", std::process::id()), "root");
        let fleet = Fleet::new(runtime.handle().clone(), options.connections(1));
        let (give, given) = mpsc::sync_channel(1);
        fleet.open(Instant::now() + SECOND, Receiver::Thread(give));
        run(&runtime);
        let error = given.try_recv().expect("an outcome").expect_err("no server");
        assert!(matches!(error.kind(), ErrorKind::Connect(_)), "{error}");
        assert_eq!(fleet.status().failed, 1);
    }

    /// Address of a server. Each lookup but the first waits until the test ends it.
    struct SlowName {
        address: Address,
        lookups: Arc<AtomicUsize>,
        begun: mpsc::Sender<()>,
        end: Mutex<mpsc::Receiver<()>>,
    }

    impl ToAddress for SlowName {
        fn to_addresses(&self) -> io::Result<Vec<Address>> {
            if self.lookups.fetch_add(1, Ordering::Relaxed) > 0 {
                let _ = self.begun.send(());
                let _ = run_as(Wait::Network, || lock(&self.end).recv());
            }
            Ok(vec![self.address.clone()])
        }
    }

    /// Client of a server whose name is looked up slowly, and the test's side of the server.
    struct Slow {
        fleet: Arc<Fleet>,
        listener: UnixListener,
        lookups: Arc<AtomicUsize>,
        /// Gets a message when a lookup waits.
        begins: mpsc::Receiver<()>,
        /// Its drop ends the lookups.
        end: mpsc::Sender<()>,
    }

    impl Slow {
        fn new(name: &str, handle: &Handle) -> Self {
            let (listener, address) = silent_server(name);
            let address = address.to_addresses().expect("an address").remove(0);
            let ((begun, begins), (end, ended)) = (mpsc::channel(), mpsc::channel());
            let lookups = Arc::<AtomicUsize>::default();
            let end_of_lookup = Mutex::new(ended);
            let name =
                SlowName { address, lookups: Arc::clone(&lookups), begun, end: end_of_lookup };
            let options = Options::new("", "root").max_connecting(1);
            let fleet = Fleet::with_address(handle.clone(), options, Arc::new(name));
            Self { fleet, listener, lookups, begins, end }
        }

        /// Accepts a connection and its login.
        fn accept(&self) -> UnixStream {
            let (mut server, _) = self.listener.accept().expect("a connection");
            let challenge = AuthenticateContinue { auth_data: vec![7; 20] };
            let mut bytes = Vec::new();
            for message in [
                ServerMessage::AuthenticateContinue(challenge),
                ServerMessage::AuthenticateOk(AuthenticateOk::default()),
            ] {
                message.encode(Dialect::Legacy, 0, &mut bytes).expect("it is short");
            }
            server.write_all(&bytes).expect("there is room");
            server
        }
    }

    #[test]
    fn answers_arrive_while_the_name_of_a_further_connection_is_looked_up() {
        let runtime = Runtime::builder().start().expect("threads");
        let slow = Slow::new("slow", &runtime.handle());
        let deadline = clock::now() + 10 * SECOND;
        let (give, given) = mpsc::channel();
        for _ in 0..2 {
            let give = give.clone();
            let call = move |session| give.send(session).expect("the test listens");
            slow.fleet.open(deadline, Receiver::Call(Box::new(call)));
        }
        let mut server = slow.accept();
        let sessions = [(); 2].map(|()| given.recv().expect("one call").expect("a session"));
        slow.begins.recv_timeout(10 * SECOND).expect("the name is looked up again");
        let link = slow.fleet.least_loaded().expect("it is ready");
        let wire = Request::sql("select 1").into_wire(None);
        let asked = link.act(|state, _| state.ask_once(wire, deadline)).expect("it lives");
        let mut out = OutBuffer::default();
        Encoder::new(&mut out, asked.0).execute_ok();
        server.write_all(&out.to_vec()).expect("there is room");
        let fleet = Arc::clone(&slow.fleet);
        let result = Outstanding::new(link, asked, deadline, fleet).wait().result;
        assert!(matches!(result, Some(Ok(()))), "{result:?}");
        drop(slow.end);
        drop(sessions);
    }

    #[test]
    fn a_client_can_be_dropped_while_a_name_is_looked_up() {
        let runtime = Runtime::builder().start().expect("threads");
        let slow = Slow::new("gone", &runtime.handle());
        let (give, given) = mpsc::channel();
        let open = |fleet: &Arc<Fleet>| {
            let give = give.clone();
            let call = move |session: Outcome| give.send(session.is_err()).expect("a test");
            fleet.open(clock::now() + 10 * SECOND, Receiver::Call(Box::new(call)));
        };
        open(&slow.fleet);
        drop(slow.listener.accept().expect("a connection"));
        assert_eq!(given.recv_timeout(10 * SECOND), Ok(true), "the connection has failed");
        open(&slow.fleet);
        slow.begins.recv_timeout(10 * SECOND).expect("the name is looked up again");
        drop(slow.fleet);
        assert_eq!(given.recv_timeout(10 * SECOND), Ok(true), "before the lookup ends");
        drop(slow.end);
    }

    #[test]
    fn after_the_end_of_the_runtime_a_connection_fails_without_a_lookup() {
        let runtime = Runtime::builder().start().expect("threads");
        let slow = Slow::new("ended", &runtime.handle());
        drop(runtime);
        let (give, given) = mpsc::channel();
        let call = move |session: Outcome| give.send(session.is_err()).expect("the test listens");
        slow.fleet.open(clock::now() + SECOND, Receiver::Call(Box::new(call)));
        assert_eq!(given.try_recv(), Ok(true));
        assert_eq!(slow.fleet.status().failed, 1);
        assert_eq!(slow.lookups.load(Ordering::Relaxed), 0);
    }
}
