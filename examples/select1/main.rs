//! A data node: SQL and execution plans over SQLite, for clients of the protocol.

mod columns;
mod dialect;

fn main() {}
