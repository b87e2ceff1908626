//! Peers that mean harm, beside neighbours that must get their answers.
//!
//! One test at a time: each looks at the descriptors of the process.
#![cfg(feature = "server")]

mod bystanders;
mod ends;
mod floods;
mod frames;
mod logins;
mod memory;
mod slow;
mod tokens;
