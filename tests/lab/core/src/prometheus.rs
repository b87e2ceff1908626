//! A strict reader of Prometheus's text format, version 0.0.4. It refuses what a scrape would accept
//! and a query would stumble over: gaps in a histogram, names out of the conventions, duplicates.

use std::collections::{BTreeMap, BTreeSet};

/// All samples of one name.
#[derive(Debug)]
pub struct Family {
    /// `counter`, `gauge`, `histogram` or `untyped`.
    pub kind: String,
    pub help: String,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// Reads a whole exposition: families by name.
///
/// # Errors
///
/// The line or the family that breaks a rule.
pub fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let Some(text) = text.strip_suffix('\n') else { return Err("no line feed at the end".into()) };
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    let mut lines = text.split('\n');
    while let Some(line) = lines.next() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            let (name, help) = head.split_once(' ').ok_or(line)?;
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
            let kind = kind.and_then(|kind| kind.strip_prefix(name)?.strip_prefix(' '));
            let kind = kind.ok_or_else(|| format!("no TYPE of {name} after its HELP"))?.to_owned();
            let family = Family { kind, help: help.to_owned(), samples: Vec::new() };
            if !is_name(name) || help.is_empty() || families.insert(name.into(), family).is_some() {
                return Err(format!("bad or second head: {line}"));
            }
            current = name.to_owned();
        } else {
            let sample = sample(line).ok_or_else(|| format!("bad sample: {line}"))?;
            let family = families.get_mut(&current).ok_or("a sample before the first HELP")?;
            let suffix = sample.name.strip_prefix(&current).ok_or("a sample of another family")?;
            let suffixes: &[&str] =
                if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            if !suffixes.contains(&suffix) {
                return Err(format!("{line} in {current}"));
            }
            family.samples.push(sample);
        }
    }
    families.iter().try_for_each(|(name, family)| check(name, family))?;
    Ok(families)
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_lowercase();
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit() || c == '_')
}

/// `name{label="value",…} number`
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, after) = unquote(quoted)?;
            if !is_name(label) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = after.strip_prefix('}')?,
            }
        }
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(name).then(|| Sample { name: name.to_owned(), labels, value })
}

/// Text up to the closing quote, and what follows that.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (end, '"') => return Some((value, &text[end + 1..])),
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            (_, c) => value.push(c),
        }
    }
}

fn check(name: &str, family: &Family) -> Result<(), String> {
    let samples = &family.samples;
    let distinct: BTreeSet<_> = samples.iter().map(|one| (&one.name, &one.labels)).collect();
    let good = distinct.len() == samples.len()
        && samples.iter().all(|sample| sample.value.is_finite())
        && match family.kind.as_str() {
            "gauge" | "untyped" => {
                !name.ends_with("_total") && samples.iter().all(|one| one.value >= 0.0)
            }
            "counter" => name.ends_with("_total") && samples.iter().all(|one| one.value >= 0.0),
            "histogram" => is_histogram(samples).unwrap_or(false),
            _ => false,
        };
    if good { Ok(()) } else { Err(format!("{name}: {family:?}")) }
}

/// One histogram without labels: ascending bounds, counts that never fall, and a sum that the buckets
/// allow.
fn is_histogram(samples: &[Sample]) -> Option<bool> {
    let [buckets @ .., sum, count] = samples else { return None };
    let buckets: Vec<(f64, f64)> = buckets
        .iter()
        .map(|one| Some((one.labels.get("le")?.parse().ok()?, one.value)))
        .collect::<Option<_>>()?;
    let last = *buckets.last()?;
    let (mut least, mut most, mut before) = (0.0, 0.0, (0.0, 0.0));
    for &(le, below) in &buckets {
        let here = below - before.1;
        if le <= before.0 || here < 0.0 {
            return None;
        }
        (least, most) = (least + before.0 * here, if here > 0.0 { most + le * here } else { most });
        before = (le, below);
    }
    // The sum has nine decimals, and counts each sample as the middle of a narrow bucket.
    let sum_fits = least * 0.999 <= sum.value && sum.value <= most * 1.001 + 1e-9;
    let ends = sum.name.ends_with("_sum") && count.name.ends_with("_count");
    Some(ends && last == (f64::INFINITY, count.value) && sum_fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_total h\n# TYPE a_total counter\na_total 1\n\
        # HELP g h\n# TYPE g gauge\ng{x=\"a\\\"\\\\\\n,}\",y=\"\"} 2.5\ng{x=\"b\",y=\"\"} 0\n\
        # HELP t_seconds h\n# TYPE t_seconds histogram\nt_seconds_bucket{le=\"0.5\"} 1\n\
        t_seconds_bucket{le=\"1\"} 1\nt_seconds_bucket{le=\"+Inf\"} 2\nt_seconds_sum 1.5\n\
        t_seconds_count 2\n";

    #[test]
    fn a_good_text_is_read() {
        let families = parse(GOOD).expect("good");
        assert_eq!(families["g"].samples[0].labels["x"], "a\"\\\n,}");
        assert_eq!(families["g"].samples[0].value, 2.5);
        assert_eq!(families["t_seconds"].samples.len(), 5);
    }

    #[test]
    fn each_broken_rule_is_found() {
        for (good, bad) in [
            ("t_seconds_count 2\n", "t_seconds_count 2"),
            ("# TYPE a_total counter\n", ""),
            ("counter", "summary"),
            ("a_total 1", "a_total -1"),
            ("a_total 1", "a_total one"),
            ("a_total 1", "a_total  1"),
            ("a_total 1", "A_total 1"),
            ("a_total 1", "a_total 1\na_total 1"),
            ("# HELP g h", "# HELP a_total h"),
            ("x=\"b\"", "x=\"b"),
            ("x=\"b\"", "x=\"\\b\""),
            ("x=\"b\",", "x=\"b\",x=\"c\","),
            ("le=\"1\"} 1", "le=\"1\"} 0"),
            ("le=\"1\"", "le=\"0.5\""),
            ("le=\"+Inf\"} 2", "le=\"2\"} 2"),
            ("t_seconds_count 2", "t_seconds_count 3"),
            ("t_seconds_sum 1.5", "t_seconds_sum 0.5"),
            ("t_seconds_sum 1.5\n", ""),
        ] {
            assert!(GOOD.contains(good), "{good}");
            assert!(parse(&GOOD.replace(good, bad)).is_err(), "{bad}");
        }
    }
}
