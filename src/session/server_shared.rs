//! [`ServerShared`]: data that all connections of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::accounts::{Account, Accounts};
use super::cache::{Cache, Put};
use super::logins::Logins;
use super::writers::Writers;
use crate::codec::encoder::PagePool;
use crate::codec::proto::plan::AnyPlan;
use crate::config::Config;
use crate::net::Connection;
use crate::runtime::Group;
use crate::stats::Counter;

pub(super) struct ServerShared {
    pub(super) accounts: Accounts,
    pub(super) sql: Kept<[u8]>,
    pub(super) plans: Kept<KeptPlan>,
    pub(super) logins: Arc<Logins<Connection>>,
    pub(super) writers: Writers,
    pub(super) pages: PagePool,
    last_number: AtomicU32,
}

impl ServerShared {
    pub(super) fn new(config: &Config, accounts: Accounts) -> Self {
        Self {
            accounts,
            sql: Kept::new(config, Counter::SqlHit, Counter::SqlMiss, Counter::SqlEvict),
            plans: Kept::new(config, Counter::PlanHit, Counter::PlanMiss, Counter::PlanEvict),
            logins: Arc::new(Logins::new()),
            writers: Writers::default(),
            pages: PagePool::default(),
            last_number: AtomicU32::new(0),
        }
    }

    /// Returns the next session number, which is never 0.
    pub(super) fn next_number(&self) -> u32 {
        let next = || self.last_number.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        match next() {
            0 => next(),
            number => number,
        }
    }
}

/// Cache of one kind of value, with its counters.
pub(super) struct Kept<T: ?Sized> {
    cache: Cache<T>,
    hits: Counter,
    misses: Counter,
    evictions: Counter,
}

/// Cached plan, with its text for the audit log.
#[derive(Debug)]
pub(super) struct KeptPlan {
    pub(super) plan: AnyPlan,
    pub(super) audit: Box<[u8]>,
}

impl<T: ?Sized> Kept<T> {
    fn new(config: &Config, hits: Counter, misses: Counter, evictions: Counter) -> Self {
        let (entries, bytes) = (config.request_cache_number, config.request_cache_bytes);
        let cache = Cache::new(entries, bytes, config.request_cache_instances);
        Self { cache, hits, misses, evictions }
    }

    pub(super) fn get(&self, group: &Group, account: &Account, digest: &[u8]) -> Option<Arc<T>> {
        let kept = self.cache.get(account.name().as_bytes(), digest);
        group.count(if kept.is_some() { self.hits } else { self.misses }, 1);
        kept
    }

    /// Keeps a value of `bytes` bytes, unless it is too long.
    pub(super) fn put(
        &self,
        group: &Group,
        account: &Account,
        digest: &[u8],
        bytes: usize,
        value: impl FnOnce() -> Arc<T>,
    ) {
        let longest = group.config().request_cache_max_length;
        let put = self.cache.put(&account.key(), digest, bytes, longest, value);
        if let Put::Kept { evicted: evicted @ 1.. } = put {
            group.count(self.evictions, evicted as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_last_session_number_comes_1_and_never_0() {
        let shared = ServerShared::new(&Config::default(), Accounts::default());
        shared.last_number.store(u32::MAX - 2, Ordering::Relaxed);
        let numbers = [(); 4].map(|()| shared.next_number());
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 1, 2]);
    }
}
