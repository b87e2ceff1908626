//! A data node: SQLite behind sessions.

mod plan;

fn main() {
    // Here as long as nothing else calls it.
    let _ = plan::execute;
    let _ = plan::Cache::default();
}
