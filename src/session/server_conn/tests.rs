use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::codec::encoder::Metadata;
use crate::codec::frame::Dialect;
use crate::codec::message::ClientMessage;
use crate::codec::proto::sql::StmtExecute;
use crate::codec::row::Column;
use crate::config::Config;
use crate::net::{Address, Deaf, FULL, Served};
use crate::runtime::Simulated;
use crate::runtime::source::Source;
use crate::session::mailbox::{Queued, SessionCommand};
use crate::session::run::{ServedConn, Session};
use crate::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Row, Server, Service,
};
use crate::stats::Counter;

struct Nothing;

impl Service for Nothing {
    type Session = ();

    fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
        Ok(Account::new("anybody"))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(&self, (): &mut (), _: Request<'_>, _: &mut Reply<'_>) -> Result<(), SessionError> {
        Ok(())
    }
}

/// A service that runs the same code for each request. Its sessions are their wire ids.
struct Calling<F> {
    code: F,
    /// Number of sessions that were closed.
    closed: AtomicUsize,
}

impl<F> Calling<F>
where
    F: Fn(u64, &mut Reply<'_>) -> Result<(), SessionError> + Send + Sync + 'static,
{
    fn new(code: F) -> Self {
        Self { code, closed: AtomicUsize::new(0) }
    }
}

impl<F> Service for Calling<F>
where
    F: Fn(u64, &mut Reply<'_>) -> Result<(), SessionError> + Send + Sync + 'static,
{
    type Session = u64;

    fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
        Ok(Account::new("anybody"))
    }

    fn open(&self, _: &Peer, id: SessionId) -> Result<(u64, Cancel), SessionError> {
        Ok((id.wire, Cancel::default()))
    }

    fn execute(
        &self,
        session: &mut u64,
        _: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        (self.code)(*session, reply)
    }

    fn closed(&self, _: u64) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Socket of the peer. When it is dropped, the sessions end, as they do when a connection is closed.
/// Otherwise they and their connection would keep each other alive.
struct PeerSocket {
    socket: UnixStream,
    server_conn: Arc<ServerConn>,
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        self.server_conn.end();
    }
}

/// A connection of a simulated runtime, and its peer.
fn connect(runtime: &Simulated) -> (Arc<ServerConn>, PeerSocket) {
    let (ours, theirs) = UnixStream::pair().expect("descriptors");
    ours.set_nonblocking(true).expect("a socket");
    theirs.set_nonblocking(true).expect("a socket");
    let peer = Address::Unix("".into());
    let conn = Served::new(Deaf).accept(runtime.group(), ours.into(), peer);
    let conn = conn.expect("there is room");
    let server = Arc::clone(Server::new(Nothing).of(&conn));
    let peer = Peer {
        account: Account::new("anybody"),
        address: conn.peer_addr().clone(),
        connection: conn.id(),
    };
    let account = server.accounts.of(peer.account.name(), clock::now());
    let server_conn = ServerConn::new(ConnShared::new(conn, Dialect::default(), server));
    server_conn.conn.log_in(peer, account);
    while runtime.take_task(false) {
        runtime.run(0, None);
    }
    let server_conn = Arc::new(server_conn);
    (Arc::clone(&server_conn), PeerSocket { socket: theirs, server_conn })
}

/// Opens a session with this number of requests.
fn open(server_conn: &Arc<ServerConn>, id: u64, requests: usize) -> Arc<dyn AnySession> {
    open_of(server_conn, &Arc::new(Nothing), id, requests)
}

fn open_of<S: Service>(
    server_conn: &Arc<ServerConn>,
    service: &Arc<S>,
    id: u64,
    requests: usize,
) -> Arc<dyn AnySession> {
    let (server_conn, service) = (Arc::clone(server_conn), Arc::clone(service));
    let served = Arc::new(ServedConn { server_conn, service });
    let new = |id, place| Session::new(id, &served, place) as Arc<dyn AnySession>;
    let session = served.server_conn.open(id, new).expect("there is room");
    for _ in 0..requests {
        let statement = StmtExecute { stmt: Some(Vec::new()), ..StmtExecute::default() };
        let command = SessionCommand::Sql(Box::new(statement));
        session.shared().queue(Queued::new(command, 0, clock::now())).expect("room");
    }
    session
}

fn timers_set(runtime: &Simulated) -> u64 {
    runtime.handle().stats().get(Counter::TimersSet)
}

#[test]
fn a_connection_that_has_ended_starts_no_timer() {
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let start = |cancellable| {
        let before = timers_set(&runtime);
        server_conn.later(Class::Login, Duration::from_secs(1), cancellable, |_| {});
        timers_set(&runtime) - before
    };
    let both = [Cancellable::Yes, Cancellable::No];
    assert_eq!(both.map(start), [1, 1]);
    runtime.end_draining(true);
    while runtime.take_task(false) {
        runtime.run(0, None);
    }
    assert!(server_conn.conn.net.is_closed());
    server_conn.end();
    assert_eq!(both.map(start), [0, 0]);
}

#[test]
fn without_a_request_timeout_no_timer_is_set_and_no_request_is_late() {
    let config = Config::default().request_timeout(Duration::ZERO);
    let runtime = Simulated::new(config).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let session = open(&server_conn, 2, 1);
    let before = timers_set(&runtime);
    server_conn.watch();
    assert_eq!(timers_set(&runtime), before);
    // The timeout may be switched off while a timer runs.
    assert_eq!(server_conn.cancel_late(), None);
    assert!(session.shared().next().expect("it is queued").cancelled.is_none());
}

#[test]
fn work_left_to_others_is_urgent_if_a_part_of_it_is() {
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let class = || RemainingWork { server_conn: Arc::clone(&server_conn), held: None }.class();
    let mut classes = Vec::new();
    for (id, session_class) in [(2, Class::Ordinary), (3, Class::InProgress)] {
        let session = open(&server_conn, id, 0);
        session.shared().set_class(session_class);
        server_conn.make_ready(session);
        classes.push(class());
    }
    assert_eq!(classes, [Class::Ordinary, Class::InProgress]);
}

#[test]
fn the_cost_of_work_left_to_others_is_measured() {
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let rest = RemainingWork { server_conn: Arc::clone(&server_conn), held: None };
    runtime.group().push_work(Arc::new(rest));
    assert_eq!(server_conn.turn_cost.nanos(), None);
    assert!(runtime.take_task(false));
    runtime.run(0, None);
    assert!(server_conn.turn_cost.nanos().is_some());
}

#[test]
fn work_that_others_have_taken_is_shown_again() {
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let queued = Output::with(&server_conn.conn, |out| {
        // Other workers have the work of this thread at once, as it is no worker.
        [(); 2].map(|()| {
            server_conn.show(out);
            runtime.queued()
        })
    });
    assert_eq!(queued, [1, 2]);
}

#[test]
fn work_is_shown_to_others_only_if_a_reply_is_held_back() {
    clock::simulate(Some(clock::now()));
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let queued = [1, 2].map(|requests| {
        // The first reply of several is held back.
        let session = open(&server_conn, 1 + requests, requests as usize);
        assert!(session.becomes_runnable());
        Output::with(&server_conn.conn, |out| session.run_here(out, clock::now()));
        let queued = runtime.queued();
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        queued
    });
    clock::simulate(None);
    assert_eq!(queued, [0, 1]);
}

#[test]
fn short_rows_share_one_look_at_the_clock() {
    clock::simulate(Some(clock::now()));
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let looks = Rc::new(Cell::new(0));
    let count = Rc::clone(&looks);
    Output::with(&server_conn.conn, |out| {
        out.begin(None);
        clock::at_each_look(move || count.set(count.get() + 1));
        for _ in 0..10 {
            out.write(0, Metadata::Full, |encoder| encoder.ok(None));
            out.row_written();
        }
        clock::at_each_look(|| ());
    });
    clock::simulate(None);
    assert_eq!(looks.get(), 1);
}

#[test]
fn quick_sessions_of_one_receive_run_in_one_turn() {
    clock::simulate(Some(clock::now()));
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    for id in 2..5 {
        let session = open(&server_conn, id, 1);
        session.cost().add(1_000);
        assert!(session.becomes_runnable());
        server_conn.make_ready(session);
    }
    server_conn.dispatch(clock::now(), true);
    clock::simulate(None);
    assert!(server_conn.next_ready().is_none());
    let stats = runtime.handle().stats();
    assert_eq!(stats.get(Counter::SessionRunsInline), 3);
    assert_eq!(stats.get(Counter::SessionRunsQueued), 0);
}

#[test]
fn sessions_of_a_connection_that_brings_much_run_behind_others() {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let also_ran = Arc::clone(&ran);
    let service = Arc::new(Calling::new(move |session, _: &mut Reply<'_>| {
        lock(&also_ran).push(session);
        Ok(())
    }));
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let conns = [(); 2].map(|()| connect(&runtime));
    // An estimate grows by a factor of four at most.
    (0..8).for_each(|_| conns[0].0.conn.net.cost().add(1_000_000));
    for ((server_conn, _), id) in conns.iter().zip(2..) {
        let session = open_of(server_conn, &service, id, 1);
        session.cost().add(1_000_000);
        assert!(session.becomes_runnable());
        server_conn.make_ready(session);
        server_conn.dispatch(clock::now(), true);
    }
    while runtime.take_task(false) {
        runtime.run(0, None);
    }
    assert_eq!(*lock(&ran), [3, 2]);
    let stats = runtime.handle().stats();
    assert_eq!(stats.get(Counter::SessionRunsInline), 0);
    assert_eq!(stats.get(Counter::SessionRunsQueued), 2);
}

#[test]
fn a_session_whose_deferred_request_was_answered_by_its_handler_is_not_queued() {
    // A turn that takes long would be queued.
    clock::simulate(Some(clock::now()));
    let service = Calling::new(|_, reply: &mut Reply<'_>| {
        reply.defer().finish(|_| Ok(()));
        Ok(())
    });
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let session = open_of(&server_conn, &Arc::new(service), 2, 1);
    assert!(session.becomes_runnable());
    Output::with(&server_conn.conn, |out| session.run_here(out, clock::now()));
    clock::simulate(None);
    assert!(!runtime.take_task(false), "it is queued for its own mark");
    assert_eq!(runtime.handle().stats().get(Counter::RequestsExecuted), 1);
}

#[test]
fn the_reply_of_a_request_that_is_not_quick_leaves_before_the_next_request_runs() {
    clock::simulate(Some(clock::now()));
    let (received, theirs) = (Arc::new(Mutex::new(Vec::new())), Arc::new(OnceLock::new()));
    let (also_received, also_theirs) = (Arc::clone(&received), Arc::clone(&theirs));
    let service = Calling::new(move |_, _: &mut Reply<'_>| {
        let theirs: &UnixStream = also_theirs.get().expect("it is set");
        lock(&also_received).push((&mut &*theirs).read(&mut [0; 1024]).is_ok());
        clock::simulate(Some(clock::now() + Duration::from_micros(50)));
        Ok(())
    });
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, peer) = connect(&runtime);
    theirs.set(peer.socket.try_clone().expect("a descriptor")).expect("once");
    let session = open_of(&server_conn, &Arc::new(service), 2, 2);
    assert!(session.becomes_runnable());
    Output::with(&server_conn.conn, |out| session.run_here(out, clock::now()));
    clock::simulate(None);
    assert_eq!(*lock(&received), [false, true]);
}

/// Found by review: the rows waited for the sessions behind, while the handler computed on.
#[test]
fn rows_that_a_handler_flushes_leave_although_other_sessions_run_behind_it() {
    clock::simulate(Some(clock::now()));
    let (received, theirs) = (Arc::new(Mutex::new(Vec::new())), Arc::new(OnceLock::new()));
    let (also_received, also_theirs) = (Arc::clone(&received), Arc::clone(&theirs));
    let service = Arc::new(Calling::new(move |_, reply: &mut Reply<'_>| {
        let theirs: &UnixStream = also_theirs.get().expect("it is set");
        let read = || (&mut &*theirs).read(&mut [0; 1024]).is_ok();
        reply.columns(&[Column::signed("n")])?;
        reply.row(|row| row.int(1))?;
        let before = read();
        reply.flush();
        lock(&also_received).push((before, read()));
        Ok(())
    }));
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, peer) = connect(&runtime);
    theirs.set(peer.socket.try_clone().expect("a descriptor")).expect("once");
    for id in 2..4 {
        let session = open_of(&server_conn, &service, id, 1);
        session.cost().add(1_000);
        assert!(session.becomes_runnable());
        server_conn.make_ready(session);
    }
    server_conn.dispatch(clock::now(), true);
    clock::simulate(None);
    assert_eq!(*lock(&received), [(false, true); 2]);
}

struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("a source that cannot be dropped");
    }
}

#[test]
fn the_service_learns_of_the_end_of_a_session_whose_source_cannot_be_dropped() {
    let service = Calling::new(|_, reply: &mut Reply<'_>| {
        reply.columns(&[Column::signed("n")])?;
        let fragile = Fragile;
        reply.source(move |row: &mut Row<'_>| {
            let _ = &fragile;
            row.int(1);
            Ok(true)
        });
        Ok(())
    });
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let service = Arc::new(service);
    let session = open_of(&server_conn, &service, 2, 1);
    assert!(session.becomes_runnable());
    Output::with(&server_conn.conn, |out| Arc::clone(&session).run_here(out, clock::now()));
    session.shared().kill(CancelReason::Session);
    session.shared().wake();
    while runtime.take_task(false) {
        runtime.run(0, None);
    }
    assert_eq!(service.closed.load(Ordering::Relaxed), 1);
}

/// Otherwise a peer could make the server collect the answers to a whole receive.
#[test]
fn answers_of_the_reader_leave_when_they_are_many() {
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (ours, mut theirs) = UnixStream::pair().expect("descriptors");
    ours.set_nonblocking(true).expect("a socket");
    let conn = Served::new(Server::new(Nothing)).accept(
        runtime.group(),
        ours.into(),
        Address::Unix("".into()),
    );
    conn.expect("there is room");
    let mut probes = Vec::new();
    for _ in 0..1000 {
        let probe = ClientMessage::CapabilitiesGet;
        probe.encode(Dialect::default(), 0, &mut probes).expect("it is small");
    }
    theirs.write_all(&probes).expect("the socket has room");
    let mut answers = vec![0; 1 << 20];
    runtime.take_events();
    while runtime.take_task(false) || runtime.in_hands() > 0 {
        runtime.run(0, None);
    }
    let bytes = theirs.read(&mut answers).expect("answers");
    let count = |counter| runtime.handle().stats().get(counter);
    assert_eq!(count(Counter::Receives), 1);
    assert_eq!(count(Counter::SendCalls), (bytes / FULL) as u64 + 1);
}

/// Found by review: the timer of the login, begun anew while the login succeeded, took the place of the
/// timer that looks at deadlines.
#[test]
fn a_login_that_has_succeeded_has_no_timer() {
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let before = timers_set(&runtime);
    let until = Cancellable::UntilLogin;
    server_conn.later(Class::Login, Duration::from_secs(1), until, |_| {});
    assert_eq!(timers_set(&runtime), before);
}

#[test]
fn what_is_asked_besides_sessions_ends_after_half_close_timeout_too() {
    let runtime = Simulated::new(Config::default()).expect("descriptors");
    let (server_conn, _peer) = connect(&runtime);
    let before = timers_set(&runtime);
    server_conn.end_later(false);
    assert_eq!(timers_set(&runtime), before, "nothing is under way");
    server_conn.end_later(true);
    assert_eq!(timers_set(&runtime), before + 1);
    assert!(!server_conn.conn.has_ended());
    server_conn.end();
    assert!(server_conn.conn.has_ended());
}
