//! Well-behaved load: seats that ask, compare each answer, think, and ask again.
#![forbid(unsafe_code)]

mod echo;
mod sql;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::account::Account;

pub(crate) use sql::{client, fill, warm};

use echo::EchoSeat;
use sql::SqlSeat;

/// Way to a server. It decides whether a seat may write, and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// Straight to the server.
    Direct,
    /// Through a relay with faults: reads only, because a corrupted request may be executed.
    Relayed,
}

/// A client of the load.
pub(crate) enum Seat {
    Echo(EchoSeat),
    Sql(Box<SqlSeat>),
}

impl Seat {
    pub(crate) const fn echo(address: SocketAddr, road: Road) -> Self {
        Self::Echo(EchoSeat::new(address, road))
    }

    pub(crate) fn sql(client: epoll_group::client::Client, road: Road) -> Self {
        Self::Sql(Box::new(SqlSeat::new(client, road)))
    }

    /// Makes one request. Without a connection or session, only opens that.
    pub(crate) fn once(&mut self, random: &mut Rng) -> Account {
        let mut account = Account::default();
        self.turn(random, &mut account);
        account
    }

    fn turn(&mut self, random: &mut Rng, account: &mut Account) {
        match self {
            Self::Echo(seat) => seat.turn(random, account),
            Self::Sql(seat) => seat.turn(random, account),
        }
    }

    /// Asks until told to stop.
    pub(crate) fn ask(&mut self, random: &mut Rng, stop: &AtomicBool) -> Account {
        let mut account = Account::default();
        while !stop.load(Ordering::Relaxed) {
            let failures = account.failures();
            self.turn(random, &mut account);
            // After a failure the pause is longer, so that the seat does not flood the server.
            let rest = if account.failures() > failures { 20_000 } else { 0 };
            thread::sleep(Duration::from_micros(rest + random.u64(500..3000)));
        }
        account
    }
}
