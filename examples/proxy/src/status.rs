//! The state of the data nodes, as a table.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use epoll_group::pool::BackendStatus;
use lab::table;

use crate::nodes::Name;

/// Writes a line for each node.
pub fn write(all: &[BackendStatus<Name>], out: &mut impl Write) -> io::Result<()> {
    let mut table = table::numbers(&[
        "node",
        "in use",
        "idle",
        "waiting",
        "handed out",
        "connects",
        "discarded",
        "failed over",
        "state",
    ]);
    for status in all {
        let totals = &status.totals;
        table.add_row([
            format!("{}#{}", status.key, status.version),
            status.in_use.to_string(),
            status.idle.to_string(),
            status.waiting.to_string(),
            totals.handed_out.to_string(),
            totals.connects.to_string(),
            totals.discarded.to_string(),
            totals.failed_over.to_string(),
            status.state.to_string(),
        ]);
    }
    writeln!(out, "{}", table.trim_fmt())
}
