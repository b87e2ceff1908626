//! [`Shared`]: the map of backends, and their common parts.

use std::collections::HashMap;
use std::sync::Arc;

use super::backend::{Fx, Inner};
use super::config::Limits;
use super::error::GetError;
use super::guard::shielded;
use super::host::{Host, Observer};
use super::manage::Manage;
use super::status::BackendState;
use crate::sync::shim::{Mutex, RwLock, lock, read, write};
use crate::sys::clock;

/// One pool.
pub(super) struct Shared<M: Manage> {
    pub(super) manage: M,
    /// Present until the pool is dropped.
    host: Mutex<Option<Arc<dyn Host>>>,
    observer: Option<Box<dyn Observer<M::Key>>>,
    /// Limits of new backends.
    limits: Mutex<Limits>,
    /// Written only when a backend is added or removed.
    map: RwLock<Map<M>>,
}

struct Map<M: Manage> {
    backends: HashMap<M::Key, Arc<Inner<M>>>,
    /// True if no backend may be added any more.
    closed: bool,
}

impl<M: Manage> Shared<M> {
    pub(super) fn new(
        manage: M,
        host: Arc<dyn Host>,
        observer: Option<Box<dyn Observer<M::Key>>>,
        limits: Limits,
    ) -> Self {
        let map = RwLock::new(Map { backends: HashMap::new(), closed: false });
        let (host, limits) = (Mutex::new(Some(host)), Mutex::new(limits));
        Self { manage, host, observer, limits, map }
    }

    /// Calls the host. A panic ends there.
    pub(super) fn ask_host(&self, ask: impl FnOnce(&dyn Host)) {
        let host = lock(&self.host).clone();
        if let Some(host) = host {
            shielded(|| ask(&*host));
        }
    }

    /// Drops the host. A thread of the pool's own ends.
    pub(super) fn leave_host(&self) {
        let host = lock(&self.host).take();
        shielded(|| drop(host));
    }

    pub(super) fn limits(&self) -> Limits {
        lock(&self.limits).clone()
    }

    #[inline]
    pub(super) fn observe(&self, tell: impl FnOnce(&dyn Observer<M::Key>)) {
        if let Some(observer) = &self.observer {
            shielded(|| tell(&**observer));
        }
    }

    #[inline]
    pub(super) fn find(&self, key: &M::Key) -> Option<Arc<Inner<M>>> {
        read(&self.map).backends.get(key).map(Arc::clone)
    }

    /// Returns the backend, and adds it if it is new.
    #[inline]
    pub(super) fn backend(self: &Arc<Self>, key: &M::Key) -> Result<Arc<Inner<M>>, GetError> {
        match self.find(key) {
            Some(found) => Ok(found),
            None => self.appear(key),
        }
    }

    #[cold]
    fn appear(self: &Arc<Self>, key: &M::Key) -> Result<Arc<Inner<M>>, GetError> {
        let now = clock::now();
        let new = Arc::new(Inner::new(key.clone(), Arc::clone(self), now));
        {
            let mut map = write(&self.map);
            if map.closed {
                return Err(GetError::Closed);
            }
            // An entry of the map would drop its key under the lock.
            if let Some(found) = map.backends.get(key) {
                return Ok(Arc::clone(found));
            }
            map.backends.insert(key.clone(), Arc::clone(&new));
        }
        // A change of the limits may have missed the new backend.
        self.limit(&new);
        Ok(new)
    }

    /// Gives a backend the limits of the pool, unless it has its own. The limits are read under the lock
    /// of the backend, so the last change counts.
    fn limit(&self, inner: &Arc<Inner<M>>) {
        inner.apply(|stack, fx| {
            if !stack.has_own_limits() {
                stack.set_limits(clock::now(), self.limits(), false, fx);
            }
        });
    }

    pub(super) fn all(&self) -> Vec<Arc<Inner<M>>> {
        read(&self.map).backends.values().cloned().collect()
    }

    /// Changes the limits of all backends, and of new ones.
    pub(super) fn set_limits(&self, limits: &Limits) {
        lock(&self.limits).clone_from(limits);
        self.all().iter().for_each(|inner| self.limit(inner));
    }

    /// Takes a backend out of the map.
    pub(super) fn take(&self, key: &M::Key) -> Option<Arc<Inner<M>>> {
        let entry = write(&self.map).backends.remove_entry(key);
        // The key is dropped here, outside the lock.
        entry.map(|(_, inner)| inner)
    }

    /// Closes all backends. No backend is added any more.
    pub(super) fn close(&self) -> Vec<Arc<Inner<M>>> {
        write(&self.map).closed = true;
        let all = self.all();
        for inner in &all {
            inner.set_state(BackendState::Closed);
        }
        all
    }

    /// Takes all backends out of the map.
    pub(super) fn forget_all(&self) {
        let backends = std::mem::take(&mut write(&self.map).backends);
        drop(backends);
    }

    /// Takes an unused backend out of the map, unless a caller found it meanwhile.
    pub(super) fn vanish(this: &Arc<Self>, inner: &Arc<Inner<M>>) {
        let mut fx = Fx::<M>::default();
        let mut map = write(&this.map);
        // The map has one reference, and this call another. A caller that finds the backend clones
        // it under the map's lock.
        let unused = map
            .backends
            .get(inner.key())
            .is_some_and(|found| Arc::ptr_eq(found, inner) && Arc::strong_count(found) == 2);
        let gone = unused
            && inner.with(|stack| {
                let now = clock::now();
                let unused = stack.is_unused(now);
                if unused {
                    stack.set_state(now, BackendState::Closed, &mut fx);
                }
                unused
            });
        let entry = if gone { map.backends.remove_entry(inner.key()) } else { None };
        drop(map);
        drop(entry);
        inner.apply(|_, effects| *effects = fx);
    }
}
