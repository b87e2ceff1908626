//! [`Script`]: which faults connections get, as an operator or a test says it.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::dice::{Dice, Purpose};
use super::plan::Plan;

/// What happens to the connections of a relay.
#[derive(Clone, Debug)]
pub struct Script {
    /// The same seed gives the connection with the same number the same faults.
    pub seed: u64,
    /// Part of the connections that get faults, 0 to 1; the others are passed on as they are.
    pub share: f64,
    /// From the client to the server.
    pub up: Faults,
    /// From the server to the client.
    pub down: Faults,
}

/// What happens to the bytes of one direction, in this order.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Part of the bytes of which one bit is turned over, 0 to 1.
    pub corrupt: f64,
    /// Each byte comes so much later, and up to `jitter` more. Bytes stay in order.
    pub delay: Duration,
    pub jitter: Duration,
    pub coalesce: Option<Coalesce>,
    /// Pieces of 1 to so many bytes, each sent by itself.
    pub chop: Option<u64>,
    /// Bytes per second.
    pub rate: Option<u64>,
    pub stop: Option<Stop>,
    /// Ends both directions.
    pub cut: Option<Cut>,
}

/// Bytes are gathered until there are so many, or the first has waited so long.
#[derive(Clone, Copy, Debug)]
pub struct Coalesce {
    pub time: Duration,
    pub bytes: u64,
}

/// A place in the life of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// So many bytes were passed on.
    Byte(u64),
    /// So long after the connection was made.
    Time(Duration),
}

/// Nothing is passed on from a mark: no byte, no end.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    pub at: Mark,
    /// `None`: for ever.
    pub pause: Option<Duration>,
}

/// The connection ends at a mark.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub at: Mark,
    pub how: How,
}

/// How both ends learn of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As if the other had closed: what was passed on before is read.
    Close,
    /// As if the other had reset: what was passed on before may be lost. A Unix socket knows no
    /// reset and is closed.
    Reset,
}

/// Of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

impl Script {
    /// Passes everything on as it is.
    pub fn clean() -> Self {
        Self { seed: 0, share: 1.0, up: Faults::default(), down: Faults::default() }
    }

    /// What happens to a connection: up and down.
    pub fn plans(&self, connection: u64) -> (Plan, Plan) {
        let dice = |lane| Dice::new(self.seed, connection, lane);
        // As a fraction is below 1, a share of 1 is all of them, and of 0 none.
        if dice(2).fraction(Purpose::Share, 0) >= self.share {
            return (
                Plan::new(&Faults::default(), dice(0)),
                Plan::new(&Faults::default(), dice(1)),
            );
        }
        (Plan::new(&self.up, dice(0)), Plan::new(&self.down, dice(1)))
    }
}
