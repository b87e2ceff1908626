//! draft
#[cfg(all(feature = "server", not(target_os = "linux")))]
compile_error!("epoll-group runs on Linux only: its feature `server` is built on epoll, eventfd and timerfd. The codec alone builds anywhere with `default-features = false`.");

pub mod codec;

#[cfg(all(feature = "server", target_os = "linux"))]
mod config;
#[cfg(all(feature = "server", target_os = "linux"))]
pub mod net;
#[cfg(all(feature = "server", target_os = "linux"))]
mod runtime;
#[cfg(all(feature = "server", target_os = "linux"))]
pub mod stats;
#[cfg(all(feature = "server", target_os = "linux"))]
mod sync;
#[cfg(all(feature = "server", target_os = "linux"))]
mod sys;

#[cfg(all(feature = "server", target_os = "linux"))]
pub use config::{Config, ConfigError};
#[cfg(all(feature = "server", target_os = "linux"))]
pub use runtime::{
    Builder, DrainReport, Handle, Interest, Readiness, Registration, Runtime, SpawnError, StartError,
    ThreadInfo, Timer,
};
