//! A service whose statements have tags, that counts how often each was executed.
//!
//! ```text
//! TAG echo        a row with the tag
//! TAG rows N      so many rows with the tag
//! TAG late MS     the same as `echo`, after that time, or interrupted before
//! TAG held        the same as `echo`, once the gate is open; an announced wait
//! TAG fail        an error with the tag
//! TAG fatal       the same, and the session ends
//! ```
//!
//! Any other statement is an error, because bytes may have been corrupted in transit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::row::Column;
use epoll_group::session::{
    Account, AuthError, Cancel, Deferred, Login, Peer, Reply, Request, Service, SessionError,
    SessionId,
};
use epoll_group::{Handle, stall};

use super::engine::PASSWORD;
use super::workers::Gate;

pub struct Tagged {
    handle: Handle,
    password: StoredPassword,
    executed: Mutex<HashMap<u64, u32>>,
    /// Holds back the statements `held`.
    pub gate: Gate,
}

/// A deferred request, until it is finished.
type Later = Arc<Mutex<Option<Deferred>>>;

/// One session with its deferred request.
pub struct Session(Arc<Mutex<Option<Later>>>);

impl Tagged {
    pub fn new(handle: Handle) -> Self {
        let password = StoredPassword::of(PASSWORD.as_bytes());
        Self { handle, password, executed: Mutex::default(), gate: Gate::default() }
    }

    /// Statements executed, with a tag or what looks like one.
    pub fn total(&self) -> u64 {
        lock(&self.executed).values().map(|&times| u64::from(times)).sum()
    }

    /// Number of times that the statement with this tag was executed.
    pub fn executed(&self, tag: u64) -> u32 {
        lock(&self.executed).get(&tag).copied().unwrap_or(0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(reply: &mut Reply<'_>, tag: u64, rows: u64) -> Result<(), SessionError> {
    reply.columns(&[Column::text("tag", 45, 255)])?;
    (0..rows).try_for_each(|_| reply.row(|row| row.text(tag.to_string())))
}

impl Service for Tagged {
    type Session = Session;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check(Some(&self.password))?;
        Ok(Account::new("root"))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<(Session, Cancel), SessionError> {
        let deferred = Arc::<Mutex<Option<Later>>>::default();
        let session = Session(Arc::clone(&deferred));
        let cancel = Cancel::new(move |_| {
            let later = lock(&deferred).take();
            if let Some(deferred) = later.and_then(|later| lock(&later).take()) {
                deferred.finish(|_| Err(SessionError::interrupted()));
            }
        });
        Ok((session, cancel))
    }

    fn execute(
        &self,
        session: &mut Session,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let Request::Sql(sql) = request else {
            return Err(SessionError::unsupported("statements only"));
        };
        let statement = String::from_utf8_lossy(sql.text).into_owned();
        let mut words = statement.split(' ');
        let Some(tag) = words.next().and_then(|tag| tag.parse().ok()) else {
            return Err(SessionError::unsupported("a statement without a tag"));
        };
        let (what, number) = (words.next(), words.next().and_then(|word| word.parse().ok()));
        *lock(&self.executed).entry(tag).or_default() += 1;
        match what {
            Some("echo") => text(reply, tag, 1),
            Some("rows") => text(reply, tag, number.unwrap_or(1)),
            Some("held") => {
                stall::run(|| self.gate.pass());
                text(reply, tag, 1)
            }
            Some("late") => {
                let later: Later = Arc::new(Mutex::new(Some(reply.defer())));
                *lock(&session.0) = Some(Arc::clone(&later));
                let delay = Duration::from_millis(number.unwrap_or(0));
                self.handle
                    .after(delay, move || {
                        let deferred = lock(&later).take();
                        if let Some(deferred) = deferred {
                            deferred.finish(|reply| text(reply, tag, 1));
                        }
                    })
                    .detach();
                Ok(())
            }
            Some("fail") => Err(SessionError::new(1234, b"42000", tag.to_string())),
            Some("fatal") => Err(SessionError::fatal(1234, b"42000", tag.to_string())),
            _ => Err(SessionError::unsupported("no such statement")),
        }
    }

    fn cancelled(&self, session: &mut Session) {
        *lock(&session.0) = None;
    }

    fn in_transaction(&self, _: &Session) -> bool {
        false
    }
}
