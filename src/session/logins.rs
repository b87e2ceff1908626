//! Who wants to log in, by address: how many at once, and how often it failed.
//!
//! 1. A connection that is accepted becomes a [`Guest`], or is refused: too many of them have not
//!    logged in yet, from its address or in all.
//! 2. Each login that fails costs its address a part of a minute. An address that owes more than
//!    a whole minute has its logins refused without a look until time has paid for it.
//! 3. The guest goes when it has logged in, or with its connection.
//!
//! *Shape*: an entry for each address that has guests, which are limited, and for so many that had
//! failures and have no guests now; of those the one that has been idle longest is forgotten first.
//! One lock, under which nothing is called. The time is an argument.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::config::Config;
use crate::net::Address;
use crate::sync::shim::{Mutex, lock};

/// Whose guests and failures are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    V4(Ipv4Addr),
    /// The first 64 bits: whoever has one address of a network has all of them.
    V6([u8; 8]),
    /// All Unix sockets.
    Local,
}

impl From<IpAddr> for Origin {
    fn from(addr: IpAddr) -> Self {
        match addr.to_canonical() {
            IpAddr::V4(addr) => Self::V4(addr),
            IpAddr::V6(addr) => {
                let [a, b, c, d, e, f, g, h, ..] = addr.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl From<&Address> for Origin {
    fn from(addr: &Address) -> Self {
        match addr {
            Address::Tcp(addr) => addr.ip().into(),
            Address::Unix(_) => Self::Local,
        }
    }
}

/// The limits as they are now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Guests at once, in all.
    pub(super) guests: usize,
    /// Guests at once from one address.
    pub(super) guests_per_address: usize,
    /// Failures in a minute from one address.
    pub(super) failures_per_minute: usize,
}

impl From<&Config> for Limits {
    fn from(config: &Config) -> Self {
        Self {
            guests: config.max_unauthenticated_connections,
            guests_per_address: config.max_unauthenticated_per_address,
            failures_per_minute: config.max_login_failures_per_address,
        }
    }
}

impl Limits {
    /// What one failure costs.
    fn price(&self) -> Duration {
        let failures = u32::try_from(self.failures_per_minute).unwrap_or(u32::MAX);
        MINUTE / failures.max(1)
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// What an address can owe at most, however many logins fail at the same time: so long it is locked
/// out, and no longer.
const MOST_OWED: Duration = Duration::from_secs(120);

/// Idle addresses that are remembered, of about 100 bytes each.
const MOST_IDLE: usize = 16_384;

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// As many as may, in all, have not logged in yet.
    All,
    /// As many as may, from that address.
    Address,
}

/// All who want to log in.
#[derive(Debug)]
pub(super) struct Logins {
    table: Mutex<Table>,
    most_idle: usize,
}

#[derive(Debug)]
struct Table {
    /// All guests.
    guests: usize,
    /// Addresses that have guests.
    busy: HashMap<Origin, Busy>,
    /// Addresses that have none, but had failures.
    idle: LruCache<Origin, Debt, RandomState>,
}

#[derive(Debug)]
struct Busy {
    guests: usize,
    debt: Debt,
}

/// Failures that are not forgotten yet, as the time when they are.
#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    until: Option<Instant>,
}

impl Debt {
    fn owed(self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    fn add(&mut self, price: Duration, now: Instant) {
        self.until = now.checked_add((self.owed(now) + price).min(MOST_OWED));
    }
}

impl Logins {
    pub(super) fn new() -> Self {
        Self::with_most_idle(MOST_IDLE)
    }

    fn with_most_idle(most_idle: usize) -> Self {
        let idle = LruCache::unbounded_with_hasher(RandomState::new());
        let table = Table { guests: 0, busy: HashMap::new(), idle };
        Self { table: Mutex::new(table), most_idle }
    }

    /// A connection is there that has not logged in.
    pub(super) fn begin(
        self: &Arc<Self>,
        from: Origin,
        limits: &Limits,
        now: Instant,
    ) -> Result<Guest, Refused> {
        let mut table = lock(&self.table);
        if table.guests >= limits.guests {
            return Err(Refused::All);
        }
        if let Some(busy) = table.busy.get_mut(&from) {
            if busy.guests >= limits.guests_per_address {
                return Err(Refused::Address);
            }
            busy.guests += 1;
        } else {
            if limits.guests_per_address == 0 {
                return Err(Refused::Address);
            }
            table.forget_paid(now);
            let debt = table.idle.pop(&from).unwrap_or_default();
            table.busy.insert(from, Busy { guests: 1, debt });
        }
        table.guests += 1;
        drop(table);
        Ok(Guest { logins: Arc::clone(self), from })
    }

    /// How many are there.
    #[cfg(test)]
    pub(super) fn guests(&self) -> usize {
        lock(&self.table).guests
    }

    fn end(&self, from: Origin) {
        let mut table = lock(&self.table);
        table.guests -= 1;
        let Some(busy) = table.busy.get_mut(&from) else { return };
        busy.guests -= 1;
        if busy.guests > 0 {
            return;
        }
        let debt = busy.debt;
        table.busy.remove(&from);
        if debt.until.is_some() {
            table.idle.put(from, debt);
            if table.idle.len() > self.most_idle {
                table.idle.pop_lru();
            }
        }
    }
}

impl Table {
    /// Forgets those at the old end of the list who owe nothing any more.
    fn forget_paid(&mut self, now: Instant) {
        while self.idle.peek_lru().is_some_and(|(_, debt)| debt.owed(now).is_zero()) {
            self.idle.pop_lru();
        }
    }
}

/// A connection that has not logged in. It counts until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Guest {
    logins: Arc<Logins>,
    from: Origin,
}

impl Guest {
    /// May a login be looked at, or have too many from this address failed?
    pub(super) fn may_try(&self, limits: &Limits, now: Instant) -> bool {
        let table = lock(&self.logins.table);
        let owed = table.busy.get(&self.from).map_or(Duration::ZERO, |busy| busy.debt.owed(now));
        owed + limits.price() <= MINUTE
    }

    /// A login was looked at and failed. One that was refused without a look costs nothing.
    pub(super) fn note_failure(&self, limits: &Limits, now: Instant) {
        if let Some(busy) = lock(&self.logins.table).busy.get_mut(&self.from) {
            busy.debt.add(limits.price(), now);
        }
    }

    /// It is no guest any more.
    pub(super) fn logged_in(self) {}
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.logins.end(self.from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { guests: 5, guests_per_address: 3, failures_per_minute: 60 };
    const SECOND: Duration = Duration::from_secs(1);

    fn origin(text: &str) -> Origin {
        text.parse::<IpAddr>().expect("an address").into()
    }

    fn v4(number: u8) -> Origin {
        Origin::V4([10, 0, 0, number].into())
    }

    fn entries(logins: &Logins) -> (usize, usize) {
        let table = lock(&logins.table);
        (table.busy.len(), table.idle.len())
    }

    #[test]
    fn networks_of_ipv6_and_unix_sockets_are_one_address_each() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1:2:3"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), v4(1));
        assert_ne!(v4(1), v4(2));
        let [a, b] = ["", "/run/a"].map(|path| Origin::from(&Address::Unix(path.into())));
        assert_eq!((a, b), (Origin::Local, Origin::Local));
        let port = |port| Origin::from(&Address::Tcp(([10, 0, 0, 1], port).into()));
        assert_eq!(port(1), port(2));
    }

    #[test]
    fn guests_are_limited_per_address_and_in_all_until_they_log_in_or_go() {
        let (logins, now) = (Arc::new(Logins::new()), Instant::now());
        let begin = |number| logins.begin(v4(number), &LIMITS, now);
        let mut ones = [(); 3].map(|()| begin(1).expect("room")).into_iter();
        assert_eq!(begin(1).err(), Some(Refused::Address));
        let two = begin(2).expect("room");
        let three = begin(3).expect("room");
        assert_eq!(begin(4).err(), Some(Refused::All));
        ones.next().expect("one of three").logged_in();
        assert_eq!(logins.guests(), 4);
        let again = begin(1).expect("room");
        drop(two);
        assert_eq!(begin(1).err(), Some(Refused::Address));
        drop(begin(4).expect("room"));
        drop((ones, three, again));
        assert_eq!((logins.guests(), entries(&logins)), (0, (0, 0)));
    }

    #[test]
    fn limits_may_change_while_guests_are_there() {
        let (logins, now) = (Arc::new(Logins::new()), Instant::now());
        let guests = [(); 3].map(|()| logins.begin(v4(1), &LIMITS, now).expect("room"));
        let fewer = Limits { guests_per_address: 1, ..LIMITS };
        assert_eq!(logins.begin(v4(1), &fewer, now).err(), Some(Refused::Address));
        let none = Limits { guests_per_address: 0, ..LIMITS };
        assert_eq!(logins.begin(v4(2), &none, now).err(), Some(Refused::Address));
        let fewer = Limits { guests: 2, ..LIMITS };
        assert_eq!(logins.begin(v4(2), &fewer, now).err(), Some(Refused::All));
        drop(guests);
        assert!(logins.begin(v4(1), &fewer, now).is_ok());
    }

    #[test]
    fn so_many_logins_fail_in_a_minute_and_no_more() {
        for failures_per_minute in [1, 7, 60, 65_536] {
            let limits = Limits { failures_per_minute, ..LIMITS };
            let (logins, mut now) = (Arc::new(Logins::new()), Instant::now());
            let guest = logins.begin(v4(1), &limits, now).expect("room");
            for _ in 0..failures_per_minute {
                assert!(guest.may_try(&limits, now), "{failures_per_minute}");
                guest.note_failure(&limits, now);
            }
            assert!(!guest.may_try(&limits, now), "{failures_per_minute}");
            let other = logins.begin(v4(2), &limits, now).expect("room");
            assert!(other.may_try(&limits, now), "another address");
            now += limits.price();
            assert!(guest.may_try(&limits, now), "one is forgotten");
            guest.note_failure(&limits, now);
            assert!(!guest.may_try(&limits, now), "{failures_per_minute}");
        }
    }

    #[test]
    fn failures_outlive_the_guest_and_are_forgotten_with_time() {
        let (logins, start) = (Arc::new(Logins::new()), Instant::now());
        let guest = logins.begin(v4(1), &LIMITS, start).expect("room");
        (0..60).for_each(|_| guest.note_failure(&LIMITS, start));
        drop(guest);
        assert_eq!(entries(&logins), (0, 1));
        let guest = logins.begin(v4(1), &LIMITS, start).expect("room");
        assert_eq!(entries(&logins), (1, 0));
        assert!(!guest.may_try(&LIMITS, start));
        assert!(guest.may_try(&LIMITS, start + SECOND));
        drop(guest);
        drop(logins.begin(v4(2), &LIMITS, start + MINUTE).expect("room"));
        assert_eq!(entries(&logins), (0, 0), "nothing is owed any more");
    }

    #[test]
    fn many_that_fail_at_once_lock_their_address_out_for_a_bounded_time() {
        let (logins, now) = (Arc::new(Logins::new()), Instant::now());
        let guest = logins.begin(v4(1), &LIMITS, now).expect("room");
        (0..10_000).for_each(|_| guest.note_failure(&LIMITS, now));
        assert!(!guest.may_try(&LIMITS, now + MINUTE));
        assert!(guest.may_try(&LIMITS, now + MINUTE + SECOND));
    }

    #[test]
    fn of_idle_addresses_the_one_that_is_idle_longest_is_forgotten() {
        let (logins, now) = (Arc::new(Logins::with_most_idle(2)), Instant::now());
        let strict = Limits { failures_per_minute: 1, ..LIMITS };
        let may_try =
            |number| logins.begin(v4(number), &strict, now).expect("room").may_try(&strict, now);
        for number in 1..=3 {
            logins.begin(v4(number), &strict, now).expect("room").note_failure(&strict, now);
        }
        assert_eq!(entries(&logins), (0, 2));
        assert_eq!([1, 2, 3].map(may_try), [true, false, false]);
        drop(logins.begin(v4(2), &strict, now).expect("room"));
        logins.begin(v4(4), &strict, now).expect("room").note_failure(&strict, now);
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

    /// The same with lists that are searched from end to end. Failures are a store of milliseconds
    /// that fills with time.
    #[derive(Default)]
    struct Naive {
        guests: Vec<u8>,
        /// Milliseconds owed by each address; those without guests in the order they became idle.
        debts: Vec<(u8, u64)>,
    }

    impl Naive {
        fn owed(&self, from: u8) -> u64 {
            self.debts.iter().find(|(known, _)| *known == from).map_or(0, |(_, owed)| *owed)
        }

        fn begin(&mut self, from: u8, limits: &Limits) -> Result<(), Refused> {
            let same = self.guests.iter().filter(|guest| **guest == from).count();
            if self.guests.len() >= limits.guests {
                return Err(Refused::All);
            }
            if same >= limits.guests_per_address {
                return Err(Refused::Address);
            }
            self.guests.push(from);
            Ok(())
        }

        fn end(&mut self, position: usize, most_idle: usize) {
            let from = self.guests.swap_remove(position);
            if !self.guests.contains(&from)
                && let Some(at) = self.debts.iter().position(|(known, _)| *known == from)
            {
                let debt = self.debts.remove(at);
                self.debts.push(debt);
                let idle = |(from, _): &(u8, u64)| !self.guests.contains(from);
                if self.debts.iter().filter(|debt| idle(debt)).count() > most_idle {
                    let oldest = self.debts.iter().position(idle).expect("more than some");
                    self.debts.remove(oldest);
                }
            }
        }

        fn fail(&mut self, position: usize, price: u64) {
            let from = self.guests[position];
            let owed = (self.owed(from) + price).min(120_000);
            match self.debts.iter_mut().find(|(known, _)| *known == from) {
                Some(debt) => debt.1 = owed,
                None => self.debts.push((from, owed)),
            }
        }
    }

    proptest! {
        #[test]
        fn counts_and_debts_are_those_of_a_naive_twin(
            ops in proptest::collection::vec(op(), 0..200),
        ) {
            // Room for all: which one is forgotten has a test of its own.
            let limits = Limits { guests: 6, guests_per_address: 3, failures_per_minute: 10 };
            let logins = Arc::new(Logins::with_most_idle(6));
            let (mut naive, mut guests) = (Naive::default(), Vec::new());
            let mut now = Instant::now();
            for op in ops {
                match op {
                    Op::Begin(from) => {
                        let guest = logins.begin(v4(from), &limits, now);
                        let refused = naive.begin(from, &limits).err();
                        prop_assert_eq!(guest.as_ref().err(), refused.as_ref());
                        guests.extend(guest);
                    }
                    Op::End(at) if !guests.is_empty() => {
                        let at = at % guests.len();
                        drop(guests.swap_remove(at));
                        naive.end(at, 6);
                    }
                    Op::Fail(at) if !guests.is_empty() => {
                        let at = at % guests.len();
                        guests[at].note_failure(&limits, now);
                        naive.fail(at, 6_000);
                    }
                    Op::Wait(millis) => {
                        now += Duration::from_millis(millis);
                        naive.debts.iter_mut().for_each(|(_, owed)| *owed = owed.saturating_sub(millis));
                    }
                    Op::End(_) | Op::Fail(_) => {}
                }
                prop_assert_eq!(logins.guests(), naive.guests.len());
                for (guest, from) in guests.iter().zip(&naive.guests) {
                    let expected = naive.owed(*from) + 6_000 <= 60_000;
                    prop_assert_eq!(guest.may_try(&limits, now), expected);
                }
                let (busy, idle) = entries(&logins);
                let mut distinct = naive.guests.clone();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(busy, distinct.len());
                prop_assert!(idle <= 6);
            }
            drop(guests);
            prop_assert_eq!((logins.guests(), entries(&logins).0), (0, 0));
        }
    }
}
