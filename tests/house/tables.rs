//! Tables of the guide's pages.

use std::collections::BTreeMap;

/// The rows of all tables of a page that have this column, each as column → text.
pub(super) fn rows(page: &'static str, column: &str) -> Vec<BTreeMap<&'static str, &'static str>> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim);
    let mut found = Vec::new();
    let mut head = Vec::new();
    for line in page.lines() {
        if !line.starts_with('|') {
            head.clear();
        } else if head.is_empty() {
            head = cells(line).collect();
        } else if head.contains(&column) && !line.starts_with("|---") {
            assert_eq!(cells(line).count(), head.len(), "{line}");
            found.push(head.iter().copied().zip(cells(line)).collect());
        }
    }
    found
}
