//! Connections to other servers: bare ones, and those of the client library.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Client, Error, Session};
use epoll_group::net::{
    Address, Close, CloseReason, ConnectError, Connection, Input, Protocol, ToAddress,
};

use super::life::{ends, words};
use super::serving::Serving;
use super::{Outcome, Row};
use crate::shims::{Call, Effect, Fault, Side, builder, on_behalf};
use lab::both::{options, try_one};
use lab::engine::{Fixture, config as engine_config};
use lab::ports::{self, Name};
use lab::{Kind, LONG, config, eventually};

const fn fault(call: Call, errno: i32) -> Fault {
    Fault::new(Side::Client, call, Effect::Fails(errno))
}

/// Tells what happens.
struct Told(Mutex<Sender<String>>);

impl Told {
    fn tell(&self, what: impl Into<String>) {
        let _ = self.0.lock().expect("nobody panics here").send(what.into());
    }
}

impl Protocol for Told {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        self.tell("opened");
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let text = String::from_utf8_lossy(input.take_all()).into_owned();
        self.tell(format!("received {text}"));
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        self.tell(format!("closed: {reason}"));
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        self.tell(reason.to_string());
    }
}

struct Caller<'a> {
    runtime: &'a Runtime,
    server: &'a Serving,
    by_name: bool,
    /// Address that is tried before and refuses.
    before: Option<SocketAddr>,
}

impl Caller<'_> {
    fn connect(&self) -> (Result<Connection, String>, Receiver<String>, Option<i32>) {
        let (tell, told) = mpsc::channel();
        let to = match self.server.listener.local_addr() {
            Address::Tcp(at) if self.by_name => format!("localhost:{}", at.port()),
            at => at.to_string(),
        };
        let connect = || {
            let found = to.to_addresses().map_err(ConnectError::Address)?;
            let all = self.before.map(Address::from).into_iter().chain(found);
            self.runtime.connect(Name::of(all), Told(Mutex::new(tell)))
        };
        match on_behalf(Side::Client, connect) {
            Ok(conn) => (Ok(conn), told, None),
            Err(error) => {
                let source = std::error::Error::source(&error);
                let source = source.and_then(|source| source.downcast_ref::<io::Error>());
                let errno = source.and_then(io::Error::raw_os_error);
                (Err(error.to_string()), told, errno)
            }
        }
    }

    /// Makes a connection that works from beginning to end.
    fn works(&self) {
        let (conn, told, _) = self.connect();
        let conn = conn.expect("begun");
        conn.send(b"question");
        let next = || told.recv_timeout(LONG).expect("something happens");
        assert_eq!((next().as_str(), next().as_str()), ("opened", "received question"));
        conn.close("done");
        assert_eq!(next(), "closed: done");
    }
}

pub(super) fn connect(row: &Row) {
    let kind = if row.call == Call::Recvmsg { Kind::Unix } else { Kind::Tcp };
    let server = Serving::start(kind, config());
    let runtime = builder(Side::Client, config()).start().expect("a runtime");
    let by_name = row.call == Call::Getaddrinfo;
    let (_port, refuses) = ports::refusing();
    let before = (row.call == Call::Dup3).then_some(refuses);
    let caller = Caller { runtime: &runtime, server: &server, by_name, before };
    row.each(|errno, outcome| {
        let times = if outcome == Outcome::Unseen { 3 } else { 1 };
        let fault = fault(row.call, errno).times(times).arm();
        let (conn, told, seen) = caller.connect();
        let next = || told.recv_timeout(LONG).expect("something happens");
        match (outcome, conn) {
            (Outcome::Fails(begins), Err(text)) => {
                assert!(text.starts_with(begins) && text.ends_with(&words(errno)), "{text}");
                assert_eq!(seen, Some(errno));
                assert!(told.recv_timeout(LONG).is_err(), "told once, by the error");
            }
            (Outcome::Fails(begins), Ok(conn)) => {
                let told_so = next();
                drop(conn);
                let says = told_so.starts_with(begins) && told_so.ends_with(&words(errno));
                assert!(says, "{told_so}");
                assert!(told.recv_timeout(LONG).is_err(), "told once");
            }
            (Outcome::Ends, Ok(conn)) => {
                assert_eq!(next(), "opened");
                on_behalf(Side::Client, || conn.send(b"question"));
                let last = next();
                assert!(last.starts_with("closed: ") && last.contains(&words(errno)), "{last}");
            }
            (Outcome::Unseen, Ok(conn)) => {
                on_behalf(Side::Client, || conn.send(b"question"));
                assert_eq!((next().as_str(), next().as_str()), ("opened", "received question"));
                conn.close("done");
                assert_eq!(next(), "closed: done");
            }
            (outcome, conn) => panic!("{:?} {errno}: {outcome:?}, {conn:?}", row.call),
        }
        assert!(fault.hits() > 0, "{:?} is called", row.call);
        server.bystanders.go_on();
        caller.works();
    });
    eventually(LONG, || runtime.stats().connections == 0);
    ends(runtime);
    server.end();
}

/// A client on a runtime of its own.
struct Library {
    client: Client,
    runtime: Runtime,
}

impl Library {
    fn start(server: &Fixture) -> Self {
        let runtime = builder(Side::Client, config()).start().expect("a runtime");
        let options = options(server.addr())
            .reconnect_min(Duration::from_millis(1))
            .reconnect_max(Duration::from_millis(5));
        let client = Client::new(&runtime.handle(), options).expect("good options");
        Self { client, runtime }
    }

    fn session(&self) -> Result<Session, Error> {
        on_behalf(Side::Client, || self.client.session())
    }

    fn ends(self) {
        drop(self.client);
        ends(self.runtime);
    }
}

fn asks(session: &mut Session) -> Result<(), Error> {
    let answer = on_behalf(Side::Client, || session.execute("echo hello"))?;
    assert_eq!(try_one(answer)?, "hello");
    Ok(())
}

pub(super) fn client(row: &Row) {
    let server = Fixture::start(engine_config());
    let other = Library::start(&server);
    let mut bystander = other.client.session().expect("a session");
    row.each(|errno, outcome| {
        let library = Library::start(&server);
        let times = if outcome == Outcome::Unseen { 3 } else { 1 };
        match outcome {
            Outcome::Fails(_) => {
                let fault = fault(row.call, errno).arm();
                let error = library.session().map(drop).expect_err("not connected");
                let text = error.to_string();
                assert!(text.starts_with("no connection: "), "{text}");
                assert_eq!(fault.hits(), 1);
            }
            _ => {
                let mut session = library.session().expect("a session");
                asks(&mut session).expect("an answer");
                let fault = fault(row.call, errno).times(times).arm();
                let answer = asks(&mut session);
                if outcome == Outcome::Unseen {
                    answer.expect("an answer");
                } else {
                    let text = answer.expect_err("lost").to_string();
                    assert!(text.starts_with("the connection ended: "), "{text}");
                }
                assert_eq!(fault.hits(), times, "{errno}");
            }
        }
        asks(&mut bystander).expect("an answer");
        asks(&mut library.session().expect("connected again")).expect("an answer");
        library.ends();
    });
    drop(bystander);
    other.ends();
    drop(server);
}
