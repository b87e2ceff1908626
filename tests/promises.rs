//! The page of promises says what is so: each test, tunable, default and counter on it is there, and
//! what has a limit has a row.
#![forbid(unsafe_code)]

#[path = "../src/config/documents/tables.rs"]
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use epoll_group::{Config, stats};
use tables::rows;

const PAGES: [&str; 2] =
    [include_str!("../src/guide/promises.md"), include_str!("../src/guide/weaknesses.md")];

/// What stands in backticks, each with the text up to the next.
fn names(cell: &str) -> Vec<(&str, &str)> {
    let parts: Vec<_> = cell.split('`').collect();
    assert!(parts.len() % 2 == 1, "a backtick is missing: {cell}");
    parts[1..].chunks(2).map(|pair| (pair[0], pair.get(1).copied().unwrap_or(""))).collect()
}

/// All Rust files below a folder, or the one that there is instead.
fn sources(path: &Path) -> Vec<PathBuf> {
    let file = path.with_extension("rs");
    let mut found: Vec<_> = file.is_file().then_some(file).into_iter().collect();
    let Ok(entries) = fs::read_dir(path) else { return found };
    for entry in entries {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Whether there is a test of this name: `file::function` or `module::function`.
fn is_test(name: &str) -> bool {
    let (place, function) = name.rsplit_once("::").expect("a file and a function");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inside = place.replace("::", "/");
    let places = [root.join("tests").join(&inside), root.join("src").join(&inside)];
    let example = place
        .strip_prefix("examples::")
        .map(|inside| root.join("examples").join(inside.replace("::", "/")));
    let head = format!("fn {function}(");
    places
        .into_iter()
        .chain(example)
        .flat_map(|place| sources(&place))
        .any(|file| fs::read_to_string(file).expect("it can be read").contains(&head))
}

/// A number or a time as prose has it, as a tunable is written: `64 MiB` is `67108864`.
fn plain(prose: &str) -> String {
    let prose = prose.trim().trim_end_matches([',', ';']).trim();
    let digits: String = prose.chars().take_while(|c| c.is_ascii_digit() || *c == ' ').collect();
    let number: String = digits.split_whitespace().collect();
    let shift = match prose[digits.len()..].trim() {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "" => 0,
        unit @ ("ms" | "s") => return format!("{number}{unit}"),
        other => return other.to_owned(),
    };
    (number.parse::<usize>().expect("a number") << shift).to_string()
}

#[test]
fn each_test_on_the_page_is_there() {
    for page in PAGES {
        for row in rows(page, "test") {
            for (name, _) in names(row["test"]) {
                assert!(is_test(name), "no test {name}");
            }
        }
    }
}

#[test]
fn each_row_has_a_test() {
    for page in PAGES {
        let untested: Vec<_> =
            rows(page, "test").into_iter().filter(|row| names(row["test"]).is_empty()).collect();
        assert!(untested.is_empty(), "{untested:?}");
    }
}

#[test]
fn each_tunable_on_the_page_is_there_with_its_default() {
    for row in rows(PAGES[0], "tunable, default") {
        for (name, value) in names(row["tunable, default"]) {
            if name == "drain" {
                continue;
            }
            let field = Config::FIELDS.iter().find(|field| field.name() == name);
            let field = field.unwrap_or_else(|| panic!("no tunable {name}"));
            assert_eq!(plain(value), field.default_value(), "{name}");
        }
    }
}

#[test]
fn each_tunable_is_on_the_page() {
    let named: BTreeSet<_> = names(PAGES[0]).into_iter().map(|(name, _)| name).collect();
    let missing: Vec<_> =
        Config::FIELDS.iter().map(|field| field.name()).filter(|n| !named.contains(n)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn each_counter_on_the_page_is_there_and_each_that_tells_of_a_limit_is_on_it() {
    let snapshot = stats::Snapshot::default();
    let lines = snapshot.to_lines();
    let known: BTreeSet<_> = lines.lines().filter_map(|line| line.split(' ').next()).collect();
    let mut named = BTreeSet::new();
    for row in rows(PAGES[0], "counter") {
        for (name, _) in names(row["counter"]) {
            assert!(known.contains(name), "no counter {name}");
            named.insert(name);
        }
    }
    let words = ["closed", "refused", "limited", "cut", "expired", "failed", "errors", "panics"];
    let tells = |name: &str| name.split('_').any(|word| words.contains(&word));
    let missing: Vec<_> =
        known.into_iter().filter(|name| tells(name) && !named.contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_ratios_of_the_abuses_are_those_of_the_record() {
    let record = include_str!("../benches/record/2026-11-22-hardening/abuse.md");
    let ratios = |row: &BTreeMap<&str, &str>| {
        let column = |name| row[name].replace('*', "");
        (row["abuse"].replace('`', ""), column("p99 B / A"), column("p99 B / C"))
    };
    let told: Vec<_> = rows(PAGES[0], "abuse").iter().map(ratios).collect();
    let measured = rows(record, "abuse");
    let measured: Vec<_> = measured.iter().map(ratios).filter(|row| row.0 != ":--").collect();
    assert_eq!(told, measured);
    assert_eq!(told.len(), 44);
}
