//! Text for Prometheus: the numbers of the runtime, and the tables.

use super::Status;

/// Media type of the format, without the character set.
pub(super) const TYPE: &str = "text/plain; version=0.0.4";

pub(super) fn render(status: &Status) -> String {
    let mut text = status.handle.stats().to_prometheus();
    text += "# HELP epoll_group_table numbers of the host, by table, row and column\n\
             # TYPE epoll_group_table untyped\n";
    for table in &status.tables {
        for (row, numbers) in (table.rows)() {
            for (column, number) in table.columns.iter().zip(numbers) {
                let [table, row, column] = [&table.name, &row, column].map(|text| label(text));
                text += &format!(
                    "epoll_group_table{{table=\"{table}\",row=\"{row}\",column=\"{column}\"}} {number}\n"
                );
            }
        }
    }
    text
}

/// Value of a label, as text between quotes.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
