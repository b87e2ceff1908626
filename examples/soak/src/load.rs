//! Well-behaved load: seats that ask, compare each answer, think, and ask again.
#![forbid(unsafe_code)]

mod echo;
mod sql;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::account::Account;
use lab::random::Random;

pub(crate) use sql::{client, fill, warm};

use echo::EchoSeat;
use sql::SqlSeat;

/// Whether a seat may write, and how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// Straight to the server.
    Direct,
    /// Through a relay with faults: reads only, because what is corrupted may be executed.
    Relayed,
}

/// One of those who ask.
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

    /// Asks one thing, or gets ready to.
    pub(crate) fn once(&mut self, random: &mut Random) -> Account {
        let mut account = Account::default();
        self.turn(random, &mut account);
        account
    }

    fn turn(&mut self, random: &mut Random, account: &mut Account) {
        match self {
            Self::Echo(seat) => seat.turn(random, account),
            Self::Sql(seat) => seat.turn(random, account),
        }
    }

    /// Asks until told to stop.
    pub(crate) fn ask(&mut self, random: &mut Random, stop: &AtomicBool) -> Account {
        let mut account = Account::default();
        while !stop.load(Ordering::Relaxed) {
            let failures = account.failures();
            self.turn(random, &mut account);
            // Who fails does not storm.
            let rest = if account.failures() > failures { 20_000 } else { 0 };
            thread::sleep(Duration::from_micros(rest + 500 + random.below(2500)));
        }
        account
    }
}
