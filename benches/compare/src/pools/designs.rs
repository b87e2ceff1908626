//! The pools that are compared, with connections that are numbers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use epoll_group::pool::{Limits, Manage, Pool, Target};

/// A pool for all backends.
pub(super) trait Design: Send + Sync {
    fn name(&self) -> &'static str;

    /// Works with a connection of a backend. Waits for one if all are taken.
    fn with(&self, backend: usize, work: &mut dyn FnMut());

    /// Panics if there were more connections than allowed.
    fn assert_bounded(&self);
}

/// Place of the pool that the others are compared with.
pub(super) const BASE: usize = 0;

/// Longer than any wait.
const LONG: Duration = Duration::from_secs(60);

pub(super) fn all(
    backends: usize,
    capacity: usize,
) -> Result<Vec<Arc<dyn Design>>, Box<dyn Error>> {
    let names: Vec<_> = (0..backends).map(|number| format!("SPT{number}")).collect();
    Ok(vec![
        Arc::new(OneMutex::new(&names, capacity)),
        Arc::new(Ours::new(names, capacity)?),
        Arc::new(R2d2::new(backends, capacity)?),
        Arc::new(Deadpool::new(backends, capacity)?),
    ])
}

/// Number of connections, and its limit.
struct Made {
    count: AtomicUsize,
    most: usize,
}

impl Made {
    fn new(most: usize) -> Self {
        Self { count: AtomicUsize::new(0), most }
    }

    fn one(&self) -> u64 {
        self.count.fetch_add(1, Relaxed) as u64
    }

    fn assert_bounded(&self) {
        let (count, most) = (self.count.load(Relaxed), self.most);
        assert!(count <= most, "{count} connections were made, {most} are allowed");
    }
}

/// One mutex around a multi-map, and a condition for each backend whose connections are all taken.
struct OneMutex {
    names: Vec<String>,
    map: Mutex<HashMap<String, Free>>,
    freed: HashMap<String, Condvar>,
    made: Made,
    capacity: usize,
}

#[derive(Default)]
struct Free {
    idle: Vec<u64>,
    made: usize,
}

impl OneMutex {
    fn new(names: &[String], capacity: usize) -> Self {
        Self {
            names: names.to_vec(),
            map: Mutex::default(),
            freed: names.iter().map(|name| (name.clone(), Condvar::new())).collect(),
            made: Made::new(names.len() * capacity),
            capacity,
        }
    }
}

impl Design for OneMutex {
    fn name(&self) -> &'static str {
        "one mutex"
    }

    fn with(&self, backend: usize, work: &mut dyn FnMut()) {
        let name = &self.names[backend];
        let freed = &self.freed[name];
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = loop {
            let free = match map.get_mut(name) {
                Some(free) => free,
                None => map.entry(name.clone()).or_default(),
            };
            if let Some(conn) = free.idle.pop() {
                break conn;
            }
            if free.made < self.capacity {
                free.made += 1;
                break self.made.one();
            }
            map = freed.wait(map).unwrap_or_else(PoisonError::into_inner);
        };
        drop(map);
        work();
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.get_mut(name).expect("it was there").idle.push(conn);
        drop(map);
        freed.notify_one();
    }

    fn assert_bounded(&self) {
        self.made.assert_bounded();
    }
}

/// The pool of this crate, by key.
struct Ours {
    names: Vec<String>,
    pool: Pool<Numbers>,
    made: Arc<Made>,
}

struct Numbers(Arc<Made>);

impl Manage for Numbers {
    type Key = String;
    type Connection = u64;
    type Error = Infallible;

    fn connect(&self, _: &Target<'_, String>, _: Instant) -> Result<u64, Infallible> {
        Ok(self.0.one())
    }
}

impl Ours {
    fn new(names: Vec<String>, capacity: usize) -> Result<Self, Box<dyn Error>> {
        let made = Arc::new(Made::new(names.len() * capacity));
        let limits = Limits::default().max(capacity).wait_timeout(LONG);
        let pool = Pool::builder(Numbers(Arc::clone(&made))).limits(limits).build()?;
        Ok(Self { names, pool, made })
    }
}

impl Design for Ours {
    fn name(&self) -> &'static str {
        "epoll-group"
    }

    fn with(&self, backend: usize, work: &mut dyn FnMut()) {
        let _conn = self.pool.get(&self.names[backend]).expect("one comes back in time");
        work();
    }

    fn assert_bounded(&self) {
        self.made.assert_bounded();
    }
}

/// A pool for each backend.
struct R2d2 {
    pools: Vec<r2d2::Pool<R2d2Numbers>>,
    made: Arc<Made>,
}

struct R2d2Numbers(Arc<Made>);

impl r2d2::ManageConnection for R2d2Numbers {
    type Connection = u64;
    type Error = Infallible;

    fn connect(&self) -> Result<u64, Infallible> {
        Ok(self.0.one())
    }

    fn is_valid(&self, _: &mut u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u64) -> bool {
        false
    }
}

impl R2d2 {
    fn new(backends: usize, capacity: usize) -> Result<Self, Box<dyn Error>> {
        let made = Arc::new(Made::new(backends * capacity));
        let threads = Arc::new(scheduled_thread_pool::ScheduledThreadPool::new(2));
        let pool = |_| {
            let builder = r2d2::Pool::builder().max_size(u32::try_from(capacity)?);
            let builder = builder.test_on_check_out(false).connection_timeout(LONG);
            let builder = builder.thread_pool(Arc::clone(&threads));
            Ok::<_, Box<dyn Error>>(builder.build(R2d2Numbers(Arc::clone(&made)))?)
        };
        Ok(Self { pools: (0..backends).map(pool).collect::<Result<_, _>>()?, made })
    }
}

impl Design for R2d2 {
    fn name(&self) -> &'static str {
        "r2d2"
    }

    fn with(&self, backend: usize, work: &mut dyn FnMut()) {
        let _conn = self.pools[backend].get().expect("one comes back in time");
        work();
    }

    fn assert_bounded(&self) {
        self.made.assert_bounded();
    }
}

/// A pool for each backend. A thread blocks on the future.
struct Deadpool {
    pools: Vec<deadpool::managed::Pool<DeadpoolNumbers>>,
    made: Arc<Made>,
}

struct DeadpoolNumbers(Arc<Made>);

impl deadpool::managed::Manager for DeadpoolNumbers {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(self.0.one())
    }

    async fn recycle(
        &self,
        _: &mut u64,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

impl Deadpool {
    fn new(backends: usize, capacity: usize) -> Result<Self, Box<dyn Error>> {
        let made = Arc::new(Made::new(backends * capacity));
        let pool = |_| {
            let manager = DeadpoolNumbers(Arc::clone(&made));
            deadpool::managed::Pool::builder(manager).max_size(capacity).build()
        };
        Ok(Self { pools: (0..backends).map(pool).collect::<Result<_, _>>()?, made })
    }
}

impl Design for Deadpool {
    fn name(&self) -> &'static str {
        "deadpool"
    }

    fn with(&self, backend: usize, work: &mut dyn FnMut()) {
        let conn = pollster::block_on(self.pools[backend].get()).expect("nothing fails");
        work();
        drop(conn);
    }

    fn assert_bounded(&self) {
        self.made.assert_bounded();
    }
}
