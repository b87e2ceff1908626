//! Pools that run their code on threads of their own.

use std::convert::Infallible;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use epoll_group::pool::{BuildError, Limits, Manage, Pool, Target};

use super::life::says;
use super::{Outcome, Row};
use crate::shims::{Effect, Fault, Side, on_behalf};
use lab::LONG;

/// Connections to nowhere.
struct Nowhere;

impl Manage for Nowhere {
    type Key = u8;
    type Connection = ();
    type Error = Infallible;

    fn connect(&self, _: &Target<'_, u8>, _: Instant) -> Result<(), Infallible> {
        Ok(())
    }
}

fn build() -> Result<Pool<Nowhere>, BuildError> {
    let again = Duration::from_millis(1);
    let limits = Limits::default().max(1).backoff(again, 4 * again);
    on_behalf(Side::Client, || Pool::builder(Nowhere).limits(limits).build())
}

/// A callback is called with a connection.
fn serves(pool: &Pool<Nowhere>) {
    let (tell, told) = mpsc::channel();
    on_behalf(Side::Client, || {
        let backend = pool.backend(&1).expect("it is open");
        backend.get_then(Instant::now() + LONG, move |got| tell.send(got).expect("waited for"));
    });
    drop(told.recv_timeout(LONG).expect("called back").expect("a connection"));
}

pub(super) fn pool(row: &Row) {
    row.each(|errno, outcome| {
        let fault = Fault::new(Side::Client, row.call, Effect::Fails(errno));
        match outcome {
            Outcome::Fails(begins) => {
                let fault = fault.arm();
                let error = build().map(drop).expect_err("no pool without it");
                says(&error, begins, errno);
                assert_eq!(fault.hits(), 1);
            }
            Outcome::Degrades(_) => {
                let pool = build().expect("a pool");
                let fault = fault.arm();
                serves(&pool);
                assert_eq!(fault.hits(), 1);
                assert!(pool.close(Instant::now() + LONG).held.is_empty());
            }
            other => unreachable!("a pool: {other:?}"),
        }
        serves(&build().expect("a pool"));
    });
}
