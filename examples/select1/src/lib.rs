//! A data node: SQL and execution plans over SQLite, as a service of the session layer.
//!
//! `node/engine.rs` is the file to read first. The program of the same name serves and loads one.

pub mod node;

pub use node::*;
