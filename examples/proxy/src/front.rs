//! [`Front`]: what belongs to one session of a client, and which sessions of data nodes are its own.
//!
//! ```text
//!                       statement alone: borrowed, given back with the answer
//!   ┌─────────┐  begin  ┌──────────────────────────────────────────────┐
//!   │ nothing │────────▶│ a transaction: one session, of one node, held │
//!   │ held    │◀────────│ until it ends, then given back                │
//!   └─────────┘ commit  └──────────────────────────────────────────────┘
//!        │ set          ┌──────────────────────────────────────────────┐
//!        └─────────────▶│ settings: a session of its own at each node   │
//!                       │ that it comes to, settings first; closed, not │
//!                       │ given back, when the client goes              │
//!                       └──────────────────────────────────────────────┘
//! ```
//!
//! Where sessions are held, a request waits until the one before it has ended, because a cancelled one
//! may still run at a data node when the client sends the next.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoll_group::client::{Request, Summary};
use epoll_group::codec::proto::notice::{Level, Warning};
use epoll_group::codec::proto::tso::Operation;
use epoll_group::pool::Pooled;
use epoll_group::session::{Deferred, Reply, SessionError};

use crate::cancel::Cancels;
use crate::nodes::Lease;
use crate::refuse::{
    in_transaction, lost_transaction, no_savepoint, too_many_settings, unroutable,
};
use crate::turn::Turn;

/// A session of a client. Shared with the requests that run for it.
pub struct Front {
    /// Result of `connection_id()`.
    pub number: u32,
    pub user: String,
    pub schema: String,
    pub cancels: Arc<Cancels>,
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    /// Statements begin transactions.
    pub manual_commit: bool,
    pub transaction: Option<Transaction>,
    /// Settings of the next transaction alone.
    next: Vec<Request>,
    settings: Vec<Setting>,
    last_setting: u64,
    /// Texts of results are in another character set than UTF-8.
    pub has_other_texts: bool,
    held: Vec<Held>,
    /// A request is under way that may change the above.
    is_busy: bool,
    /// The request that runs next. A client has one uncancelled request at most, so each older one is
    /// cancelled.
    waiting: Option<Turn>,
    is_closed: bool,
    /// Results of the last statement.
    pub told: Remembered,
}

/// A transaction that the client has begun.
pub struct Transaction {
    /// Requests that a node runs before the first statement.
    steps: Vec<Request>,
    /// Names of savepoints that are in the steps.
    savepoints: Vec<String>,
    /// Its node, from the first statement on.
    pub node: Option<usize>,
    /// Set when it was rolled back, for this reason. From then on no statement for a data node
    /// succeeds but a rollback. A commit fails, but ends the transaction, too.
    pub lost: Option<SessionError>,
    /// Set when the session of the transaction may have settings that the proxy does not know.
    pub is_session_spoilt: bool,
}

/// A statement that changed the session.
#[derive(Clone)]
pub struct Setting {
    number: u64,
    names: Vec<String>,
    request: Request,
}

/// A session of a data node that is the client's for longer than a statement.
struct Held {
    node: usize,
    lease: Lease,
    /// The number of the last setting that it has.
    applied: u64,
}

/// Results of the last statement, for functions such as `last_insert_id()`.
#[derive(Debug, Default)]
pub struct Remembered {
    /// The last id that a node has reported. A node also reports an id that the client has given to a row, and
    /// the proxy cannot tell it apart: it does not know which column of a table is numbered.
    pub insert_id: u64,
    pub affected: i64,
    pub warnings: Vec<Warning>,
}

/// The session of a statement, and the steps before it.
#[derive(Default)]
pub struct Place {
    /// `None` if one is to be borrowed.
    pub lease: Option<Lease>,
    pub steps: VecDeque<Request>,
    /// Number of the last setting that the session has after the steps.
    pub applied: u64,
}

/// Limit of settings of a client. Each setting is repeated in every session of a data node that the
/// client uses.
const MOST_SETTINGS: usize = 64;
/// Limit of settings of the next transaction.
const MOST_NEXT: usize = 8;
/// Limit of steps in a transaction before it is at a node.
const MOST_STEPS: usize = 16;
/// Longest error text that is kept, in bytes.
const LONGEST_ERROR: usize = 2048;
/// MySQL's number for a transaction that was rolled back for another.
const DEADLOCK: u32 = 1213;

impl Front {
    pub fn new(number: u32, user: &str, schema: &str) -> Self {
        let (user, schema) = (user.to_owned(), schema.to_owned());
        Self { number, user, schema, cancels: Arc::default(), state: Mutex::default() }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a request when it is its turn.
    pub fn enter(&self, turn: Turn) {
        let mut state = self.state();
        if state.is_busy {
            let older = state.waiting.replace(turn);
            drop(state);
            older.into_iter().for_each(Turn::interrupt);
            return;
        }
        if turn.is_free() && state.is_plain() {
            drop(state);
            return turn.run_freely();
        }
        state.is_busy = true;
        drop(state);
        turn.run();
    }

    /// The request that was under way is over: it is the turn of the next, unless it was cancelled.
    pub fn leave(&self) {
        loop {
            let mut state = self.state();
            let next = state.waiting.take();
            state.is_busy = next.is_some();
            drop(state);
            match next {
                Some(turn) if turn.ticket.is_cancelled() => turn.interrupt(),
                Some(turn) => return turn.run(),
                None => return,
            }
        }
    }

    /// Answers a request, and remembers its error.
    pub fn answer(
        &self,
        deferred: Deferred,
        code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>,
    ) {
        deferred.finish(|reply| code(reply).inspect_err(|error| self.state().told.failed(error)));
    }

    /// A session of a node comes back.
    pub fn put_back(&self, node: usize, lease: Option<Lease>, applied: u64) {
        let Some(lease) = lease else { return };
        let mut state = self.state();
        let in_transaction = state.is_held_for_transaction(node);
        if state.is_closed {
            let is_own = in_transaction || !state.settings.is_empty() || applied > 0;
            drop(state);
            // The next client must not find this client's state in it.
            if is_own { Pooled::discard(lease) } else { drop(lease) }
        } else if in_transaction || !state.settings.is_empty() {
            state.held.push(Held { node, lease, applied });
        } else {
            drop(state);
            drop(lease);
        }
    }

    /// The client has gone.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let held = std::mem::take(&mut state.held);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for Held { lease, .. } in held {
            Pooled::discard(lease);
        }
        drop(waiting);
    }
}

impl State {
    /// True if the client holds no session of a data node, and its next statement will hold none.
    fn is_plain(&self) -> bool {
        !self.manual_commit
            && self.transaction.is_none()
            && self.settings.is_empty()
            && self.next.is_empty()
    }

    pub const fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Returns the transaction of a statement. Without autocommit, begins one if there is none.
    pub fn transaction_of_statement(&mut self) -> Option<&mut Transaction> {
        if self.transaction.is_none() && self.manual_commit {
            self.begin(Request::sql("begin"));
        }
        self.transaction.as_mut()
    }

    pub fn begin(&mut self, request: Request) {
        let mut steps = std::mem::take(&mut self.next);
        steps.push(request);
        self.transaction = Some(Transaction {
            steps,
            savepoints: Vec::new(),
            node: None,
            lost: None,
            is_session_spoilt: false,
        });
    }

    /// Adds a setting of the next transaction.
    pub fn set_next(&mut self, request: Request) -> Result<(), SessionError> {
        if self.is_in_transaction() {
            return Err(in_transaction());
        }
        if self.next.len() == MOST_NEXT {
            return Err(too_many_settings(MOST_NEXT));
        }
        self.next.push(request);
        Ok(())
    }

    /// A statement that commits by itself uses up the settings of the next transaction. It runs
    /// without them: a data node could keep them in its session, which clients share.
    pub fn drop_next(&mut self) {
        if !self.is_in_transaction() {
            self.next.clear();
        }
    }

    /// The session in which a statement runs at a node.
    pub fn place(&mut self, node: usize, in_transaction: bool) -> Place {
        let at = self.held.iter().position(|held| held.node == node);
        let held = at.map(|at| self.held.swap_remove(at));
        let applied = held.as_ref().map_or(0, |held| held.applied);
        let settings = self.settings.iter().filter(|setting| setting.number > applied);
        let mut steps: VecDeque<_> = settings.map(|setting| setting.request.clone()).collect();
        if let Some(transaction) = self.transaction.as_ref().filter(|_| in_transaction)
            && transaction.node.is_none()
        {
            steps.extend(transaction.steps.iter().cloned());
        }
        Place { lease: held.map(|held| held.lease), steps, applied: self.last_setting }
    }

    /// A node at which the client has a session of its own.
    pub fn some_held(&self) -> Option<usize> {
        self.held.first().map(|held| held.node)
    }

    /// The session of the transaction, to end it.
    pub fn take_transaction(&mut self) -> Option<(usize, Lease, u64)> {
        let node = self.transaction.take()?.node?;
        let at = self.held.iter().position(|held| held.node == node)?;
        let Held { lease, applied, .. } = self.held.swap_remove(at);
        Some((node, lease, applied))
    }

    /// A statement of the transaction was done at this node.
    pub fn is_at(&mut self, node: usize) {
        if let Some(transaction) = &mut self.transaction {
            transaction.node.get_or_insert(node);
        }
    }

    /// True if the transaction is at this node.
    pub fn is_held_for_transaction(&self, node: usize) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.node == Some(node))
    }

    /// Has the session of the transaction discarded when the transaction ends. Returns false if the
    /// transaction is not at this node.
    pub fn discard_after_transaction(&mut self, node: usize) -> bool {
        let here = self.transaction.as_mut().filter(|transaction| transaction.node == Some(node));
        here.map(|transaction| transaction.is_session_spoilt = true).is_some()
    }

    /// Notes that the session of the transaction is gone, or perhaps gone.
    pub fn lose(&mut self, name: impl fmt::Display) {
        if let Some(transaction) = &mut self.transaction {
            transaction.lost.get_or_insert_with(|| lost_transaction(name));
        }
    }

    /// True if a statement that fails with this code ends the transaction.
    pub const fn ends_transaction(code: u32) -> bool {
        code == DEADLOCK
    }

    /// True if an earlier setting changed one of these variables.
    pub fn has_set(&self, names: &[String]) -> bool {
        let mut set = self.settings.iter().flat_map(|setting| &setting.names);
        set.any(|name| names.contains(name))
    }

    /// Checks that there is room for one more setting, which may replace others.
    pub fn can_set(&self, names: &[String]) -> Result<(), SessionError> {
        let stay = self.settings.iter().filter(|setting| !setting.is_within(names)).count();
        if stay >= MOST_SETTINGS { Err(too_many_settings(MOST_SETTINGS)) } else { Ok(()) }
    }

    /// A setting was made in one session; the others get it when they are used. `is_utf8` says whether
    /// results are in UTF-8 from now on, if it changes that.
    pub fn set(&mut self, names: Vec<String>, is_utf8: Option<bool>, request: Request) -> u64 {
        if let Some(is_utf8) = is_utf8 {
            self.has_other_texts = !is_utf8;
        }
        self.last_setting += 1;
        let number = self.last_setting;
        self.settings.retain(|setting| !setting.is_within(&names));
        self.settings.push(Setting { number, names, request });
        number
    }
}

impl Setting {
    /// True if a setting of `names` sets all that this one sets.
    fn is_within(&self, names: &[String]) -> bool {
        self.names.iter().all(|name| names.contains(name))
    }
}

impl Transaction {
    /// Keeps an operation on a savepoint while the transaction is at no node. The node runs it
    /// before the first statement.
    pub fn plan_savepoint(
        &mut self,
        name: &str,
        action: Operation,
        request: &Request,
    ) -> Result<(), SessionError> {
        let known = self.savepoints.iter().position(|known| known.eq_ignore_ascii_case(name));
        if action != Operation::Set && known.is_none() {
            return Err(no_savepoint(name));
        }
        if self.steps.len() >= MOST_STEPS {
            let why = format!("the transaction has {MOST_STEPS} before its first statement");
            return Err(unroutable("one more savepoint", why));
        }
        match (action, known) {
            (Operation::Set, known) => {
                known.map(|at| self.savepoints.remove(at));
                self.savepoints.push(name.to_owned());
            }
            (Operation::Release, Some(at)) => self.savepoints.truncate(at),
            (_, at) => self.savepoints.truncate(at.map_or(0, |at| at + 1)),
        }
        self.steps.push(request.clone());
        Ok(())
    }
}

impl Remembered {
    pub fn note(&mut self, summary: &Summary) {
        if let Some(id) = summary.insert_id {
            self.insert_id = id;
        }
        self.affected = summary.affected.try_into().unwrap_or(i64::MAX);
        self.warnings.clone_from(&summary.warnings);
    }

    /// Notes the error of a statement.
    pub fn failed(&mut self, error: &SessionError) {
        let text = String::from_utf8_lossy(&error.message);
        let end = (0..=LONGEST_ERROR).rfind(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let (code, msg) = (error.code, text[..end].into());
        self.affected = -1;
        self.warnings = vec![Warning { level: Some(Level::Error), code, msg }];
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_is_kept_in_part() {
        let mut told = Remembered::default();
        for (text, length) in
            [("a".repeat(9), 9), ("ä".repeat(2000), 2048), ("€".repeat(2000), 2046)]
        {
            told.failed(&SessionError::new(1105, b"HY000", text));
            assert_eq!(told.warnings[0].msg.len(), length);
        }
    }
}
