//! Functions of a source file, found by the indentation that `rustfmt` gives them.

use std::collections::BTreeSet;

/// A function with its attributes and its text, without comments.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    attributes: Vec<String>,
    text: String,
}

impl Function {
    /// Returns true if the harness runs it.
    pub(super) fn is_test(&self) -> bool {
        let has = |start: &str| self.attributes.iter().any(|line| line.starts_with(start));
        has("#[test]") && !has("#[ignore")
    }

    /// Words that may be names of other functions.
    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split(|c: char| !is_word(c))
    }
}

/// All functions of a file, methods and nested functions too.
pub(super) fn functions(source: &str) -> Vec<Function> {
    let lines: Vec<_> = source.lines().map(without_comment).collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let body = lines[first..].iter().take_while(|&&line| line != end);
        let above = lines[..first].iter().rev().map(|line| line.trim());
        let above = above.take_while(|line| line.is_empty() || line.starts_with("#["));
        found.push(Function {
            name: name.to_owned(),
            attributes: above.map(str::to_owned).collect(),
            text: body.map(|line| format!("{line}\n")).collect(),
        });
    }
    found
}

/// Text of a function and of the functions of the same file that it names, and that these name.
/// Other tests are left out.
pub(super) fn reached(functions: &[Function], test: &Function) -> String {
    let mut text = test.text.clone();
    let mut seen = BTreeSet::from([&*test.name]);
    let mut names: Vec<_> = test.words().collect();
    while let Some(name) = names.pop() {
        if !seen.insert(name) {
            continue;
        }
        for function in functions.iter().filter(|f| f.name == name && !f.is_test()) {
            text += &function.text;
            names.extend(function.words());
        }
    }
    text
}

/// Returns true if the text reads the counter or the gauge of this name.
pub(super) fn reads(text: &str, name: &str) -> bool {
    let camel: String =
        name.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect();
    [format!("Counter::{camel}"), format!(".{name}"), format!("\"{name}\"")].iter().any(|wanted| {
        text.match_indices(wanted).any(|(at, _)| !text[at + wanted.len()..].starts_with(is_word))
    })
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn without_comment(line: &str) -> &str {
    line.split_once("// ").map_or(line, |(code, _)| code).trim_end()
}

/// Name of the function whose head begins in this line.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let words = ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "async"];
    let is_head = before.split_whitespace().all(|word| words.contains(&word));
    is_head.then(|| after.split(|c: char| !is_word(c)).next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
#[test]
fn one_asks_a_helper() {
    let closed = helper(1);
    // Counter::InAComment
}

fn helper(n: u64) -> u64 {
    deeper(n)
}

fn deeper(n: u64) -> u64 {
    stats.get(Counter::ClosedByPeer) + stats().timers_pending
}

mod tests {
    #[test]
    #[ignore = "slow"]
    fn ignored() {
        another_test();
    }

    /// Explains.
    #[test]
    fn another_test() {
        Counter::ReadsPaused;
    }
}
"#;

    #[test]
    fn what_a_test_reads_stands_in_it_or_in_its_helpers() {
        let all = functions(SOURCE);
        let names: Vec<_> = all.iter().map(|f| (&*f.name, f.is_test())).collect();
        let expected = [
            ("one_asks_a_helper", true),
            ("helper", false),
            ("deeper", false),
            ("ignored", false),
            ("another_test", true),
        ];
        assert_eq!(names, expected);
        let text = reached(&all, &all[0]);
        assert!(reads(&text, "closed_by_peer") && reads(&text, "timers_pending"), "{text}");
        for other in ["closed_by", "closed_by_peer_too", "in_a_comment", "reads_paused"] {
            assert!(!reads(&text, other), "{other}");
        }
        assert!(!reads(&reached(&all, &all[3]), "reads_paused"), "another test is no helper");
    }
}
