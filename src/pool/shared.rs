//! [`Shared`]: what all backends of a pool have in common, and the map that they are found in.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use super::backend::{Fx, Inner};
use super::error::GetError;
use super::host::Host;
use super::limits::Limits;
use super::manage::{Key, Manage};
use super::observe::Observer;
use super::stack::Mode;
use super::turns::shielded;
use crate::sync::shim::{Mutex, RwLock, lock, read, write};

/// One pool.
pub(super) struct Shared<K: Key, C: Send + 'static> {
    pub(super) manage: Box<dyn Manage<K, C>>,
    /// Until the pool is dropped.
    host: Mutex<Option<Arc<dyn Host>>>,
    observer: Option<Box<dyn Observer<K>>>,
    /// Of backends to come.
    limits: Mutex<Limits>,
    /// Written only when a backend appears or goes.
    map: RwLock<Map<K, C>>,
}

struct Map<K: Key, C: Send + 'static> {
    backends: HashMap<K, Arc<Inner<K, C>>>,
    /// None appears any more.
    closed: bool,
}

impl<K: Key, C: Send + 'static> Shared<K, C> {
    pub(super) fn new(
        manage: Box<dyn Manage<K, C>>,
        host: Arc<dyn Host>,
        observer: Option<Box<dyn Observer<K>>>,
        limits: Limits,
    ) -> Self {
        let map = RwLock::new(Map { backends: HashMap::new(), closed: false });
        let (host, limits) = (Mutex::new(Some(host)), Mutex::new(limits));
        Self { manage, host, observer, limits, map }
    }

    /// Asks the host for something; a panic goes no further.
    pub(super) fn ask_host(&self, ask: impl FnOnce(&dyn Host)) {
        let host = lock(&self.host).clone();
        if let Some(host) = host {
            shielded(|| ask(&*host));
        }
    }

    /// Lets go of the host; a thread of the pool's own ends.
    pub(super) fn leave_host(&self) {
        let host = lock(&self.host).take();
        shielded(|| drop(host));
    }

    pub(super) fn limits(&self) -> Limits {
        lock(&self.limits).clone()
    }

    /// A seed for the random numbers of a backend.
    pub(super) fn random(&self) -> u64 {
        RandomState::new().hash_one(std::ptr::from_ref(self).addr())
    }

    #[inline]
    pub(super) fn observe(&self, tell: impl FnOnce(&dyn Observer<K>)) {
        if let Some(observer) = &self.observer {
            shielded(|| tell(&**observer));
        }
    }

    #[inline]
    pub(super) fn find(&self, key: &K) -> Option<Arc<Inner<K, C>>> {
        read(&self.map).backends.get(key).map(Arc::clone)
    }

    /// The backend, which appears if it was not there.
    #[inline]
    pub(super) fn backend(self: &Arc<Self>, key: &K) -> Result<Arc<Inner<K, C>>, GetError> {
        match self.find(key) {
            Some(found) => Ok(found),
            None => self.appear(key),
        }
    }

    #[cold]
    fn appear(self: &Arc<Self>, key: &K) -> Result<Arc<Inner<K, C>>, GetError> {
        let now = Instant::now();
        let new = Arc::new(Inner::new(key.clone(), Arc::clone(self), now));
        let inner = {
            let mut map = write(&self.map);
            if map.closed {
                return Err(GetError::Closed);
            }
            let inner = map.backends.entry(key.clone()).or_insert_with(|| Arc::clone(&new));
            Arc::clone(inner)
        };
        if Arc::ptr_eq(&inner, &new) {
            // The limits may have changed before it was found by who changed them.
            let limits = self.limits();
            inner.apply(|stack, fx| stack.set_limits(now, limits, false, fx));
        }
        Ok(inner)
    }

    pub(super) fn all(&self) -> Vec<Arc<Inner<K, C>>> {
        read(&self.map).backends.values().cloned().collect()
    }

    /// Of all backends, and of those to come.
    pub(super) fn set_limits(&self, limits: &Limits) {
        lock(&self.limits).clone_from(limits);
        for inner in self.all() {
            inner.apply(|stack, fx| {
                if !stack.has_own_limits() {
                    stack.set_limits(Instant::now(), limits.clone(), false, fx);
                }
            });
        }
    }

    /// Takes a backend out; `None`: there is none.
    pub(super) fn take(&self, key: &K) -> Option<Arc<Inner<K, C>>> {
        write(&self.map).backends.remove(key)
    }

    /// No backend appears any more, and those that are there give out nothing.
    pub(super) fn close(&self) -> Vec<Arc<Inner<K, C>>> {
        write(&self.map).closed = true;
        let all = self.all();
        for inner in &all {
            inner.apply(|stack, fx| stack.set_mode(Instant::now(), Mode::Closed, fx));
        }
        all
    }

    /// Takes out all.
    pub(super) fn forget_all(&self) {
        let backends = std::mem::take(&mut write(&self.map).backends);
        drop(backends);
    }

    /// Takes out a backend that nobody uses, unless somebody found it meanwhile.
    pub(super) fn vanish(this: &Arc<Self>, inner: &Arc<Inner<K, C>>) {
        let mut fx = Fx::default();
        let mut map = write(&this.map);
        // One reference is that of the map, one the caller's; who finds it there clones it under the
        // map's lock.
        let unused = map
            .backends
            .get(inner.key())
            .is_some_and(|found| Arc::ptr_eq(found, inner) && Arc::strong_count(found) == 2);
        let gone = unused
            && inner.with(|stack| {
                let now = Instant::now();
                let unused = stack.is_unused(now);
                if unused {
                    stack.set_mode(now, Mode::Closed, &mut fx);
                }
                unused
            });
        let entry = if gone { map.backends.remove_entry(inner.key()) } else { None };
        drop(map);
        drop(entry);
        inner.apply(|_, effects| *effects = fx);
    }
}
