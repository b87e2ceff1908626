//! [`Account`]: a name with limits over all connections of the account, and their use.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::error::SessionError;
use crate::net::{Address, ConnectionId};
use crate::sync::shim::lock;
use crate::sys::clock::Instant;

/// Account of a peer. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    name: Arc<str>,
    pub(super) limits: AccountLimits,
}

impl Account {
    /// Creates an account. Entries of the caches belong to the account with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), limits: AccountLimits::default() }
    }

    /// Sets limits over all connections of the account.
    #[must_use]
    pub const fn limits(mut self, limits: AccountLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Name of the account.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Key of the account in the caches.
    pub(super) fn key(&self) -> Arc<[u8]> {
        Arc::clone(&self.name).into()
    }
}

/// Peer of a connection, after its login.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// Account that logged in.
    pub account: Account,
    /// Address of the peer.
    pub address: Address,
    /// Id of the connection.
    pub connection: ConnectionId,
}

/// Limits of one account over all its connections to one [`Server`](super::Server). By default there are
/// none.
///
/// [`Service::authenticate`](super::Service::authenticate) returns them with the [`Account`]. Each
/// connection keeps the limits of its login. A refusal is MySQL's error 1226, which names the
/// account, the limit and its value.
///
/// ```
/// use std::time::Duration;
/// use epoll_group::session::{Account, AccountLimits};
///
/// let limits = AccountLimits::default()
///     .max_connections(20)
///     .max_requests(100)
///     .max_requests_per_second(5_000, Duration::from_millis(200));
/// let account = Account::new("reports").limits(limits);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccountLimits {
    connections: Option<usize>,
    sessions: Option<usize>,
    requests: Option<usize>,
    rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Rate {
    per_second: u32,
    longest_wait: Duration,
}

impl AccountLimits {
    /// Limits the connections that have logged in. One more login is refused.
    #[must_use]
    pub const fn max_connections(mut self, most: usize) -> Self {
        self.connections = Some(most);
        self
    }

    /// Limits the sessions. One more is refused with a fatal error. A session counts until its handler has
    /// ended. A statement in a session of its own counts as one, for a moment longer than its answer takes.
    #[must_use]
    pub const fn max_sessions(mut self, most: usize) -> Self {
        self.sessions = Some(most);
        self
    }

    /// Limits the requests in flight, from their arrival to the end of their answer. One more gets an
    /// error, in the order of its session, which continues. Sessions in a transaction and operators are
    /// exempt, because other requests may wait for their locks.
    #[must_use]
    pub const fn max_requests(mut self, most: usize) -> Self {
        self.requests = Some(most);
        self
    }

    /// Limits the rate of requests. A request over the rate waits: its connection is not read
    /// meanwhile, so a kill or commit behind it on the same connection waits too. A request that
    /// would wait longer than `longest_wait` gets an error instead. The part of the rate that was
    /// not used in the last second may be used at once. Exemptions: as for
    /// [`max_requests`](Self::max_requests).
    #[must_use]
    pub const fn max_requests_per_second(mut self, most: u32, longest_wait: Duration) -> Self {
        self.rate = Some(Rate { per_second: most, longest_wait });
        self
    }
}

/// Accounts of a [`Server`](super::Server), to look at what they use. Cheap to clone.
#[derive(Clone, Default)]
pub struct Accounts(Arc<Mutex<Table>>);

/// Use of one account at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountStats {
    /// Name of the account.
    pub name: String,
    /// Connections that have logged in.
    pub connections: usize,
    /// Sessions that have not ended.
    pub sessions: usize,
    /// Requests in flight. Counted for accounts with [`max_requests`](AccountLimits::max_requests).
    pub requests: usize,
    /// Logins, sessions and requests that a limit of the account has refused.
    pub refused: u64,
}

#[derive(Default)]
struct Table {
    by_name: HashMap<String, Arc<AccountUse>>,
    /// Number of entries after the last sweep.
    swept: usize,
}

impl Accounts {
    /// Returns the use of each account that is logged in, in the order of the names. An account without
    /// connections may be among them for a while.
    #[must_use]
    pub fn stats(&self) -> Vec<AccountStats> {
        let mut stats: Vec<_> = lock(&self.0).by_name.values().map(|used| used.stats()).collect();
        stats.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        stats
    }

    /// Returns the use of an account. Entries without a user are removed when the table has doubled.
    pub(super) fn of(&self, name: &str, now: Instant) -> Arc<AccountUse> {
        let mut table = lock(&self.0);
        if let Some(used) = table.by_name.get(name) {
            return Arc::clone(used);
        }
        if table.by_name.len() >= (2 * table.swept).max(SMALLEST_SWEEP) {
            table.by_name.retain(|_, used| Arc::strong_count(used) > 1 || used.is_ahead(now));
            table.swept = table.by_name.len();
        }
        let used = Arc::new(AccountUse::new(name));
        table.by_name.insert(name.to_owned(), Arc::clone(&used));
        used
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stats()).finish()
    }
}

const SMALLEST_SWEEP: usize = 64;

/// Use of one account, shared by its connections and sessions.
#[derive(Debug)]
pub(super) struct AccountUse {
    name: String,
    connections: AtomicUsize,
    sessions: AtomicUsize,
    requests: AtomicUsize,
    refused: AtomicU64,
    /// Time of the next request that the rate allows.
    next_slot: Mutex<Option<Instant>>,
}

/// Kind of thing that is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Connection,
    Session,
    Request,
}

/// Unit of a resource, held until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Place {
    account: Arc<AccountUse>,
    resource: Resource,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.account.count(self.resource).fetch_sub(1, Ordering::Relaxed);
    }
}

impl AccountUse {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            connections: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            next_slot: Mutex::new(None),
        }
    }

    fn stats(&self) -> AccountStats {
        AccountStats {
            name: self.name.clone(),
            connections: self.connections.load(Ordering::Relaxed),
            sessions: self.sessions.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    const fn count(&self, resource: Resource) -> &AtomicUsize {
        match resource {
            Resource::Connection => &self.connections,
            Resource::Session => &self.sessions,
            Resource::Request => &self.requests,
        }
    }

    /// Takes one unit of a resource.
    pub(super) fn take(
        self: &Arc<Self>,
        resource: Resource,
        limits: &AccountLimits,
    ) -> Result<Place, SessionError> {
        let (name, most) = match resource {
            Resource::Connection => ("max_connections", limits.connections),
            Resource::Session => ("max_sessions", limits.sessions),
            Resource::Request => ("max_requests", limits.requests),
        };
        let most = most.unwrap_or(usize::MAX);
        let more = |used| (used < most).then(|| used + 1);
        match self.count(resource).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Place { account: Arc::clone(self), resource }),
            Err(_) => Err(self.exceeded(name, most)),
        }
    }

    /// Takes a place for a request, if the account has a limit of requests.
    pub(super) fn take_request(
        self: &Arc<Self>,
        limits: &AccountLimits,
    ) -> Result<Option<Place>, SessionError> {
        limits.requests.map(|_| self.take(Resource::Request, limits)).transpose()
    }

    /// Takes a slot of the rate. Returns the time at which the request may begin.
    pub(super) fn slot(
        &self,
        limits: &AccountLimits,
        now: Instant,
    ) -> Result<Instant, SessionError> {
        let Some(Rate { per_second, longest_wait }) = limits.rate else { return Ok(now) };
        let refuse = || Err(self.exceeded("max_requests_per_second", per_second));
        let Some(interval) = SECOND.checked_div(per_second) else { return refuse() };
        let oldest = now - (SECOND - interval);
        let mut next = lock(&self.next_slot);
        let slot = next.map_or(oldest, |next| next.max(oldest));
        if slot.duration_since(now) > longest_wait {
            return refuse();
        }
        *next = Some(slot + interval);
        Ok(slot.max(now))
    }

    /// Returns true if the rate still counts earlier requests.
    fn is_ahead(&self, now: Instant) -> bool {
        lock(&self.next_slot).is_some_and(|next| next + SECOND > now)
    }

    /// Notes that something was refused by a limit.
    pub(super) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn exceeded(&self, limit: &str, most: impl fmt::Display) -> SessionError {
        let name = &self.name;
        let text =
            format!("User '{name}' has exceeded the '{limit}' resource (current value: {most})");
        SessionError::new(USER_LIMIT_REACHED, b"42000", text)
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Number of MySQL for an account that has used up a resource.
const USER_LIMIT_REACHED: u32 = 1226;

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32, longest_wait: Duration) -> AccountLimits {
        AccountLimits::default().max_requests_per_second(per_second, longest_wait)
    }

    #[test]
    fn a_burst_takes_what_was_not_used_and_the_rest_waits_in_turn() {
        let (used, now) = (AccountUse::new("a"), Instant::now());
        let limits = rate(10, Duration::from_millis(250));
        for _ in 0..10 {
            assert_eq!(used.slot(&limits, now), Ok(now));
        }
        let tenth = Duration::from_millis(100);
        assert_eq!(used.slot(&limits, now), Ok(now + tenth));
        assert_eq!(used.slot(&limits, now), Ok(now + 2 * tenth));
        let error = used.slot(&limits, now).expect_err("0.3 s are too long");
        let text =
            "User 'a' has exceeded the 'max_requests_per_second' resource (current value: 10)";
        assert_eq!((error.code, error.message.as_slice()), (1226, text.as_bytes()));
        // The refused request has taken no slot.
        assert_eq!(used.slot(&limits, now + tenth), Ok(now + 3 * tenth));
        let later = now + Duration::from_secs(60);
        for _ in 0..10 {
            assert_eq!(used.slot(&limits, later), Ok(later));
        }
        assert_eq!(used.slot(&limits, later), Ok(later + tenth));
    }

    #[test]
    fn over_a_long_time_no_more_pass_than_the_rate_allows() {
        let (used, start) = (AccountUse::new("a"), Instant::now());
        let limits = rate(7, Duration::ZERO);
        let tries = (0..10_000).map(|at| start + Duration::from_millis(at));
        let passed = tries.filter(|now| used.slot(&limits, *now).is_ok()).count();
        assert_eq!(passed, 7 * 10 + 6);
    }

    #[test]
    fn a_rate_of_0_refuses_all_and_no_rate_refuses_none() {
        let (used, now) = (AccountUse::new("a"), Instant::now());
        assert!(used.slot(&rate(0, Duration::from_secs(9)), now).is_err());
        for _ in 0..100 {
            assert_eq!(used.slot(&AccountLimits::default(), now), Ok(now));
        }
    }

    #[test]
    fn a_place_counts_until_it_is_dropped() {
        let used = Arc::new(AccountUse::new("a"));
        let limits = AccountLimits::default().max_sessions(2);
        let take = || used.take(Resource::Session, &limits);
        let (first, _second) = (take().expect("1 of 2"), take().expect("2 of 2"));
        assert!(take().is_err());
        drop(first);
        assert!(take().is_ok());
        assert_eq!(used.stats().sessions, 1);
    }

    #[test]
    fn accounts_without_users_are_forgotten_unless_their_rate_counts() {
        let (accounts, now) = (Accounts::default(), Instant::now());
        let kept = accounts.of("kept", now);
        accounts.of("ahead", now).slot(&rate(1, Duration::ZERO), now).expect("the first");
        for number in 0..1_000 {
            drop(accounts.of(&number.to_string(), now));
        }
        assert!(accounts.stats().len() <= SMALLEST_SWEEP);
        assert!(Arc::ptr_eq(&kept, &accounts.of("kept", now)));
        assert!(accounts.of("ahead", now).slot(&rate(1, Duration::ZERO), now).is_err());
    }
}
