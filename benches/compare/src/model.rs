//! A simulation of servers on machines that are not here: threads, queues and cores.
//!
//! ```text
//!                     queue                thread of that queue, on a core
//!   client ──────▶ ▢▢▢▢▢▢▢▢ ── batch ──▶ poll │ job │ job │ job ──▶ answer
//!     ▲                      one at a time:        ▲                  │
//!     │                      `take` each         cost                 │
//!     └───────────────────── think, network ◀─────────────────────────┘
//! ```
//!
//! [`sim`] knows nothing of servers: queues, threads that serve them, cores that threads need, and times.
//! [`shapes`] builds the architectures of it. Times are nanoseconds of simulated time, and the same seed
//! gives the same numbers.

pub mod shapes;
pub mod sim;
