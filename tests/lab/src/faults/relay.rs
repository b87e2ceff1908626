//! [`Relay`]: stands between clients and a server and applies the faults of a script to
//! connections.
//!
//! It uses plain threads and sockets, one thread for each connection, and no code that is tested
//! through it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::passage::{End, Passage};
use super::plan::Plan;
use super::script::Script;
use crate::address::Address;

/// Largest number of connections at a time. Further ones are closed at once.
pub const MAX_CONNECTIONS: usize = 4096;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);
/// Stack of a connection's thread. A plan and a read buffer need little.
const STACK: usize = 128 << 10;

/// Passes connections on until it is dropped, which cuts those that are left.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    listener: Arc<Socket>,
    address: Address,
    acceptor: Option<JoinHandle<()>>,
}

/// Outcome of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Counted from 0.
    pub connection: u64,
    pub up: Flow,
    pub down: Flow,
    pub end: End,
    pub time: Duration,
}

/// Bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    pub taken: u64,
    pub sent: u64,
    pub flipped: u64,
}

/// Sums over the connections that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub connections: u64,
    /// By their plan or by the owner of the relay.
    pub cut: u64,
    /// Broken off by either side, or the server could not be reached.
    pub lost: u64,
    pub up: Flow,
    pub down: Flow,
}

struct Shared {
    to: Address,
    script: Mutex<Script>,
    live: Mutex<BTreeMap<u64, Arc<Live>>>,
    /// Told when a connection has left `live`.
    left: Condvar,
    totals: Mutex<Totals>,
    ending: AtomicBool,
    tell: Box<dyn Fn(&Report) + Send + Sync>,
}

struct Live {
    client: Socket,
    server: Mutex<Option<Arc<Socket>>>,
    cut: AtomicBool,
}

impl Relay {
    /// Listens at `listen` and passes connections on to `to`.
    pub fn start(script: Script, listen: &Address, to: Address) -> io::Result<Self> {
        Self::start_telling(script, listen, to, |_| ())
    }

    /// The same, and tells of each connection that has ended.
    pub fn start_telling(
        script: Script,
        listen: &Address,
        to: Address,
        tell: impl Fn(&Report) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (listener, address) = listen.listen()?;
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            to,
            script: Mutex::new(script),
            live: Mutex::default(),
            left: Condvar::new(),
            totals: Mutex::default(),
            ending: AtomicBool::new(false),
            tell: Box::new(tell),
        });
        let (own, socket) = (Arc::clone(&shared), Arc::clone(&listener));
        let name = thread::Builder::new().name("relay".to_owned());
        let acceptor = Some(name.spawn(move || accept(&own, &socket))?);
        Ok(Self { shared, listener, address, acceptor })
    }

    /// Address at which the relay listens.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the faults of connections that come from now on.
    pub fn follow(&self, script: Script) {
        *lock(&self.shared.script) = script;
    }

    /// Cuts one of the live connections; `which` chooses.
    pub fn cut(&self, which: u64) {
        let live = lock(&self.shared.live);
        if !live.is_empty() {
            let index = (which % live.len() as u64) as usize;
            live.values().nth(index).into_iter().for_each(|one| one.cut());
        }
    }

    /// Cuts all live connections.
    pub fn cut_all(&self) {
        lock(&self.shared.live).values().for_each(|one| one.cut());
    }

    /// Connections now.
    pub fn live(&self) -> usize {
        lock(&self.shared.live).len()
    }

    pub fn totals(&self) -> Totals {
        *lock(&self.shared.totals)
    }

    /// Stops accepting, cuts the connections that are left and waits until they have ended. Returns
    /// the totals.
    pub fn end(self) -> Totals {
        let shared = Arc::clone(&self.shared);
        drop(self);
        *lock(&shared.totals)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = self.listener.shutdown(Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.cut_all();
        let mut live = lock(&self.shared.live);
        while !live.is_empty() {
            live = self.shared.left.wait(live).unwrap_or_else(PoisonError::into_inner);
        }
        drop(live);
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Live {
    fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        let _ = self.client.shutdown(Shutdown::Both);
        if let Some(server) = &*lock(&self.server) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &Socket) {
    let mut connection = 0;
    while !shared.ending.load(Ordering::SeqCst) {
        let Ok((client, _)) = listener.accept() else {
            // It was shut down, or descriptors have run out.
            thread::sleep(PAUSE);
            continue;
        };
        let mut live = lock(&shared.live);
        if live.len() >= MAX_CONNECTIONS {
            continue;
        }
        let cut = AtomicBool::new(false);
        let one = Arc::new(Live { client, server: Mutex::default(), cut });
        live.insert(connection, Arc::clone(&one));
        drop(live);
        let own = Arc::clone(shared);
        let plans = lock(&shared.script).plans(connection);
        let number = connection;
        let thread = thread::Builder::new().name(format!("relay {number}")).stack_size(STACK);
        if thread.spawn(move || serve(&own, number, &one, plans)).is_err() {
            lock(&shared.live).remove(&connection);
        }
        connection += 1;
    }
}

/// Passes one connection on, and tells what became of it.
fn serve(shared: &Shared, connection: u64, live: &Arc<Live>, (up, down): (Plan, Plan)) {
    let began = Instant::now();
    let mut report = Report {
        connection,
        up: Flow::default(),
        down: Flow::default(),
        end: End::Unreachable,
        time: Duration::ZERO,
    };
    if let Ok(server) = connect(shared, live) {
        let (client, cut) = (&live.client, &live.cut);
        let mut passage = Passage { client, server: &server, up, down, cut };
        report.end = passage.run();
        report.up = Flow::of(&passage.up);
        report.down = Flow::of(&passage.down);
    }
    report.time = began.elapsed();
    let mut totals = lock(&shared.totals);
    totals.connections += 1;
    match report.end {
        End::Finished => {}
        End::Cut(..) | End::CutByOwner => totals.cut += 1,
        End::Lost | End::Unreachable => totals.lost += 1,
    }
    totals.up += report.up;
    totals.down += report.down;
    drop(totals);
    (shared.tell)(&report);
    lock(&shared.live).remove(&connection);
    shared.left.notify_all();
}

fn connect(shared: &Shared, live: &Live) -> io::Result<Arc<Socket>> {
    let (server, address) = shared.to.socket()?;
    server.connect_timeout(&address, CONNECT_TIMEOUT)?;
    if let Address::Tcp(_) = shared.to {
        server.set_tcp_nodelay(true)?;
    }
    // A client over a Unix socket has no such option.
    let _ = live.client.set_tcp_nodelay(true);
    let server = Arc::new(server);
    *lock(&live.server) = Some(Arc::clone(&server));
    Ok(server)
}

impl Flow {
    const fn of(plan: &Plan) -> Self {
        Self { taken: plan.taken(), sent: plan.sent(), flipped: plan.flipped() }
    }
}

impl AddAssign for Flow {
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        self.sent += other.sent;
        self.flipped += other.flipped;
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("to", &self.to).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
