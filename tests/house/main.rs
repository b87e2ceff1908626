//! Rules for the source and its pages. They do not concern the behaviour of the library.

#[cfg(all(feature = "client", feature = "pool"))]
mod functions;
mod layering;
mod numbers;
#[cfg(all(feature = "client", feature = "pool"))]
mod promises;
#[cfg(all(feature = "client", feature = "pool"))]
mod tables;
#[cfg(all(feature = "client", feature = "pool"))]
mod wire_fields;
