//! The guide's page of all decided outcomes, generated from the rows and compared with the file.
//!
//! `EG_TEST_WRITE=1 cargo test --test syscalls page` writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use libc::EINTR;

use super::rows::{LOST, ROWS};
use super::{Outcome, Row, When};
use crate::shims::ERRNOS;
use crate::world::World;

/// Text before the tables.
const HEAD: &str = "\
# System calls that fail

Outcome of each errno of each system call. The test `syscalls` lets functions of the C library fail on request, while well-behaved
peers get their answers. Afterwards nothing is left over, and service is as before. A call in the source without an item fails the
test.

- fails: the request fails with an error that names it and repeats the system's text.
- ends: the connection ends, counted in `closed_reset` or `closed_io_error`; if just accepted, in `accept_errors_other`; without random numbers, in `closed_by_handler`.
- again: the call is repeated or needs no repetition, without visible effect.
- pauses: the listener retries after 10 ms, doubling to 1 s; if descriptors or memory are short, also when a descriptor of the runtime closes. Counters:
  `accept_pauses`; `accept_errors_resources`, or `accept_errors_other` for an errno that the manual does not list, which is logged.
- goes on: service continues with less, as the text behind the errnos says.

EPERM comes from a sandbox that forbids the call. The test tries these errnos:
ERRNOS.
*Connection errors* are LOST.
EINTR is *again* and named only where nothing else is. Another errno that an item does not name has the outcome of an earlier item
for the same call. If none names it, it cannot occur; *others* gives reasons.
";

/// Text after the tables.
const TAIL: &str = "\
Without memory for the heap, or for the signal stack of a new thread, a Rust program ends. Not shown are the calls inside of
`getaddrinfo`, and how a thread gets its stack and name. Locks wait in futexes, which fail only for wrong arguments.
";

#[test]
fn the_page_of_the_guide_says_what_is_tested() {
    // `World` counts the open files of the process, so this test must not run beside the others.
    let _world = World::enter();
    let page = page();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/syscalls.md");
    if std::env::var_os("EG_TEST_WRITE").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    let written = std::fs::read_to_string(&path).expect("the page is there");
    assert!(written == page, "EG_TEST_WRITE=1 cargo test --test syscalls page");
}

#[test]
fn every_errno_is_in_one_cell_of_a_row_at_most() {
    for row in ROWS {
        let mut all: Vec<i32> = row.cells.iter().flat_map(|(errnos, _)| *errnos).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{row:?}");
        assert!(all.iter().all(|errno| ERRNOS.iter().any(|(_, known)| known == errno)), "{row:?}");
    }
}

fn page() -> String {
    let errnos: Vec<i32> = ERRNOS.iter().map(|(_, errno)| *errno).collect();
    let mut page = HEAD.replace("ERRNOS", &names(&errnos)).replace("LOST", &names(LOST));
    let times: [(&[When], _); 6] = [
        (&[When::Start], "`Builder::start`"),
        (&[When::Listen, When::ListenUnix, When::Adopt], "`Handle::listen` and `listen_on`"),
        (
            &[When::Accept, When::Serve, When::ServeUnix, When::Login, When::Grow],
            "Connections are served",
        ),
        (&[When::Connect, When::Client], "`Runtime::connect`, and the client library"),
        (&[When::Drain], "`Runtime::drain`"),
        (&[When::Pool], "A pool with threads of its own"),
    ];
    let mut reasons = BTreeSet::new();
    for (when, title) in times {
        write!(page, "\n## {title}\n\n").expect("memory");
        // Calls with the same outcomes share an item: calls, outcomes, reason.
        let mut items: Vec<(Vec<String>, String, Option<&str>)> = Vec::new();
        let at = |row: &Row| when.iter().position(|&when| when == row.when);
        let mut rows: Vec<&Row> = ROWS.iter().filter(|&row| at(row).is_some()).collect();
        rows.sort_by_key(|&row| at(row));
        for row in rows {
            let call = format!("`{}` ({})", row.call.name(), row.what);
            let outcomes = outcomes(row).join("; ");
            // A reason stands in the first row of its call only.
            let reason = row.otherwise.filter(|reason| reasons.insert((row.call.name(), *reason)));
            if items.iter().any(|(calls, known, _)| *known == outcomes && calls.contains(&call)) {
                continue;
            }
            let same = |(_, known, why): &&mut (_, String, _)| *known == outcomes && *why == reason;
            match items.iter_mut().find(same) {
                Some((calls, _, _)) => calls.push(call),
                None => items.push((vec![call], outcomes, reason)),
            }
        }
        for (calls, outcomes, reason) in items {
            let reason = reason.map(|reason| format!("others: {reason}"));
            let parts = [outcomes].into_iter().filter(|text| !text.is_empty()).chain(reason);
            let parts: Vec<_> = parts.collect();
            writeln!(page, "- {}: {}", calls.join(", "), parts.join("; ")).expect("memory");
        }
    }
    writeln!(page, "\n## Not shown\n\n{}", TAIL.trim_end()).expect("memory");
    page
}

/// Each outcome of a row with its errnos, in the order of `ERRNOS`.
fn outcomes(row: &Row) -> Vec<String> {
    let mut outcomes: Vec<(Outcome, Vec<i32>)> = Vec::new();
    for (_, errno) in ERRNOS {
        let Some(outcome) = row.outcome(errno) else { continue };
        match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, errnos)) => errnos.push(errno),
            None => outcomes.push((outcome, vec![errno])),
        }
    }
    if outcomes.len() > 1 {
        outcomes.retain(|(outcome, errnos)| *outcome != Outcome::Unseen || errnos != &[EINTR]);
    }
    outcomes
        .into_iter()
        .map(|(outcome, errnos)| {
            let names =
                if errnos == LOST { "connection errors".to_owned() } else { names(&errnos) };
            match outcome {
                Outcome::Fails(_) => format!("fails ({names})"),
                Outcome::Ends => format!("ends ({names})"),
                Outcome::Unseen => format!("again ({names})"),
                Outcome::Pauses => format!("pauses ({names})"),
                Outcome::Degrades(how) => format!("goes on ({names}), {how}"),
            }
        })
        .collect()
}

fn names(errnos: &[i32]) -> String {
    let known = ERRNOS.iter().filter(|(_, errno)| errnos.contains(errno));
    known.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
