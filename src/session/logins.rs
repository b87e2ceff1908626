//! [`Logins`]: unauthenticated connections and failed logins, counted by address.
//!
//! 1. An accepted connection is unauthenticated. If its address has too many such connections, it
//!    is refused.
//! 2. If a server has too many in all, the oldest one of the address with the most gives up its
//!    place to the newcomer. So a peer with many connections loses its own.
//! 3. Each failed login costs its address a part of a minute. While an address owes more than a
//!    minute, its logins are refused unchecked.
//! 4. A connection leaves the table after its login, or when it ends.
//!
//! *Shape*: an entry for each address with unauthenticated connections, which are limited. Also for
//! up to [`MOST_IDLE`] addresses with failures only; the longest idle address is forgotten first.
//! One lock, under which no foreign code runs. The time is an argument. `C` is a handle of a
//! connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;

use crate::config::Config;
use crate::net::PeerHost;
use crate::sync::shim::{Mutex, lock};
use crate::sys::clock::Instant;

/// Limits of the current configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoginLimits {
    /// Unauthenticated connections at once, in all.
    pub(super) connections: usize,
    /// Unauthenticated connections at once from one address.
    pub(super) connections_per_address: usize,
    /// Failed logins of one address in a minute.
    pub(super) failures_per_minute: usize,
}

impl From<&Config> for LoginLimits {
    fn from(config: &Config) -> Self {
        Self {
            connections: config.max_unauthenticated_connections,
            connections_per_address: config.max_unauthenticated_per_address,
            failures_per_minute: config.max_login_failures_per_address,
        }
    }
}

impl LoginLimits {
    /// Price of one failure.
    fn price(&self) -> Duration {
        let failures = u32::try_from(self.failures_per_minute).unwrap_or(u32::MAX);
        MINUTE / failures.max(1)
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Most that an address can owe, even if many logins fail at once. It bounds the time for which the
/// address is locked out.
const MOST_OWED: Duration = Duration::from_secs(120);

/// Idle addresses that are remembered, of about 100 bytes each.
const MOST_IDLE: usize = 16_384;

/// All unauthenticated connections and failed logins of a server.
#[derive(Debug)]
pub(super) struct Logins<C> {
    table: Mutex<Table<C>>,
    most_idle: usize,
}

#[derive(Debug)]
struct Table<C> {
    /// Addresses with unauthenticated connections.
    busy: HashMap<PeerHost, Busy<C>>,
    /// Ranks of these addresses. The last one gives up a place.
    ranks: BTreeSet<(Rank, PeerHost)>,
    /// Addresses with failures only.
    idle: LruCache<PeerHost, Debt, RandomState>,
    /// Number of all unauthenticated connections.
    connections: usize,
    last_number: u64,
}

#[derive(Debug)]
struct Busy<C> {
    /// Connections by number. The first is the oldest.
    connections: BTreeMap<u64, C>,
    debt: Debt,
}

/// Number of connections of an address, and its oldest one. Of equal numbers, the address with the
/// older one ranks higher.
type Rank = (usize, Reverse<u64>);

/// Time at which all failures of an address are paid for.
#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    until: Option<Instant>,
}

impl Debt {
    fn owed(self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.duration_since(now))
    }

    fn add(&mut self, price: Duration, now: Instant) {
        self.until = now.checked_add((self.owed(now) + price).min(MOST_OWED));
    }
}

/// Newly admitted connection.
#[derive(Debug)]
#[must_use]
pub(super) struct Admitted<C> {
    pub(super) place: Unauthenticated<C>,
    /// Connections that gave up their places, to be closed. More than one only after the limit was
    /// lowered.
    pub(super) displaced: Vec<C>,
}

impl<C> Logins<C> {
    pub(super) fn new() -> Self {
        Self::with_most_idle(MOST_IDLE)
    }

    fn with_most_idle(most_idle: usize) -> Self {
        let table = Table {
            busy: HashMap::new(),
            ranks: BTreeSet::new(),
            idle: LruCache::unbounded_with_hasher(RandomState::new()),
            connections: 0,
            last_number: 0,
        };
        Self { table: Mutex::new(table), most_idle }
    }

    /// Adds an unauthenticated connection. Returns `None` if its address has too many.
    pub(super) fn begin(
        self: &Arc<Self>,
        from: PeerHost,
        conn: C,
        limits: &LoginLimits,
        now: Instant,
    ) -> Option<Admitted<C>> {
        let mut table = lock(&self.table);
        let same = table.busy.get(&from).map_or(0, |busy| busy.connections.len());
        if same >= limits.connections_per_address {
            return None;
        }
        table.forget_paid(now);
        let number = table.add(from, conn);
        let mut displaced = Vec::new();
        // The newcomer is the youngest, and so the last of its address to go.
        while table.connections > limits.connections.max(1) {
            displaced.extend(table.displace(self.most_idle));
        }
        drop(table);
        Some(Admitted {
            place: Unauthenticated { logins: Arc::clone(self), from, number },
            displaced,
        })
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        lock(&self.table).connections
    }
}

impl<C> Table<C> {
    /// Forgets the longest idle addresses that owe nothing any more.
    fn forget_paid(&mut self, now: Instant) {
        while self.idle.peek_lru().is_some_and(|(_, debt)| debt.owed(now).is_zero()) {
            self.idle.pop_lru();
        }
    }

    /// Adds a connection, and returns its number.
    fn add(&mut self, from: PeerHost, conn: C) -> u64 {
        self.last_number += 1;
        let mut busy = self.take(from).unwrap_or_else(|| Busy {
            connections: BTreeMap::new(),
            debt: self.idle.pop(&from).unwrap_or_default(),
        });
        busy.connections.insert(self.last_number, conn);
        self.put(from, busy);
        self.last_number
    }

    /// Removes a connection, unless it was displaced before.
    fn remove(&mut self, from: PeerHost, number: u64, most_idle: usize) -> Option<C> {
        let mut busy = self.take(from)?;
        let conn = busy.connections.remove(&number);
        if busy.connections.is_empty() {
            self.remember(from, busy.debt, most_idle);
        } else {
            self.put(from, busy);
        }
        conn
    }

    /// Removes the oldest connection of the address with the most.
    fn displace(&mut self, most_idle: usize) -> Option<C> {
        let ((_, Reverse(oldest)), from) = *self.ranks.last()?;
        self.remove(from, oldest, most_idle)
    }

    /// Takes an address out of the table, to change its connections.
    fn take(&mut self, from: PeerHost) -> Option<Busy<C>> {
        let busy = self.busy.remove(&from)?;
        self.connections -= busy.connections.len();
        self.ranks.remove(&(busy.rank(), from));
        Some(busy)
    }

    fn put(&mut self, from: PeerHost, busy: Busy<C>) {
        self.connections += busy.connections.len();
        self.ranks.insert((busy.rank(), from));
        self.busy.insert(from, busy);
    }

    fn remember(&mut self, from: PeerHost, debt: Debt, most_idle: usize) {
        if debt.until.is_some() {
            self.idle.put(from, debt);
            if self.idle.len() > most_idle {
                self.idle.pop_lru();
            }
        }
    }

    fn debt(&self, from: PeerHost) -> Debt {
        let busy = self.busy.get(&from).map(|busy| busy.debt);
        busy.or_else(|| self.idle.peek(&from).copied()).unwrap_or_default()
    }
}

impl<C> Busy<C> {
    fn rank(&self) -> Rank {
        let oldest = self.connections.keys().next().copied().unwrap_or(u64::MAX);
        (self.connections.len(), Reverse(oldest))
    }
}

/// Place of an unauthenticated connection. It counts until it is dropped or displaced.
#[derive(Debug)]
#[must_use]
pub(super) struct Unauthenticated<C> {
    logins: Arc<Logins<C>>,
    from: PeerHost,
    number: u64,
}

impl<C> Unauthenticated<C> {
    /// Returns false if the login must be refused unchecked, because too many of this address have
    /// failed.
    pub(super) fn may_try(&self, limits: &LoginLimits, now: Instant) -> bool {
        lock(&self.logins.table).debt(self.from).owed(now) + limits.price() <= MINUTE
    }

    /// Notes a login that was checked and failed. A login refused unchecked costs nothing.
    pub(super) fn note_failure(&self, limits: &LoginLimits, now: Instant) {
        let mut table = lock(&self.logins.table);
        let mut debt = table.debt(self.from);
        debt.add(limits.price(), now);
        match table.busy.get_mut(&self.from) {
            Some(busy) => busy.debt = debt,
            // The connection was displaced during the check, and was the last one of its address.
            None => table.remember(self.from, debt, self.logins.most_idle),
        }
    }
}

impl<C> Drop for Unauthenticated<C> {
    fn drop(&mut self) {
        let mut table = lock(&self.logins.table);
        let conn = table.remove(self.from, self.number, self.logins.most_idle);
        drop(table);
        // This may be the last handle of the connection, so it is dropped outside of the lock.
        drop(conn);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: LoginLimits =
        LoginLimits { connections: 5, connections_per_address: 3, failures_per_minute: 60 };
    const SECOND: Duration = Duration::from_secs(1);

    fn v4(number: u8) -> PeerHost {
        PeerHost::V4([10, 0, 0, number].into())
    }

    fn entries<C>(logins: &Logins<C>) -> (usize, usize) {
        let table = lock(&logins.table);
        assert_eq!(table.ranks.len(), table.busy.len());
        (table.busy.len(), table.idle.len())
    }

    /// Adds a connection for which there is room.
    fn begin<C>(
        logins: &Arc<Logins<C>>,
        from: u8,
        conn: C,
        limits: &LoginLimits,
        now: Instant,
    ) -> Unauthenticated<C> {
        let admitted = logins.begin(v4(from), conn, limits, now).expect("room");
        assert_eq!(admitted.displaced.len(), 0);
        admitted.place
    }

    #[test]
    fn connections_are_limited_per_address_until_they_log_in_or_end() {
        let (logins, now) = (Arc::new(Logins::new()), Instant::now());
        let refused = |number| logins.begin(v4(number), (), &LIMITS, now).is_none();
        let begin = |number| begin(&logins, number, (), &LIMITS, now);
        let mut ones = [(); 3].map(|()| begin(1)).into_iter();
        assert!(refused(1));
        let two = begin(2);
        drop(ones.next().expect("one of three"));
        assert_eq!(logins.connections(), 3);
        let again = begin(1);
        drop(two);
        assert!(refused(1));
        drop(begin(4));
        drop((ones, again));
        assert_eq!((logins.connections(), entries(&logins)), (0, (0, 0)));
    }

    /// Adds connections, each from its address. Returns their places, and the connections that gave
    /// up theirs.
    fn begin_all(
        logins: &Arc<Logins<usize>>,
        limits: &LoginLimits,
        origins: &[u8],
    ) -> (Vec<Unauthenticated<usize>>, Vec<usize>) {
        let now = Instant::now();
        let begin =
            |(conn, from): (usize, &u8)| logins.begin(v4(*from), conn, limits, now).expect("room");
        let admitted = origins.iter().enumerate().map(begin);
        let (connections, displaced): (Vec<_>, Vec<_>) =
            admitted.map(|admitted| (admitted.place, admitted.displaced)).unzip();
        (connections, displaced.concat())
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_gives_up_its_place() {
        let limits = LoginLimits { connections: 6, connections_per_address: 4, ..LIMITS };
        for (origins, displaced) in [
            // The address with the most connections loses some, until others have as many.
            (&[1, 2, 2, 2, 3, 2, 4, 5, 6][..], &[1, 2, 3][..]),
            // If addresses have equally many, the oldest connection goes.
            (&[1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8], &[0, 1, 2, 3, 4]),
            // The address of the newcomer has the most.
            (&[1, 2, 3, 1, 2, 3, 3, 3, 3], &[2, 5, 6]),
            // With the newcomer, its address has as many as another.
            (&[1, 1, 1, 2, 2, 3, 2], &[0]),
            // Each place belongs to another address.
            (&[1, 2, 3, 4, 5, 6, 7, 8, 1], &[0, 1, 2]),
        ] {
            let logins = Arc::new(Logins::new());
            let (connections, gone) = begin_all(&logins, &limits, origins);
            assert_eq!((&*gone, logins.connections()), (displaced, 6), "{origins:?}");
            drop(connections);
            assert_eq!((logins.connections(), entries(&logins)), (0, (0, 0)));
        }
    }

    #[test]
    fn an_address_at_its_limit_displaces_none() {
        let logins = Arc::new(Logins::new());
        let limits = LoginLimits { connections: 4, connections_per_address: 2, ..LIMITS };
        let (_places, displaced) = begin_all(&logins, &limits, &[1, 1, 2, 2]);
        assert!(logins.begin(v4(1), 9, &limits, Instant::now()).is_none());
        assert_eq!((&*displaced, logins.connections()), (&[][..], 4));
    }

    #[test]
    fn a_displaced_connection_that_ends_later_is_not_counted_again() {
        let (logins, now) = (Arc::new(Logins::new()), Instant::now());
        let limits = LoginLimits { connections: 2, failures_per_minute: 1, ..LIMITS };
        let (first, second) =
            (begin(&logins, 1, 1, &limits, now), begin(&logins, 2, 2, &limits, now));
        let third = logins.begin(v4(3), 3, &limits, now).expect("room");
        assert_eq!(third.displaced, [1]);
        // The login was checked meanwhile.
        assert!(first.may_try(&limits, now));
        first.note_failure(&limits, now);
        assert!(!first.may_try(&limits, now));
        assert_eq!((logins.connections(), entries(&logins)), (2, (2, 1)));
        drop(first);
        assert_eq!((logins.connections(), entries(&logins)), (2, (2, 1)));
        drop(second);
        let again = begin(&logins, 1, 4, &limits, now);
        assert!(!again.may_try(&limits, now), "the failure is not forgotten");
    }

    #[test]
    fn limits_may_change_while_connections_are_open() {
        let logins = Arc::new(Logins::new());
        let (_places, _) = begin_all(&logins, &LIMITS, &[1, 1, 1, 2, 2]);
        let now = Instant::now();
        let fewer = LoginLimits { connections_per_address: 1, ..LIMITS };
        assert!(logins.begin(v4(1), 9, &fewer, now).is_none());
        let fewer = LoginLimits { connections: 2, ..LIMITS };
        let admitted = logins.begin(v4(3), 9, &fewer, now).expect("room");
        assert_eq!((admitted.displaced, logins.connections()), (vec![0, 1, 3, 2], 2));
    }

    #[test]
    fn so_many_logins_fail_in_a_minute_and_no_more() {
        for failures_per_minute in [1, 7, 60, 65_536] {
            let limits = LoginLimits { failures_per_minute, ..LIMITS };
            let (logins, mut now) = (Arc::new(Logins::new()), Instant::now());
            let place = begin(&logins, 1, (), &limits, now);
            for _ in 0..failures_per_minute {
                assert!(place.may_try(&limits, now), "{failures_per_minute}");
                place.note_failure(&limits, now);
            }
            assert!(!place.may_try(&limits, now), "{failures_per_minute}");
            let other = begin(&logins, 2, (), &limits, now);
            assert!(other.may_try(&limits, now), "another address");
            now += limits.price();
            assert!(place.may_try(&limits, now), "one is forgotten");
            place.note_failure(&limits, now);
            assert!(!place.may_try(&limits, now), "{failures_per_minute}");
        }
    }

    #[test]
    fn failures_outlive_the_connection_and_are_forgotten_with_time() {
        let (logins, start) = (Arc::new(Logins::new()), Instant::now());
        let place = begin(&logins, 1, (), &LIMITS, start);
        (0..60).for_each(|_| place.note_failure(&LIMITS, start));
        drop(place);
        assert_eq!(entries(&logins), (0, 1));
        let place = begin(&logins, 1, (), &LIMITS, start);
        assert_eq!(entries(&logins), (1, 0));
        assert!(!place.may_try(&LIMITS, start));
        assert!(place.may_try(&LIMITS, start + SECOND));
        drop(place);
        drop(begin(&logins, 2, (), &LIMITS, start + MINUTE));
        assert_eq!(entries(&logins), (0, 0), "nothing is owed any more");
    }

    #[test]
    fn many_that_fail_at_once_lock_their_address_out_for_a_bounded_time() {
        let (logins, now) = (Arc::new(Logins::new()), Instant::now());
        let place = begin(&logins, 1, (), &LIMITS, now);
        (0..10_000).for_each(|_| place.note_failure(&LIMITS, now));
        assert!(!place.may_try(&LIMITS, now + MINUTE));
        assert!(place.may_try(&LIMITS, now + MINUTE + SECOND));
    }

    #[test]
    fn of_idle_addresses_the_one_that_is_idle_longest_is_forgotten() {
        let (logins, now) = (Arc::new(Logins::with_most_idle(2)), Instant::now());
        let strict = LoginLimits { failures_per_minute: 1, ..LIMITS };
        let begin = |number| begin(&logins, number, (), &strict, now);
        let may_try = |number| begin(number).may_try(&strict, now);
        for number in 1..=3 {
            begin(number).note_failure(&strict, now);
        }
        assert_eq!(entries(&logins), (0, 2));
        assert_eq!([1, 2, 3].map(may_try), [true, false, false]);
        drop(begin(2));
        begin(4).note_failure(&strict, now);
        assert_eq!([2, 3, 4].map(may_try), [false, true, false]);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Begin(u8),
        End(usize),
        Fail(usize),
        Wait(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..6_u8).prop_map(Op::Begin),
            2 => any::<usize>().prop_map(Op::End),
            6 => any::<usize>().prop_map(Op::Fail),
            1 => (0..30_000_u64).prop_map(Op::Wait),
        ]
    }

    /// Naive twin with lists. Failures are milliseconds owed, which shrink with time.
    #[derive(Default)]
    struct Naive {
        /// Numbers and addresses, in order of arrival.
        connections: Vec<(usize, u8)>,
        /// Milliseconds owed by each address.
        debts: [u64; 6],
        last_number: usize,
    }

    impl Naive {
        fn of(&self, from: u8) -> impl Iterator<Item = usize> {
            self.connections.iter().filter(move |place| place.1 == from).map(|place| place.0)
        }

        /// Returns the connections that give up their places. `None` if the newcomer is refused.
        fn begin(&mut self, from: u8, limits: &LoginLimits) -> Option<Vec<usize>> {
            if self.of(from).count() >= limits.connections_per_address {
                return None;
            }
            self.last_number += 1;
            self.connections.push((self.last_number, from));
            if self.connections.len() <= limits.connections {
                return Some(Vec::new());
            }
            let most = self.connections.iter().map(|place| self.of(place.1).count()).max();
            let of_those = |place: &&(usize, u8)| Some(self.of(place.1).count()) == most;
            let oldest = self.connections.iter().find(of_those).expect("one has the most").0;
            self.end(oldest);
            Some(vec![oldest])
        }

        fn end(&mut self, number: usize) {
            self.connections.retain(|place| place.0 != number);
        }
    }

    proptest! {
        #[test]
        fn places_and_debts_are_those_of_a_naive_twin(
            ops in proptest::collection::vec(op(), 0..200),
        ) {
            // The limit of idle addresses is not reached here; it has its own test.
            let limits = LoginLimits { connections: 6, connections_per_address: 3, failures_per_minute: 10 };
            let logins = Arc::new(Logins::with_most_idle(6));
            // Open connections, including displaced ones.
            let mut connections: Vec<(usize, u8, Unauthenticated<usize>)> = Vec::new();
            let mut naive = Naive::default();
            let mut now = Instant::now();
            for op in ops {
                match op {
                    Op::Begin(from) => {
                        let number = naive.last_number + 1;
                        let admitted = logins.begin(v4(from), number, &limits, now);
                        let displaced = naive.begin(from, &limits);
                        let (place, gone) = admitted
                            .map(|admitted| (admitted.place, admitted.displaced))
                            .unzip();
                        prop_assert_eq!(gone, displaced);
                        connections.extend(place.map(|place| (number, from, place)));
                    }
                    Op::End(at) if !connections.is_empty() => {
                        let (number, ..) = connections.swap_remove(at % connections.len());
                        naive.end(number);
                    }
                    Op::Fail(at) if !connections.is_empty() => {
                        let (_, from, place) = &connections[at % connections.len()];
                        place.note_failure(&limits, now);
                        let owed = &mut naive.debts[usize::from(*from)];
                        *owed = (*owed + 6_000).min(120_000);
                    }
                    Op::Wait(millis) => {
                        now += Duration::from_millis(millis);
                        naive.debts.iter_mut().for_each(|owed| *owed = owed.saturating_sub(millis));
                    }
                    Op::End(_) | Op::Fail(_) => {}
                }
                prop_assert_eq!(logins.connections(), naive.connections.len());
                for (_, from, place) in &connections {
                    let expected = naive.debts[usize::from(*from)] + 6_000 <= 60_000;
                    prop_assert_eq!(place.may_try(&limits, now), expected);
                }
                let (busy, idle) = entries(&logins);
                let distinct = (0..6).filter(|from| naive.of(*from).next().is_some()).count();
                prop_assert_eq!(busy, distinct);
                prop_assert!(idle <= 6);
            }
            drop(connections);
            prop_assert_eq!((logins.connections(), entries(&logins).0), (0, 0));
        }
    }
}
