//! Without arguments: data nodes, a proxy and its load in one process. The load goes on while one primary is killed.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::client::{Client, Request, Session};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::value::Value;
use epoll_group::pool::Limits;
use epoll_group::{Config, Runtime};

use lab::terminal::ProgressLine;
use proxy::fleet::Fleet;
use proxy::status;

const NODES: usize = 4;
const SESSIONS: usize = 32;
/// Rows that are there from the beginning; `k` of each is its id.
const ROWS: i64 = 2_000;
const TICK: Duration = Duration::from_millis(500);
const TICKS: u32 = 12;
/// Tick at which the primary of the first node is killed.
const KILL_AT: u32 = 5;
/// Longest time from the first error to the last.
const LONGEST_OUTAGE: Duration = Duration::from_secs(5);

/// Results of the load.
#[derive(Debug, Default)]
struct Seen {
    end: AtomicBool,
    answers: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
    /// Rows that were inserted, and rows whose insert has an unknown outcome.
    inserted: AtomicU64,
    doubtful: AtomicU64,
    /// Time of the last error, in ms from the start.
    last_error: AtomicU64,
    first_error: AtomicU64,
}

/// Shows and checks the proxy; takes some seconds.
pub fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut fleet = Fleet::start(NODES, Limits::default().max(64).unused_after(Duration::MAX))?;
    let runtime = Runtime::builder()
        .name("load")
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
        .start()?;
    let client = fleet.client(&runtime)?;
    writeln!(out, "{NODES} data nodes, each with a stand-by, behind {}", fleet.address)?;
    fill(&client)?;
    writeln!(out, "{ROWS} rows of sbtest1, inserted through the proxy, spread by id")?;
    writeln!(out)?;

    let seen = Arc::new(Seen::default());
    let start = Instant::now();
    let asking: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let (client, seen) = (client.clone(), Arc::clone(&seen));
            thread::spawn(move || ask(&client, number, &seen, start))
        })
        .collect();
    watch(&mut fleet, &seen, out)?;
    seen.end.store(true, Ordering::Relaxed);
    for thread in asking {
        thread.join().map_err(|_| "a client panicked")?;
    }
    writeln!(out)?;
    status::write(&fleet.nodes.status(), out)?;
    writeln!(out)?;
    check(&client, &seen, out)?;
    drop(client);
    let _ = runtime.drain(Duration::from_secs(2));
    settle(&fleet)?;
    writeln!(out, "no session of a data node is in use")?;
    let drained = fleet.proxy.drain(Duration::from_secs(2));
    writeln!(out, "{drained}")?;
    Ok(())
}

fn fill(client: &Client) -> Result<(), Box<dyn Error>> {
    let mut session = client.session()?;
    for id in 1..=ROWS {
        session.run(insert(id))?;
    }
    Ok(())
}

fn insert(id: i64) -> Request {
    Request::sql("insert into sbtest1 (id, k, c, pad) values (?, ?, ?, '')")
        .args([Scalar::signed(id), Scalar::signed(id), Scalar::string(format!("row {id}"), None)])
        .cached()
}

/// One session of the load: reads, and now and then a row more in a transaction.
fn ask(client: &Client, number: usize, seen: &Seen, start: Instant) {
    let mut next = ROWS + 1 + number as i64;
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut session = client.session().ok();
    while !seen.end.load(Ordering::Relaxed) {
        let Some(own) = &mut session else {
            session = client.session().ok();
            continue;
        };
        let failed = if random.u32(..16) == 0 {
            let id = next;
            next += SESSIONS as i64;
            write(own, id, seen)
        } else {
            read(own, random.i64(1..=ROWS), seen)
        };
        if failed {
            let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            seen.errors.fetch_add(1, Ordering::Relaxed);
            seen.last_error.fetch_max(now, Ordering::Relaxed);
            let first = |first| (first == 0).then_some(now);
            let _ = seen.first_error.fetch_update(Ordering::Relaxed, Ordering::Relaxed, first);
            // Ends the rest of a transaction.
            if own.run("rollback").is_err() {
                session = None;
            }
        } else {
            seen.answers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads a row and compares it. Returns true if there was an error.
fn read(session: &mut Session, id: i64, seen: &Seen) -> bool {
    let request = Request::sql("select k, c from sbtest1 where id = ?").arg(Scalar::signed(id));
    let Ok(mut answer) = session.execute(request.cached()) else { return true };
    let text = format!("row {id}");
    let right = match answer.next_row() {
        Ok(Some(row)) => {
            matches!(row.get(0), Ok(Value::Signed(k)) if k == id)
                && matches!(row.get(1), Ok(Value::Bytes(c)) if c == text.as_bytes())
        }
        Ok(None) => false,
        Err(_) => return true,
    };
    if !right {
        seen.wrong.fetch_add(1, Ordering::Relaxed);
    }
    !matches!(answer.next_row(), Ok(None))
}

/// Inserts a row in a transaction. Returns true if there was an error.
fn write(session: &mut Session, id: i64, seen: &Seen) -> bool {
    if session.run("begin").is_err() || session.run(insert(id)).is_err() {
        return true;
    }
    match session.run("commit") {
        Ok(_) => {
            seen.inserted.fetch_add(1, Ordering::Relaxed);
            false
        }
        Err(_) => {
            seen.doubtful.fetch_add(1, Ordering::Relaxed);
            true
        }
    }
}

/// Shows rates, and kills a primary.
fn watch(fleet: &mut Fleet, seen: &Seen, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    writeln!(out, "{:>6} {:>12} {:>8}", "time", "answers/s", "errors")?;
    let mut line = ProgressLine::new();
    let (mut answers, mut errors) = (0, 0);
    for tick in 1..=TICKS {
        if tick == KILL_AT {
            let address = fleet.primaries[0].as_ref().map(|node| node.address.clone());
            fleet.kill(0);
            writeln!(out, "       the primary of n0, {}, is killed", address.unwrap_or_default())?;
        }
        thread::sleep(TICK);
        let now = (seen.answers.load(Ordering::Relaxed), seen.errors.load(Ordering::Relaxed));
        let rate = (now.0 - answers) as f64 / TICK.as_secs_f64();
        let time = (TICK * tick).as_secs_f64();
        writeln!(out, "{time:>5.1}s {rate:>12.0} {:>8}", now.1 - errors)?;
        out.flush()?;
        line.update(format_args!("{tick} of {TICKS}"));
        (answers, errors) = now;
    }
    line.step_done(format_args!("{answers} answers"));
    Ok(())
}

/// Checks the results at the end.
fn check(client: &Client, seen: &Seen, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let (first, last) = (load(&seen.first_error), load(&seen.last_error));
    let outage = Duration::from_millis(last - first);
    writeln!(
        out,
        "{} answers, {} errors while n0 was away, {outage:.1?} from the first to the last",
        load(&seen.answers),
        load(&seen.errors)
    )?;
    let mut session = client.session()?;
    let mut answer = session.execute("select count(*), min(id), sum(k), max(k) from sbtest1")?;
    let row = answer.next_row()?.ok_or("there is no row")?;
    let Value::Signed(count) = row.get(0)? else { return Err("a count is a number".into()) };
    let least = ROWS as u64 + load(&seen.inserted);
    let most = least + load(&seen.doubtful);
    writeln!(
        out,
        "{count} rows on all nodes; {least} were inserted, of {} the outcome is not known",
        load(&seen.doubtful)
    )?;
    let count = u64::try_from(count)?;
    if !(least..=most).contains(&count) {
        return Err("rows were lost, or came twice".into());
    }
    show_spread(&mut session, out)?;
    if load(&seen.wrong) > 0 {
        return Err(format!("{} answers were wrong", load(&seen.wrong)).into());
    }
    if outage > LONGEST_OUTAGE {
        return Err(format!("the outage took {outage:.1?}").into());
    }
    Ok(())
}

/// Shows and checks a select whose rows are on all nodes.
fn show_spread(session: &mut Session, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let select = "select id, c from sbtest1 where k <= 2000 order by id desc limit 1997, 3";
    let mut answer = session.execute(select)?;
    let mut ids = Vec::new();
    while let Some(row) = answer.next_row()? {
        if let Value::Signed(id) = row.get(0)? {
            ids.push(id);
        }
    }
    writeln!(out, "{select}: {ids:?}")?;
    if ids != [3, 2, 1] { Err("the rows of all nodes were not merged".into()) } else { Ok(()) }
}

/// Sessions come back when their clients have gone.
fn settle(fleet: &Fleet) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while fleet.in_use() > 0 {
        if Instant::now() > deadline {
            return Err(format!("{} sessions of data nodes are in use", fleet.in_use()).into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
