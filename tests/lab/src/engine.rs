//! A service whose statements are a small language, so that tests decide what a handler does and
//! when.
//!
//! ```text
//! one                     a row with 1
//! echo TEXT               a row with the rest
//! text                    a row with the statement itself
//! who, number             a row with the account, with the number of the session
//! affect N                a change of N rows; `insert N` changes one, and reports N as its id
//! rows N [BYTES]          N rows, written by the handler
//! source N [BYTES]        the same from a source
//! gate NAME               waits at a gate, announced; then a row with the name
//! gate-unannounced NAME   the same, without an announcement
//! pause N                 keeps its thread for N µs
//! defer NAME              finished by the test, or when the gate opens
//! lock, unlock            the one row lock; its holder is in a transaction
//! locked STATEMENT        takes the row lock, then runs the statement
//! begin, commit           in a transaction without a lock
//! fail N, fatal N         errors
//! script NAME             runs the script that the test planted under that name
//! trap WHERE              a panic to come: closed, cancelled, in_transaction, cancel
//! ```
//!
//! and more, see `statements`.

#![allow(unused_imports, reason = "each test file uses a part of this")]

pub mod backend;
mod control;
mod fixture;
mod statements;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use epoll_group::codec::auth::{DigestSalt, PasswordDigest, StoredPassword};
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Service, SessionError, SessionId,
};
use epoll_group::stall;

pub use control::{Control, Counts, Script};
pub use fixture::{Fixture, PASSWORD, config};
pub use statements::{Numbers, finish_with, one_text};

pub struct Engine {
    pub control: Arc<Control>,
    accounts: HashMap<Vec<u8>, StoredPassword>,
}

/// Password of the account `digest`. Made once, because it takes 5000 rounds of hashing.
static DIGEST: LazyLock<PasswordDigest> = LazyLock::new(|| {
    let digest = PasswordDigest::of(PASSWORD.as_bytes(), *b"0123456789abcdefghij", 5000);
    digest.expect("the password is short")
});

/// One session.
pub struct Session {
    control: Arc<Control>,
    id: SessionId,
    account: String,
    cancelled: Arc<AtomicBool>,
    trap_cancel: Arc<AtomicBool>,
    in_transaction: bool,
    trap: String,
}

impl Engine {
    pub fn new() -> Self {
        let names = ["root", "other", "nobody", "no-entry", "panic", "panic-open", "panic-clock"];
        let mut accounts: HashMap<_, _> = names
            .iter()
            .map(|name| (name.as_bytes().to_vec(), StoredPassword::of(PASSWORD.as_bytes())))
            .collect();
        accounts.insert(b"empty".to_vec(), StoredPassword::of(b""));
        accounts.insert(b"digest".to_vec(), DIGEST.stored());
        Self { control: Arc::default(), accounts }
    }
}

impl Service for Engine {
    type Session = Session;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        self.control.note_login(format!("{login:?}"));
        assert_ne!(login.user, b"panic", "a panic that is meant");
        login.check(self.accounts.get(login.user))?;
        if login.user == b"other" {
            stall::run(|| self.control.pass_held("login"));
        }
        if login.user == b"nobody" {
            return Err(AuthError::Locked);
        }
        let limits = *self.control.limits.lock().expect("no test panics under it");
        Ok(Account::new(&String::from_utf8_lossy(login.user)).limits(limits))
    }

    fn digest_salt(&self, user: &[u8]) -> Option<DigestSalt> {
        (user == b"digest").then(|| DIGEST.salt())
    }

    fn open(&self, peer: &Peer, id: SessionId) -> Result<(Session, Cancel), SessionError> {
        let account = peer.account.name().to_owned();
        self.control.pass_held("open");
        assert_ne!(account, "panic-open", "a panic that is meant");
        if account == "no-entry" {
            return Err(SessionError::new(1040, b"08004", "Too many connections"));
        }
        Counts::add(&self.control.counts.opened);
        let cancelled = Arc::new(AtomicBool::new(false));
        let (control, flag) = (Arc::clone(&self.control), Arc::clone(&cancelled));
        let trap_cancel = Arc::new(AtomicBool::new(false));
        let trapped = Arc::clone(&trap_cancel);
        let cancel = Cancel::new(move |reason| {
            flag.store(true, Ordering::SeqCst);
            control.note_cancel(reason);
            assert!(!trapped.load(Ordering::SeqCst), "a panic that is meant");
        });
        let control = Arc::clone(&self.control);
        let (in_transaction, trap) = (false, String::new());
        let session =
            Session { control, id, account, cancelled, trap_cancel, in_transaction, trap };
        Ok((session, cancel))
    }

    fn execute(
        &self,
        session: &mut Session,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        Counts::add(&self.control.counts.executed);
        session.run(request, reply)
    }

    fn in_transaction(&self, session: &Session) -> bool {
        session.spring("in_transaction");
        session.in_transaction || self.control.is_locked_by(session.id.number)
    }

    fn cancelled(&self, session: &mut Session) {
        Counts::add(&self.control.counts.cancelled);
        session.cancelled.store(false, Ordering::SeqCst);
        session.spring("cancelled");
    }

    fn closed(&self, session: Session) {
        Counts::add(&self.control.counts.closed);
        self.control.pass_held("closed");
        session.spring("closed");
    }

    fn timestamp(&self, peer: &Peer, count: u32) -> Result<u64, SessionError> {
        assert_ne!(peer.account.name(), "panic-clock", "a panic that is meant");
        self.control.pass_held("clock");
        Ok(self.control.timestamps(count))
    }
}

impl Session {
    /// Panics if the statement `trap` asked for a panic at this place.
    fn spring(&self, place: &str) {
        assert_ne!(self.trap, place, "a panic that is meant");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.control.unlock(self.id.number);
        Counts::add(&self.control.counts.dropped);
    }
}
