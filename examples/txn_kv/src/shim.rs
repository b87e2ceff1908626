//! The lock of the index: std's, because nobody waits for a disk or a row with it; loom's for its model.

#[cfg(feature = "model")]
pub(crate) use loom::sync::RwLock;
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::RwLock;
