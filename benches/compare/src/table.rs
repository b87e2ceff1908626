//! Markdown tables whose source can be read as well.

use std::fmt;

/// Rows of text under a heading; columns are as wide as they need to be.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a cell for each column");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chars = |cell: &String| cell.chars().count();
        let column = |place: usize| self.rows.iter().map(move |row| chars(&row[place]));
        let widths: Vec<usize> =
            (0..self.rows[0].len()).map(|place| column(place).max().unwrap_or(0)).collect();
        for (place, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")?;
            if place == 0 {
                for width in &widths {
                    write!(f, "|{:-<1$}", "", width + 2)?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// `12.3 µs`: three digits and a unit.
pub(crate) fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        _ if nanos < 999.5 => (nanos, "ns"),
        _ if nanos < 999.5e3 => (nanos / 1e3, "µs"),
        _ => (nanos / 1e6, "ms"),
    };
    let decimals = match value {
        _ if unit == "ns" => 0,
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// What is not known has a dash in its cell.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_padded_to_their_widest_cell() {
        let mut table = Table::new(&["a", "load"]);
        table.row(vec!["µ-long".to_owned(), "1".to_owned()]);
        let expected = "\
| a      | load |
|--------|------|
| µ-long | 1    |
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(time(250.4), "250 ns");
        assert_eq!(time(2_504.0), "2.50 µs");
        assert_eq!(time(5_120_000.0), "5.12 ms");
    }
}
