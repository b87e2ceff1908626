//! A server with an engine.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use epoll_group::codec::frame::Dialect;
use epoll_group::net::{Address, Listener};
use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Class, Config, DrainReport, session};

use super::super::threads::threads;
use super::super::xrpc::Client;
use super::super::{LONG, Server, assert_clean, eventually, eventually_or};
use super::{Control, Engine, one_text};

/// Password of all accounts but `empty`.
pub const PASSWORD: &str = "a password";

/// One group of four workers, without a delay after a failed login.
pub fn config() -> Config {
    super::super::config().login_failure_delay(Duration::ZERO)
}

/// A server with an engine. When it is dropped, it checks that its drain cut no connection and left no
/// thread behind, that all opened sessions are closed, and that nothing of the server is left.
pub struct Fixture {
    /// `None` only after the server was drained.
    server: Option<Server>,
    engine: Option<Arc<Engine>>,
    pub control: Arc<Control>,
    pub accounts: session::Accounts,
    /// Reason for which work is in progress when the fixture is dropped.
    leaves_work: OnceLock<&'static str>,
}

impl Fixture {
    pub fn start(config: Config) -> Self {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), config)
    }

    pub fn start_at(at: SocketAddr, config: Config) -> Self {
        let engine = Arc::new(Engine::new());
        let protocol = session::Server::shared(Arc::clone(&engine));
        let accounts = protocol.accounts();
        let server = Server::start_at(at, config, protocol);
        let control = Arc::clone(&engine.control);
        Self {
            server: Some(server),
            engine: Some(engine),
            control,
            accounts,
            leaves_work: OnceLock::new(),
        }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("present until the end")
    }

    pub fn addr(&self) -> SocketAddr {
        match self.server().address() {
            Address::Tcp(addr) => *addr,
            other => panic!("not TCP: {other}"),
        }
    }

    /// Serves the engine on one more address, with connections of this class.
    pub fn listen_as(&self, class: Class) -> Listener {
        let engine = Arc::clone(self.engine.as_ref().expect("present until the end"));
        let handle = self.server().runtime.handle().with_class(class);
        handle.listen("127.0.0.1:0", session::Server::shared(engine)).expect("a listener")
    }

    /// Client that is connected and not logged in.
    #[track_caller]
    pub fn stranger(&self) -> Client {
        Client::connect(self.addr())
    }

    /// Connected and logged in.
    #[track_caller]
    pub fn client(&self) -> Client {
        self.client_of("root")
    }

    #[track_caller]
    pub fn client_of(&self, account: &str) -> Client {
        Client::logged_in(self.addr(), account, PASSWORD)
    }

    #[track_caller]
    pub fn client_with(&self, dialect: Dialect) -> Client {
        let mut client = Client::connect_with(self.addr(), dialect);
        client.login("root", PASSWORD);
        client
    }

    /// Connected, logged in, and with these sessions open.
    #[track_caller]
    pub fn client_with_sessions(&self, sessions: impl IntoIterator<Item = u64>) -> Client {
        let mut client = self.client();
        sessions.into_iter().for_each(|session| drop(client.new_session(session)));
        client
    }

    pub fn stats(&self) -> Snapshot {
        self.server().stats()
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.server().count(counter)
    }

    /// Waits until the counter has reached `count`.
    #[track_caller]
    pub fn wait_for(&self, counter: Counter, count: u64) {
        self.server().wait_for(counter, count);
    }

    /// Waits until all sessions that were opened are closed, and counted as such: the gauge
    /// `sessions` changes shortly before the counter.
    #[track_caller]
    pub fn wait_until_even(&self) {
        eventually(LONG, || {
            let stats = self.stats();
            let counters = [Counter::SessionsOpened, Counter::SessionsClosed];
            let [opened, closed] = counters.map(|counter| stats.get(counter));
            self.control.is_even() && stats.sessions == 0 && opened == closed
        });
    }

    /// Waits until no handler runs or waits, and there are as many threads as before. A thread may have
    /// been added for a handler that waited for a lock of the test, and leaves when it is not needed.
    #[track_caller]
    pub fn wait_until_idle(&self, threads_before: u64) -> Snapshot {
        let mut stats = self.stats();
        eventually(LONG, || {
            stats = self.stats();
            let now = (stats.running_threads, stats.stalled_threads, threads(&stats));
            now == (0, 0, threads_before)
        });
        stats
    }

    /// Lets the server learn that a request of this session takes 0.1 ms, so that its next one queues
    /// behind others. A run that another thread interrupted seems longer, so it does not count.
    #[track_caller]
    pub fn make_slow(&self, client: &mut Client, session: u64) {
        const INTERRUPTED: Duration = Duration::from_micros(30);
        let (began, mut whole_runs) = (Instant::now(), 0);
        while whole_runs < 6 {
            assert!(began.elapsed() < LONG, "each run is interrupted");
            let (tell, told) = mpsc::channel();
            self.control.plant("work", move |reply| {
                let began = Instant::now();
                let (mut last, mut whole) = (began, true);
                while last - began < Duration::from_micros(100) {
                    let now = Instant::now();
                    whole &= now - last < INTERRUPTED;
                    last = now;
                }
                tell.send(whole).expect("the test listens");
                one_text(reply, "done")
            });
            client.execute(session, "script work").good();
            whole_runs = if told.recv().expect("it has run") { whole_runs + 1 } else { 0 };
        }
    }

    /// Waits until bytes of this client wait in the server's socket.
    #[track_caller]
    pub fn wait_unread(&self, client: &Client) {
        let [server, client] = [self.addr(), client.local_addr()].map(|addr| addr.port());
        let ports = [format!(":{server:04X}"), format!(":{client:04X}")];
        eventually(LONG, || {
            let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
            // Number, local address, remote address, state, bytes to send and to receive.
            sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|socket| {
                socket[1].ends_with(&ports[0])
                    && socket[2].ends_with(&ports[1])
                    && !socket[4].ends_with(":00000000")
            })
        });
    }

    /// Drains the server and checks that the drain cuts no connection and leaves no thread behind. After
    /// that, only `control` can be asked.
    pub fn drain_on_another_thread(&mut self) -> JoinHandle<()> {
        let server = self.server.take().expect("drained once");
        thread::spawn(move || assert_clean(&server.drain(LONG)))
    }

    /// Drains the server while work is in progress that does not end in time, for the reason `why`.
    /// Checks that the drain cuts so many connections. Handlers may be stuck.
    #[track_caller]
    pub fn drain_that_cuts(
        &mut self,
        connections: u64,
        deadline: Duration,
        why: &str,
    ) -> DrainReport {
        let server = self.server.take().expect("drained once");
        let report = server.drain(deadline);
        assert_eq!(report.cut, connections, "{why}: {report}");
        report
    }

    /// Lets the test drop the fixture while work is in progress, for this reason. The server is then
    /// dropped, not drained.
    pub fn leaves_work(&self, why: &'static str) {
        self.leaves_work.set(why).expect("one reason");
    }

    fn check(&mut self) {
        self.control.drop_deferred();
        match self.server.take() {
            Some(server) if self.leaves_work.get().is_none() => assert_clean(&server.drain(LONG)),
            server => drop(server),
        }
        let counts = &self.control.counts;
        // Stuck handlers end by themselves.
        eventually_or(LONG, || self.control.is_even(), || format!("{counts:?}"));
        let engine = self.engine.take().expect("present until the end");
        eventually(LONG, || {
            // A request deferred at the last moment keeps its connection alive.
            self.control.drop_deferred();
            Arc::strong_count(&engine) == 1
        });
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.check();
        }
    }
}
