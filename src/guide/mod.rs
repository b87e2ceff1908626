//! The guide: pages to read, no code.
//!
//! To write a server or a proxy:
//!
//! * [`sessions`]: what happens on a connection: logging in, requests, replies, credit
//! * [`client`]: what becomes of a client's requests, what is bounded, and what a pool is
//! * [`proxy`]: a proxy in detail: who owns a session when, what may be tried again
//! * [`storage`]: an engine that takes locks and waits for the disk: row locks, group commit, what is
//!   published when
//! * [`embedding`]: the crate in a host with threads and signals of its own; beside tokio, with values
//!   that pass both ways; the counterparts of what a program does with tokio
//! * [`programs`]: the example programs and their commands
//!
//! To run it:
//!
//! * [`promises`]: what a slow, hostile or dead peer can do, what limits it, and the test that shows
//!   it
//! * [`tuning`]: every tunable with default and range, those of PolarDB-X and what became of them,
//!   and how they are set by name, from files and while the runtime runs
//! * [`syscalls`]: what follows when the system refuses, for each call and each errno
//! * [`performance`]: what it costs beside other architectures, measured, and where it loses; numbers of
//!   single mechanisms and of the example programs, with their records
//!
//! To understand or change it:
//!
//! * [`design`]: the questions that shaped the crate, each with the answer and what was rejected
//! * [`concurrency`]: who may touch what, and why nothing is forgotten
//! * [`weaknesses`]: what servers, clients and pools of this kind got wrong, and the test that shows it is
//!   not so here
//! * [`wire`]: the wire format that the codec speaks, from the frame to the cell
//!
#![doc = include_str!("glossary.md")]
#![allow(clippy::doc_markdown, reason = "prose")]

#[doc = include_str!("design.md")]
pub mod design {}

#[doc = include_str!("concurrency.md")]
pub mod concurrency {}

#[doc = include_str!("promises.md")]
pub mod promises {}

#[doc = include_str!("weaknesses.md")]
pub mod weaknesses {}

#[doc = include_str!("syscalls.md")]
pub mod syscalls {}

#[doc = include_str!("tuning.md")]
pub mod tuning {}

#[doc = include_str!("wire.md")]
pub mod wire {}

#[doc = include_str!("sessions.md")]
pub mod sessions {}

#[doc = include_str!("client.md")]
pub mod client {}

#[doc = include_str!("proxy.md")]
pub mod proxy {}

#[doc = include_str!("storage.md")]
pub mod storage {}

#[doc = "# Performance"]
#[doc = ""]
#[doc = include_str!("performance.svg")]
#[doc = ""]
#[doc = include_str!("performance.md")]
#[doc = ""]
#[doc = include_str!("numbers.md")]
pub mod performance {}

#[doc = include_str!("programs.md")]
#[doc = ""]
#[doc = include_str!("status.html")]
pub mod programs {}

#[doc = include_str!("embedding.md")]
#[doc = ""]
#[doc = include_str!("async.md")]
#[doc = ""]
#[doc = include_str!("from_tokio.md")]
pub mod embedding {}
