//! Tables: columns for terminals, Markdown for pages.

use comfy_table::{CellAlignment, ContentArrangement, presets};

pub use comfy_table::Table;

/// Columns with two blanks between them. Lines start with the first column.
pub fn plain(heading: &[&str]) -> Table {
    let mut table = table(presets::NOTHING, heading);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table
}

/// The same, with numbers at the right in all columns but the first.
pub fn numbers(heading: &[&str]) -> Table {
    let mut table = plain(heading);
    let columns = table.column_iter_mut().skip(1);
    columns.for_each(|column| {
        column.set_cell_alignment(CellAlignment::Right);
    });
    table
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
        assert_eq!(columns.trim_fmt(), "a       load\nµ-long  1");
        let mut right = numbers(&["a", "load"]);
        right.add_row(["µ-long", "1"]);
        assert_eq!(right.trim_fmt(), "a       load\nµ-long     1");
    }
}
