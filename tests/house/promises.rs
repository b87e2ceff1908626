//! Compares the guide's pages of promises and weaknesses with the crate: tests, tunables, defaults,
//! counters and constants exist as the pages name them, every limit has an item, and the measured
//! numbers are those of the record.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use epoll_group::{Config, stats};

use crate::functions::{functions, reached, reads};
use crate::tables::rows;

const PAGES: [&str; 2] =
    [include_str!("../../src/guide/promises.md"), include_str!("../../src/guide/weaknesses.md")];

/// An item of a list on one of the pages.
#[derive(Debug)]
struct Item {
    section: &'static str,
    /// First line: the promise, with its tunables and counters.
    promise: &'static str,
    /// Other lines: the tests, then `: ` and the measured number.
    evidence: String,
}

impl Item {
    /// Returns the tests, and the measured number, which the page of weaknesses does not have.
    fn parts(&self) -> (&str, &str) {
        let end = self.evidence.find("`: ").map_or(self.evidence.len(), |end| end + 1);
        let (tests, measured) = self.evidence.split_at(end);
        (tests, measured.trim_start_matches(": "))
    }

    fn tests(&self) -> Vec<(&str, &str)> {
        names(self.parts().0)
    }

    fn measured(&self) -> &str {
        self.parts().1
    }
}

/// All items of the lists of a page.
fn items(page: &'static str) -> Vec<Item> {
    let mut section = "";
    let mut items = Vec::<Item>::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title;
        } else if let Some(promise) = line.strip_prefix("- ") {
            items.push(Item { section, promise, evidence: String::new() });
        } else if let Some(more) = line.strip_prefix("  ") {
            items.last_mut().expect("a line above").evidence += more;
        }
    }
    items
}

/// Items that promise something, and therefore have tests.
fn promises(page: &'static str) -> Vec<Item> {
    let mut items = items(page);
    items.retain(|item| !item.section.starts_with("Those that"));
    items
}

/// The names in backticks, each with the text up to the next one.
fn names(cell: &str) -> Vec<(&str, &str)> {
    let parts: Vec<_> = cell.split('`').collect();
    assert!(parts.len() % 2 == 1, "a backtick is missing: {cell}");
    parts[1..].chunks(2).map(|pair| (pair[0], pair.get(1).copied().unwrap_or(""))).collect()
}

/// All Rust files below a folder, or the file of that name.
pub(super) fn sources(path: &Path) -> Vec<PathBuf> {
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

/// Text of the tests of this name, `file::function` or `module::function`, and of their helpers in
/// the same file. None if no test has this name.
fn test_text(name: &str) -> Option<String> {
    let (place, function) = name.rsplit_once("::").expect("a file and a function");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inside = place.replace("::", "/");
    let places = [root.join("tests").join(&inside), root.join("src").join(&inside)];
    let example = place
        .strip_prefix("examples::")
        .map(|inside| root.join("examples").join(inside.replace("::", "/")));
    let files = places.into_iter().chain(example).flat_map(|place| sources(&place));
    let texts: Vec<_> = files
        .filter_map(|file| {
            let source = fs::read_to_string(file).expect("it can be read");
            // Few files have the name, and only these are taken apart.
            let all = source.contains(function).then(|| functions(&source))?;
            let test = all.iter().find(|found| found.name == function && found.is_test())?;
            Some(reached(&all, test))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.concat())
}

/// Converts a number or a time of the page to the form of a tunable: `64 MiB` to `67108864`.
fn plain(prose: &str) -> String {
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

/// The default in the parentheses behind a name.
fn default_of(behind: &str) -> Option<String> {
    behind.strip_prefix(" (")?.split_once(')').map(|(value, _)| plain(value))
}

/// Names of all counters and gauges.
fn counters() -> BTreeSet<String> {
    let lines = stats::Snapshot::default().to_lines();
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn each_test_on_the_page_is_there() {
    for item in PAGES.into_iter().flat_map(promises) {
        for (name, _) in item.tests() {
            assert!(test_text(name).is_some(), "no test {name}");
        }
    }
}

#[test]
fn each_counter_of_a_promise_is_read_by_one_of_its_tests() {
    let counters = counters();
    let mut unread = Vec::new();
    for item in promises(PAGES[0]) {
        let tests = item.tests();
        let text: String = tests.iter().filter_map(|(name, _)| test_text(name)).collect();
        let named = names(item.promise).into_iter().map(|(name, _)| name);
        let missing = named.filter(|&name| counters.contains(name) && !reads(&text, name));
        unread.extend(missing.map(|name| format!("{name}: {}", item.promise)));
    }
    assert!(unread.is_empty(), "{unread:#?}");
}

#[test]
fn each_row_has_a_test() {
    for page in PAGES {
        let mut untested = promises(page);
        untested.retain(|item| item.tests().is_empty());
        assert!(untested.is_empty(), "{untested:?}");
    }
}

/// Sections whose names are those of another configuration.
const OPTIONS: &str = "Options of a client";
const LIMITS: &str = "Limits of a pool";

/// Names in promises that are neither tunables nor counters.
const OTHER_NAMES: [&str; 3] = ["accept4", "drain", "TooMuch"];

#[test]
fn each_tunable_on_the_page_is_there_with_its_default() {
    let counters = counters();
    let items = promises(PAGES[0]);
    for item in items.iter().filter(|item| ![OPTIONS, LIMITS].contains(&item.section)) {
        for (name, behind) in names(item.promise) {
            match Config::FIELDS.iter().find(|field| field.name == name) {
                Some(field) => {
                    let told = default_of(behind);
                    let default = field.default_value();
                    assert!(told.is_none_or(|told| told == default), "{name}: {behind}");
                }
                None => {
                    let known = counters.contains(name) || OTHER_NAMES.contains(&name);
                    assert!(known, "no tunable or counter {name}");
                }
            }
        }
    }
}

/// Asserts that a section names the fields that `Debug` prints, all of them, with their defaults.
fn defaults_are_told(section: &str, debug: &str, without: &[&str]) {
    let fields = debug.split_once('{').expect("a struct").1.trim_end_matches(['}', ' ', '.', ',']);
    let mut fields: BTreeMap<_, _> =
        fields.split(", ").filter_map(|field| field.trim().split_once(": ")).collect();
    for name in without {
        fields.remove(name).expect("a field");
    }
    let items = promises(PAGES[0]);
    let told: BTreeMap<_, _> = items
        .iter()
        .filter(|item| item.section == section)
        .flat_map(|item| names(item.promise))
        .filter_map(|(name, behind)| Some((name, default_of(behind)?)))
        .collect();
    let fields: BTreeMap<_, _> =
        fields.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(told, fields);
}

#[test]
fn each_option_of_a_client_is_on_the_page_with_its_default() {
    let options = epoll_group::client::Options::new("localhost:1", "root").password("secret");
    // Not limits.
    let without = ["address", "user", "password", "layers", "dialect"];
    defaults_are_told(OPTIONS, &format!("{options:?}"), &without);
}

#[test]
fn each_limit_of_a_pool_is_on_the_page_with_its_default() {
    let limits = epoll_group::pool::Limits::default();
    defaults_are_told(LIMITS, &format!("{limits:?}"), &[]);
}

/// Limits that are constants: the text on the page, the source file and the line in it.
const FIXED: &[(&str, &str, &str)] = &[
    ("100 ms for what", "runtime/mod.rs", "DROP_DEADLINE: Duration = Duration::from_millis(100);"),
    ("100 ms for connections", "runtime/drain.rs", "GRACE: Duration = Duration::from_millis(100);"),
    ("read for 50 ms", "net/ending.rs", "IDLE_LINGER: Duration = Duration::from_millis(50);"),
    ("2 for each session", "session/glitches.rs", "EXCUSED_EACH: u32 = 2;"),
    ("65 536 are kept", "session/glitches.rs", "MOST_EXCUSED: u32 = 1 << 16;"),
    ("64 errors in a row", "net/accept.rs", "MOST_ERRORS_IN_A_ROW: u32 = 64;"),
    ("8 KiB of head", "status/http.rs", "MAX_HEAD_BYTES: usize = 8 << 10;"),
    ("64 headers at most", "status/http.rs", "MAX_HEADERS: usize = 64;"),
    ("4 at a time", "status/mod.rs", "ANSWERS_IN_A_ROW: usize = 4;"),
    ("64 of them at most", "status/mod.rs", "MAX_CONNECTIONS: usize = 64;"),
    ("120 s idle", "status/mod.rs", "IDLE_TIMEOUT: Duration = Duration::from_secs(120);"),
    ("10 ms doubling", "net/accept.rs", "FIRST_PAUSE: Duration = Duration::from_millis(10);"),
    ("to 1 s", "net/accept.rs", "LONGEST_PAUSE: Duration = Duration::from_secs(1);"),
    ("64 bytes for headers", "net/receive.rs", "HEADER_ALLOWANCE: usize = 64;"),
    ("layers of a connection**: 8;", "net/layers.rs", "MOST_LAYERS: usize = 8;"),
    ("64 MiB. Both", "codec/encoder.rs", "DEFAULT_MAX_LENGTH: u32 = 64 << 20;"),
    ("256 of", "codec/encoder/buffer/pool.rs", "DEFAULT_PAGES: usize = 256;"),
    ("of 16 KiB", "codec/encoder/buffer/pool.rs", "DEFAULT_PAGE_BYTES: usize = 16 << 10;"),
    ("256 bytes. Hashing", "codec/auth/crypt.rs", "MAX_CRYPT_PASSWORD_BYTES: usize = 256;"),
    ("10 000 hash rounds", "client/login.rs", "MAX_ROUNDS: u32 = 10_000;"),
    ("64 MiB. As the", "client/joined.rs", "MAX_CHUNK_BYTES: usize = 64 << 20;"),
    ("each has 8 KiB", "runtime/usage.rs", "EVERYBODYS: usize = 8 << 10;"),
    ("or 0.25 ms, it", "net/receive.rs", "TURN: Duration = Duration::from_micros(250);"),
    ("turn is 62.5 µs", "net/receive.rs", "if quick { TURN / 4 } else { TURN };"),
    ("20 ms after", "runtime/mode.rs", "OPEN_FOR: Duration = Duration::from_millis(20);"),
    ("8 KiB at a time", "net/recv_state.rs", "PIECE: usize = 8 << 10;"),
    ("first 32 KiB", "session/reply_state.rs", "FIRST_FEED_BUDGET: usize = 32 << 10;"),
    ("then 256 KiB", "session/reply_state.rs", "FEED_BUDGET: usize = 256 << 10;"),
    ("16 KiB or", "net/cork.rs", "FULL: usize = 16 << 10;"),
    ("or 100 µs", "net/cork.rs", "OLD: Duration = Duration::from_micros(100);"),
    ("1 024 waiting", "session/timestamps.rs", "MOST_WAITING: usize = 1024;"),
    ("16 deep", "session/expect_blocks.rs", "DEEPEST: usize = 16;"),
    ("64. As MySQL", "session/ending.rs", "MOST_WARNINGS: usize = 64;"),
    ("2 KiB. The session", "session/error.rs", "LONGEST_TEXT: usize = 2048;"),
    ("64 bytes. The longest", "session/cache.rs", "MOST_DIGEST_BYTES: usize = 64;"),
    ("16 384 idle ones", "session/logins.rs", "MOST_IDLE: usize = 16_384;"),
    ("4 096 different ones", "config/settings.rs", "MOST_SNAPSHOTS: usize = 4096;"),
    ("99 levels", "codec/limits.rs", "MAX_DEPTH: u32 = 99;"),
    ("65 535 arguments", "codec/limits.rs", "parameters: 65_535,"),
    ("4 096 columns", "codec/limits.rs", "columns: 4_096,"),
    ("arguments and elements", "codec/limits.rs", "elements: 65_535,"),
    ("64 KiB a name", "codec/limits.rs", "text_bytes: 64 << 10,"),
    ("4 KiB, as login", "codec/limits.rs", "login_frame_bytes: 4 << 10,"),
];

#[test]
fn what_is_fixed_has_the_value_that_the_page_says() {
    let told = promises(PAGES[0]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (text, file, line) in FIXED {
        assert!(told.iter().any(|item| item.promise.contains(text)), "{text} is not on the page");
        let code = fs::read_to_string(source.join(file)).expect("it can be read");
        assert!(code.contains(line), "{file} does not say {line}, but the page says {text}");
    }
}

#[test]
fn each_tunable_is_on_the_page() {
    let (_, unlimited) = PAGES[0].split_once("## Tunables without a limit").expect("a section");
    let unlimited = unlimited.split("\n## ").next().unwrap_or("");
    let mut named: BTreeSet<_> = names(unlimited).into_iter().map(|(name, _)| name).collect();
    let items = promises(PAGES[0]);
    let limits = items.iter().filter(|item| ![OPTIONS, LIMITS].contains(&item.section));
    let told = limits.flat_map(|item| names(item.promise));
    named.extend(told.filter(|(_, behind)| default_of(behind).is_some()).map(|(name, _)| name));
    let missing: Vec<_> =
        Config::FIELDS.iter().map(|field| field.name).filter(|n| !named.contains(n)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn each_counter_that_tells_of_a_limit_is_on_the_page() {
    let items = promises(PAGES[0]);
    let named: BTreeSet<_> =
        items.iter().flat_map(|item| names(item.promise)).map(|(name, _)| name).collect();
    let words = ["closed", "refused", "limited", "cut", "expired", "failed", "errors", "panics"];
    let tells = |name: &str| name.split('_').any(|word| words.contains(&word));
    let mut missing = counters();
    missing.retain(|name| tells(name) && !named.contains(name.as_str()));
    assert_eq!(missing, BTreeSet::new());
}

/// Record of the abuses.
const RECORD: &str = include_str!("../../benches/record/2026-11-29-report/abuse/abuse.md");

const README: &str = include_str!("../../README.md");

/// A page without its line breaks.
fn in_one_line(page: &str) -> String {
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Rows of the table in the record of the abuses.
fn recorded() -> Vec<BTreeMap<&'static str, &'static str>> {
    rows(RECORD, "abuse")
}

/// Parses `1.04 [0.97–1.09] tie`, perhaps in bold, as three numbers.
fn spread(text: &str) -> [f64; 3] {
    let numbers: Vec<f64> = text
        .split(['*', ' ', '[', '–', ']'])
        .filter(|part| !part.is_empty() && *part != "tie")
        .map(|part| part.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("a median and its interval")
}

#[test]
fn the_ratios_of_the_abuses_are_those_of_the_record() {
    let told: BTreeMap<_, Vec<_>> = rows(PAGES[0], "abuses")
        .into_iter()
        .map(|row| {
            let abuses = row["abuses"].split(", ").map(|abuse| abuse.replace('`', ""));
            (row["ratio"], abuses.collect())
        })
        .collect();
    let mut measured = BTreeMap::<_, Vec<_>>::new();
    for row in recorded() {
        let (quiet, control) = (row["p99 B / A"], row["p99 B / C"]);
        let group = match (spread(quiet)[0] > 1.5, spread(control)[0] > 1.5) {
            (false, _) => "at most 1.5",
            (true, false) => "above, CPUs",
            (true, true) => "above, server",
        };
        measured.entry(group).or_default().push(format!(
            "{} {:.2}",
            row["abuse"],
            spread(quiet)[0]
        ));
    }
    assert_eq!(told, measured);
    assert_eq!(told.values().flatten().count(), 44);
}

#[test]
fn for_how_many_abuses_the_promise_is_kept_is_what_the_record_says() {
    let ratios: Vec<_> = recorded().iter().map(|row| spread(row["p99 B / A"])).collect();
    let count = |kept: fn(&[f64; 3]) -> bool| ratios.iter().filter(|&ratio| kept(ratio)).count();
    let [kept, surely] = [count(|ratio| ratio[0] <= 1.5), count(|ratio| ratio[2] < 1.5)];
    for page in [PAGES[0], README].map(in_one_line) {
        let median = [format!("for {kept} of the 44"), format!("for {kept} of 44")];
        assert!(median.iter().any(|text| page.contains(text)), "{kept}");
        assert!(page.contains(&format!("for {surely} of them with an interval")), "{surely}");
    }
}

#[test]
fn for_how_many_abuses_an_unattacked_server_gets_slower_is_what_the_record_says() {
    let missed: Vec<_> =
        recorded().into_iter().filter(|row| spread(row["p99 B / A"])[0] > 1.5).collect();
    // The p99 of neighbours: without the abuse, beside it, and at an unattacked server meanwhile.
    let rises = |row: &&BTreeMap<_, &str>| {
        let p99: Vec<f64> =
            row["p99 µs"].split(" / ").map(|part| part.parse().expect("a number")).collect();
        p99[2] > 1.5 * p99[0]
    };
    let (rise, missed) = (missed.iter().filter(rises).count(), missed.len());
    for (page, abuses) in [(PAGES[0], "abuses above 1.5"), (README, "others")] {
        let text = format!("For {rise} of the {missed} {abuses}");
        assert!(in_one_line(page).contains(&text), "{text}");
    }
}

/// The numbers in the first parentheses that hold nothing else and end in a colon, as in `(31, 32):`.
fn counted(text: &str) -> Vec<u32> {
    let inside = text.match_indices("):").find_map(|(end, _)| {
        let inside = &text[text[..end].rfind('(')? + 1..end];
        inside.chars().all(|c| c.is_ascii_digit() || ", ".contains(c)).then_some(inside)
    });
    let numbers = inside.into_iter().flat_map(|inside| inside.split(", "));
    numbers.map(|number| number.parse().expect("a number")).collect()
}

#[test]
fn each_of_the_90_weaknesses_is_on_the_page() {
    let items = items(PAGES[1]);
    let told: BTreeSet<u32> = items
        .iter()
        .flat_map(|item| counted(&format!("{} {}", item.promise, item.evidence)))
        .collect();
    assert_eq!(told, (1..=90).collect());
}

#[test]
fn each_promise_that_answers_a_weakness_is_on_the_page() {
    let promises = promises(PAGES[0]);
    let items = items(PAGES[1]);
    let answered = items.iter().filter(|item| item.section == "Those that a promise answers");
    for item in answered {
        let (_, begins) = item.promise.split_once(": ").expect("a promise behind the weakness");
        for begin in begins.split("; ") {
            let is_there = |item: &Item| item.promise.trim_start_matches('*').starts_with(begin);
            assert!(promises.iter().any(is_there), "no promise begins with {begin}");
        }
    }
}

/// Reasons why a promise has no number: the kind of comparison that its tests make.
const REASONS: [&str; 11] = [
    "above",
    "chosen",
    "early",
    "model",
    "nothing kept",
    "order",
    "outcomes",
    "random",
    "reached",
    "table",
    "yes/no",
];

#[test]
fn each_row_has_a_measured_number_or_says_why_not() {
    for item in promises(PAGES[0]) {
        let measured = item.measured();
        let number = measured.contains(|c: char| c.is_ascii_digit());
        assert!(number || REASONS.contains(&measured), "{item:?}");
    }
}

/// The numbers of a text.
fn numbers(text: &str) -> Vec<&str> {
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    parts.map(|part| part.trim_end_matches('.')).filter(|part| !part.is_empty()).collect()
}

#[test]
fn what_was_measured_during_an_abuse_is_in_the_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/record");
    let is_record =
        |name: &str| root.join(name).exists() || root.join(format!("{name}.md")).exists();
    let lines: BTreeMap<_, _> = RECORD
        .lines()
        .filter_map(|line| Some((line.strip_prefix("| ")?.split(' ').next()?, numbers(line))))
        .collect();
    for item in promises(PAGES[0]) {
        for (name, behind) in names(item.measured()) {
            if is_record(name) {
                continue;
            }
            let line = lines.get(name).unwrap_or_else(|| panic!("no abuse and no record {name}"));
            let said = behind.split(';').next().expect("a part");
            for number in numbers(said) {
                assert!(line.contains(&number), "{name}: {number} is not in its record");
            }
        }
    }
}
