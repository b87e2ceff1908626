//! The pools that are compared, with connections that are numbers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
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

/// Places of the pools that were published: before the change, with which the others are compared, and
/// after it.
pub(super) const BEFORE: usize = 0;
pub(super) const AFTER: usize = 1;
/// Place of this crate's pool.
pub(super) const OURS: usize = 3;

/// Idle time of a connection in the pool that closes them soon.
const SHORT: Duration = Duration::from_millis(5);

/// Longer than any wait.
const LONG: Duration = Duration::from_secs(60);

pub(super) fn all(
    backends: usize,
    capacity: usize,
) -> Result<Vec<Arc<dyn Design>>, Box<dyn Error>> {
    let names: Vec<_> = (0..backends).map(|number| format!("SPT{number}")).collect();
    Ok(vec![
        Arc::new(OneMutex::new(&names, capacity, "before: one mutex")),
        Arc::new(Stacks::new(&names, capacity)),
        Arc::new(R2d2::new(backends, capacity)?),
        Arc::new(Ours::new(&names, capacity, "epoll-group", None)?),
        Arc::new(Ours::new(&names, capacity, "epoll-group, idle for 5 ms at most", Some(SHORT))?),
        // Its ratio to the first is noise.
        Arc::new(OneMutex::new(&names, capacity, "before: one mutex, again")),
    ])
}

/// Number of connections that were made, and its limit.
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
    name: &'static str,
    names: Vec<String>,
    map: Mutex<HashMap<String, Free>>,
    freed: HashMap<String, Condvar>,
    made: Made,
    capacity: usize,
}

/// Connections of one backend.
#[derive(Default)]
struct Free {
    idle: Vec<u64>,
    made: usize,
}

impl Free {
    /// Takes an idle connection, or makes one. `None`: all are taken.
    fn take(&mut self, capacity: usize, made: &Made) -> Option<u64> {
        self.idle.pop().or_else(|| {
            (self.made < capacity).then(|| {
                self.made += 1;
                made.one()
            })
        })
    }
}

impl OneMutex {
    fn new(names: &[String], capacity: usize, name: &'static str) -> Self {
        Self {
            name,
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
        self.name
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
            if let Some(conn) = free.take(self.capacity, &self.made) {
                break conn;
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

/// A read-write lock around a map from backends to stacks, each with a mutex and a condition of its own.
struct Stacks {
    names: Vec<String>,
    map: RwLock<HashMap<String, Arc<Stack>>>,
    made: Made,
    capacity: usize,
}

#[derive(Default)]
struct Stack {
    free: Mutex<Free>,
    freed: Condvar,
}

impl Stacks {
    fn new(names: &[String], capacity: usize) -> Self {
        let made = Made::new(names.len() * capacity);
        Self { names: names.to_vec(), map: RwLock::default(), made, capacity }
    }

    fn stack(&self, name: &str) -> Arc<Stack> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let found = map.get(name).cloned();
        drop(map);
        found.unwrap_or_else(|| {
            let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(map.entry(name.to_owned()).or_default())
        })
    }
}

impl Design for Stacks {
    fn name(&self) -> &'static str {
        "after: a mutex each"
    }

    fn with(&self, backend: usize, work: &mut dyn FnMut()) {
        let stack = self.stack(&self.names[backend]);
        let mut free = stack.free.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = loop {
            if let Some(conn) = free.take(self.capacity, &self.made) {
                break conn;
            }
            free = stack.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        };
        drop(free);
        work();
        stack.free.lock().unwrap_or_else(PoisonError::into_inner).idle.push(conn);
        stack.freed.notify_one();
    }

    fn assert_bounded(&self) {
        self.made.assert_bounded();
    }
}

/// The pool of this crate, by key.
struct Ours {
    name: &'static str,
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
    /// Connections are kept, or closed when they have been idle for `idle`.
    fn new(
        names: &[String],
        capacity: usize,
        name: &'static str,
        idle: Option<Duration>,
    ) -> Result<Self, Box<dyn Error>> {
        let most = if idle.is_some() { usize::MAX } else { names.len() * capacity };
        let made = Arc::new(Made::new(most));
        let limits = Limits::default().max(capacity).wait_timeout(LONG);
        let limits = limits.idle_timeout(idle.unwrap_or(Duration::MAX));
        let pool = Pool::builder(Numbers(Arc::clone(&made))).limits(limits).build()?;
        Ok(Self { name, names: names.to_vec(), pool, made })
    }
}

impl Design for Ours {
    fn name(&self) -> &'static str {
        self.name
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
