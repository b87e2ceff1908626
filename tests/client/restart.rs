//! Rolling restarts: the next server takes over the address while the last one still drains.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::client::{Client, ConnectionPhase, Error, Fate, Pending, Session};
use epoll_group::net::Listener;
use epoll_group::pool::{Limits, Manage, Pool, Target};
use epoll_group::session::Server;
use lab::both::{one, options, try_one};
use lab::tagged::Tagged;
use lab::{LONG, assert_clean, eventually, often};

/// Address that no other test binds or connects from, so that its port stays free between two
/// servers.
const ADDRESS: &str = "127.77.0.1:0";

/// A server with a service that counts its statements.
struct Node {
    runtime: Runtime,
    service: Arc<Tagged>,
    listener: Listener,
}

impl Node {
    /// Starts a server. It may have to wait until the one before it has closed its listener.
    fn start(address: &str) -> Self {
        let runtime = Runtime::builder().config(lab::engine::config()).start().expect("started");
        let service = Arc::new(Tagged::new(runtime.handle()));
        let mut listener = None;
        eventually(LONG, || {
            let server = Server::shared(Arc::clone(&service));
            listener = runtime.listen(address, server).ok();
            listener.is_some()
        });
        Self { runtime, service, listener: listener.expect("it listens") }
    }
}

/// A pool of sessions of one server.
struct Sessions(Client);

impl Manage for Sessions {
    type Key = ();
    type Connection = Session;
    type Error = Error;

    fn connect(&self, _: &Target<'_, ()>, deadline: Instant) -> Result<Session, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.0.session_within(left)
    }

    fn has_broken(&self, _: &Target<'_, ()>, session: &mut Session) -> bool {
        !session.is_idle()
    }
}

/// Outcomes of the requests of all threads.
#[derive(Default)]
struct Outcomes {
    next_tag: AtomicU64,
    over: AtomicBool,
    /// Number of answers that each thread got.
    answered: [AtomicU64; THREADS],
    all: Mutex<Vec<(u64, Result<(), Error>)>>,
}

const THREADS: usize = 8;

/// Requests that a thread has in flight at a time.
const IN_FLIGHT: usize = 8;

impl Outcomes {
    fn tag(&self) -> u64 {
        self.next_tag.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends some requests, and notes an outcome of each.
    fn ask(&self, thread: usize, session: &mut Session) {
        let tags: [u64; IN_FLIGHT] = std::array::from_fn(|_| self.tag());
        let sent = tags.map(|tag| session.send(format!("{tag} echo")));
        for (tag, sent) in tags.into_iter().zip(sent) {
            let outcome = sent.and_then(Pending::wait).and_then(try_one).map(|text| {
                assert_eq!(text, tag.to_string(), "the answer of another");
                self.answered[thread].fetch_add(1, Ordering::Relaxed);
            });
            self.note(tag, outcome);
        }
    }

    fn note(&self, tag: u64, outcome: Result<(), Error>) {
        self.all.lock().expect("no panic").push((tag, outcome));
    }

    /// Asks until the test is over: in sessions that end with their server, or in those of the pool.
    fn keep_asking(&self, thread: usize, client: &Client, pool: &Pool<Sessions>) {
        let over = || self.over.load(Ordering::Relaxed);
        while !over() {
            if thread.is_multiple_of(2) {
                // No session means that no server listens at the moment.
                let Ok(mut session) = client.session() else { continue };
                while session.is_alive() && !over() {
                    self.ask(thread, &mut session);
                }
            } else {
                self.ask(thread, &mut pool.get(&()).expect("in time"));
            }
        }
    }

    /// Waits until each thread got answers to requests that it sent from now on.
    fn wait_for_answers_to_all(&self) {
        let seen = || self.answered.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = seen();
        let more = 2 * IN_FLIGHT as u64;
        eventually(LONG, || before.iter().zip(seen()).all(|(before, now)| now > before + more));
    }
}

#[test]
fn servers_are_replaced_on_their_address_and_each_request_has_one_outcome() {
    let mut node = Node::start(ADDRESS);
    let address = node.listener.local_addr().to_string();
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let reconnecting = options(&address)
        .session_timeout(LONG)
        .reconnect_min(Duration::from_millis(1))
        .reconnect_max(Duration::from_millis(10));
    let client = Client::new(&runtime.handle(), reconnecting).expect("good options");
    let limits = Limits::default()
        .max(THREADS / 4)
        .wait_timeout(LONG)
        .backoff(Duration::from_millis(1), Duration::from_millis(10));
    let pool = Pool::builder(Sessions(client.clone())).limits(limits).build().expect("good limits");
    let outcomes = Arc::new(Outcomes::default());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (outcomes, client, pool) = (Arc::clone(&outcomes), client.clone(), pool.clone());
            thread::spawn(move || outcomes.keep_asking(thread, &client, &pool))
        })
        .collect();
    let mut services = vec![Arc::clone(&node.service)];
    for _ in 0..often(8) {
        outcomes.wait_for_answers_to_all();
        // The last server has this request in progress until the next one listens.
        let mut session = client.session().expect("a session");
        let tag = outcomes.tag();
        let held = session.send(format!("{tag} held")).expect("sent");
        node.service.gate.wait_for(1);
        let Node { runtime: last, service, .. } = node;
        let drain = thread::spawn(move || last.drain(LONG));
        node = Node::start(&address);
        services.push(Arc::clone(&node.service));
        // The next server answers while the last one still drains.
        eventually(LONG, || node.service.total() > 0);
        outcomes.wait_for_answers_to_all();
        service.gate.open();
        assert_eq!(one(held.wait()), tag.to_string());
        outcomes.note(tag, Ok(()));
        assert_clean(&drain.join().expect("no panic"));
    }
    outcomes.over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let all = outcomes.all.lock().expect("no panic");
    assert_eq!(all.len() as u64, outcomes.tag(), "one outcome each");
    for (tag, outcome) in &*all {
        let executed: u32 = services.iter().map(|service| service.executed(*tag)).sum();
        match outcome {
            Ok(()) => assert_eq!(executed, 1, "{tag} was answered"),
            Err(error) if error.fate() == Fate::Unknown => {
                assert!(executed <= 1, "{tag} was executed {executed} times: {error}");
            }
            Err(error) => assert_eq!(executed, 0, "{tag}: {error}"),
        }
    }
    assert_clean(&node.runtime.drain(LONG));
}

#[test]
fn a_connection_whose_server_drains_is_leaving_also_if_no_caller_waits_for_another() {
    let Node { runtime: server, service, listener } = Node::start("127.0.0.1:0");
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let options = options(listener.local_addr().to_string()).connections(1);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    let mut sessions = [(); 2].map(|()| client.session().expect("a session"));
    assert_eq!(one(sessions[0].execute("1 echo")), "1");
    let held = sessions[1].send("2 held").expect("sent");
    service.gate.wait_for(1);
    let drain = thread::spawn(move || server.drain(LONG));
    eventually(LONG, || !sessions[0].is_alive());
    let phases: Vec<_> = client.status().connections.iter().map(|status| status.phase).collect();
    service.gate.open();
    assert_eq!(one(held.wait()), "2");
    assert_clean(&drain.join().expect("no panic"));
    assert_eq!(phases, [ConnectionPhase::Leaving]);
}
