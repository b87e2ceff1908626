//! Where a trace goes.

use std::io::{self, Write};

/// One line, of which nobody minds the loss.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}
