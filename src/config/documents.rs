//! Tests that the documentation of the tunables agrees with the table.

use super::{Config, Field};

const GUIDE: &str = include_str!("../guide/tuning.md");
const TABLE: &str = include_str!("table.rs");

/// The documentation of a tunable, without marks and line breaks.
fn documentation(field: &Field) -> String {
    let head = format!("\n        {}: ", field.name);
    let before = TABLE.split_once(&head).expect("it is in the table").0;
    let lines = before.lines().rev();
    let mut doc: Vec<_> =
        lines.map_while(|line| line.trim_start().strip_prefix("///")).map(str::trim).collect();
    doc.reverse();
    doc.join(" ")
}

/// Text behind a word that opens a part of the documentation.
fn after<'a>(doc: &'a str, mark: &str) -> &'a str {
    doc.split_once(mark).unwrap_or_else(|| panic!("{mark} is missing: {doc}")).1.trim_start()
}

/// A number or a time as prose has it: `64 MiB` is `67108864`, `10 s` is `10s`.
fn plain(prose: &str) -> String {
    let mut words = prose.split([' ', ':', ',', ';']).map(|word| word.trim_end_matches('.'));
    let number = words.next().expect("there is a word");
    let shift = match words.next() {
        Some("KiB") => 10,
        Some("MiB") => 20,
        Some("GiB") => 30,
        Some("ms" | "s") if number == "0" => return "0ns".to_owned(),
        Some(unit @ ("ms" | "s")) => return format!("{number}{unit}"),
        _ => return number.to_owned(),
    };
    (number.parse::<usize>().expect("a number") << shift).to_string()
}

/// Items of the guide's lists, each with the heading above, the names and the text behind them.
fn items() -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
    let mut head = "";
    let mut items = Vec::new();
    for line in GUIDE.lines() {
        if let Some(title) = line.trim_start_matches('#').strip_prefix(' ') {
            head = title;
        } else if let Some(item) = line.strip_prefix("- `") {
            let (names, text) = item.split_once("`: ").expect("a text behind the names");
            items.push((head, names.split("`, `").collect(), text));
        }
    }
    items
}

/// Heading above the tunables of the original.
const ORIGINAL: &str = "Coming from the original";

#[test]
fn the_guide_has_every_tunable_once_with_default_range_and_when() {
    let mut missing: Vec<_> = Config::FIELDS.iter().map(|field| field.name).collect();
    for (head, names, text) in items() {
        // A list of the original's tunables has the names of the original, without a prefix that
        // is accepted. Those without a counterpart have no default.
        let [name] = names[..] else { continue };
        let Ok(field) = Field::named(name) else {
            assert_eq!(head, ORIGINAL, "{name} is unknown");
            continue;
        };
        let name = field.name;
        let position = missing.iter().position(|known| *known == name);
        missing.swap_remove(position.unwrap_or_else(|| panic!("{name} is listed twice")));

        let when = match (field.live, documentation(field)) {
            (false, _) => "start",
            (true, doc) if doc.contains("*Live*, for new connections.") => "new connections",
            (true, _) => "live",
        };
        let mut limits = field.default_value();
        if field.range() != "true or false" {
            limits += &format!(", {}", field.range());
        }
        let told = text.split_once("; ").map_or(text, |(told, _)| told);
        if head == ORIGINAL {
            let marked = if when == "live" { limits } else { format!("{limits}, {when}") };
            assert_eq!(told, marked, "{name}");
        } else {
            assert_eq!(told, limits, "{name}");
            assert_eq!(head.to_lowercase(), when, "{name}");
        }
    }
    assert_eq!(missing, Vec::<&str>::new(), "the guide has no item for these");
}

#[test]
fn the_guide_accounts_for_every_tunable_of_the_original() {
    let mut count = 0;
    for (_, names, text) in items().into_iter().filter(|(head, ..)| *head == ORIGINAL) {
        for name in names {
            count += 1;
            if Field::named(&format!("polarx_rpc_{name}")).is_err() {
                assert_eq!(Some(text), Config::without_counterpart(name), "{name}");
            }
        }
    }
    assert_eq!(count, 45);
}

#[test]
fn the_table_says_default_price_and_when() {
    for field in Config::FIELDS {
        let name = field.name;
        let doc = documentation(field);
        assert_eq!(doc.contains("*Live"), field.live, "{name}");
        assert_eq!(doc.contains("*Start only.*"), !field.live, "{name}");
        assert!(doc.contains("*Range* "), "{name}");
        assert!(doc.contains("*Price*"), "{name}");
        assert_eq!(plain(after(&doc, "*Default*")), field.default_value(), "{name}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn the_example_of_a_file_is_valid() {
    let start = GUIDE.split_once("```toml\n").expect("there is one").1;
    let example = start.split_once("```").expect("it ends").0;
    assert_eq!(example.lines().count(), 5);
    let config: Config = toml::from_str(example).expect("it is valid");
    assert_eq!(config.max_allowed_packet, 16 << 20);
    assert_eq!(config.tcp_keep_alive.as_secs(), 60);
    assert_eq!(config.validate_threads(config.epoll_groups), Ok(()));
}
