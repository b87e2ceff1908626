//! Shared support of the tests: transactions that are waited for, engines that wait, files that
//! forget, files that fail, histories of writers, a naive twin.

pub(crate) mod ask;
pub(crate) mod faulty;
pub(crate) mod forgetful;
pub(crate) mod gated;
pub(crate) mod history;
pub(crate) mod twin;
