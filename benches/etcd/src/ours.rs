//! `txn_kv serve` and its clients.

use std::error::Error;
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use epoll_group::client::{Answer, Request};
use lab::drive::{self, Access, Asker, Driver, Failure, Summary, Until};
use tokio::task::block_in_place;
use tokio::time::sleep;
use txn_kv::client::{Kv, KvError, Reply};
use txn_kv::statement::Encoded;
use txn_kv::{KeyRange, Txn};

use crate::load::{Ask, Chain, Op, PATIENCE, key_bytes, value};
use crate::measure::Target;
use crate::server::{Server, free_port};

/// `txn_kv` on disk, with clients that share its connections.
pub(crate) struct TxnKv {
    driver: Driver,
    /// Client of the requests beside a load, whose sessions may fill all connections of `driver`.
    beside: Driver,
    /// Number of clients for which the driver was made.
    clients: usize,
    connections: usize,
    address: drive::Target,
    server: Server,
}

const USER: &str = "compare";
const PASSWORD: &str = "compare";
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

impl TxnKv {
    /// Starts the server and waits until it listens.
    pub(crate) async fn start(
        program: &Path,
        parent: &Path,
        connections: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut server = Server::start(program, parent, |data| {
            let options =
                ["--listen", &address, "--user", USER, "--password", PASSWORD, "--dir", data];
            ["serve"].into_iter().chain(options).map(str::to_owned).collect()
        })?;
        let end = Instant::now() + PATIENCE;
        while let Err(error) = TcpStream::connect(&address) {
            server.check()?;
            if Instant::now() > end {
                return Err(format!("{address}: {error}: {}", server.log()).into());
            }
            sleep(BETWEEN_LOOKS).await;
        }
        let (user, password) = (USER.to_owned(), PASSWORD.to_owned());
        let address = drive::Target { address, user, password };
        let driver = Driver::new(&address, connections, connections, PATIENCE)?;
        let beside = Driver::new(&address, 1, 1, PATIENCE)?;
        Ok(Self { driver, beside, clients: connections, connections, address, server })
    }

    /// Opens a session for a request beside the load.
    fn any(&self) -> Result<Kv, Box<dyn Error>> {
        Ok(Kv::new(self.beside.client().session()?))
    }
}

impl Target for TxnKv {
    fn pid(&self) -> u32 {
        self.server.pid()
    }

    async fn prepare(&mut self, clients: usize) -> Result<(), Box<dyn Error>> {
        self.server.check()?;
        if clients != self.clients {
            self.driver = Driver::new(&self.address, clients, self.connections, PATIENCE)?;
            self.clients = clients;
        }
        Ok(())
    }

    async fn run(
        &mut self,
        chains: Vec<Chain>,
        until: Until,
    ) -> Result<(Summary, Vec<Chain>), Box<dyn Error>> {
        block_in_place(|| self.driver.run(chains, until, |_| ()))
    }

    async fn fill(&mut self, keys: Range<u64>, stamp: u64) -> Result<(), Box<dyn Error>> {
        let then = keys.map(|key| put(key, stamp)).collect();
        self.any()?.txn(&Txn { then, ..Txn::default() })?;
        Ok(())
    }

    async fn filled(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    async fn read(&mut self, key: u64) -> Result<Option<(Vec<u8>, u64)>, Box<dyn Error>> {
        let entry = self.any()?.get(&key_bytes(key))?;
        let value = |record: &txn_kv::Record| record.value.as_ref().map(|value| value.to_vec());
        Ok(entry.and_then(|entry| Some((value(&entry.record)?, entry.revision.main))))
    }

    async fn flushes(&mut self) -> Result<u64, Box<dyn Error>> {
        let status = self.any()?.status()?;
        let line = status.iter().find(|(name, _)| name == "flushes");
        Ok(line.ok_or("no flushes in the status of txn_kv")?.1.parse()?)
    }
}

impl Asker for Chain {
    type Question = Ask;

    fn next(&mut self, _: u64) -> Option<(Ask, Request)> {
        let ask = self.ask();
        let encoded = match &ask {
            Ask::Put { key, stamp } if self.load.op == Op::PlainPut => {
                Encoded::put(&key_bytes(*key), &value(*key, *stamp))
            }
            Ask::Put { key, stamp } => {
                Encoded::txn(&Txn { then: vec![put(*key, *stamp)], ..Txn::default() })
            }
            Ask::Read(keys) => {
                let (from, to) = (key_bytes(keys.start).into(), key_bytes(keys.end).into());
                let range = match self.load.op {
                    Op::Range => KeyRange::Span(from, Some(to)),
                    _ => KeyRange::One(from),
                };
                Encoded::read(&range, usize::MAX, None)
            }
        };
        Some((ask, Request::from(encoded).compact()))
    }

    fn check(&mut self, ask: Ask, answer: Answer) -> Result<Access, Failure> {
        let failed = |error: KvError| Failure::Error(error.to_string());
        let reply = Reply::of(answer).map_err(failed)?;
        match &ask {
            Ask::Put { .. } => self.wrote(&ask, reply.put().map_err(failed)?),
            Ask::Read(_) => {
                let found = reply.read().map_err(failed)?;
                let records = found.entries.iter().map(|entry| &entry.record);
                self.found(
                    &ask,
                    records
                        .map(|record| (&*record.key, record.value.as_deref().unwrap_or_default())),
                )
            }
        }
    }
}

fn put(key: u64, stamp: u64) -> txn_kv::Op {
    txn_kv::Op::Put { key: key_bytes(key).into(), value: value(key, stamp).into() }
}
