//! Tests of a whole server over a socket, from the proof to the error.

use std::collections::HashMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerKind, ServerMessage};
use epoll_group::codec::proto::session::{AuthenticateContinue, AuthenticateStart};
use epoll_group::net::{Address, Listener};
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Server, Service, SessionError,
    SessionId,
};
use epoll_group::{Config, Runtime};
use socket2::{Domain, Socket, Type};

use crate::claims::{KNOWN, Kind, PASSWORD, UNKNOWN};
use crate::welch::{self, Verdict};
use crate::{Expects, Line};

/// Finding a name in a table takes another time than not finding it. So the table may hold unknown users, too.
struct Gate {
    accounts: HashMap<Vec<u8>, Option<StoredPassword>>,
}

impl Service for Gate {
    type Session = ();

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check(self.accounts.get(login.user).and_then(Option::as_ref))?;
        Ok(Account::new(KNOWN))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(&self, (): &mut (), _: Request<'_>, _: &mut Reply<'_>) -> Result<(), SessionError> {
        Ok(())
    }
}

/// Logins that may fail on one connection, and from one address in a minute.
const TRIES_PER_CONNECTION: usize = 1000;

pub(crate) fn lines(tries: usize) -> Result<Vec<Line>, Box<dyn Error>> {
    let config = Config::default()
        .epoll_groups(1)
        .login_failure_delay(Duration::ZERO)
        .login_timeout(Duration::from_secs(600))
        .max_login_attempts(TRIES_PER_CONNECTION)
        .max_login_failures_per_address(65_536);
    let runtime = Runtime::builder().config(config).start()?;
    let known = (KNOWN.as_bytes().to_vec(), Some(StoredPassword::of(PASSWORD)));
    let unknown = (UNKNOWN.as_bytes().to_vec(), None);
    let listen = |accounts| runtime.listen("127.0.0.1:0", Server::new(Gate { accounts }));
    let even = listen(HashMap::from([known.clone(), unknown]))?;
    let uneven = listen(HashMap::from([known]))?;
    let tests = [
        (&even, Kind::Unknown, Kind::Unknown.name(), Kind::Wrong, Expects::Nothing),
        (&even, Kind::Right(0), Kind::Right(0).name(), Kind::Right(10), Expects::Nothing),
        (&even, Kind::ShortUnknown, Kind::ShortUnknown.name(), Kind::Short, Expects::Nothing),
        (&even, Kind::Wrong, Kind::Wrong.name(), Kind::Wrong, Expects::Nothing),
        (&uneven, Kind::Unknown, "unknown user, not in the table", Kind::Wrong, Expects::Whatever),
    ];
    let mut host = 1;
    let line = |(listener, kind, one, other, expects): (&Listener, Kind, _, Kind, _)| {
        let Address::Tcp(address) = *listener.local_addr() else { return Err("not TCP".into()) };
        let verdict = test(address, tries, [kind, other], &mut host)?;
        Ok(Line { place: "socket", one, other: other.name(), expects, verdict })
    };
    tests.into_iter().map(line).collect()
}

fn test(
    address: SocketAddr,
    tries: usize,
    kinds: [Kind; 2],
    host: &mut u16,
) -> Result<Verdict, Box<dyn Error>> {
    let mut random = fastrand::Rng::with_seed(0x0fed_cba9_8765_4321);
    let mut times = Vec::with_capacity(tries);
    while times.len() < tries {
        *host += 1;
        let mut line = Guesser::connect(address, *host)?;
        for _ in 0..TRIES_PER_CONNECTION.min(tries - times.len()) {
            let kind = random.u8(..2);
            let took = line.fail(kinds[usize::from(kind)])?;
            times.push((u32::try_from(took.as_nanos()).unwrap_or(u32::MAX), kind));
        }
    }
    Ok(welch::compare(&times))
}

/// A connection whose logins fail.
struct Guesser {
    socket: TcpStream,
    decoder: Decoder,
    out: Vec<u8>,
}

impl Guesser {
    /// Connects from an address of its own, so that the limit for an address does not apply.
    fn connect(address: SocketAddr, host: u16) -> Result<Self, Box<dyn Error>> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let [high, low] = host.to_be_bytes();
        socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 77, high, low), 0)).into())?;
        socket.connect(&address.into())?;
        socket.set_tcp_nodelay(true)?;
        let decoder = Decoder::new(Limits::default());
        Ok(Self { socket: socket.into(), decoder, out: Vec::new() })
    }

    /// Time from the proof to the error.
    fn fail(&mut self, kind: Kind) -> Result<Duration, Box<dyn Error>> {
        let mech_name = b"MYSQL41".to_vec();
        let start = AuthenticateStart { mech_name, ..AuthenticateStart::default() };
        self.send(&ClientMessage::AuthenticateStart(start))?;
        let ServerMessage::AuthenticateContinue(challenge) = self.receive()? else {
            return Err("no challenge".into());
        };
        let auth_data = kind.answer(&challenge.auth_data);
        let answer = ClientMessage::AuthenticateContinue(AuthenticateContinue { auth_data });
        let began = Instant::now();
        self.send(&answer)?;
        let reply = self.receive()?;
        let took = began.elapsed();
        let ServerMessage::Error(error) = reply else { return Err("let in".into()) };
        if error.code != DENIED {
            return Err(format!("refused with {}", error.code).into());
        }
        Ok(took)
    }

    fn send(&mut self, message: &ClientMessage) -> Result<(), Box<dyn Error>> {
        self.out.clear();
        message.encode(Dialect::Legacy, 0, &mut self.out)?;
        Ok(self.socket.write_all(&self.out)?)
    }

    fn receive(&mut self) -> Result<ServerMessage, Box<dyn Error>> {
        let mut piece = [0; 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                if frame.kind() != ServerKind::Notice.number() {
                    return Ok(frame.server_message(&Limits::default())?);
                }
                continue;
            }
            let count = self.socket.read(&mut piece)?;
            if count == 0 {
                return Err("the server closed the connection".into());
            }
            self.decoder.feed(&piece[..count]);
        }
    }
}

/// Code of the error of a login that fails.
const DENIED: u32 = 1045;
