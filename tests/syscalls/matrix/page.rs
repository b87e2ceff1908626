//! The page of the guide with all decisions, and whether it is as it should be.
//!
//! `EG_TEST_WRITE=1 cargo test --test syscalls page` writes it anew.

use std::fmt::Write;
use std::path::Path;

use super::rows::ROWS;
use super::{Outcome, When};
use crate::shims::ERRNOS;
use crate::world::World;

/// Before the tables.
const HEAD: &str = "\
# System calls that fail

What follows when the system refuses, for each call that the crate makes. Every cell is brought about by
the test `syscalls`, in which the functions of the C library fail on request, beside well-behaved peers
that get their answers all the while. After each of them nothing is left over (descriptors, threads,
slots), nobody has panicked, and service is as before. A call in the source that has no row fails the
test.

| | what follows |
|---|---|
| fails | what was asked for fails, with an error that says what it was and what the system said; everything else goes on |
| ends | that connection ends and is counted (`closed_reset`, `closed_io_error`; of one that was just accepted `accept_errors_other`); the others go on |
| again | the call is made again, or nothing needs to be done: nobody sees it |
| pauses | the listener looks again after 10 ms, doubling to 1 s, and at once when a descriptor of the runtime is closed; who waits is served then (`accept_pauses`; `accept_errors_resources`, or `accept_errors_other` for what the manual does not list, which is logged) |
| goes on | with less, as the last column says |
| – | the system does not say this, for the reason in the last column |

EPERM is what a sandbox says to a call that it forbids.
";

const TAIL: &str = "\
Not in the tables: memory for the heap and for the stacks of threads. A Rust program that gets no memory
ends (`handle_alloc_error`), and so does std when a new thread gets none for its signal stack.
Nor what the C library and std do inside of one of these calls: what `getaddrinfo` opens and asks, and
how a thread gets its stack and its name. Locks wait in futexes, which fail for a wrong argument only.
";

#[test]
fn the_page_of_the_guide_says_what_is_tested() {
    // A file that is open would be counted.
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
    let mut page = HEAD.to_owned();
    let times = [
        (When::Start, "`Builder::start`"),
        (When::Listen, "`Runtime::listen`, TCP"),
        (When::ListenUnix, "`Runtime::listen`, Unix"),
        (When::Adopt, "`Runtime::listen`, a listener of the host"),
        (When::Accept, "A peer has connected, TCP or Unix"),
        (When::Serve, "Connections are served"),
        (When::ServeUnix, "Connections are served, on a Unix socket"),
        (When::Login, "Somebody logs in"),
        (When::Grow, "Handlers wait"),
        (When::Connect, "`Runtime::connect`"),
        (When::Client, "The client library"),
        (When::Drain, "`Runtime::drain`"),
        (When::Pool, "A pool that nobody maintains"),
    ];
    for (when, title) in times {
        write!(page, "\n## {title}\n\n").expect("memory");
        table(&mut page, when);
    }
    writeln!(page, "\n## Not shown\n\n{}", TAIL.trim_end()).expect("memory");
    page
}

fn table(page: &mut String, when: When) {
    page.push_str("| call | for |");
    ERRNOS.iter().for_each(|(name, _)| write!(page, " {name} |").expect("memory"));
    page.push_str(" |\n|---|---|");
    page.push_str(&"---|".repeat(ERRNOS.len() + 1));
    page.push('\n');
    for row in ROWS.iter().filter(|row| row.when == when) {
        write!(page, "| `{}` | {} |", row.call.name(), row.what).expect("memory");
        let mut less = Vec::new();
        for (_, errno) in ERRNOS {
            let word = match row.outcome(errno) {
                Some(Outcome::Fails(_)) => "fails",
                Some(Outcome::Ends) => "ends",
                Some(Outcome::Unseen) => "again",
                Some(Outcome::Pauses) => "pauses",
                Some(Outcome::Degrades(how)) => {
                    less.push(how);
                    "goes on"
                }
                None => "–",
            };
            write!(page, " {word} |").expect("memory");
        }
        less.dedup();
        let less: String = less.iter().map(|how| format!("goes on: {how}. ")).collect();
        writeln!(page, " {less}–: {} |", row.otherwise).expect("memory");
    }
}
