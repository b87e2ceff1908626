//! Sessions over connections.

#![forbid(unsafe_code)]
#![allow(dead_code, reason = "what uses these parts is still to come")]

mod auth;
mod cache;
mod error;
mod logins;

pub use auth::Login;
pub use error::{AuthError, SessionError};
