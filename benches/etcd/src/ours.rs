//! `txn_kv serve` and its clients.

use std::error::Error;
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::client::{Client, Options};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use txn_kv::client::{Kv, KvError};
use txn_kv::{KeyRange, Txn};

use crate::load::{Ask, Chain, Op, PATIENCE, key_bytes, value};
use crate::measure::Target;
use crate::server::{Server, free_port};

/// `txn_kv` on disk, with as many connections as it is given, over which sessions are spread.
pub(crate) struct TxnKv {
    sessions: Vec<Kv>,
    client: Client,
    _runtime: Runtime,
    server: Server,
}

/// A session with what it is to ask. No thread waits for its answers.
struct Asking {
    session: Mutex<Option<Kv>>,
    chain: Mutex<Option<Chain>>,
    step: AtomicU8,
    over: UnboundedSender<(Option<Kv>, Option<Chain>)>,
}

/// Steps of an [`Asking`]. The one who sends and the one who has the answer both set theirs, and who
/// comes second goes on: a loop, and no recursion, when answers are there at once.
const SENDING: u8 = 0;
const SENT: u8 = 1;
const ANSWERED: u8 = 2;

const USER: &str = "compare";
const PASSWORD: &str = "compare";
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

impl TxnKv {
    /// Starts it and waits until it listens.
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
        let runtime = Runtime::builder().start()?;
        let options = Options::new(address, USER)
            .password(PASSWORD)
            .connections(connections)
            .request_timeout(PATIENCE);
        let client = Client::new(&runtime.handle(), options)?;
        Ok(Self { sessions: Vec::new(), client, _runtime: runtime, server })
    }

    fn any(&mut self) -> Result<&mut Kv, Box<dyn Error>> {
        if self.sessions.is_empty() {
            self.sessions.push(Kv::new(self.client.session()?));
        }
        Ok(&mut self.sessions[0])
    }
}

impl Target for TxnKv {
    fn pid(&self) -> u32 {
        self.server.pid()
    }

    async fn prepare(&mut self, clients: usize) -> Result<(), Box<dyn Error>> {
        self.server.check()?;
        while self.sessions.len() < clients {
            self.sessions.push(Kv::new(self.client.session()?));
        }
        Ok(())
    }

    async fn run(&mut self, chains: Vec<Chain>) -> Result<Vec<Chain>, Box<dyn Error>> {
        let (over, mut ended) = unbounded_channel();
        let sessions = self.sessions.drain(..chains.len());
        for (chain, session) in chains.into_iter().zip(sessions) {
            let asking = Asking {
                session: Mutex::new(Some(session)),
                chain: Mutex::new(Some(chain)),
                step: AtomicU8::new(SENDING),
                over: over.clone(),
            };
            Arc::new(asking).go_on();
        }
        drop(over);
        let mut chains = Vec::new();
        while let Some((session, chain)) = ended.recv().await {
            self.sessions.extend(session);
            chains.extend(chain);
        }
        Ok(chains)
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

impl Asking {
    /// Sends the next request, and those after it whose answers are there at once.
    fn go_on(self: Arc<Self>) {
        loop {
            self.step.store(SENDING, Ordering::Relaxed);
            let ask = self.with_chain(|chain| Some((chain.load.op, chain.ask()?)));
            let Some((op, ask)) = ask.flatten() else { return self.end() };
            self.send(op, ask);
            // Pairs with `answered`: what one has written, the other one sees who goes on.
            if self.step.swap(SENT, Ordering::AcqRel) != ANSWERED {
                return;
            }
        }
    }

    fn send(self: &Arc<Self>, op: Op, ask: Ask) {
        let this = Arc::clone(self);
        let mut session = locked(&self.session);
        let Some(session) = session.as_mut() else { return };
        match ask {
            Ask::Put { key, stamp } if op == Op::PlainPut => {
                session.put_then(&key_bytes(key), &value(key, stamp), move |revision| {
                    this.answered(revision, Chain::wrote);
                });
            }
            Ask::Put { key, stamp } => {
                let txn = Txn { then: vec![put(key, stamp)], ..Txn::default() };
                session.txn_then(&txn, move |done| {
                    this.answered(done, |chain, done| chain.wrote(done.revision));
                });
            }
            Ask::Read(keys) => {
                let (from, to) = (key_bytes(keys.start).into(), key_bytes(keys.end).into());
                let range = match op {
                    Op::Range => KeyRange::Span(from, Some(to)),
                    _ => KeyRange::One(from),
                };
                session.read_then(&range, None, usize::MAX, move |found| {
                    this.answered(found, |chain, found| {
                        let records = found.entries.iter().map(|entry| &entry.record);
                        chain.found(records.map(|record| {
                            (&*record.key, record.value.as_deref().unwrap_or_default())
                        }));
                    });
                });
            }
        }
    }

    fn answered<T>(self: Arc<Self>, answer: Result<T, KvError>, check: fn(&mut Chain, T)) {
        self.with_chain(|chain| match answer {
            Ok(answer) => check(chain, answer),
            Err(error) => chain.failed(&error),
        });
        if self.step.swap(ANSWERED, Ordering::AcqRel) == SENT {
            self.go_on();
        }
    }

    fn end(&self) {
        // Who waits for it may have given up.
        let _ = self.over.send((locked(&self.session).take(), locked(&self.chain).take()));
    }

    fn with_chain<T>(&self, code: impl FnOnce(&mut Chain) -> T) -> Option<T> {
        locked(&self.chain).as_mut().map(code)
    }
}

fn put(key: u64, stamp: u64) -> txn_kv::Op {
    txn_kv::Op::Put { key: key_bytes(key).into(), value: value(key, stamp).into() }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
