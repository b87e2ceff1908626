//! Attackers: peers that do, in large numbers, what a network service must expect, until they are
//! stopped.
//!
//! Each [`Abuse`] drives any number of connections from few threads, without the crate's runtime,
//! so that only the server is measured. Attackers whose connection is closed connect again. If the
//! target is on this machine, they use addresses of their own, so that limits per address tell them
//! from other peers.
//!
//! [`bystanders`] are well-behaved peers, which only want their answers.

pub mod bout;
pub mod bystanders;
pub mod crowd;
mod ends;
mod floods;
pub mod frames;
mod holes;
mod logins;
pub mod poll;
mod silent;
mod slow;
mod tokens;
pub mod wire;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

/// Server under attack, and an account of it.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    /// True if the server has logins. Without logins it echoes frames of any kind.
    pub logins: bool,
    pub user: String,
    pub password: String,
    /// A statement with a small result.
    pub small: String,
    /// A statement with a result of some MiB.
    pub large: String,
}

/// Settings for one run of an abuse.
#[derive(Debug)]
pub struct Course<'a> {
    pub peers: usize,
    pub seed: u64,
    pub stop: &'a AtomicBool,
}

/// Result as the attackers see it. Every connection and every request is in exactly one of the
/// counts.
///
/// ```text
/// connected = closed_by_server + kept
/// requests  = answered + failed + cut
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub connected: u64,
    /// The system refused the connection.
    pub refused: u64,
    pub closed_by_server: u64,
    /// Open at the end, or ended by the attacker.
    pub kept: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub requests: u64,
    pub answered: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Not answered, or the answer was not read.
    pub cut: u64,
}

impl Tally {
    pub const fn add(&mut self, other: &Self) {
        self.connected += other.connected;
        self.refused += other.refused;
        self.closed_by_server += other.closed_by_server;
        self.kept += other.kept;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.requests += other.requests;
        self.answered += other.answered;
        self.failed += other.failed;
        self.cut += other.cut;
    }

    /// True if every connection and every request is counted once.
    pub const fn is_even(&self) -> bool {
        self.connected == self.closed_by_server + self.kept
            && self.requests == self.answered + self.failed + self.cut
    }
}

/// One way to harm a server.
pub struct Abuse {
    pub name: &'static str,
    pub about: &'static str,
    /// Least number of peers that make an attack.
    pub peers: usize,
    run: fn(&Target, &Course<'_>) -> Tally,
}

impl Abuse {
    /// Runs until [`Course::stop`].
    pub fn run(&self, target: &Target, course: &Course<'_>) -> Tally {
        (self.run)(target, course)
    }
}

impl std::fmt::Debug for Abuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Abuse").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All abuses.
pub const ALL: &[Abuse] = &[
    slow::ONE_BYTE_WRITERS,
    slow::SLOWLORIS,
    slow::SLOWLORIS_LOGGED_IN,
    slow::SLOW_READERS,
    slow::TRICKLE_READERS,
    silent::SILENT,
    silent::BLACK_HOLES,
    silent::HALF_OPEN,
    ends::RESETS,
    ends::FINS,
    ends::HALF_CLOSES,
    ends::CHURN,
    ends::LOGIN_CHURN,
    floods::PINGS,
    floods::STRANGE_PINGS,
    floods::READ_PINGS,
    floods::EMPTY,
    floods::OFFERS,
    floods::UNKNOWN,
    floods::IDS,
    floods::SAME_ID,
    floods::PAIRS,
    floods::RAPID_RESET,
    floods::RAPID_CANCEL,
    floods::RAPID_AUTO,
    floods::QUEUES,
    floods::KILLS,
    tokens::NEVER_GRANTS,
    tokens::ZERO,
    tokens::HUGE,
    tokens::NEGATIVE,
    frames::LYING_LENGTHS,
    frames::BAD_LENGTHS,
    frames::DEEP,
    frames::REPEATS,
    frames::TEXTS,
    frames::DIRECTIONS,
    frames::STATES,
    logins::WRONG_PASSWORDS,
    logins::SCATTERED_PASSWORDS,
    logins::UNKNOWN_USERS,
    logins::REPLAYED,
    logins::TRUNCATED,
    logins::HUGE_FIELDS,
];

/// Returns the abuse with this name.
pub fn named(name: &str) -> Option<&'static Abuse> {
    ALL.iter().find(|abuse| abuse.name == name)
}
