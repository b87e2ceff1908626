//! The direction in which the parts of the crate may depend: reads `src/` and fails on any other.
//!
//! ```text
//! session → net → runtime → sync → sys      session → codec ← client → net      pool → sync
//! status → net
//! codec, stats, config, stall → nothing     all but codec may use stats and config (status: stats)
//! stall: all but codec, stats, config and sys may use it
//! ```
//!
//! It looks at the text: comments and literals are blanked, then every path that starts at the
//! crate root (`crate::…`, or `super::` often enough) names the part it leads to. Modules of tests
//! count like the rest. `src/lib.rs`, `src/guide/`, `src/internal/` and `src/host.rs` may name
//! everything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each part, and what it may use beside itself.
const ALLOWED: &[(&str, &[&str])] = &[
    ("codec", &[]),
    ("stats", &[]),
    ("config", &[]),
    ("sys", &["stats", "config"]),
    ("stall", &[]),
    ("sync", &["stall", "sys", "stats", "config"]),
    ("runtime", &["sync", "stall", "sys", "stats", "config"]),
    ("net", &["runtime", "sync", "stall", "sys", "stats", "config"]),
    ("session", &["net", "codec", "runtime", "sync", "stall", "sys", "stats", "config"]),
    ("client", &["net", "codec", "runtime", "sync", "stall", "sys", "stats", "config"]),
    ("status", &["net", "runtime", "sync", "sys", "stats"]),
    ("pool", &["sync", "stall", "sys", "stats", "config"]),
];

/// Parts that stand above the arrows. `host` says that a runtime maintains pools, so that neither has
/// to know the other.
const EXEMPT: &[&str] = &["lib", "guide", "internal", "host"];

#[test]
fn every_use_follows_the_arrows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 3, "there is source under {}", root.display());

    let mut wrong = Vec::new();
    for file in files {
        let module = module_path(file.strip_prefix(&root).expect("found below the root"));
        let text = fs::read_to_string(&file).expect("source is readable UTF-8");
        if !EXEMPT.contains(&module[0].as_str()) {
            let faults = faults(&module, &text);
            wrong.extend(faults.into_iter().map(|fault| format!("{}: {fault}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "against the arrows:\n{}", wrong.join("\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// `net/conn.rs` is `[net, conn]`, `net/mod.rs` is `[net]`.
fn module_path(file: &Path) -> Vec<String> {
    let mut path: Vec<_> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.len() > 1 && path.last().is_some_and(|name| name == "mod") {
        path.pop();
    }
    path
}

/// Returns a line for each part that a file with this module path names although it may not.
fn faults(module: &[String], text: &str) -> BTreeSet<String> {
    let part = module[0].as_str();
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == part) else {
        return BTreeSet::from([format!("`{part}` has no place in tests/house/layering.rs")]);
    };
    let text = blank_comments_and_literals(text);
    let mut targets = BTreeSet::new();
    for (position, _) in text.match_indices("crate") {
        if starts_word(&text, position) {
            targets.extend(roots(&text[position + "crate".len()..]));
        }
    }
    // `super` leads out of the part when it climbs past it. Inline modules (`mod tests`) add one
    // step that the file name does not show, so only names of parts count.
    for (position, _) in text.match_indices("super") {
        let mut rest = &text[position..];
        let mut steps = 0;
        while let Some(after) = rest.strip_prefix("super").and_then(strip_colons) {
            steps += 1;
            rest = after;
        }
        if starts_word(&text, position) && steps >= module.len() {
            let is_part = |name: &String| ALLOWED.iter().any(|(part, _)| part == name);
            targets.extend(first_names(rest).into_iter().filter(is_part));
        }
    }
    targets
        .into_iter()
        .filter(|target| target != part && !allowed.contains(&target.as_str()))
        .map(|target| format!("`{part}` may not use `crate::{target}`"))
        .collect()
}

fn starts_word(text: &str, position: usize) -> bool {
    let before = text[..position].trim_end();
    let joined = text[..position].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    !joined && !before.ends_with("::") && !before.ends_with("$")
}

/// Names that follow `crate`, if a path does (`pub(crate)` has none).
fn roots(rest: &str) -> Vec<String> {
    strip_colons(rest).map(first_names).unwrap_or_default()
}

fn strip_colons(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix("::").map(str::trim_start)
}

/// `net::Close` gives `net`; `{net::{Close, Input}, sync}` gives `net` and `sync`.
fn first_names(text: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = text.strip_prefix('{') else {
        return vec![name(text)];
    };
    let mut names = vec![name(group)];
    let mut depth = 0_usize;
    for (position, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(name(&group[position + 1..])),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty() && name != "self");
    names
}

/// Replaces comments and the insides of literals by nothing. Knows line and (nested) block
/// comments, strings with escapes, raw strings, character literals; a lifetime is no literal.
fn blank_comments_and_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let raw = raw_string(rest).filter(|_| !out.ends_with(|c: char| c.is_alphanumeric()));
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(end) = raw {
            end
        } else if c == '"' {
            string(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skip == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.push(' ');
            rest = &rest[skip..];
        }
    }
    out
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn raw_string(text: &str) -> Option<usize> {
    let body = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&closing).map_or(inside.len(), |position| position + closing.len());
    Some(text.len() - inside.len() + end)
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (position, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return position + 1,
            _ => {}
        }
    }
    text.len()
}

fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => {
            chars.find(|&(_, c)| c == '\'').map_or(text.len(), |(position, _)| position + 1)
        }
        (Some(_), Some((position, '\''))) => position + 1,
        _ => 0, // a lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        let names = |fault: String| fault.rsplit("::").next().unwrap_or("").replace('`', "");
        faults(&module_path(Path::new(file)), text).into_iter().map(names).collect()
    }

    #[test]
    fn what_follows_the_arrows_passes() {
        for (file, text) in [
            ("net/conn.rs", "use crate::sync::Runner; use crate::{runtime::{Handle, Timer}, sys};"),
            ("session/mod.rs", "use crate::codec::frame::Header; use crate::net;"),
            ("sync/runner.rs", "use super::shim; use super::super::sys; pub(crate) fn f() {}"),
            ("codec/row.rs", "use super::header; mod tests { use super::super::header; }"),
            ("stats/mod.rs", "use std::sync::atomic::AtomicU64;"),
            ("sys/epoll.rs", "use crate::stats::Counter; use crate::config::Config;"),
            ("sys/mod.rs", "// crate::net\n/* crate::net /* nested */ crate::net */\nfn f() {}"),
            (
                "sys/mod.rs",
                r##"const A: &str = r#"crate::net"#; const B: char = '"'; "crate::net";"##,
            ),
        ] {
            assert_eq!(found(file, text), Vec::<String>::new(), "{file}: {text}");
        }
    }

    #[test]
    fn what_goes_against_them_is_found() {
        for (file, text, expected) in [
            ("sys/epoll.rs", "use crate::net::Conn;", &["net"][..]),
            ("sync/mod.rs", "use crate::{sys, runtime::Handle};", &["runtime"]),
            ("net/conn.rs", "use crate::codec::frame::Header;", &["codec"]),
            ("codec/header.rs", "fn f() -> crate::stats::Counter { todo!() }", &["stats"]),
            ("config.rs", "mod tests { use super::super::sys; }", &["sys"]),
            ("config.rs", "use super::stats;", &["stats"]),
            ("sys/mod.rs", "fn f<'a>(x: &'a u8) { let _ = '\"'; crate :: pool :: x() }", &["pool"]),
            ("runtime/task.rs", "use super::super::net; use crate::Config;", &["Config", "net"]),
            (
                "sys/mod.rs",
                "use crate::{\n    sys::Epoll,\n    net,\n    session::{Table},\n};",
                &["net", "session"],
            ),
        ] {
            assert_eq!(found(file, text), expected, "{file}: {text}");
        }
    }

    #[test]
    fn a_module_without_a_place_is_found() {
        assert!(!faults(&["extra".to_owned()], "").is_empty());
    }
}
