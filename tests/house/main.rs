//! What holds for the source and its pages, and not for the behaviour of the library.

mod layering;
#[cfg(all(feature = "client", feature = "pool"))]
mod promises;
