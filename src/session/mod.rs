//! Sessions over connections.

#![forbid(unsafe_code)]
#![allow(dead_code, reason = "what uses these parts is still to come")]

mod error;

pub use error::{AuthError, SessionError};
