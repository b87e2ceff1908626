//! [`Table`]: rows as text, with the cells of a column below one another.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Rows of one result. They are printed by the thousand or by the MiB, so that a large result needs no
/// more room than that; table libraries keep all rows. Later rows may widen a column.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<Heading>,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
    /// Length of all cells in `rows`.
    bytes: usize,
    style: Style,
    printed: u64,
}

/// Heading of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) label: String,
    /// Numbers stand at the right.
    pub(crate) is_number: bool,
}

/// How rows are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// Cells longer than this many columns are cut.
    pub(crate) cut: Option<usize>,
    /// One value a line.
    pub(crate) vertical: bool,
}

/// Rows that are looked at before the first is printed.
const ROWS: usize = 1000;
/// Bytes of kept rows at which they are printed. The last row may exceed this limit.
const BYTES: usize = 1 << 20;

impl Table {
    pub(crate) fn new(headings: Vec<Heading>, style: Style) -> Self {
        let widths = headings.iter().map(|heading| heading.label.width()).collect();
        Self { headings, widths, rows: Vec::new(), bytes: 0, style, printed: 0 }
    }

    /// Takes a row, with as many cells as there are headings.
    pub(crate) fn push(&mut self, mut row: Vec<String>, out: &mut impl Write) -> io::Result<()> {
        if let Some(cut) = self.style.cut.filter(|_| !self.style.vertical) {
            row.iter_mut().for_each(|cell| shorten(cell, cut));
        }
        self.bytes += row.iter().map(String::len).sum::<usize>();
        self.rows.push(row);
        if self.rows.len() == ROWS || self.bytes >= BYTES { self.flush(out) } else { Ok(()) }
    }

    /// Prints what is there; the headings, too, when nothing was printed before.
    pub(crate) fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if self.style.vertical {
            return self.print_vertical(&rows, out);
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        if self.printed == 0 {
            let labels: Vec<_> = self.headings.iter().map(|heading| &*heading.label).collect();
            self.print_line(&labels, out)?;
            let dashes: Vec<_> = self.widths.iter().map(|&width| "-".repeat(width)).collect();
            writeln!(out, "-{}-", dashes.join("-+-"))?;
        }
        for row in &rows {
            self.print_line(row, out)?;
        }
        self.printed += rows.len() as u64;
        Ok(())
    }

    fn print_line(&self, cells: &[impl AsRef<str>], out: &mut impl Write) -> io::Result<()> {
        let columns = self.headings.iter().zip(&self.widths);
        let cells = cells.iter().zip(columns);
        let cells = cells.map(|(cell, (head, &width))| pad(cell.as_ref(), width, head.is_number));
        let line = cells.collect::<Vec<_>>().join(" | ");
        writeln!(out, " {}", line.trim_end())
    }

    fn print_vertical(&mut self, rows: &[Vec<String>], out: &mut impl Write) -> io::Result<()> {
        let width = self.headings.iter().map(|heading| heading.label.width()).max().unwrap_or(0);
        for row in rows {
            self.printed += 1;
            writeln!(out, "--- row {} ---", self.printed)?;
            for (heading, cell) in self.headings.iter().zip(row) {
                writeln!(out, "{}: {cell}", pad(&heading.label, width, true))?;
            }
        }
        Ok(())
    }
}

fn pad(text: &str, width: usize, right: bool) -> String {
    let space = " ".repeat(width.saturating_sub(text.width()));
    if right { space + text } else { text.to_owned() + &space }
}

/// Keeps so many columns of a text, with a sign that there was more.
fn shorten(text: &mut String, columns: usize) {
    if text.width() <= columns {
        return;
    }
    let mut width = 1;
    let end = text.char_indices().find(|(_, char)| {
        width += char.width().unwrap_or(0);
        width > columns
    });
    text.truncate(end.map_or(text.len(), |(place, _)| place));
    text.push('…');
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { cut: None, vertical: false };

    /// `#` in front of the label of a column of numbers.
    fn heading(label: &str) -> Heading {
        let (label, is_number) = match label.strip_prefix('#') {
            Some(label) => (label, true),
            None => (label, false),
        };
        Heading { label: label.to_owned(), is_number }
    }

    fn printed(labels: &[&str], rows: &[&[&str]], style: Style) -> String {
        let mut table = Table::new(labels.iter().map(|label| heading(label)).collect(), style);
        let mut out = Vec::new();
        for row in rows {
            let row = row.iter().map(ToString::to_string).collect();
            table.push(row, &mut out).expect("a Vec takes everything");
        }
        table.flush(&mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn columns_are_aligned_and_numbers_stand_at_the_right() {
        let rows: &[&[&str]] = &[&["7", "short"], &["NULL", "a bit longer"], &["-1000", ""]];
        let expected = "
    id | name
-------+--------------
     7 | short
  NULL | a bit longer
 -1000 |
";
        assert_eq!(printed(&["#id", "name"], rows, PLAIN), expected[1..]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let expected = "
 c        | n
----------+---
 数据库   | 1
 database | 2
";
        let rows: &[&[&str]] = &[&["数据库", "1"], &["database", "2"]];
        assert_eq!(printed(&["c", "#n"], rows, PLAIN), expected[1..]);
    }

    #[test]
    fn long_cells_are_cut_only_if_that_is_asked_for() {
        let rows: &[&[&str]] = &[&["0123456789", "数据库", "12345"]];
        let cut = Style { cut: Some(5), ..PLAIN };
        assert!(printed(&["a", "b", "c"], rows, cut).contains(" 0123… | 数据… | 12345\n"));
        assert!(printed(&["a", "b", "c"], rows, PLAIN).contains(" 0123456789 | 数据库 | 12345\n"));
    }

    #[test]
    fn no_rows_have_a_heading_all_the_same() {
        assert_eq!(printed(&["#id", "c"], &[], PLAIN), " id | c\n----+---\n");
    }

    #[test]
    fn a_large_result_has_one_heading() {
        let numbers: Vec<_> = (0..=2 * ROWS).map(|row| row.to_string()).collect();
        let rows: Vec<_> = numbers.iter().map(|number| [number.as_str()]).collect();
        let rows: Vec<&[&str]> = rows.iter().map(|row| &row[..]).collect();
        let printed = printed(&["#n"], &rows, PLAIN);
        assert_eq!(printed.lines().count(), 2 + 2 * ROWS + 1);
        assert!(printed.ends_with(" 2000\n"), "{printed}");
    }

    #[test]
    fn large_cells_are_not_kept() {
        for cut in [None, Some(5)] {
            let mut table = Table::new(vec![heading("c")], Style { cut, ..PLAIN });
            for _ in 0..100 {
                table.push(vec!["x".repeat(BYTES / 10)], &mut io::sink()).expect("a sink");
                let kept: usize = table.rows.iter().flatten().map(String::capacity).sum();
                assert!(kept < BYTES, "{kept}, cut {cut:?}");
            }
        }
    }

    #[test]
    fn rows_can_stand_below_one_another() {
        let vertical = Style { cut: Some(3), vertical: true };
        let expected = "--- row 1 ---\n  id: 1\nname: a long text\n";
        assert_eq!(printed(&["#id", "name"], &[&["1", "a long text"]], vertical), expected);
    }
}
