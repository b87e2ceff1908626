//! Lock of the index. It is std's, because threads hold it for a few instructions. It is held
//! longer only while the file of a failed disk is opened again. The model uses loom's.

#[cfg(feature = "model")]
pub(crate) use loom::sync::RwLock;
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::RwLock;
