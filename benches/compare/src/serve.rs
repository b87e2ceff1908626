//! The server half of this program: one of the servers, until standard input ends.
//!
//! Says `listening on ADDR` when it can be connected to. That its input ends is how the rig ends
//! it, and what happens when the rig itself is killed: no server outlives its rig.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use epoll_group::{Config, Runtime};

use super::affinity;
use super::grpc_cq::{self, Wake};
use super::load::raise_descriptor_limit;
use super::protocol::Echo;
use super::spec::{Kind, Setting, Spec};
use super::{easy_async, easy_sync, frame_per_session, limit, mio_loop, percona};
use super::{thread_per_connection, tokio_tasks, uv};

/// The rig has closed its connections by then: there is nothing to wait for.
pub(super) const DRAIN: Duration = Duration::from_secs(5);

/// A server that serves: the library as long as this lives, the others until the process ends.
pub(crate) struct Server {
    address: SocketAddr,
    library: Option<Library>,
}

struct Library {
    runtime: Runtime,
    echo: Echo,
}

pub(crate) fn run(
    spec: &Spec,
    address: SocketAddr,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    if let Some(cpus) = spec.setting(Setting::Cpus) {
        affinity::bind_to_first(cpus)?;
    }
    let server = Server::start(spec, address)?;
    announce_until_told(&server.address().to_string(), out)?;
    if let Some(Library { runtime, echo }) = server.library {
        let handle = runtime.handle();
        let report = runtime.drain(DRAIN);
        writeln!(out, "answered {}", echo.answered())?;
        writeln!(out, "{report}")?;
        writeln!(out, "{}", handle.stats())?;
    }
    Ok(())
}

impl Server {
    pub(crate) fn start(spec: &Spec, address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let cpus = thread::available_parallelism()?.get();
        let threads = spec.setting(Setting::Threads).unwrap_or(cpus);
        let address = match spec.kind {
            Kind::Limit => limit::start(address, threads)?,
            Kind::Mio => mio_loop::start(address, threads)?,
            Kind::Uv => uv::start(address, threads)?,
            Kind::EasySync => easy_sync::start(address, threads)?,
            Kind::EasyAsync => {
                let workers = spec.setting(Setting::Workers).unwrap_or(cpus);
                easy_async::start(address, threads, workers)?
            }
            Kind::Percona => {
                percona::start(address, spec.setting(Setting::Groups).unwrap_or(cpus))?
            }
            Kind::GrpcCq => grpc_cq::start(address, threads, Wake::All)?,
            Kind::GrpcCqRepaired => grpc_cq::start(address, threads, Wake::One)?,
            Kind::ThreadPerConnection => thread_per_connection::start(address)?,
            Kind::ThreadPerSession => frame_per_session::start(address)?,
            Kind::Tokio => tokio_tasks::start(address, threads)?,
            Kind::EpollGroup => return epoll_group(spec, address),
        };
        Ok(Self { address, library: None })
    }

    /// Where it can be connected to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The library as it comes, but for the settings that the spec names.
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
            Setting::Workers | Setting::Cpus => config,
        };
    }
    let runtime = Runtime::builder().config(config).name("echo").start()?;
    let echo = Echo::default();
    let listener = runtime.listen(address, echo.clone())?;
    let address = listener.local_addr().to_string().parse()?;
    Ok(Server { address, library: Some(Library { runtime, echo }) })
}

pub(crate) fn announce_until_told(
    address: &str,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    writeln!(out, "listening on {address}")?;
    out.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
