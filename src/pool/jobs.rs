//! What the host does for callers that do not wait: connect, and look at a connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Inner, Then};
use super::manage::{Key, Version};
use super::slots::{Holder, Ticket};
use super::stack::{Ready, Turn};
use super::turns::{Wait, waiting};

/// A connect, done by the host. Dropped undone it counts as failed.
pub(super) struct ConnectJob<K: Key, C: Send + 'static> {
    inner: Arc<Inner<K, C>>,
    /// Present until it is done.
    connect: Option<(Ticket, Version)>,
}

impl<K: Key, C: Send + 'static> ConnectJob<K, C> {
    pub(super) const fn new(inner: Arc<Inner<K, C>>, ticket: Ticket, version: Version) -> Self {
        Self { inner, connect: Some((ticket, version)) }
    }

    pub(super) fn run(mut self) {
        let Some((ticket, version)) = self.connect.take() else { return };
        let timeout = self.inner.with(|stack| stack.limits().connect_timeout);
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + FAR);
        let result = self.inner.connect(version, deadline);
        self.inner.apply(|stack, fx| match result {
            Ok(conn) => stack.connected_by_host(Instant::now(), ticket, conn, fx),
            Err(error) => stack.connect_failed(Instant::now(), ticket, error, fx),
        });
    }
}

/// For an instant that cannot be computed because it is too far.
const FAR: Duration = Duration::from_secs(86_400);

impl<K: Key, C: Send + 'static> Drop for ConnectJob<K, C> {
    fn drop(&mut self) {
        if let Some((ticket, _)) = self.connect.take() {
            let error = "the host did not run it".into();
            self.inner.apply(|stack, fx| stack.connect_failed(Instant::now(), ticket, error, fx));
        }
    }
}

/// A look at a connection that was idle for long, for a callback. Dropped undone the callback is
/// served as if the connection were invalid.
pub(super) struct CheckJob<K: Key, C: Send + 'static> {
    inner: Arc<Inner<K, C>>,
    /// Present until it is done.
    work: Option<Check<K, C>>,
}

struct Check<K: Key, C: Send + 'static> {
    ready: Ready<C>,
    then: Then<K, C>,
    deadline: Instant,
    holder: Holder,
}

impl<K: Key, C: Send + 'static> CheckJob<K, C> {
    pub(super) fn start(
        inner: &Arc<Inner<K, C>>,
        ready: Ready<C>,
        then: Then<K, C>,
        deadline: Instant,
        holder: Holder,
    ) {
        let work = Some(Check { ready, then, deadline, holder });
        let job = Self { inner: Arc::clone(inner), work };
        inner.shared().ask_host(|host| host.spawn(Box::new(|| job.run())));
    }

    fn run(mut self) {
        let Some(Check { ready, then, deadline, holder }) = self.work.take() else { return };
        match waiting(Wait::Network, || self.inner.fit(ready)) {
            Some(fit) => self.inner.finish(then, fit),
            None => self.inner.ask_then(then, deadline, holder, Turn::Again),
        }
    }
}

impl<K: Key, C: Send + 'static> Drop for CheckJob<K, C> {
    fn drop(&mut self) {
        let Some(Check { ready, then, deadline, holder }) = self.work.take() else { return };
        let Ready { conn, ticket, version, .. } = ready;
        self.inner.discard(conn, ticket, version, super::status::Discard::Invalid);
        self.inner.ask_then(then, deadline, holder, Turn::Again);
    }
}
