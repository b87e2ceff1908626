//! Each system call that the crate makes, with each errno. [`rows`] decides the outcome, a page of the
//! guide shows it, and these tests provoke it.

mod life;
mod outgoing;
mod page;
mod pools;
mod rows;
mod serving;
mod source;

use crate::shims::{Call, ERRNOS};
use crate::world::World;

/// Occasion on which the crate makes the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// `Builder::start`.
    Start,
    /// `Handle::listen` on an address of TCP.
    Listen,
    /// The same on a path.
    ListenUnix,
    /// `Handle::listen_on`, with a socket of the host.
    Adopt,
    /// A peer has connected.
    Accept,
    /// Connections are served.
    Serve,
    /// The calls that differ on a Unix socket.
    ServeUnix,
    /// A client logs in to a session server.
    Login,
    /// Handlers wait, and the runtime adds a thread.
    Grow,
    /// `Runtime::connect`.
    Connect,
    /// The client library, on a runtime of its own.
    Client,
    /// `Runtime::drain`.
    Drain,
    /// A pool has its own threads.
    Pool,
}

/// Consequence of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The request fails. The text of its error begins like this and ends with the system's.
    Fails(&'static str),
    /// The connection ends and is counted.
    Ends,
    /// The call is repeated or needs no repetition. It has no visible effect.
    Unseen,
    /// The listener tries again after a pause and serves the connections that waited.
    Pauses,
    /// Service goes on with less. The text says with what.
    Degrades(&'static str),
}

/// A call on one occasion, and the outcome of each errno.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) when: When,
    pub(crate) call: Call,
    pub(crate) what: &'static str,
    pub(crate) cells: &'static [(&'static [i32], Outcome)],
    /// Reason why no other errno occurs. `None` stands for the usual one, which the page gives once.
    pub(crate) otherwise: Option<&'static str>,
}

impl Row {
    pub(crate) fn outcome(&self, errno: i32) -> Option<Outcome> {
        let of = |(errnos, _): &&(&[i32], Outcome)| errnos.contains(&errno);
        self.cells.iter().find(of).map(|(_, outcome)| *outcome)
    }

    /// Calls `run` with each errno that has an outcome.
    fn each(&self, mut run: impl FnMut(i32, Outcome)) {
        for (_, errno) in ERRNOS {
            if let Some(outcome) = self.outcome(errno) {
                run(errno, outcome);
            }
        }
    }
}

/// Runs the scenario for all rows of these occasions.
#[expect(clippy::print_stdout, reason = "the harness shows it when the test fails")]
fn run(times: &[When], scenario: fn(&Row)) {
    let world = World::enter();
    for row in rows::ROWS.iter().filter(|row| times.contains(&row.when)) {
        // The harness prints this only if the test fails.
        println!("{:?} {:?}", row.when, row.call);
        scenario(row);
        world.is_as_before();
    }
}

#[test]
fn a_listen_that_fails_leaves_nothing_and_the_runtime_goes_on() {
    run(&[When::Listen, When::ListenUnix, When::Adopt], life::listen);
}

#[test]
fn a_login_without_random_numbers_ends_and_the_next_one_succeeds() {
    run(&[When::Login], serving::login);
}

#[test]
fn a_thread_that_is_refused_is_counted_and_work_goes_on() {
    run(&[When::Grow], serving::grow);
}

#[test]
fn a_connect_that_fails_is_told_once_and_the_next_one_succeeds() {
    run(&[When::Connect], outgoing::connect);
}

#[test]
fn the_client_fails_what_was_under_way_and_connects_again() {
    run(&[When::Client], outgoing::client);
}

#[test]
fn a_drain_ends_whatever_fails() {
    run(&[When::Drain], life::drain);
}

#[test]
fn a_pool_without_threads_is_told_or_tries_again() {
    run(&[When::Pool], pools::pool);
}
