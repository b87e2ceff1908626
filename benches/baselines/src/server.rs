//! [`Server`]: any of the servers that echo frames.

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use epoll_group::net::Listener;
use epoll_group::stats::Snapshot;
use epoll_group::{Config, Runtime};

use crate::protocol::Echo;
use crate::spec::{Kind, Setting, Spec};
use crate::{easy_async, easy_sync, frame_per_session, grpc_cq, loops, percona};
use crate::{thread_per_connection, tokio_tasks};

/// A running server. The library serves until this is dropped, the others until the process ends.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    library: Option<(Runtime, Listener, Echo)>,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// It cannot listen at the address, or cannot have its threads.
    pub fn start(spec: &Spec, address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let cpus = thread::available_parallelism()?.get();
        let setting = |setting| spec.setting(setting).unwrap_or(cpus);
        let threads = setting(Setting::Threads);
        let address = match spec.kind {
            Kind::Limit => loops::start(address, threads, loops::LIMIT)?,
            Kind::Uv => loops::start(address, threads, loops::UV)?,
            Kind::EasySync => easy_sync::start(address, threads)?,
            Kind::EasyAsync => easy_async::start(address, threads, setting(Setting::Workers))?,
            Kind::Percona => percona::start(address, setting(Setting::Groups))?,
            Kind::GrpcCq => grpc_cq::start(address, threads)?,
            Kind::ThreadPerConnection => thread_per_connection::start(address)?,
            Kind::ThreadPerSession => frame_per_session::start(address)?,
            Kind::Tokio => tokio_tasks::start(address, threads)?,
            Kind::EpollGroup => return epoll_group(spec, address),
        };
        Ok(Self { address, library: None })
    }

    /// Address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters of the library. `None` for the others.
    pub fn stats(&self) -> Option<Snapshot> {
        self.library.as_ref().map(|(runtime, ..)| runtime.stats())
    }

    /// Ends the library. Returns the number of frames that it has answered. `None` for the others.
    pub fn drain(self, deadline: Duration) -> Option<u64> {
        let (runtime, _listener, echo) = self.library?;
        // The load has closed its connections.
        let _ = runtime.drain(deadline);
        Some(echo.answered())
    }
}

/// The library with its defaults, but for the settings of the spec.
fn epoll_group(spec: &Spec, address: SocketAddr) -> Result<Server, Box<dyn Error>> {
    let mut config = Config::default();
    for &(setting, value) in &spec.settings {
        config = match setting {
            Setting::Threads => config.epoll_threads_per_group(value),
            Setting::Groups => config.epoll_groups(value),
            Setting::Events => config.epoll_events_per_thread(value),
            Setting::Pollers => config.max_epoll_wait_total_threads(value),
            Setting::TasksPerPoll => config.tasks_per_poll(value),
            Setting::ReadBudget => config.read_budget_bytes(value),
            Setting::Bind => config.auto_cpu_affinity(value > 0).multi_affinity_in_group(value > 1),
            Setting::Workers | Setting::Cpus => config,
        };
    }
    let runtime = Runtime::builder().config(config).name("echo").start()?;
    let echo = Echo::default();
    let listener = runtime.listen(address, echo.clone())?;
    let address = listener.local_addr().to_string().parse()?;
    Ok(Server { address, library: Some((runtime, listener, echo)) })
}
