//! A transactional key-value store on `epoll-group`: how an engine that takes locks and waits for the
//! disk is put behind sessions.
//!
//! ```text
//!  sessions          a transaction                                     one flush for all that wait
//!  ┌─────────┐   ┌───────────────────────────────┐  staged, in order  ┌─────────────────────────┐
//!  │ execute │──▶│ lock rows, compare, register  │───────────────────▶│ 1. write data, flush    │
//!  │  defers │   │ a revision (the index is read)│                    │ 2. insert into the index│
//!  └─────────┘   └───────────────────────────────┘                    │ 3. answer               │
//!       ▲                                                             └────────────┬────────────┘
//!       └──────────────────────────── replies ─────────────────────────────────────┘
//!
//!  reads: index and snapshot under its read lock, then values without any lock
//! ```
//!
//! The [index](index::Index) is in memory: key to revisions. The data is in an [engine](engine::Engine):
//! revision to record. A revision is put into the index when its data is durable, and not before: so
//! that no flag "not yet available" is needed, and what a reader finds in the index is in the store.
//! Two other orders are there to be measured against it, see [`Design`].
//!
//! * [`store`]: open, transactions, reads, compaction
//! * [`statement`], [`service`]: the store behind sessions of the XRPC protocol
//! * [`serve`]: a server in this process
//! * [`client`]: its client, with types
//! * [`load`]: loads a server
#![forbid(unsafe_code)]

pub mod client;
mod commit;
mod design;
pub mod engine;
mod error;
mod evaluate;
pub mod index;
pub mod load;
mod record;
mod rows;
pub mod serve;
pub mod service;
mod shim;
pub mod statement;
pub mod store;
mod txn;
use lab::units;

pub use design::Design;
pub use error::StoreError;
pub use record::{Key, Record, Revision};
pub use txn::{Compare, Entry, Found, KeyRange, Op, OpResult, Outcome, Relation, Target, Txn};
