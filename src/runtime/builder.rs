//! [`Builder`]: from a configuration to running threads.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::thread;

use super::drain::{self, Exits};
use super::worker::Worker;
use super::{Group, Handle, Runtime, Shared, Usage, guard};
use crate::config::{Config, ConfigError};

/// Configures and starts a [`Runtime`].
#[derive(Default)]
pub struct Builder {
    config: Config,
    name: Option<String>,
    hooks: Hooks,
}

type Hook = Arc<dyn Fn(&ThreadInfo) + Send + Sync>;

#[derive(Clone, Default)]
struct Hooks {
    start: Option<Hook>,
    stop: Option<Hook>,
}

/// Says which thread a hook runs on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// Name of the thread, of which the kernel shows the first 15 bytes.
    pub name: String,
    /// Index of its group.
    pub group: usize,
    /// Index of the worker in its group.
    pub worker: usize,
}

impl Builder {
    /// Takes all tunables from `config`.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Number of groups, see [`Config::epoll_groups`].
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.config = self.config.epoll_groups(groups);
        self
    }

    /// Workers in each group, see [`Config::epoll_threads_per_group`].
    #[must_use]
    pub fn threads_per_group(mut self, threads: usize) -> Self {
        self.config = self.config.epoll_threads_per_group(threads);
        self
    }

    /// Prefix of thread names; `eg` by default, which makes `eg-0-3` of worker 3 in group 0.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Called on each thread before it works.
    #[must_use]
    pub fn on_thread_start(mut self, hook: impl Fn(&ThreadInfo) + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Arc::new(hook));
        self
    }

    /// Called on each thread after its last work.
    #[must_use]
    pub fn on_thread_stop(mut self, hook: impl Fn(&ThreadInfo) + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Arc::new(hook));
        self
    }

    /// Starts the threads. When this returns, all of them run.
    ///
    /// # Errors
    ///
    /// A tunable out of its range, or what the system says to new descriptors and threads. What was
    /// started is stopped again.
    pub fn start(self) -> Result<Runtime, StartError> {
        self.config.validate().map_err(StartError::Config)?;
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let threads = self.config.epoll_threads_per_group;
        let groups = match self.config.epoll_groups {
            0 => cpus.div_ceil(threads),
            groups => groups,
        };
        let pollers = match self.config.max_epoll_wait_total_threads {
            0 => threads,
            total => (total / groups).clamp(1, threads),
        };
        let prefix = self.name.as_deref().unwrap_or("eg");
        let config = Arc::new(self.config);
        let usage = Arc::new(Usage::default());
        let groups: Vec<Arc<Group>> = (0..groups)
            .map(|group| {
                let names = (0..threads).map(|worker| format!("{prefix}-{group}-{worker}"));
                let (config, usage) = (Arc::clone(&config), Arc::clone(&usage));
                let share = cpus.div_ceil(groups);
                Group::new(group, names.collect(), share, pollers, config, usage)
            })
            .collect::<io::Result<_>>()
            .map_err(StartError::Descriptors)?;
        let shared = Arc::new(Shared { groups, usage, config, next_group: AtomicUsize::new(0) });
        let mut runtime = Runtime { handle: Handle { shared }, threads: Some(Vec::new()) };
        start_threads(&mut runtime, &self.hooks)?;
        Ok(runtime)
    }
}

/// Adds the threads to the runtime one by one, so that dropping it stops those that run.
fn start_threads(runtime: &mut Runtime, hooks: &Hooks) -> Result<(), StartError> {
    let exits = Arc::new(Exits::default());
    let (ready, all_ready) = mpsc::channel();
    let groups = runtime.handle.shared.groups.clone();
    let threads = runtime.threads.get_or_insert_default();
    for group in groups {
        for (worker, seat) in group.seats.iter().enumerate() {
            let name = seat.name.clone();
            let info = ThreadInfo { name: name.clone(), group: group.index(), worker };
            let (group, hooks, ready) = (Arc::clone(&group), hooks.clone(), ready.clone());
            let left = Arc::new(AtomicBool::new(false));
            let exit = exits.enter(&left);
            let body = move || {
                let _exit = exit;
                run_hook(&group, hooks.start.as_ref(), &info);
                let _ = ready.send(());
                drop(ready);
                Worker::new(Arc::clone(&group), worker).run();
                run_hook(&group, hooks.stop.as_ref(), &info);
            };
            let handle = thread::Builder::new()
                .name(name.clone())
                .spawn(body)
                .map_err(|source| StartError::Thread { name: name.clone(), source })?;
            threads.push(drain::Thread { name, handle, exits: Arc::clone(&exits), left });
        }
    }
    drop(ready);
    all_ready.iter().for_each(drop);
    Ok(())
}

fn run_hook(group: &Group, hook: Option<&Hook>, info: &ThreadInfo) {
    if let Some(hook) = hook {
        guard(group, "thread hook", || hook(info));
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why a runtime did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A tunable is out of its range.
    Config(ConfigError),
    /// The system gave no descriptors for a group.
    Descriptors(io::Error),
    /// The system gave no thread.
    Thread {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "configuration: {error}"),
            Self::Descriptors(error) => write!(f, "descriptors of a group: {error}"),
            Self::Thread { name, source } => write!(f, "thread {name}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Descriptors(error) | Self::Thread { source: error, .. } => Some(error),
        }
    }
}
