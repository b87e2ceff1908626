//! Configuration of a running runtime: immutable snapshots, of which one is current.
//!
//! 1. A reader loads the number of the current snapshot and gets a reference to it, for the life of
//!    the runtime. It sees one whole configuration, never parts of two, and never waits.
//! 2. A writer checks the new configuration and looks for it among the earlier snapshots. It
//!    appends the configuration if it is new, and then makes its number the current one. Writers
//!    take turns.
//!
//! Snapshots are never freed before the runtime is. Therefore readers need no count and no lock.
//! The price is a bound on the number of snapshots. A runtime that is switched to and fro between
//! some configurations stays far below the bound.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Config;
use super::error::ConfigError;

/// Greatest number of different configurations in the life of a runtime, of about 1.3 KB each.
const MOST_SNAPSHOTS: usize = 4096;

/// Configuration of a runtime. Readers see it as a whole, and writers replace it as a whole.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Snapshot number 0. A runtime that is never reconfigured finds it in the fewest steps.
    first: Config,
    /// Snapshots from number 1 on, no two of them equal. Readers: any thread. Writer: the holder of
    /// `replacing` appends.
    later: boxcar::Vec<Config>,
    /// Number of the current snapshot. Readers: any thread. Writer: the holder of `replacing`.
    /// Invariant: the snapshot of this number is complete.
    current: AtomicUsize,
    replacing: Mutex<()>,
    groups: usize,
    /// Greatest number of snapshots.
    limit: usize,
}

impl Settings {
    /// Creates the settings of a runtime that has `groups` groups.
    pub(crate) fn new(config: Config, groups: usize) -> Result<Self, ConfigError> {
        Self::with_limit(config, groups, MOST_SNAPSHOTS)
    }

    fn with_limit(config: Config, groups: usize, limit: usize) -> Result<Self, ConfigError> {
        config.validate()?;
        config.validate_threads(groups)?;
        let (current, replacing) = (AtomicUsize::new(0), Mutex::new(()));
        Ok(Self { first: config, later: boxcar::Vec::new(), current, replacing, groups, limit })
    }

    /// Current configuration. A caller that needs consistent values reads it once.
    pub(crate) fn current(&self) -> &Config {
        // Acquire pairs with the Release in `replace_if`: the snapshot is complete.
        self.number(self.current.load(Ordering::Acquire))
    }

    fn number(&self, number: usize) -> &Config {
        match number {
            0 => &self.first,
            number => &self.later[number - 1],
        }
    }

    /// Replaces the current configuration. On an error it stays as it is.
    #[cfg(test)]
    pub(crate) fn replace(&self, config: Config) -> Result<(), ReconfigureError> {
        self.replace_if(None, config).map(|_| ())
    }

    /// Changes the current configuration. If another thread replaced it meanwhile, `change` runs
    /// again on the new one, so that no change is lost. `change` runs outside the lock.
    pub(crate) fn update(
        &self,
        mut change: impl FnMut(Config) -> Config,
    ) -> Result<(), ReconfigureError> {
        loop {
            let seen = self.current.load(Ordering::Acquire);
            let config = change(self.number(seen).clone());
            if self.replace_if(Some(seen), config)? {
                return Ok(());
            }
        }
    }

    /// Replaces the configuration if `expected` is still the current snapshot. Otherwise returns
    /// false and changes nothing.
    fn replace_if(
        &self,
        expected: Option<usize>,
        config: Config,
    ) -> Result<bool, ReconfigureError> {
        let valid = config.validate().and_then(|()| config.validate_threads(self.groups));
        valid.map_err(ReconfigureError::Invalid)?;
        let _turn = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: only the holder of the lock writes.
        let current = self.current.load(Ordering::Relaxed);
        if expected.is_some_and(|expected| expected != current) {
            return Ok(false);
        }
        refuse_not_live(self.number(current), &config)?;
        let known = (0..=self.later.count()).find(|number| *self.number(*number) == config);
        let number = match known {
            Some(number) => number,
            None if self.later.count() + 1 < self.limit => self.later.push(config) + 1,
            None => return Err(ReconfigureError::TooMany { limit: self.limit }),
        };
        // Release pairs with the Acquire in `current`.
        self.current.store(number, Ordering::Release);
        Ok(true)
    }
}

fn refuse_not_live(old: &Config, new: &Config) -> Result<(), ReconfigureError> {
    for field in Config::FIELDS.iter().filter(|field| !field.live) {
        let [current, asked] = [old, new].map(|config| field.value_in(config));
        if current != asked {
            return Err(ReconfigureError::NotLive { field: field.name, current, asked });
        }
    }
    Ok(())
}

/// Reason why a running runtime kept its configuration instead of a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconfigureError {
    /// A tunable is outside its range.
    Invalid(ConfigError),
    /// A tunable differs that cannot change after the start.
    NotLive {
        /// Name of the tunable.
        field: &'static str,
        /// The value with which the runtime was started, as text.
        current: String,
        /// The requested value, as text.
        asked: String,
    },
    /// The runtime has had as many different configurations as it can keep. It can still return to
    /// an earlier one.
    TooMany {
        /// Greatest number of configurations.
        limit: usize,
    },
}

impl fmt::Display for ReconfigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::NotLive { field, current, asked } => {
                write!(f, "{field} counts at the start only: it is {current}, asked for {asked}")
            }
            Self::TooMany { limit } => {
                write!(f, "this runtime has had {limit} different configurations, the limit")
            }
        }
    }
}

impl Error for ReconfigureError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::NotLive { .. } | Self::TooMany { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn settings() -> Settings {
        Settings::new(Config::default(), 2).expect("the default is valid")
    }

    /// Configuration of two tunables with a constraint between them.
    fn watermarks(high: usize) -> Config {
        Config::default().write_high_watermark_bytes(high).write_low_watermark_bytes(high / 4)
    }

    #[test]
    fn readers_see_whole_snapshots_only() {
        const READERS: usize = 3;
        let settings = Settings::new(watermarks(1 << 16), 1).expect("valid");
        let [writing, seen_many] = [AtomicBool::new(true), AtomicBool::new(false)];
        thread::scope(|scope| {
            let read = || {
                let [mut changes, mut last] = [0, 0];
                while writing.load(Ordering::Relaxed) {
                    let config = settings.current();
                    let high = config.write_high_watermark_bytes;
                    assert_eq!(config.write_low_watermark_bytes, high / 4, "torn");
                    changes += usize::from(high != last);
                    last = high;
                    if changes > 100 {
                        seen_many.store(true, Ordering::Relaxed);
                    }
                }
            };
            let readers = [(); READERS].map(|()| scope.spawn(read));
            let failed = || readers.iter().any(|reader| reader.is_finished());
            let mut round = 0;
            while round < 1000 || (!seen_many.load(Ordering::Relaxed) && !failed()) {
                round += 1;
                settings.replace(watermarks((1 << 16) + 4 * (round % 500))).expect("valid");
            }
            writing.store(false, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_configuration_that_was_there_before_reuses_its_snapshot() {
        let settings = settings();
        let first = std::ptr::from_ref(settings.current());
        for _ in 0..100 {
            settings.replace(watermarks(1 << 16)).expect("valid");
            settings.replace(Config::default()).expect("valid");
        }
        assert_eq!(settings.later.count() + 1, 2);
        assert_eq!(std::ptr::from_ref(settings.current()), first);
    }

    #[test]
    fn a_replaced_snapshot_stays_as_it_was() {
        let settings = settings();
        let old = settings.current();
        settings.replace(watermarks(1 << 16)).expect("valid");
        assert_eq!(*old, Config::default());
        assert_eq!(*settings.current(), watermarks(1 << 16));
    }

    #[test]
    fn so_many_different_configurations_and_no_more() {
        const LIMIT: usize = 64;
        assert_eq!(settings().limit, MOST_SNAPSHOTS);
        assert!(size_of::<Config>() < 1400, "the guide says how much a snapshot takes");
        // The default is one of the snapshots.
        let settings = Settings::with_limit(Config::default(), 2, LIMIT).expect("valid");
        for tasks in 1..=LIMIT {
            settings.replace(Config::default().tasks_per_poll(tasks)).expect("room");
        }
        assert_eq!(settings.later.count() + 1, LIMIT);
        let error = settings.replace(watermarks(1 << 16)).expect_err("full");
        assert_eq!(error, ReconfigureError::TooMany { limit: LIMIT });
        assert_eq!(
            error.to_string(),
            "this runtime has had 64 different configurations, the limit"
        );
        assert_eq!(settings.current().tasks_per_poll, LIMIT, "nothing changed");
        settings.replace(Config::default()).expect("that one it has had");
        assert_eq!(*settings.current(), Config::default());
    }

    #[test]
    fn a_tunable_that_is_not_live_is_refused_and_nothing_changes() {
        let settings = settings();
        let asked = Config::default().tasks_per_poll(1).epoll_groups(3);
        let error = settings.replace(asked).expect_err("epoll_groups is for the start");
        assert_eq!(
            error.to_string(),
            "epoll_groups counts at the start only: it is 0, asked for 3"
        );
        assert_eq!(*settings.current(), Config::default());
        assert_eq!(settings.later.count() + 1, 1);
    }

    #[test]
    fn what_is_out_of_range_is_refused_and_nothing_changes() {
        let settings = settings();
        let error = settings.replace(Config::default().tasks_per_poll(0)).expect_err("invalid");
        assert_eq!(error.to_string(), "tasks_per_poll 0 is outside 1..=4096");
        assert!(error.source().is_some());
        let error = settings.replace(Config::default().max_threads(9)).expect_err("2 x (4 + 1)");
        assert!(matches!(error, ReconfigureError::Invalid(error) if error.field == "max_threads"));
        assert_eq!(*settings.current(), Config::default());
        assert!(Settings::new(Config::default().max_threads(9), 2).is_err());
        assert!(Settings::new(Config::default().tasks_per_poll(0), 2).is_err());
    }

    #[test]
    fn no_update_is_lost_when_two_change_at_once() {
        const EACH: usize = 500;
        let settings = Settings::new(Config::default().tasks_per_poll(1), 1).expect("valid");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let add = |config: Config| {
                            let tasks = config.tasks_per_poll + 1;
                            config.tasks_per_poll(tasks)
                        };
                        settings.update(add).expect("valid");
                    }
                });
            }
        });
        assert_eq!(settings.current().tasks_per_poll, 1 + 2 * EACH);
    }
}
