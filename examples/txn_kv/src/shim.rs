//! Lock of the index. It is std's, because its holders do not wait for the disk. The only
//! exception: the file of a failed disk is opened again under the lock. The model uses loom's.

#[cfg(feature = "model")]
pub(crate) use loom::sync::RwLock;
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::RwLock;
