//! The lock of the index: std's, because it is held for instructions, and longer only by who opens a file
//! again whose disk has failed; loom's for its model.

#[cfg(feature = "model")]
pub(crate) use loom::sync::RwLock;
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::RwLock;
