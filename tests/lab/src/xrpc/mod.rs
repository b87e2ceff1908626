//! The client half of the protocol: blocking, over a plain socket, and strict.
//!
//! [`Client`] sends requests and reads replies. It checks each frame against the table of frames
//! that a client accepts ([`legal`]), so that every test that uses it checks the order of frames as
//! well. [`conversation`] plays recordings of a real client to a server and compares the answers.
//!
//! Everything that waits gives up at [`DEADLINE`], so that a test fails and does not hang.

#![allow(unused_imports, reason = "each test file uses a part of this")]

pub mod client;
pub mod conversation;
pub mod datum;
pub mod exchange;
pub mod legal;
pub mod play;
pub mod reply;
pub mod request;

pub use client::{Client, RawFrame, Trouble};
pub use conversation::{Conversation, conversations};
pub use datum::Datum;
pub use exchange::{Exchange, Outcome};
pub use legal::{Asked, Illegal, Legal, Ticket};
pub use play::{Chop, Difference, Pair, Target, Transcript, What, play};
pub use reply::{Failure, Reply};

use std::time::Duration;

/// Longest wait for an answer. Longer under a sanitizer, which is slow.
pub const DEADLINE: Duration =
    Duration::from_secs(if option_env!("SANITIZER").is_some() { 200 } else { 60 });

/// Bit in the number of a session that needs no opening and lasts for one statement.
pub const AUTO: u64 = 1 << 63;
