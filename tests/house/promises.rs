//! The page of promises says what is so: each test, tunable, default and counter on it is there, what
//! has a limit has a row, and what was measured is what the record has.
#![forbid(unsafe_code)]

#[path = "../../src/config/documents/tables.rs"]
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use epoll_group::{Config, stats};
use tables::rows;

const PAGES: [&str; 2] =
    [include_str!("../../src/guide/promises.md"), include_str!("../../src/guide/weaknesses.md")];

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

/// Whether the default of each name in this column is what `Debug` says, and all are there.
fn defaults_are_told(column: &str, debug: &str, without: &[&str]) {
    let fields = debug.split_once('{').expect("a struct").1.trim_end_matches(['}', ' ', '.', ',']);
    let mut fields: BTreeMap<_, _> =
        fields.split(", ").filter_map(|field| field.trim().split_once(": ")).collect();
    for name in without {
        fields.remove(name).expect("a field");
    }
    let told: BTreeMap<_, _> = rows(PAGES[0], column)
        .into_iter()
        .flat_map(|row| names(row[column]))
        .map(|(name, value)| (name, plain(value)))
        .collect();
    let fields: BTreeMap<_, _> =
        fields.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(told, fields);
}

#[test]
fn each_option_of_a_client_is_on_the_page_with_its_default() {
    let options = epoll_group::client::Options::new("localhost:1", "root").password("secret");
    defaults_are_told("option, default", &format!("{options:?}"), &["address", "user"]);
}

#[test]
fn each_limit_of_a_pool_is_on_the_page_with_its_default() {
    let limits = epoll_group::pool::Limits::default();
    defaults_are_told("limit of a pool, default", &format!("{limits:?}"), &[]);
}

/// Limits without a tunable: what it is called on the page, where it is and how it reads there.
const FIXED: &[(&str, &str, &str)] = &[
    ("100 ms for what", "runtime/mod.rs", "DROP_DEADLINE: Duration = Duration::from_millis(100);"),
    ("100 ms for connections", "runtime/drain.rs", "GRACE: Duration = Duration::from_millis(100);"),
    ("read for 50 ms", "net/ending.rs", "IDLE_LINGER: Duration = Duration::from_millis(50);"),
    ("2 for each session", "session/glitches.rs", "EXCUSED_EACH: u32 = 2;"),
    ("65 536 are kept", "session/glitches.rs", "MOST_EXCUSED: u32 = 1 << 16;"),
    ("64, then a pause", "net/accept.rs", "MOST_ERRORS_IN_A_ROW: u32 = 64;"),
    ("10 ms doubling", "net/accept.rs", "FIRST_PAUSE: Duration = Duration::from_millis(10);"),
    ("to 1 s", "net/accept.rs", "LONGEST_PAUSE: Duration = Duration::from_secs(1);"),
    ("64 bytes", "net/receive.rs", "HEADER_ALLOWANCE: usize = 64;"),
    ("64 MiB, unless", "codec/encoder.rs", "DEFAULT_MAX_LENGTH: u32 = 64 << 20;"),
    ("256 of", "codec/buffer/pool.rs", "DEFAULT_PAGES: usize = 256;"),
    ("of 16 KiB", "codec/buffer/pool.rs", "DEFAULT_PAGE_BYTES: usize = 16 << 10;"),
    ("256 bytes", "codec/auth/crypt.rs", "MAX_CRYPT_PASSWORD_BYTES: usize = 256;"),
    ("10 000", "client/login.rs", "MAX_ROUNDS: u32 = 10_000;"),
    ("64 MiB", "client/joined.rs", "MAX_CHUNK_BYTES: usize = 64 << 20;"),
    ("8 KiB", "runtime/usage.rs", "EVERYBODYS: usize = 8 << 10;"),
    ("32 KiB", "session/state.rs", "FIRST_FEED_BUDGET: usize = 32 << 10;"),
    ("256 KiB", "session/state.rs", "FEED_BUDGET: usize = 256 << 10;"),
    ("16 KiB", "session/output.rs", "FULL: usize = 16 << 10;"),
    ("100 µs", "net/cork.rs", "OLD: Duration = Duration::from_micros(100);"),
    ("1 024", "session/clock.rs", "MOST_WAITING: usize = 1024;"),
    ("16", "session/expecting.rs", "DEEPEST: usize = 16;"),
    ("64", "session/ending.rs", "MOST_WARNINGS: usize = 64;"),
    ("2 KiB", "session/answers.rs", "LONGEST_TEXT: usize = 2048;"),
    ("64 bytes", "session/cache.rs", "MOST_DIGEST_BYTES: usize = 64;"),
    ("16 384", "session/logins.rs", "MOST_IDLE: usize = 16_384;"),
    ("4 096", "config/settings.rs", "MOST_SNAPSHOTS: usize = 4096;"),
    ("99,", "codec/limits.rs", "MAX_DEPTH: u32 = 99;"),
    ("65 535, 4 096", "codec/limits.rs", "parameters: 65_535,"),
    ("4 096, 65 535", "codec/limits.rs", "columns: 4_096,"),
    ("65 535, 64 KiB", "codec/limits.rs", "elements: 65_535,"),
    ("64 KiB", "codec/limits.rs", "text_bytes: 64 << 10,"),
    ("4 KiB", "codec/limits.rs", "login_frame_bytes: 4 << 10,"),
];

#[test]
fn what_is_fixed_has_the_value_that_the_page_says() {
    let told: Vec<_> = rows(PAGES[0], "value").iter().map(|row| row["value"]).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (text, file, line) in FIXED {
        assert!(told.iter().any(|value| value.contains(text)), "{text} is not on the page");
        let code = fs::read_to_string(source.join(file)).expect("it can be read");
        assert!(code.contains(line), "{file} does not say {line}, but the page says {text}");
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

/// What is measured of the abuses.
const RECORD: &str = include_str!("../../benches/record/2026-11-22-hardening/abuse.md");

/// The rows of its table.
fn recorded() -> Vec<BTreeMap<&'static str, &'static str>> {
    rows(RECORD, "abuse").into_iter().filter(|row| row["abuse"] != ":--").collect()
}

/// Microseconds as the page has them.
fn time(micros: &str) -> String {
    let micros: f64 = micros.parse().expect("a number");
    if micros < 1000.0 { format!("{micros} µs") } else { format!("{:.1} ms", micros / 1000.0) }
}

/// `1.04 [0.97–1.09]` as three numbers, perhaps in bold.
fn spread(text: &str) -> [f64; 3] {
    let numbers: Vec<f64> = text
        .split(['*', ' ', '[', '–', ']'])
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("a median and its interval")
}

#[test]
fn the_ratios_of_the_abuses_are_those_of_the_record() {
    const COLUMNS: [&str; 8] = [
        "abuse",
        "peers",
        "p99 A",
        "p99 B",
        "p99 C",
        "p99 B / A",
        "p99 B / C",
        "above 1.5, because of",
    ];
    let told: Vec<_> = rows(PAGES[0], "abuse")
        .iter()
        .map(|row| COLUMNS.map(|column| row[column].replace(['*', '`'], "")))
        .collect();
    let measured: Vec<_> = recorded()
        .iter()
        .map(|row| {
            let times: Vec<_> = row["p99 µs"].split(" / ").map(time).collect();
            let [a, b, c] = times.try_into().expect("three times");
            let (quiet, control) = (row["p99 B / A"], row["p99 B / C"]);
            let why = match (spread(quiet)[0] > 1.5, spread(control)[0] > 1.5) {
                (false, _) => "–",
                (true, false) => "CPUs",
                (true, true) => "server",
            };
            let bare = |text: &str| text.replace('*', "");
            let (name, peers) = (row["abuse"].to_owned(), row["peers"].to_owned());
            [name, peers, a, b, c, bare(quiet), bare(control), why.to_owned()]
        })
        .collect();
    assert_eq!(told, measured);
    assert_eq!(told.len(), 44);
}

#[test]
fn for_how_many_abuses_the_promise_is_kept_is_what_the_record_says() {
    let ratios: Vec<_> = recorded().iter().map(|row| spread(row["p99 B / A"])).collect();
    let count = |kept: fn(&[f64; 3]) -> bool| ratios.iter().filter(|&ratio| kept(ratio)).count();
    let [kept, surely] = [count(|ratio| ratio[0] <= 1.5), count(|ratio| ratio[2] < 1.5)];
    for page in [PAGES[0], include_str!("../../README.md")] {
        let page: Vec<_> = page.split_whitespace().collect();
        let page = page.join(" ");
        let median = [format!("for {kept} of the 44"), format!("for {kept} of 44")];
        assert!(median.iter().any(|text| page.contains(text)), "{kept}");
        assert!(page.contains(&format!("for {surely} of them with an interval")), "{surely}");
    }
}

#[test]
fn each_of_the_90_weaknesses_is_on_the_page() {
    let mut told = BTreeSet::<u32>::new();
    for row in rows(PAGES[1], "weakness") {
        let Some((_, numbers)) = row["weakness"].rsplit_once(" (") else { continue };
        let numbers = numbers.strip_suffix(')').expect("numbers at the end");
        told.extend(numbers.split(", ").map(|number| number.parse::<u32>().expect("a number")));
    }
    assert_eq!(told, (1..=90).collect());
}

#[test]
fn each_row_has_a_measured_number_or_says_why_not() {
    for row in rows(PAGES[0], "test") {
        let measured = row["measured"];
        assert!(measured.len() > "– ()".len(), "{row:?}");
        let number = measured.contains(|c: char| c.is_ascii_digit());
        assert!(number || (measured.starts_with("– (") && measured.ends_with(')')), "{row:?}");
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
    let records: Vec<_> = fs::read_dir(root)
        .expect("it can be read")
        .map(|entry| entry.expect("it can be read").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let lines: BTreeMap<_, _> = RECORD
        .lines()
        .filter_map(|line| Some((line.strip_prefix("| ")?.split(' ').next()?, numbers(line))))
        .collect();
    for row in rows(PAGES[0], "test") {
        for (name, behind) in names(row["measured"]) {
            if records.iter().any(|record| record == name) {
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
