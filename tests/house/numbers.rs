//! Measured numbers of the pages: each ratio with an interval is in a record that its page names.

use std::fs;
use std::path::{Path, PathBuf};

/// A ratio and the ends of its interval, as they are written.
type Measured<'a> = [&'a str; 3];

/// The ratios of a text: `1.02 [1.00–1.03]`, also with `x` behind the ratio.
fn measured(text: &str) -> Vec<Measured<'_>> {
    let brackets = text.match_indices('[');
    brackets.filter_map(|(at, _)| measured_at(&text[..at], &text[at + 1..])).collect()
}

fn measured_at<'a>(before: &'a str, behind: &'a str) -> Option<Measured<'a>> {
    let before = before.trim_end().trim_end_matches('x').trim_end();
    let ratio = before.rsplit(|c: char| !is_of_number(c)).next()?;
    let (low, behind) = behind.split_once('–')?;
    let high = behind.split(|c: char| !is_of_number(c)).next()?;
    [ratio, low, high]
        .iter()
        .all(|number| number.parse::<f64>().is_ok())
        .then_some([ratio, low, high])
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// True if the numbers of the record, rounded to the digits of the page, are those of the page.
fn agree(page: Measured<'_>, record: Measured<'_>) -> bool {
    page.iter().zip(record).all(|(page, record)| {
        let digits = page.split_once('.').map_or(0, |(_, digits)| digits.len());
        let difference = page.parse::<f64>().unwrap() - record.parse::<f64>().unwrap();
        difference.abs() <= 0.5 * 0.1_f64.powi(digits as i32) + 1e-9
    })
}

/// The names of records in a page: a date, and what follows it.
fn names(page: &str) -> Vec<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words = page.split(|c| !is_of_name(c));
    words
        .filter(|word| word.len() > 11 && word.starts_with("202") && word[10..].starts_with('-'))
        .collect()
}

/// The texts of a record: a file, or the files of a folder.
fn texts(record: &Path) -> Vec<String> {
    if record.is_dir() {
        let entries = fs::read_dir(record).unwrap();
        return entries.flat_map(|entry| texts(&entry.unwrap().path())).collect();
    }
    let is_text = record.extension().is_some_and(|end| end == "md");
    if is_text { vec![fs::read_to_string(record).unwrap()] } else { Vec::new() }
}

/// README, the guide and the other pages, each with its path.
fn pages(root: &Path) -> Vec<(PathBuf, String)> {
    let guide = fs::read_dir(root.join("src/guide")).unwrap().map(|entry| entry.unwrap().path());
    let others = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name));
    let pages = guide.chain(others).filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages.map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn each_record_is_named_by_a_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages(root);
    let names: Vec<_> = pages.iter().flat_map(|(_, text)| names(text)).collect();
    for entry in fs::read_dir(root.join("benches/record")).unwrap() {
        let record = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.iter().any(|name| record.starts_with(name)), "no page names {record}");
    }
}

#[test]
fn each_interval_is_in_a_record_that_its_page_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let records = root.join("benches/record");
    let mut intervals = 0;
    for (page, text) in pages(root) {
        let mut found = Vec::new();
        for name in names(&text) {
            let [file, folder] = [records.join(format!("{name}.md")), records.join(name)];
            let file = if file.exists() { file } else { folder };
            assert!(file.exists(), "{}: there is no record {name}", page.display());
            found.extend(texts(&file));
        }
        let recorded: Vec<_> = found.iter().flat_map(|text| measured(text)).collect();
        for number in measured(&text) {
            let is_recorded = recorded.iter().any(|other| agree(number, *other));
            assert!(is_recorded, "{}: {number:?} is in no record that it names", page.display());
            intervals += 1;
        }
    }
    assert!(intervals > 30, "{intervals} intervals were found");
}

#[test]
fn numbers_are_compared_as_far_as_a_page_shows_them() {
    let page = measured("a ratio of 19 x [16–26], 0.92 [0.90–0.93, 95 %], [a link], and [1–2]");
    assert_eq!(page, [["19", "16", "26"], ["0.92", "0.90", "0.93"]]);
    assert!(agree(page[0], ["19.3", "15.6", "26.49"]));
    assert!(!agree(page[0], ["19.6", "15.6", "26.4"]));
    assert!(!agree(page[1], ["0.92", "0.90", "0.94"]));
}

/// Lines of tables in a text, without the space around cells.
fn table_rows(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with('|') && !line.starts_with("|-"));
    rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>().join("|")).collect()
}

#[test]
fn each_table_of_the_report_is_on_a_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let records = fs::read_dir(root.join("benches/record")).unwrap();
    let reports = records.map(|entry| entry.unwrap().path().join("summary.md"));
    let newest = reports.filter(|summary| summary.exists()).max().expect("there is a report");
    let summary = fs::read_to_string(newest).unwrap();
    let told: Vec<_> = pages(root).iter().flat_map(|(_, text)| table_rows(text)).collect();
    let rows = table_rows(&summary);
    assert!(rows.len() > 40, "{} rows", rows.len());
    let missing: Vec<_> = rows.iter().filter(|row| !told.contains(row)).collect();
    assert!(missing.is_empty(), "no page has these rows: {missing:#?}");
    assert!(!summary.contains("Left out"), "a part of the report is missing: {summary}");
}
