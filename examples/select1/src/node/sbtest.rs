//! The table of sysbench.

use rusqlite::{Connection, params};

/// Makes `sbtest1` as sysbench does and fills it with so many rows, unless there is one.
pub fn make(db: &Connection, rows: u32) -> rusqlite::Result<()> {
    let exists = "select exists(select 1 from sqlite_master where name = 'sbtest1')";
    if db.query_row(exists, [], |row| row.get(0))? {
        return Ok(());
    }
    db.execute_batch(
        "begin immediate;
         create table sbtest1 (
             id integer primary key autoincrement not null,
             k int default 0 not null,
             c char(120) default '' not null,
             pad char(60) default '' not null
         )",
    )?;
    {
        let mut insert = db.prepare("insert into sbtest1 (k, c, pad) values (?1, ?2, ?3)")?;
        let mut numbers = Numbers(u64::from(rows) + 1);
        for _ in 0..rows {
            let k = 1 + numbers.next() % u64::from(rows);
            insert.execute(params![k as i64, numbers.groups(10), numbers.groups(5)])?;
        }
    }
    db.execute_batch("create index k_1 on sbtest1 (k); commit")
}

/// Pseudo-random numbers (xorshift), the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// `01234567890-…`: groups of eleven digits.
    fn groups(&mut self, groups: usize) -> String {
        let group = || format!("{:011}", self.next() % 100_000_000_000);
        std::iter::repeat_with(group).take(groups).collect::<Vec<_>>().join("-")
    }
}
