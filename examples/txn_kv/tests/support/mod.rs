//! What the tests share: transactions that are waited for, engines that wait, files that forget, files
//! that fail, histories of writers, a naive twin, and randomness.

#![allow(dead_code, reason = "each test file is a crate of its own and uses a part of this")]

pub(crate) mod ask;
pub(crate) mod faulty;
pub(crate) mod forgetful;
pub(crate) mod gated;
pub(crate) mod history;
pub(crate) mod random;
pub(crate) mod twin;
