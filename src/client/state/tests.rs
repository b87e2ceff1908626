//! A state against hand-made frames, without a socket or a clock.

mod bench;
mod deadlines;
mod login;
mod replies;
mod windows;
