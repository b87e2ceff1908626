//! How the data nodes stand, as a table.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use epoll_group::pool::BackendStatus;

use crate::nodes::Name;

/// A line for each node.
pub fn write(all: &[BackendStatus<Name>], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<8} {:<8} {:>6} {:>6} {:>8} {:>11} {:>9} {:>9} {:>11}",
        "node",
        "state",
        "in use",
        "idle",
        "waiting",
        "handed out",
        "connects",
        "discarded",
        "failed over"
    )?;
    for status in all {
        let name = format!("{}#{}", status.key, status.version);
        let totals = &status.totals;
        writeln!(
            out,
            "{name:<8} {:<8} {:>6} {:>6} {:>8} {:>11} {:>9} {:>9} {:>11}",
            status.state.to_string(),
            status.in_use,
            status.idle,
            status.waiting,
            totals.handed_out,
            totals.connects,
            totals.discarded,
            totals.failed_over
        )?;
    }
    Ok(())
}
