//! The server is killed at random points under load, and sometimes again while it starts. Every
//! acknowledged transaction is there, none is there by half, and index and engine agree.
//!
//! `TXN_KV_KILLS` sets how often; `EG_TEST_SEED` repeats the random choices, but not the order of
//! the threads.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::client::{Client, Options};
use epoll_group::{Config, Handle, Runtime};
use lab::LONG;
use lab::random::{Random, seed, times};
use txn_kv::client::Kv;
use txn_kv::engine::Disk;
use txn_kv::store::{Limits, Store};
use txn_kv::{Design, client::KvError};

use crate::support::history::{self, History, transactions};

const WRITERS: u8 = 6;

#[test]
fn what_was_told_survives_kills_and_no_transaction_is_there_by_half() {
    let seed = seed();
    println!("EG_TEST_SEED={seed}");
    let mut random = Random(seed);
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
        .start()
        .expect("started");
    let mut folder = tempfile::tempdir().expect("a folder");
    let mut histories = Vec::new();
    let (mut told, mut untold) = (0, 0);
    let kills = times("TXN_KV_KILLS", 100);
    for kill in 0..kills {
        if kill % 20 == 0 {
            histories = (0..WRITERS).map(History::new).collect();
            folder = tempfile::tempdir().expect("a folder");
        }
        if random.percent(20) {
            kill_while_it_starts(folder.path(), &mut random);
        }
        let before = transactions(&histories);
        write_and_kill(folder.path(), &runtime.handle(), &mut histories, &mut random);
        told += transactions(&histories) - before;
        if random.percent(30) {
            kill_while_it_starts(folder.path(), &mut random);
        }
        let before = transactions(&histories);
        let disk = Disk::open(folder.path()).expect("it opens");
        let store = Store::open(disk, Design::Publish, Limits::default(), None).expect("it opens");
        history::check(&store, &mut histories);
        untold += transactions(&histories) - before;
    }
    println!("{told} transactions were told, {untold} were there untold");
    assert!(kills < 100 || told > 0, "kills come too early");
}

/// Process of a server. It is killed when this is dropped.
struct Server(Child);

impl Server {
    fn spawn(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txn_kv"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--user", "u", "--password", "p"]);
        command.args(["--threads", "2", "--dir"]).arg(folder);
        Self(command.stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    fn address(&mut self) -> String {
        let mut out = BufReader::new(self.0.stdout.take().expect("it is piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let address = line.strip_prefix("listening on ").expect("it listens");
        address.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL.
        self.0.kill().expect("it is a child");
        self.0.wait().expect("it ends");
    }
}

/// Kills a server at a random time, because a starting server does not report its progress.
fn kill_while_it_starts(folder: &Path, random: &mut Random) {
    let server = Server::spawn(folder);
    let deadline = Instant::now() + Duration::from_micros(random.below(30_000));
    while Instant::now() < deadline {
        thread::yield_now();
    }
    drop(server);
}

/// Kills a server after a random number of answers, while other transactions are in progress.
fn write_and_kill(folder: &Path, handle: &Handle, histories: &mut [History], random: &mut Random) {
    let mut server = Server::spawn(folder);
    let options =
        Options::new(server.address(), "u").password("p").connections(2).request_timeout(LONG);
    let client = Client::new(handle, options).expect("good options");
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for history in histories {
            let (client, tell, mut random) = (&client, tell.clone(), Random(random.next()));
            scope.spawn(move || {
                if let Ok(session) = client.session() {
                    write_until_it_fails(Kv::new(session), history, &mut random, &tell);
                }
            });
        }
        drop(tell);
        let most = random.pick(&[5, 50, 200]);
        for _ in 0..random.below(most) {
            told.recv_timeout(LONG).expect("transactions are done");
        }
        drop(server);
    });
}

fn write_until_it_fails(mut kv: Kv, history: &mut History, random: &mut Random, tell: &Sender<()>) {
    while history.write(&mut kv, random).is_ok() {
        // The receiver outlives this thread, and leaves late messages unread.
        let _ = tell.send(());
        if random.percent(5) {
            compact(&mut kv, history.newest().saturating_sub(random.below(20)));
        }
    }
}

fn compact(kv: &mut Kv, at: u64) {
    match kv.compact(at) {
        Ok(_) | Err(KvError::Client(_)) => {}
        Err(error) => panic!("{error}"),
    }
}
