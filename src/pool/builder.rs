//! [`Builder`].

use std::fmt;
use std::io;
use std::sync::Arc;

use super::host::Host;
use super::limits::{Limits, LimitsError};
use super::manage::{Key, Manage};
use super::observe::Observer;
use super::shared::Shared;
use super::{Owner, Pool};

/// Makes a [`Pool`].
#[must_use]
pub struct Builder<K, C> {
    manage: Box<dyn Manage<K, C>>,
    limits: Limits,
    observer: Option<Box<dyn Observer<K>>>,
    host: Option<Arc<dyn Host>>,
}

impl<K: Key, C: Send + 'static> Builder<K, C> {
    pub(super) fn new(manage: impl Manage<K, C>) -> Self {
        let limits = Limits::default();
        Self { manage: Box::new(manage), limits, observer: None, host: None }
    }

    /// How many connections each backend may have, and how long what may take.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Who is told of what happens.
    pub fn observer(mut self, observer: impl Observer<K>) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Who runs what no caller's thread can do; without it the pool has a thread of its own.
    pub fn maintained_by(mut self, host: impl Host) -> Self {
        self.host = Some(Arc::new(host));
        self
    }

    /// Makes it. Nothing is connected.
    ///
    /// # Errors
    ///
    /// A limit is out of its range, or the thread cannot be started.
    pub fn build(self) -> Result<Pool<K, C>, BuildError> {
        self.limits.check().map_err(BuildError::Limits)?;
        let host = match self.host {
            Some(host) => host,
            None => own_host().map_err(BuildError::Thread)?,
        };
        let shared = Shared::new(self.manage, host, self.observer, self.limits);
        Ok(Pool { owner: Arc::new(Owner { shared: Arc::new(shared) }) })
    }
}

#[cfg(not(loom))]
fn own_host() -> io::Result<Arc<dyn Host>> {
    Ok(Arc::new(super::host::OwnThread::start()?))
}

/// A model says what the host does.
#[cfg(loom)]
fn own_host() -> io::Result<Arc<dyn Host>> {
    Err(io::Error::other("a model has its own host"))
}

impl<K, C> fmt::Debug for Builder<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Why a pool was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is out of its range.
    Limits(LimitsError),
    /// The thread that maintains the pool cannot be started.
    Thread(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "thread of the pool: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Limits(_) => None,
            Self::Thread(error) => Some(error),
        }
    }
}
