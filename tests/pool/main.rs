//! The pool of connections, over a fake backend.
#![cfg(feature = "pool")]

mod callbacks;
mod care;
mod checkout;
mod descriptors;
mod drops;
mod operate;
mod panics;
mod stress;
mod support;
