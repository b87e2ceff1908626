//! Tables: columns for terminals, Markdown for pages.

use comfy_table::{ContentArrangement, presets};

pub use comfy_table::Table;

/// Columns with blanks between them.
pub fn plain(heading: &[&str]) -> Table {
    table(presets::NOTHING, heading)
}

/// Markdown whose source is aligned as well.
pub fn markdown(heading: &[&str]) -> Table {
    table(presets::ASCII_MARKDOWN, heading)
}

fn table(preset: &str, heading: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading.to_vec());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut page = markdown(&["a", "load"]);
        page.add_row(["µ-long", "1"]);
        assert_eq!(page.to_string(), "| a      | load |\n|--------|------|\n| µ-long | 1    |");
        let mut columns = plain(&["a", "load"]);
        columns.add_row(["µ-long", "1"]);
        assert_eq!(columns.trim_fmt(), " a       load\n µ-long  1");
    }
}
