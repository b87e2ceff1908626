//! Loads a server in the shape of etcd's benchmark tool.
//!
//! Each client is a session with one request in flight, driven by [`lab::drive`]. A request depends on
//! the seed and its number alone. Every answer is checked:
//!
//! * The revision of a put belongs to no other put, and is above all that its client has seen.
//! * A read sees what its client has seen. It finds exactly the keys that it asked for, and at each a
//!   whole value that was written for it.

mod keys;
mod question;
mod values;
mod workload;

use std::error::Error;
use std::time::Duration;

use epoll_group::client::{Answer, Request};
use lab::drive::{Access, Asker, Driver, Failure, Target};

pub use keys::Keys;
pub use lab::drive::{Summary, Until};
pub use lab::progress::{Lines, Progress};
pub use question::Shape;
pub use workload::Workload;

use question::{Question, check_written};

use crate::client::{KvError, Reply};
use crate::units::Count;

/// Server and clients of a load.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT`, or `unix:PATH`.
    pub address: String,
    /// User to log in as.
    pub user: String,
    /// Password of the user.
    pub password: String,
    /// Sessions, each with one request in flight.
    pub clients: usize,
    /// Connections that the sessions share.
    pub connections: usize,
}

/// Clients of a server.
#[derive(Debug)]
pub struct Load {
    driver: Driver,
    clients: usize,
    shape: Shape,
}

/// Deadline of a request, and of the answers at the end of a load.
const PATIENCE: Duration = Duration::from_secs(30);

impl Load {
    /// Clients that ask for such keys and write such values. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// Options or shape make no sense, or the system has no threads left.
    pub fn new(options: &Options, shape: Shape) -> Result<Self, Box<dyn Error>> {
        shape.check()?;
        let Options { address, user, password, clients, connections } = options.clone();
        let target = Target { address, user, password };
        let driver = Driver::new(&target, clients, connections, PATIENCE)?;
        Ok(Self { driver, clients, shape })
    }

    /// Puts every key once, for later reads.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run), and any failure of a request.
    pub fn fill(&self, progress: Progress) -> Result<(), Box<dyn Error>> {
        let (workload, until) = Workload::fill(&self.shape);
        self.run(workload, until, progress)?.verdict()
    }

    /// Asks, checks and counts.
    ///
    /// # Errors
    ///
    /// The workload makes no sense, no session can be opened, or answers do not come. Failures of single
    /// requests are counted.
    pub fn run(
        &self,
        workload: Workload,
        until: Until,
        mut progress: Progress,
    ) -> Result<Summary, Box<dyn Error>> {
        workload.check(&self.shape)?;
        let client = || Client { shape: self.shape, workload, newest: 0, revisions: Vec::new() };
        let clients = std::iter::repeat_with(client).take(self.clients).collect();
        let (mut summary, clients) = self.driver.run(clients, until, |load| {
            let per_second = load.answers as f64 / load.elapsed.as_secs_f64();
            progress.update(load.done, rate(per_second, load.failures));
        })?;
        for revision in twice(clients.into_iter().flat_map(|client| client.revisions).collect()) {
            let text = format!("two transactions have revision {revision}");
            summary.failed(Failure::wrong(text));
        }
        progress.finish(rate(summary.per_second(), summary.failures()));
        Ok(summary)
    }
}

/// Client of one session, which asks and checks the answers.
struct Client {
    shape: Shape,
    workload: Workload,
    /// Newest revision that the client has seen.
    newest: u64,
    /// Revisions of what it wrote.
    revisions: Vec<u64>,
}

impl Asker for Client {
    type Question = Question;

    fn next(&mut self, number: u64) -> Option<(Question, Request)> {
        let question = self.shape.question(self.workload, number);
        let request = Request::from(question.encoded()).compact();
        Some((question, request))
    }

    fn check(&mut self, question: Question, answer: Answer) -> Result<Access, Failure> {
        let failed = |error: KvError| Failure::Error(error.to_string());
        let reply = Reply::of(answer).map_err(failed)?;
        match question {
            Question::Write(txn) => {
                let (done, puts) = (reply.txn().map_err(failed)?, txn.then.len() as u64);
                check_written(&done, puts, self.newest).map_err(Failure::Wrong)?;
                self.newest = done.revision;
                self.revisions.push(done.revision);
                Ok(Access::Write)
            }
            Question::Read(read) => {
                let found = reply.read().map_err(failed)?;
                self.shape.check_found(&read, &found, self.newest).map_err(Failure::Wrong)?;
                self.newest = found.revision;
                Ok(Access::Read)
            }
        }
    }
}

/// Returns each repetition.
fn twice(mut revisions: Vec<u64>) -> Vec<u64> {
    revisions.sort_unstable();
    let pairs = revisions.windows(2);
    pairs.filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
}

fn rate(per_second: f64, failures: u64) -> String {
    let rate = Count(per_second.round());
    match failures {
        0 => format!("{rate} requests/s"),
        _ => format!("{rate} requests/s, {failures} failures"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_came_twice_is_wrong() {
        assert_eq!(twice(vec![5, 6, 5, 7, 7]), [5, 7]);
    }
}
