//! Locks for handlers: drop-in [`Mutex`], [`RwLock`] and [`Condvar`] that tell the runtime when
//! they really wait.
//!
//! Use them where a handler may wait for another handler: a lock that is held across a request, a
//! condition that another session brings about. The runtime then knows that the worker waits, and
//! starts another when too many do (see [`stall`](crate::stall)). For a lock that is held for some
//! instructions only, std's does as well; ours costs the same.
//!
//! ```
//! use std::sync::Arc;
//!
//! use epoll_group::Runtime;
//! use epoll_group::sync::{Condvar, Mutex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().start()?;
//! let gate = Arc::new((Mutex::new(false), Condvar::new()));
//! for _ in 0..3 {
//!     let gate = gate.clone();
//!     runtime.handle().spawn(move || {
//!         let open = gate.0.lock().expect("no panic");
//!         drop(gate.1.wait_while(open, |open| !*open));
//!     })?;
//! }
//! *gate.0.lock().expect("no panic") = true;
//! gate.1.notify_all();
//! # Ok(())
//! # }
//! ```
//!
//! On a thread that is no worker of a runtime they behave exactly like std's.
//!
//! A free lock costs as much as std's. If it is not free, a worker tries for about as long as std
//! spins, and only then announces the wait. Therefore a very short wait starts no thread.
#![allow(unsafe_code)]

#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
mod locks;
pub(crate) mod mutant;
pub(crate) mod payload;
#[cfg(feature = "server")]
pub(crate) mod runner;
pub(crate) mod shim;

#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub use locks::{Condvar, Mutex, RwLock};
