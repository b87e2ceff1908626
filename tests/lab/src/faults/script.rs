//! [`Script`]: the faults that connections get, as an operator or a test says them.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::plan::Plan;
use crate::random::splitmix;

/// Faults of the connections of a relay.
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

/// Faults of one direction, in the order in which they are applied.
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
    /// Number of bytes passed on.
    Byte(u64),
    /// Time after the connection was made.
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

/// Direction of bytes on a connection.
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

    /// Plans of a connection, up and down.
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

/// Random numbers of one direction of one connection. A number depends on the seed, the connection and
/// the position alone, so that faults do not depend on how reads cut the stream.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

/// Draws for one purpose are independent of those for another.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Share,
    Jitter,
    Chop,
    Flip,
    Bit,
}

impl Dice {
    /// `lane` tells the directions apart.
    pub const fn new(seed: u64, connection: u64, lane: u64) -> Self {
        Self(splitmix(splitmix(splitmix(seed) ^ connection) ^ lane))
    }

    /// The number for a position of the stream.
    pub const fn at(self, purpose: Purpose, position: u64) -> u64 {
        splitmix(splitmix(self.0 ^ purpose as u64) ^ position)
    }

    /// The same as a fraction, at least 0 and below 1.
    pub const fn fraction(self, purpose: Purpose, position: u64) -> f64 {
        (self.at(purpose, position) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
