//! What the runtime counts and times, and how a host reads it.
//!
//! Writers own a block of counters each, so that nothing is shared where it is hot; a reader
//! sums the blocks into a [`Snapshot`], a plain value without locks or references. Counting never
//! orders anything: every access is relaxed, and a snapshot that is taken while the runtime works
//! may see one counter of a story and not yet the other.
//!
//! How long each [`Stage`] of the work takes is recorded in a [`Histogram`] per stage and group,
//! while that is switched on.
//!
//! A snapshot leaves as text for people (`Display`), as lines for programs
//! ([`Snapshot::to_lines`]) or, with the feature `metrics`, through the facade of that name
//! (`Exporter`).
//!
//! This module knows names and numbers, not what they are about.

#![forbid(unsafe_code)]

mod counter;
#[cfg(feature = "metrics")]
mod export;
mod histogram;
mod snapshot;
mod table;
mod text;

pub use self::counter::Counter;
pub(crate) use self::counter::Counters;
#[cfg(feature = "metrics")]
pub use self::export::Exporter;
pub(crate) use self::histogram::Histograms;
pub use self::histogram::{Histogram, Stage};
pub use self::snapshot::Snapshot;
