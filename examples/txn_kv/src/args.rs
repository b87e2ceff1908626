//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lab::args::{Account, seconds, within};
use txn_kv::Design;
use txn_kv::load::{Keys, Shape, Workload};
use txn_kv::serve::{Kind, Options};

/// A transactional key-value store: its server, and loads for it.
///
/// Without a command it serves on loopback, in memory and on disk, and loads itself: puts by 1 to 200
/// clients into 1 key and into 100000 keys, then reads and puts while history is compacted. Every
/// answer is checked, and so is the store, also after it was opened again. Takes half a minute.
#[derive(Debug, Parser)]
#[command(name = "txn_kv", args_conflicts_with_subcommands = true)]
pub(crate) struct Command {
    /// Take some seconds only.
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    Serve(Serve),
    Load(Load),
    Designs(Designs),
    Commits(Commits),
    Published(Published),
}

/// Serve until SIGTERM or SIGINT, then drain.
///
/// Prints `listening on ADDR`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// HOST:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    #[command(flatten)]
    account: Account,
    /// Folder of the store, made if there is none.
    #[arg(long, overrides_with = "memory")]
    dir: Option<PathBuf>,
    /// Keep the store in memory: it is gone with the server. This is the default.
    #[arg(long, overrides_with = "dir")]
    memory: bool,
    /// Order in which data and index are written: publish, mark-available, mark-by-halving,
    /// mark-by-traversal, mark-persisted or compensate.
    #[arg(long, default_value_t)]
    design: Design,
    /// Base workers, in one group [default: groups of four, for all CPUs].
    #[arg(long, value_name = "N", value_parser = within(1..=1024_usize))]
    threads: Option<usize>,
}

/// Load a server with txn-put, get, range or mixed.
///
/// Every client asks again as soon as it has its answer. Every answer is checked; ends with status 1 if
/// one was wrong or an error. All loads but txn-put put every key once before.
#[derive(Clone, Debug, Args)]
pub(crate) struct Load {
    /// Requests: txn-put, get, range or mixed.
    #[arg(value_name = "LOAD", value_parser = ["txn-put", "get", "range", "mixed"])]
    name: String,
    /// HOST:PORT [default: a server in this process, in memory].
    #[arg(long, value_name = "ADDR", requires_all = ["user", "password"])]
    pub(crate) connect: Option<String>,
    /// User to log in as; needed with --connect.
    #[arg(long, value_name = "NAME", default_value = "root")]
    pub(crate) user: String,
    /// Password of the user; needed with --connect.
    #[arg(long, value_name = "PASSWORD", default_value = "secret")]
    pub(crate) password: String,
    /// Sessions, each with one request in flight.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(CLIENTS))]
    pub(crate) clients: usize,
    /// Connections that the sessions share.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = within(1..=4096_usize))]
    pub(crate) connections: usize,
    /// Requests of all clients together.
    // The limit bounds memory: the load keeps the revision of each put, 8 bytes.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = within(1..=1_000_000_000_u64))]
    pub(crate) total: u64,
    /// Bytes of a key.
    // As the store's limits allow; likewise for values, transactions and ranges.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within(1..=1024_usize))]
    key_size: usize,
    /// Bytes of a value, at least 8 more than of a key.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = within(VALUE_BYTES))]
    val_size: usize,
    /// Keys.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(KEYS))]
    key_space_size: u64,
    /// Seed of keys and values.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Puts of each transaction of txn-put.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1..=128_u64))]
    txn_ops: u64,
    /// Keys of each range.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = within(1..=10_000_u64))]
    limit: u64,
    /// Reads among 100 requests of mixed.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = within(0..=100_u64))]
    reads_per_100: u64,
    /// The keys are there: put none before.
    #[arg(long)]
    pub(crate) filled: bool,
    /// Print one JSON object, and nothing else, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Compare stores that differ in the order in which data and index are written.
///
/// Loads them by turns, with 1, 100 and 10000 revisions of each key, directly and over the network, and
/// prints how each compares with the default.
#[derive(Clone, Debug, Args)]
pub(crate) struct Designs {
    /// Threads or sessions that put.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = within(CLIENTS))]
    pub(crate) clients: usize,
    #[command(flatten)]
    pub(crate) puts: Puts,
    /// Records that a store holds at most before the load.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = within(10_000..=1_000_000_000_u64))]
    pub(crate) records: u64,
    /// Puts to a single key that had none.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = within(1..=1_000_000_000_u64))]
    pub(crate) growing: u64,
    /// Length of a window.
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = seconds(WINDOW))]
    pub(crate) seconds: Duration,
    /// Keep the stores in files of a temporary folder, not in memory.
    #[arg(long)]
    pub(crate) disk: bool,
}

/// Compare commits on disk by turns.
///
/// The bare database beside one thread without a server, and beside one client of a server; and one
/// client beside many, whose transactions share flushes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Commits {
    /// Sessions that put at the same time.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = within(CLIENTS))]
    pub(crate) clients: usize,
    #[command(flatten)]
    pub(crate) puts: Puts,
    /// Length of a window.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds(WINDOW))]
    pub(crate) seconds: Duration,
}

/// Repeat the published measurement of puts with and without a mark, in memory and on disk.
///
/// 10 sessions put to 100000 keys of an empty store, with values of 256 bytes. The designs take turns.
/// Ends with status 1 if an answer was wrong or a store has not exactly these puts.
#[derive(Clone, Debug, Args)]
pub(crate) struct Published {
    /// Puts to each store.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within(1..=1_000_000_000_u64))]
    pub(crate) total: u64,
    /// Stores of each design.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within(1..=10_000_usize))]
    pub(crate) rounds: usize,
    /// Folder for README.md and the loads as JSON.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Options of `designs` and `commits`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Puts {
    /// Keys; fewer where there are many revisions of each.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within(KEYS))]
    pub(crate) key_space_size: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = within(VALUE_BYTES))]
    pub(crate) val_size: usize,
    /// Windows of each of two stores.
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = within(1..=10_000_usize))]
    pub(crate) pairs: usize,
    /// Folder for README.md and the windows as JSON.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

const CLIENTS: RangeInclusive<usize> = 1..=65_536;
const KEYS: RangeInclusive<u64> = 1..=1_000_000_000;
const VALUE_BYTES: RangeInclusive<usize> = 1..=1 << 20;
const WINDOW: RangeInclusive<f64> = 0.001..=3600.0;

impl Serve {
    pub(crate) fn options(self) -> Options {
        let engine = self.dir.map_or(Kind::Memory, Kind::Disk);
        let options = Options::new(self.account.user, self.account.password)
            .listen(self.listen)
            .engine(engine)
            .design(self.design);
        match self.threads {
            Some(threads) => options.threads(threads),
            None => options,
        }
    }
}

impl Load {
    pub(crate) fn workload(&self) -> Workload {
        match self.name.as_str() {
            "get" => Workload::Get,
            "range" => Workload::Range { limit: self.limit },
            "mixed" => Workload::Mixed { reads_per_100: self.reads_per_100 },
            _ => Workload::Put { operations: self.txn_ops },
        }
    }

    /// # Errors
    ///
    /// The keys do not fit their bytes.
    pub(crate) fn shape(&self) -> Result<Shape, String> {
        let keys = Keys::new(self.key_size, self.key_space_size)?;
        Ok(Shape { keys, value_bytes: self.val_size, seed: self.seed })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn parse(line: &str) -> Result<Command, String> {
        let words = std::iter::once("txn_kv").chain(line.split_whitespace());
        Command::try_parse_from(words).map_err(|error| error.to_string())
    }

    fn load(line: &str) -> Load {
        match parse(line).map(|command| command.task) {
            Ok(Some(Task::Load(load))) => load,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn without_arguments_it_shows_itself() {
        assert!(parse("").is_ok_and(|command| !command.quick && command.task.is_none()));
        assert!(parse("--quick").is_ok_and(|command| command.quick && command.task.is_none()));
    }

    #[test]
    fn a_load_has_the_defaults_of_the_help() {
        let get = load("load get");
        let shape = get.shape().unwrap();
        assert_eq!((shape.keys, shape.value_bytes), (Keys::new(8, 1).unwrap(), 256));
        assert_eq!((get.workload(), get.filled, get.json), (Workload::Get, false, false));
        assert_eq!((get.connect, get.clients, get.connections, get.total), (None, 1, 4, 10_000));
        assert_eq!(load("load txn-put").workload(), Workload::Put { operations: 1 });
        assert_eq!(load("load range").workload(), Workload::Range { limit: 100 });
        assert_eq!(load("load mixed").workload(), Workload::Mixed { reads_per_100: 50 });
    }

    #[test]
    fn a_load_takes_its_options() {
        let put = load(
            "load --clients 200 txn-put --txn-ops 3 --key-size 6 --val-size 14 \
             --key-space-size 100000 --total 7 --seed 9 --json --connect localhost:1 --user u \
             --password p",
        );
        assert_eq!((put.clients, put.total, put.json), (200, 7, true));
        assert_eq!(put.workload(), Workload::Put { operations: 3 });
        let shape = put.shape().unwrap();
        assert_eq!((shape.keys, shape.seed), (Keys::new(6, 100_000).unwrap(), 9));
        assert_eq!(put.connect.as_deref(), Some("localhost:1"));
    }

    #[test]
    fn comparisons_have_their_own_windows_and_clients() {
        match [parse("designs").unwrap().task, parse("commits --pairs 3").unwrap().task] {
            [Some(Task::Designs(designs)), Some(Task::Commits(commits))] => {
                assert_eq!((designs.clients, commits.clients), (10, 200));
                assert_eq!((designs.puts.pairs, commits.puts.pairs), (11, 3));
                assert!(designs.seconds < commits.seconds);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_names_the_option_the_value_and_the_limits() {
        for (line, parts) in [
            ("lode", ["lode", "unrecognized subcommand"]),
            ("load", ["required", "<LOAD>"]),
            ("load put", ["put", "txn-put, get, range, mixed"]),
            ("load get --clients 0", ["--clients", "0 is outside 1..=65536"]),
            ("load get --connect localhost:1", ["--user", "--password"]),
            ("load mixed --reads-per-100 101", ["--reads-per-100", "101 is outside 0..=100"]),
            ("serve --listen localhost:0 --user u", ["--password", "required"]),
            ("serve --design fast", ["--design", "no design is called"]),
            ("designs --pairs none", ["--pairs", "none is not a number"]),
        ] {
            let error = parse(line).expect_err(line);
            assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
        }
        let error = load("load get --key-size 2 --key-space-size 101").shape().unwrap_err();
        assert_eq!(error, "101 keys need 3 bytes each, not 2");
    }
}
