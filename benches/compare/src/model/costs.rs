//! The times that the simulation takes for granted, each with where it comes from.

use serde::Serialize;

/// Nanoseconds, but for the contention.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Costs {
    /// CPU time of a bare loop for one request whose event it has: receive, handle, send.
    pub(crate) request: Cost,
    /// The same for a worker of a group: what the runtime does is in it.
    pub(crate) group_request: Cost,
    /// CPU time of one `epoll_wait`, whatever it finds.
    pub(crate) poll: Cost,
    /// Of each event that it finds: what only one thread at a time does with one epoll.
    pub(crate) event: Cost,
    /// CPU time of going to sleep in `epoll_wait` and getting up, for a loop.
    pub(crate) resume: Cost,
    /// The same for a group: permit, lookout and watchdog are in it.
    pub(crate) group_resume: Cost,
    /// From an event until the sleeper runs.
    pub(crate) delay: Cost,
    /// From the start of a push into a queue between threads until the pop by another thread has
    /// ended, with nobody asleep.
    pub(crate) hand_over: Cost,
    /// CPU time of waking a thread that sleeps on a condition variable, for who wakes.
    pub(crate) wake: Cost,
    /// The same for who is woken.
    pub(crate) woken: Cost,
    /// The load generator, where it is on the same machine.
    pub(crate) client: Cost,
    pub(crate) client_resume: Cost,
    /// What each further core adds to all costs, as a part of them: what cores share machine-wide.
    pub(crate) contention: Cost,
    /// The part of the cost of a request that varies from one to the next.
    pub(crate) variation: Cost,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cost {
    pub(crate) value: f64,
    pub(crate) source: String,
}

impl Cost {
    pub(crate) fn new(value: f64, source: &str) -> Self {
        Self { value, source: source.to_owned() }
    }
}

impl Costs {
    /// All of them, with names for the page.
    pub(crate) fn list(&self) -> [(&'static str, &Cost); 14] {
        [
            ("request, bare loop", &self.request),
            ("request, group", &self.group_request),
            ("one epoll_wait", &self.poll),
            ("each event of it, one thread at a time", &self.event),
            ("sleep and get up, bare loop", &self.resume),
            ("sleep and get up, group", &self.group_resume),
            ("from event to running", &self.delay),
            ("hand-over through a queue", &self.hand_over),
            ("wake by condition variable", &self.wake),
            ("woken by condition variable", &self.woken),
            ("request, load generator", &self.client),
            ("sleep and get up, load generator", &self.client_resume),
            ("added by each further core", &self.contention),
            ("part that varies", &self.variation),
        ]
    }

    /// A machine that this was developed on, in November 2026, rounded: for tests, and as a
    /// reference.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let cost = |value| Cost::new(value, "2 x AMD EPYC, virtual, November 2026");
        Self {
            request: cost(6_000.0),
            group_request: cost(6_000.0),
            poll: cost(400.0),
            event: cost(100.0),
            resume: cost(3_000.0),
            group_resume: cost(4_000.0),
            delay: cost(10_000.0),
            hand_over: cost(60.0),
            wake: cost(2_000.0),
            woken: cost(2_000.0),
            client: cost(4_000.0),
            client_resume: cost(3_000.0),
            contention: cost(0.0),
            variation: cost(0.3),
        }
    }
}
