//! Tests of the client of the session tests: the frames it refuses, and the differences between
//! replies that it finds. All other tests of sessions show that it accepts what servers say.

mod datum;
mod legal;
mod play;
