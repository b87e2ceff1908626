//! Tests of the client of the session tests: which frames it accepts and refuses, how it reads
//! replies and plays recordings. The servers here are toys and a player of recordings.

mod client;
mod datum;
mod legal;
mod play;
mod servers;
