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
        // The same rows each time.
        let mut random = fastrand::Rng::with_seed(u64::from(rows));
        for _ in 0..rows {
            let k = random.u32(1..=rows);
            insert.execute(params![k, groups(&mut random, 10), groups(&mut random, 5)])?;
        }
    }
    db.execute_batch("create index k_1 on sbtest1 (k); commit")
}

/// Returns `01234567890-…`: groups of eleven digits.
fn groups(random: &mut fastrand::Rng, groups: usize) -> String {
    let group = || format!("{:011}", random.u64(..100_000_000_000));
    std::iter::repeat_with(group).take(groups).collect::<Vec<_>>().join("-")
}
