//! A data node: SQL and execution plans over SQLite, for clients of the protocol.

mod columns;
mod dialect;
mod plan;

fn main() {
    // Here as long as nothing else calls it.
    let _ = (plan::execute, plan::Cache::default());
}
