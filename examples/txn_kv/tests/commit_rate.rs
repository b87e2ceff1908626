//! How many commits a second the bare database does, and the engine on it: one value of 256 bytes each.
//!
//! A measurement, not a test:
//! `cargo test --release -p txn_kv --test commit_rate -- --ignored --nocapture`.
//! `TXN_KV_COMMITS` sets how many one window does, and `TMPDIR` on which disk.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use txn_kv::engine::{Batch, Disk, Engine, Head};
use txn_kv::{Record, Revision};

const TABLE: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("bare");

fn bare(folder: &Path, commits: u64) {
    let database = Database::create(folder.join("bare")).unwrap();
    let value = [7; 256];
    for main in 1..=commits {
        let transaction = database.begin_write().unwrap();
        transaction.open_table(TABLE).unwrap().insert((main, 0), &value[..]).unwrap();
        transaction.commit().unwrap();
    }
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    assert_eq!(table.len().unwrap(), commits);
}

fn engine(folder: &Path, commits: u64) {
    let disk = Disk::open(folder).unwrap();
    for main in 1..=commits {
        let (key, value) = (main.to_le_bytes(), Some([7; 256].into()));
        let record = Record { key: key.into(), created: main, version: 1, value };
        let records = vec![(Revision { main, sub: 0 }, Arc::new(record))];
        let head = Head { revision: main, compacted: 0 };
        disk.commit(&Batch { records, removed: Vec::new(), head }).unwrap();
    }
    assert_eq!(disk.snapshot().unwrap().head().unwrap().revision, commits);
}

#[test]
#[ignore = "a measurement"]
fn commits_a_second_of_the_bare_database_and_of_the_engine() {
    let commits = support::random::times("TXN_KV_COMMITS", 5000);
    let which = std::env::var("TXN_KV_WHICH").unwrap_or_default();
    for window in 0..3 {
        for (name, run) in [("bare", bare as fn(&Path, u64)), ("engine", engine)] {
            if !name.contains(&which) {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            let begin = Instant::now();
            run(folder.path(), commits);
            let took = begin.elapsed();
            let rate = commits as f64 / took.as_secs_f64();
            println!("window {window}: {name}: {commits} commits, {took:.2?}, {rate:.0} a second");
        }
    }
}
