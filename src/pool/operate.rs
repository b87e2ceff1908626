//! What an operator does: pause, resume, disable, fail over, resize, retire, close.

use std::fmt;
use std::time::{Duration, Instant};

use super::Pool;
use super::backend::Inner;
use super::error::GetError;
use super::limits::{Limits, LimitsError};
use super::manage::{Key, Version};
use super::stack::Mode;
use super::status::Held;

impl<K: Key, C: Send + 'static> Pool<K, C> {
    /// Hands out no more connections to a backend, closes the idle ones, and waits until those in use
    /// have come back, until the deadline.
    ///
    /// Who asks meanwhile waits, for as long as its deadline allows. The backend stays paused, also
    /// after an error, until [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// Somebody still has a connection, or somebody resumed the backend; see [`PauseError`].
    pub fn pause(&self, key: &K, deadline: Instant) -> Result<(), PauseError<K>> {
        let inner = self.shared().backend(key).map_err(|_| PauseError::Interrupted)?;
        set_mode(&inner, Mode::Paused);
        let quiet = inner.wait_quiet(Mode::Paused, Some(deadline));
        if inner.with(|stack| stack.mode()) != Mode::Paused {
            return Err(PauseError::Interrupted);
        }
        if quiet {
            Ok(())
        } else {
            Err(PauseError::StillHeld(inner.held(Instant::now(), Duration::ZERO)))
        }
    }

    /// Ends a [`pause`](Self::pause) or [`disable`](Self::disable): who waits is served. Whether there
    /// is such a backend.
    pub fn resume(&self, key: &K) -> bool {
        let found = self.shared().find(key);
        found.inspect(|inner| set_mode(inner, Mode::Open)).is_some()
    }

    /// Refuses whoever asks for a backend or waits for it, with [`GetError::Disabled`]; closes its idle
    /// connections, and those in use as they come back.
    ///
    /// # Errors
    ///
    /// [`GetError::Closed`].
    pub fn disable(&self, key: &K) -> Result<(), GetError> {
        let inner = self.shared().backend(key)?;
        set_mode(&inner, Mode::Disabled);
        Ok(())
    }

    /// Makes the next version of a backend, if it is of version `from`.
    ///
    /// The version that failed, not "the next one", so that of several who see a server die one moves
    /// on, and a late one moves nothing: [`Pooled::version`](super::Pooled::version). Idle connections
    /// of the old version are closed, those in use as they come back, and a connect under way as it is
    /// done; who waits goes over to the new version. Connects begin without a pause.
    ///
    /// # Errors
    ///
    /// It is another version: that one. Nothing was changed.
    pub fn fail_over(&self, key: &K, from: Version) -> Result<Version, Version> {
        let inner = self.shared().backend(key).map_err(|_| from)?;
        let now = Instant::now();
        let to = inner.apply(|stack, fx| stack.fail_over(now, from, fx))?;
        self.shared().observe(|observer| observer.failed_over(key, from, to));
        Ok(to)
    }

    /// Changes the limits of all backends, and of those to come, but for those with limits of their
    /// own.
    ///
    /// With fewer connections than before idle ones are closed at once, others as they come back; with
    /// more who waits is served.
    ///
    /// # Errors
    ///
    /// A limit is out of its range.
    pub fn set_limits(&self, limits: Limits) -> Result<(), LimitsError> {
        limits.check()?;
        self.shared().set_limits(&limits);
        Ok(())
    }

    /// Gives a backend limits of its own.
    ///
    /// # Errors
    ///
    /// A limit is out of its range.
    pub fn set_limits_of(&self, key: &K, limits: Limits) -> Result<(), LimitsError> {
        limits.check()?;
        if let Ok(inner) = self.shared().backend(key) {
            inner.apply(|stack, fx| stack.set_limits(Instant::now(), limits, true, fx));
        }
        Ok(())
    }

    /// Forgets a backend with all that was set for it, also its version. Who waits gets
    /// [`GetError::Closed`], connections in use are closed as they come back. Whether there was one.
    ///
    /// Who asks for the key again gets a new backend.
    pub fn retire(&self, key: &K) -> bool {
        let found = self.shared().take(key);
        found.inspect(|inner| set_mode(inner, Mode::Closed)).is_some()
    }

    /// Closes the pool for good: nobody gets a connection any more, idle ones are closed. Waits until
    /// those in use have come back, until the deadline.
    pub fn close(&self, deadline: Instant) -> CloseReport<K> {
        let all = self.shared().close();
        let mut held = Vec::new();
        let mut connecting = 0;
        for inner in all {
            if !inner.wait_quiet(Mode::Closed, Some(deadline)) {
                held.extend(inner.held(Instant::now(), Duration::ZERO));
            }
            connecting += inner.status().connecting;
        }
        CloseReport { held, connecting }
    }
}

fn set_mode<K: Key, C: Send + 'static>(inner: &std::sync::Arc<Inner<K, C>>, mode: Mode) {
    inner.apply(|stack, fx| stack.set_mode(Instant::now(), mode, fx));
}

/// What was left when a pool was [closed](Pool::close).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CloseReport<K> {
    /// Connections that were still in use at the deadline; they are closed as they come back.
    pub held: Vec<Held<K>>,
    /// Connects that were still under way.
    pub connecting: usize,
}

/// Why a pause did not come to rest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PauseError<K> {
    /// These have not come back by the deadline. The backend is paused.
    StillHeld(Vec<Held<K>>),
    /// Somebody resumed, disabled or closed it meanwhile.
    Interrupted,
}

impl<K: fmt::Display> fmt::Display for PauseError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillHeld(held) => {
                write!(f, "{} connections are still in use", held.len())?;
                held.iter().try_for_each(|held| write!(f, "\n  {held}"))
            }
            Self::Interrupted => f.write_str("it was resumed, disabled or closed meanwhile"),
        }
    }
}

impl<K: fmt::Debug + fmt::Display> std::error::Error for PauseError<K> {}
