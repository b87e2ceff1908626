//! A state against frames that are made by hand, without a socket or a clock.

mod bench;
mod deadlines;
mod login;
mod replies;
mod simulation;
mod windows;
