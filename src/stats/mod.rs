//! Counters and histograms of the runtime, and their export to a host.
//!
//! Each writer owns a block of counters, so that hot paths share no memory. A reader sums the
//! blocks into a [`Snapshot`], a plain value without locks or references. Counting never orders
//! anything: every access is relaxed. A snapshot that is taken while the runtime works may see one
//! counter of an operation and not yet the other.
//!
//! The duration of each [`Stage`] of the work is recorded in a [`Histogram`] per stage and group,
//! while that is switched on.
//!
//! A snapshot leaves as text for people (`Display`), as lines for programs ([`Snapshot::to_lines`]), in
//! the format of Prometheus ([`Snapshot::to_prometheus`]) or, with the feature `metrics`, through the
//! facade of that name (`Exporter`).
//!
//! This module knows names and numbers, not their subjects.

#![forbid(unsafe_code)]

mod counter;
#[cfg(feature = "metrics")]
mod export;
mod histogram;
mod prometheus;
mod snapshot;
mod text;

pub use self::counter::Counter;
pub(crate) use self::counter::Counters;
#[cfg(feature = "metrics")]
pub use self::export::Exporter;
pub(crate) use self::histogram::Histograms;
pub use self::histogram::{Histogram, Stage};
pub use self::snapshot::Snapshot;
#[cfg(feature = "status")]
pub(crate) use self::text::Short;

/// Declares an enum whose variants have a name and a meaning, so that no name, help text or position is written twice.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $enum:ident;
        $($variant:ident $name:literal $help:literal,)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $enum {
            $(#[doc = concat!("`", $name, "`: ", $help, ".")] $variant,)+
        }

        impl $enum {
            /// All variants, in the order of the text form.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name in snake case, fit for a metrics system.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Meaning, in one line.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => $help,)+
                }
            }
        }
    };
}

use named;
