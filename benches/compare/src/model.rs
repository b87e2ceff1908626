//! What a server would do on a machine that is not here: a simulation of threads, queues and cores.
//!
//! ```text
//!                     queue                thread of that queue, on a core
//!   client ──────▶ ▢▢▢▢▢▢▢▢ ── batch ──▶ poll │ job │ job │ job ──┬──▶ next queue of its route
//!     ▲                      one at a time:        ▲              │
//!     │                      `take` each         cost           ▼
//!     └───────────────────── think, network ◀──────────────────  answer
//! ```
//!
//! - [`sim`] knows nothing of servers: queues, threads that serve them, cores that threads need, and
//!   the time that everything takes. Its tests compare it with what queueing theory knows exactly.
//! - [`shapes`] builds the architectures of it: a loop for each core, groups of workers, loops that hand
//!   over to workers, a thread for each session.
//! - [`costs`] are the times, each with where it comes from.
//!
//! Times are nanoseconds of simulated time. The same seed gives the same numbers.

pub(crate) mod costs;
mod dice;
pub(crate) mod fit;
pub(crate) mod measure;
pub(crate) mod shapes;
pub(crate) mod sim;
pub(crate) mod system;
#[cfg(test)]
mod tests;
