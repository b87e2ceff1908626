//! [`Builder`]: from a configuration to running threads.

use std::fmt;
use std::io;
use std::process;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use super::binding::Binding;
use super::class::Class;
use super::group::Parts;
use super::handle::Shared;
use super::placement::{self, Machine};
use super::threads::{Hooks, ThreadInfo, Threads};
use super::watch::Watch;
use super::watchdog::Watchdog;
use super::worker_slot::ThreadKind;
use super::{Group, Handle, Runtime, Usage};
use crate::config::{Config, ConfigError, Settings};
use crate::sync::shim::atomic::AtomicUsize;

/// Configures and starts a [`Runtime`].
#[derive(Default)]
pub struct Builder {
    config: Config,
    name: Option<String>,
    hooks: Hooks,
}

impl Builder {
    /// Takes all tunables from `config`.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Prefix of thread names, without zero bytes. The default is `eg`: worker 3 of group 0 is
    /// `eg-0-3`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Called on each thread but the watchdog before it works. It must not wait for a handler:
    /// until it returns, the thread counts as free, so no other one is added.
    #[must_use]
    pub fn on_thread_start(mut self, hook: impl Fn(&ThreadInfo) + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Arc::new(hook));
        self
    }

    /// Called on each thread but the watchdog after its last work.
    #[must_use]
    pub fn on_thread_stop(mut self, hook: impl Fn(&ThreadInfo) + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Arc::new(hook));
        self
    }

    /// Starts the threads. When this returns, all of them run.
    ///
    /// # Errors
    ///
    /// A tunable is out of its range, the name has a zero byte, or the system refused descriptors or
    /// threads. Threads that were started are stopped again.
    pub fn start(self) -> Result<Runtime, StartError> {
        self.config.validate().map_err(StartError::Config)?;
        if let Some(name) = self.name.as_ref().filter(|name| name.contains('\0')) {
            let allowed = "names without zero bytes".into();
            return Err(StartError::Config(ConfigError::out_of_range("name", name, allowed)));
        }
        // If a sandbox forbids the query, the threads run where the kernel puts them.
        let machine = Binding::machine(&self.config).ok();
        let (runtime, watchdog) = self.assemble(machine)?;
        start_threads(&runtime.handle.shared, watchdog)
            .map_err(|(name, source)| StartError::Thread { name, source })?;
        Ok(runtime)
    }

    /// Makes all parts but the threads. When the runtime is dropped, threads that run are stopped.
    pub(super) fn assemble(
        self,
        machine: Option<Machine>,
    ) -> Result<(Runtime, Watchdog), StartError> {
        let cpus = machine.as_ref().map_or(1, Machine::parallelism);
        let threads = self.config.epoll_threads_per_group;
        let groups = match self.config.epoll_groups {
            0 => {
                let (at_least, extra) =
                    (self.config.min_auto_epoll_groups, self.config.epoll_extra_groups);
                placement::automatic_groups(cpus, threads, at_least, extra)
            }
            groups => groups,
        };
        let pollers = match self.config.max_epoll_wait_total_threads {
            0 => threads,
            total => (total / groups).clamp(1, threads),
        };
        let binding = Arc::new(Binding::new(&self.config, groups, machine.as_ref()));
        let settings = Settings::new(self.config, groups).map_err(StartError::Config)?;
        let settings = Arc::new(settings);
        let (usage, watch) = (Arc::new(Usage::default()), Arc::new(Watch::new()));
        let prefix = self.name.unwrap_or_else(|| "eg".into());
        let (settings_2, usage_2) = (Arc::clone(&settings), Arc::clone(&usage));
        let all_threads = Arc::new(Threads::new(prefix, self.hooks, settings_2, usage_2));
        let parts = Parts {
            cpus: cpus.div_ceil(groups),
            pollers,
            settings: Arc::clone(&settings),
            usage: Arc::clone(&usage),
            threads: Arc::clone(&all_threads),
            watch: Arc::clone(&watch),
            binding: Arc::clone(&binding),
        };
        let groups: Vec<Arc<Group>> = (0..groups)
            .map(|index| Group::new(index, parts.clone()))
            .collect::<Result<_, _>>()
            .map_err(|(call, source)| StartError::Descriptors { call, source })?;
        let watchdog =
            Watchdog::new(Arc::clone(&watch), Arc::clone(&settings), binding, &groups, cpus);
        let (switching, next_group) = (Mutex::new(()), AtomicUsize::new(0));
        let threads = all_threads;
        let shared = Shared { groups, usage, settings, threads, watch, switching, next_group };
        let handle = Handle { shared: Arc::new(shared), class: Class::Ordinary };
        Ok((Runtime { handle, drained: false, process: process::id() }, watchdog))
    }
}

fn start_threads(shared: &Shared, watchdog: Watchdog) -> Result<(), (String, io::Error)> {
    let (ready, all_ready) = mpsc::channel();
    let config = shared.settings.current();
    for group in &shared.groups {
        for _ in 0..config.epoll_threads_per_group {
            group.thread_set.expect_base();
            shared.threads.start_permanent(group, ThreadKind::Base, ready.clone())?;
        }
    }
    for group in &shared.groups {
        for _ in 0..config.reserve_threads_per_group {
            group.thread_set.expect_reserve();
            shared.threads.start_permanent(group, ThreadKind::Reserve, ready.clone())?;
        }
    }
    shared.threads.start_watchdog(move || {
        drop(ready);
        watchdog.run();
    })?;
    all_ready.iter().for_each(drop);
    Ok(())
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Reason why a runtime did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A tunable is out of its range, or the [`name`](Builder::name) has a zero byte.
    Config(ConfigError),
    /// The system refused descriptors for a group.
    Descriptors {
        /// Name of the failed call, as in the manual.
        call: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The system refused a thread.
    Thread {
        /// Name of the thread.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "configuration: {error}"),
            Self::Descriptors { call, source } => {
                write!(f, "descriptors of a group: {call}: {source}")
            }
            Self::Thread { name, source } => write!(f, "thread {name}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Descriptors { source, .. } | Self::Thread { source, .. } => Some(source),
        }
    }
}
