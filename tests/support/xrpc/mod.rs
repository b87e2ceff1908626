//! The client half of the protocol: blocking, over a plain socket, and strict.
//!
//! [`Client`] sends requests and reads replies. Whatever comes is held against the table of what a
//! client accepts ([`legal`]), so that a test that uses it checks the order of frames as well.
//! [`conversation`] plays what was recorded of a real client to a server, and compares.
//!
//! Everything that waits gives up at [`DEADLINE`], so that a test fails and does not hang.

#![allow(unused_imports, reason = "each test file uses a part of this")]

pub(crate) mod client;
pub(crate) mod conversation;
pub(crate) mod datum;
pub(crate) mod exchange;
pub(crate) mod legal;
pub(crate) mod play;
pub(crate) mod reply;
pub(crate) mod request;

pub(crate) use client::{Client, RawFrame, Trouble};
pub(crate) use conversation::{Conversation, conversations};
pub(crate) use datum::Datum;
pub(crate) use exchange::{Exchange, Outcome};
pub(crate) use legal::{Asked, Illegal, Legal, Ticket};
pub(crate) use play::{Chop, Difference, Pair, Target, Transcript, What, play};
pub(crate) use reply::{Failure, Reply};

use std::time::Duration;

/// How long anything is waited for. Longer under a sanitizer, which is slow.
pub(crate) const DEADLINE: Duration =
    Duration::from_secs(if option_env!("SANITIZER").is_some() { 200 } else { 20 });

/// What marks a session that needs no opening and lasts for one statement.
pub(crate) const AUTO: u64 = 1 << 63;
