//! The client of the session tests, tested: what it accepts, what it refuses, how it reads replies
//! and plays what was recorded. The servers here are toys, and one that repeats a recording.

mod client;
mod datum;
mod legal;
mod play;
mod servers;
