//! [`Probe`]: finds out whether a data node is gone, and goes over to a stand-by.
//!
//! ```text
//!   a session is lost ──▶ the primary, asked twice ──answers or refuses──▶ nothing happens
//!                                │ does neither
//!                                ▼
//!                         each stand-by, asked in turn ──answers──▶ the pool goes over
//!                                │ none does
//!                                ▼
//!                         nothing; the next loss asks again
//! ```
//!
//! One lost connection is no reason: a primary that answers stays in use. Two servers that both
//! take changes are worse than one second without a server.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use epoll_group::client::{self, Client, Request};
use epoll_group::pool::Version;

use crate::nodes::Nodes;

/// How often the server that is in use is asked before it is given up.
const TRIES: u32 = 2;
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// Asks whether the server of a node is alive. A node has at most one probe at a time.
pub struct Probe {
    nodes: Arc<Nodes>,
    node: usize,
    version: Version,
}

impl Probe {
    /// No thread waits for it.
    pub fn start(nodes: Arc<Nodes>, node: usize, version: Version) {
        Self { nodes, node, version }.ask_current(TRIES);
    }

    fn ask_current(self, tries: u32) {
        let client = self.nodes.get(self.node).endpoint(self.version).client.clone();
        let limit = self.nodes.patience.silence;
        ask(&client, limit, move |answer| match tries {
            // A server that refuses, such as one with too many connections, lives.
            _ if answer.as_ref().map_or_else(|error| error.server_error().is_some(), |()| true) => {
            }
            0 | 1 => self.ask_standby(1),
            _ => {
                let handle = self.nodes.handle.clone();
                handle.after(PAUSE, move || self.ask_current(tries - 1)).detach();
            }
        });
    }

    /// Asks the stand-by `ahead` places behind the current server. If that fails, asks the next
    /// one.
    fn ask_standby(self, ahead: usize) {
        let endpoints = &self.nodes.get(self.node).endpoints;
        if ahead == endpoints.len() {
            return;
        }
        let next = (self.version.0 + ahead as u64) % endpoints.len() as u64;
        let client = endpoints[next as usize].client.clone();
        let limit = self.nodes.patience.silence;
        ask(&client, limit, move |answer| match answer {
            Ok(()) => self.nodes.fail_over(self.node, self.version, ahead),
            Err(_) => self.ask_standby(ahead + 1),
        });
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.nodes.get(self.node).is_probed.store(false, Ordering::Release);
    }
}

/// Calls `then` with the answer of a server to a statement.
fn ask(
    client: &Client,
    limit: Duration,
    then: impl FnOnce(Result<(), client::Error>) + Send + 'static,
) {
    client.session_then(move |session| {
        let mut session = match session {
            Ok(session) => session,
            Err(error) => return then(Err(error)),
        };
        match session.send(Request::sql("select 1").timeout(limit)) {
            Ok(pending) => pending.then(move |answer| {
                then(answer.map(drop));
                drop(session);
            }),
            Err(error) => then(Err(error)),
        }
    });
}
