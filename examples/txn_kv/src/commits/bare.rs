//! The database alone.

use std::error::Error;
use std::time::{Duration, Instant};

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};

use lab::cpu;
use tempfile::TempDir;

use crate::designs::Window;

const TABLE: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("bare");

/// A file of the database with one table, like the table of revisions of the engine.
pub(super) struct Bare {
    database: Database,
    value: Vec<u8>,
    commits: u64,
    /// Dropped last, because the database has a file in it.
    _folder: TempDir,
}

impl Bare {
    pub(super) fn create(value_bytes: usize) -> Result<Self, Box<dyn Error>> {
        let folder = TempDir::new()?;
        let database = Database::create(folder.path().join("bare.redb"))?;
        Ok(Self { database, value: vec![7; value_bytes], commits: 0, _folder: folder })
    }

    /// Commits one value after the other for at least `time`.
    pub(super) fn window(&mut self, time: Duration) -> Result<Window, Box<dyn Error>> {
        let (cpu, begin, before) = (cpu::of_process(), Instant::now(), self.commits);
        while begin.elapsed() < time {
            self.commits += 1;
            let transaction = self.database.begin_write()?;
            transaction.open_table(TABLE)?.insert((self.commits, 0), &*self.value)?;
            transaction.commit()?;
        }
        let (time, puts) = (begin.elapsed(), self.commits - before);
        let cpu = cpu::of_process().saturating_sub(cpu);
        if self.database.begin_read()?.open_table(TABLE)?.len()? != self.commits {
            return Err("the bare database has lost a commit".into());
        }
        Ok(Window { puts, seconds: time.as_secs_f64(), cpu_seconds: cpu.as_secs_f64() })
    }
}
