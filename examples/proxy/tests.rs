//! Over TCP, with clients of the library.
