//! A session of a data node or of the proxy.
#![forbid(unsafe_code)]

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use epoll_group::client::{Answer, Client, Error, Options, Request, Session};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::value::Value;
use epoll_group::{ConfigError, Handle};
use fastrand::Rng;

use super::Road;
use crate::account::Account;
use crate::child::{PASSWORD, USER};

/// Rows of `sbtest1`; `k` of each is its id.
pub(crate) const ROWS: i64 = 2000;
/// Bytes of `c`.
const WIDTH: usize = 1500;

pub(crate) struct SqlSeat {
    client: Client,
    road: Road,
    session: Option<Session>,
}

/// Database connections that a data node keeps.
const DATABASES: usize = 64;

/// Makes a data node open all database connections that it keeps, so that it opens none later.
pub(crate) fn warm(client: &Client) -> Result<(), Box<dyn StdError>> {
    let mut sessions = Vec::new();
    for _ in 0..DATABASES {
        let mut session = client.session()?;
        // With a snapshot, a transaction takes a connection at its beginning.
        session.run("start transaction with consistent snapshot")?;
        let mut account = Account::default();
        row(&mut session, 1, &mut account);
        all(&mut session, &mut account);
        number(&mut session, 1, &mut account);
        if let Some(first) = account.first {
            return Err(first.into());
        }
        sessions.push(session);
    }
    for mut session in sessions {
        session.run("rollback")?;
    }
    Ok(())
}

/// Returns a client of one server.
pub(crate) fn client(
    handle: &Handle,
    address: SocketAddr,
    road: Road,
) -> Result<Client, ConfigError> {
    let second = Duration::from_secs(1);
    let options = Options::new(address.to_string(), USER).password(PASSWORD).connections(2);
    let options = options.reconnect_max(second / 10);
    let options = match road {
        Road::Direct => options.request_timeout(30 * second).probe_timeout(30 * second),
        Road::Relayed => options
            .request_timeout(2 * second)
            .session_timeout(2 * second)
            .login_timeout(second)
            .probe_interval(second / 2)
            .probe_timeout(second),
    };
    Client::new(handle, options)
}

/// Inserts all rows.
pub(crate) fn fill(client: &Client) -> Result<(), Box<dyn StdError>> {
    let mut session = client.session()?;
    for ids in (1..=ROWS).collect::<Vec<_>>().chunks(50) {
        let sent: Vec<_> = ids.iter().map(|&id| session.send(insert(id))).collect();
        for pending in sent {
            pending?.wait()?.finish()?;
        }
    }
    Ok(())
}

fn insert(id: i64) -> Request {
    let row = Scalar::string(text(id), None);
    Request::sql("insert into sbtest1 (id, k, c, pad) values (?, ?, ?, '')").args([
        Scalar::signed(id),
        Scalar::signed(id),
        row,
    ])
}

fn text(id: i64) -> String {
    format!("row {id} ").repeat(WIDTH / 8).chars().take(WIDTH).collect()
}

impl SqlSeat {
    pub(super) const fn new(client: Client, road: Road) -> Self {
        Self { client, road, session: None }
    }

    pub(super) fn turn(&mut self, random: &mut Rng, account: &mut Account) {
        let Some(session) = self.session.as_mut().filter(|session| session.is_alive()) else {
            match self.client.session() {
                Ok(session) => self.session = Some(session),
                Err(error) => {
                    account.ask();
                    account.failed_with(&error);
                }
            }
            return;
        };
        let id = random.i64(1..=ROWS);
        match random.u32(..20) {
            0..4 => number(session, random.i64(0..500), account),
            4..6 => all(session, account),
            6 if self.road == Road::Direct => transaction(session, id, account),
            _ => row(session, id, account),
        }
    }
}

/// Asks and checks the rows. Returns true if there was an answer.
fn ask(
    session: &mut Session,
    request: Request,
    account: &mut Account,
    look: impl FnOnce(&mut Answer) -> Result<Result<(), String>, Error>,
) -> bool {
    let began = Instant::now();
    account.ask();
    let right = session.execute(request).and_then(|mut answer| {
        let right = look(&mut answer)?;
        answer.finish()?;
        Ok(right)
    });
    match right {
        Ok(right) => account.answered(began.elapsed(), right),
        Err(error) => {
            account.failed_with(&error);
            return false;
        }
    }
    true
}

fn number(session: &mut Session, number: i64, account: &mut Account) {
    let request = Request::sql(format!("select {number}"));
    ask(session, request, account, |answer| {
        let Some(row) = answer.next_row()? else { return Ok(Err("no row".to_owned())) };
        let right = match row.get(0)? {
            Value::Signed(got) => got == number,
            Value::Unsigned(got) => i64::try_from(got) == Ok(number),
            _ => false,
        };
        Ok(if right { Ok(()) } else { Err(format!("{:?} for {number}", row.get(0)?)) })
    });
}

fn row(session: &mut Session, id: i64, account: &mut Account) {
    let request = Request::sql("select k, c from sbtest1 where id = ?").arg(Scalar::signed(id));
    ask(session, request.cached(), account, |answer| rows(answer, &[id]));
}

/// Reads an aggregate of all rows; the proxy merges it from its data nodes.
fn all(session: &mut Session, account: &mut Account) {
    let request = Request::sql("select count(*), min(id), max(k) from sbtest1").cached();
    ask(session, request, account, |answer| {
        let Some(row) = answer.next_row()? else { return Ok(Err("no row".to_owned())) };
        let right = [ROWS, 1, ROWS].iter().enumerate().all(
            |(at, expected)| matches!(row.get(at), Ok(Value::Signed(got)) if got == *expected),
        );
        Ok(if right { Ok(()) } else { Err(format!("{:?} of all rows", row.get(0)?)) })
    });
}

/// Writes a row and rolls back.
fn transaction(session: &mut Session, id: i64, account: &mut Account) {
    let update = "update sbtest1 set c = 'changed' where id = ?";
    let update = Request::sql(update).arg(Scalar::signed(id)).cached();
    let done = |_: &mut Answer| Ok(Ok(()));
    let whole =
        ask(session, Request::sql("begin"), account, done) && ask(session, update, account, done);
    // Also after a failure.
    ask(session, Request::sql("rollback"), account, done);
    if whole {
        row(session, id, account);
    }
}

/// Checks that these rows come, in this order, and no others.
fn rows(answer: &mut Answer, ids: &[i64]) -> Result<Result<(), String>, Error> {
    let mut ids = ids.iter();
    let mut right = Ok(());
    while let Some(row) = answer.next_row()? {
        let id = ids.next().copied();
        let fits = id.is_some_and(|id| {
            matches!(row.get(0), Ok(Value::Signed(k)) if k == id)
                && matches!(row.get(1), Ok(Value::Bytes(c)) if c == text(id).as_bytes())
        });
        if !fits && right.is_ok() {
            right = Err(format!("row {id:?} is {:?}", row.get(0)));
        }
    }
    Ok(right.and_then(|()| ids.next().map_or(Ok(()), |id| Err(format!("no row {id}")))))
}
