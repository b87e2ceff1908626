//! What the load generator needs of the system.

#[allow(dead_code, reason = "the echo example needs all of it")]
#[path = "../echo/load/sys.rs"]
pub(crate) mod sys;
