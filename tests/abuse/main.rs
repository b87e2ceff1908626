//! Attacking peers, beside neighbours that must get their answers.
//!
//! The tests run one at a time, because each looks at the descriptors of the process.
#![cfg(feature = "server")]

mod bystanders;
mod ends;
mod floods;
mod frames;
mod logins;
mod memory;
mod slow;
mod tokens;

#[global_allocator]
static ALLOCATOR: lab::allocator::Noting = lab::allocator::LIVE;
