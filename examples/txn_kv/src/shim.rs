//! The lock of the index: the crate's, or loom's for its model.

#[cfg(not(feature = "model"))]
pub(crate) use epoll_group::sync::RwLock;
#[cfg(feature = "model")]
pub(crate) use loom::sync::RwLock;
