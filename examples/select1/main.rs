//! A data node: SQLite behind sessions.

#[cfg_attr(not(test), expect(dead_code, reason = "what calls it is still to come"))]
mod plan;

fn main() {}
