//! A single-node etcd and its clients.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, GetOptions, KvClient, ResponseHeader, Txn, TxnOp};
use lab::drive::{Access, Failure, Summary, Tally, Until};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::load::{Ask, Chain, Op, PATIENCE, key_bytes, value};
use crate::measure::Target;
use crate::server::{Server, free_port};

/// etcd, with HTTP/2 connections over which the clients are spread.
pub(crate) struct Etcd {
    server: Server,
    port: u16,
    connections: Vec<Client>,
}

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Quota of the store, beyond which etcd refuses writes; more than one run writes.
const QUOTA_BYTES: u64 = 8 << 30;
const FLUSHES: &str = "etcd_disk_wal_fsync_duration_seconds_count ";

impl Etcd {
    /// Starts etcd with defaults, but for addresses, quota and logs, and waits until it has a leader.
    pub(crate) async fn start(
        program: &Path,
        parent: &Path,
        connections: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let (port, peers) = (free_port()?, free_port()?);
        let (address, peers) =
            (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let server = Server::start(program, parent, |data| {
            let options = [
                ("name", "one"),
                ("data-dir", data),
                ("listen-client-urls", &address),
                ("advertise-client-urls", &address),
                ("listen-peer-urls", &peers),
                ("initial-advertise-peer-urls", &peers),
                ("initial-cluster", &format!("one={peers}")),
                ("quota-backend-bytes", &QUOTA_BYTES.to_string()),
                ("logger", "zap"),
                ("log-outputs", "stderr"),
                ("log-level", "error"),
            ];
            options.map(|(name, value)| format!("--{name}={value}")).into()
        })?;
        let mut etcd = Self { server, port, connections: Vec::new() };
        for _ in 0..connections {
            let options = ConnectOptions::new().with_timeout(PATIENCE);
            etcd.connections.push(Client::connect([&address], Some(options)).await?);
        }
        etcd.wait_for_leader().await?;
        Ok(etcd)
    }

    async fn wait_for_leader(&mut self) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.server.check()?;
            match self.connections[0].status().await {
                Ok(status) if status.leader() != 0 => return Ok(()),
                _ if Instant::now() < end => sleep(BETWEEN_LOOKS).await,
                Ok(_) => return Err(format!("etcd has no leader: {}", self.server.log()).into()),
                Err(error) => return Err(format!("{error}: {}", self.server.log()).into()),
            }
        }
    }

    fn any(&self) -> KvClient {
        self.connections[0].kv_client()
    }
}

impl Target for Etcd {
    fn pid(&self) -> u32 {
        self.server.pid()
    }

    async fn prepare(&mut self, _clients: usize) -> Result<(), Box<dyn Error>> {
        self.server.check()
    }

    async fn run(
        &mut self,
        chains: Vec<Chain>,
        until: Until,
    ) -> Result<(Summary, Vec<Chain>), Box<dyn Error>> {
        let (begun, tally) = (Instant::now(), Arc::new(Mutex::new(Tally::default())));
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for (place, mut chain) in chains.into_iter().enumerate() {
            let mut client = self.connections[place % self.connections.len()].kv_client();
            let (tally, next) = (Arc::clone(&tally), Arc::clone(&next));
            tasks.spawn(async move {
                let mut asked = false;
                loop {
                    let is_over = match until {
                        Until::Time(length) => asked && begun.elapsed() >= length,
                        Until::Requests(all) => next.fetch_add(1, Ordering::Relaxed) >= all,
                    };
                    if is_over {
                        return chain;
                    }
                    asked = true;
                    let sent = Instant::now();
                    let done = answer(&mut client, &mut chain).await;
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    match done {
                        Ok(access) => tally.answered(access, sent),
                        Err(failure) => {
                            let ends = matches!(failure, Failure::Error(_));
                            tally.failed(failure);
                            if ends {
                                return chain;
                            }
                        }
                    }
                }
            });
        }
        let chains = tasks.join_all().await;
        let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
        let time = tally.last.map_or(Duration::ZERO, |last| last.duration_since(begun));
        Ok((Summary::new(tally, time), chains))
    }

    async fn fill(&mut self, keys: Range<u64>, stamp: u64) -> Result<(), Box<dyn Error>> {
        let puts: Vec<_> = keys.map(|key| put(key, stamp)).collect();
        self.any().txn(Txn::new().and_then(puts)).await?;
        Ok(())
    }

    /// Compacts. Each read copies a buffer, as large as the most writes between two commits of the
    /// tables. A commit without writes shrinks it, and a compaction makes such a commit.
    async fn filled(&mut self) -> Result<(), Box<dyn Error>> {
        let header = self.any().get(key_bytes(0), None).await?.take_header();
        let revision = header.ok_or("an answer without a header")?.revision();
        self.any().compact(revision, None).await?;
        Ok(())
    }

    async fn read(&mut self, key: u64) -> Result<Option<(Vec<u8>, u64)>, Box<dyn Error>> {
        let answer = self.any().get(key_bytes(key), None).await?;
        let found = answer.kvs().first();
        Ok(found.map(|found| (found.value().into(), found.mod_revision().cast_unsigned())))
    }

    /// Reads the syncs of the log from the metrics.
    async fn flushes(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let count = text.lines().find_map(|line| line.strip_prefix(FLUSHES));
        Ok(count.ok_or("no flushes in the metrics of etcd")?.trim().parse()?)
    }
}

/// Makes one request.
async fn answer(client: &mut KvClient, chain: &mut Chain) -> Result<Access, Failure> {
    let failed = |error: etcd_client::Error| Failure::Error(error.to_string());
    let ask = chain.ask();
    let revision = match &ask {
        Ask::Put { key, stamp } if chain.load.op == Op::PlainPut => {
            let answer = client.put(key_bytes(*key), value(*key, *stamp), None).await;
            revision(answer.map_err(failed)?.header())
        }
        Ask::Put { key, stamp } => {
            let answer = client.txn(Txn::new().and_then([put(*key, *stamp)])).await;
            revision(answer.map_err(failed)?.header())
        }
        Ask::Read(keys) => {
            let options = GetOptions::new();
            let options = match chain.load.op {
                Op::GetSerializable => options.with_serializable(),
                Op::Range => options.with_range(key_bytes(keys.end)),
                _ => options,
            };
            let answer = client.get(key_bytes(keys.start), Some(options)).await.map_err(failed)?;
            return chain
                .found(&ask, answer.kvs().iter().map(|found| (found.key(), found.value())));
        }
    };
    chain.wrote(&ask, revision)
}

fn revision(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, ResponseHeader::revision).cast_unsigned()
}

fn put(key: u64, stamp: u64) -> TxnOp {
    TxnOp::put(key_bytes(key), value(key, stamp), None)
}
