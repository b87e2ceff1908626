//! Costs from what was measured of two servers: on one CPU, with one connection and with many.
//!
//! With one connection each request finds its server asleep: what that costs more than a request
//! among many is going to sleep and getting up.

use super::costs::{Cost, Costs};
use super::measure::Micro;

/// Of one server on one CPU. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fitted {
    /// CPU time per request with one connection, and with many.
    pub(crate) cpu_of_one: f64,
    pub(crate) cpu_of_many: f64,
    /// The same of the load generator.
    pub(crate) client_of_one: f64,
    pub(crate) client_of_many: f64,
    /// Median latency with one connection.
    pub(crate) latency_of_one: f64,
}

/// Nobody can measure this on a machine of two CPUs: a middle between nothing and one percent.
const CONTENTION: f64 = 0.002;
/// Beside what is constant: interrupts, misses of the caches.
const VARIATION: f64 = 0.3;
const EVENTS_OF_A_LOOP: f64 = 64.0;
const EVENTS_OF_A_WORKER: f64 = 16.0;
const EVENTS_OF_A_CLIENT: f64 = 256.0;

pub(crate) fn fit(bare: Fitted, group: Fitted, micro: Micro) -> Costs {
    let Micro { poll, event, .. } = micro;
    // A batch shares its poll.
    let request = |cpu: f64, batch: f64| (cpu - event - poll / batch).max(0.0);
    let resume = |cpu: f64, request: f64| (cpu - request - event - poll).max(0.0);
    let bare_request = request(bare.cpu_of_many, EVENTS_OF_A_LOOP);
    let group_request = request(group.cpu_of_many, EVENTS_OF_A_WORKER);
    let client = request(bare.client_of_many, EVENTS_OF_A_CLIENT);
    // There and back, somebody has to wake up twice.
    let delay = (bare.latency_of_one - bare.cpu_of_one - bare.client_of_one).max(0.0) / 2.0;
    let one = "measured: CPU time with 1 connection, less that with many";
    let many = "measured: CPU time with many connections, less poll and event";
    Costs {
        request: Cost::new(bare_request, &format!("limit:cpus=1, {many}")),
        group_request: Cost::new(group_request, &format!("epoll-group:cpus=1, {many}")),
        poll: Cost::new(poll, "measured here: epoll_wait that finds nothing"),
        event: Cost::new(event, "measured here: epoll_wait that finds 16 sockets, each"),
        resume: Cost::new(resume(bare.cpu_of_one, bare_request), &format!("limit:cpus=1, {one}")),
        group_resume: Cost::new(
            resume(group.cpu_of_one, group_request),
            &format!("epoll-group:cpus=1, {one}"),
        ),
        delay: Cost::new(
            delay,
            "limit:cpus=1, measured: half of the median latency with 1 connection, less CPU times",
        ),
        hand_over: Cost::new(
            micro.hand_over,
            "measured here: push and pop by two threads at once (`queue.rs` of the benches)",
        ),
        wake: Cost::new(
            micro.wake_up / 2.0,
            "measured here: half of the CPU time of two threads that wake each other in turn",
        ),
        woken: Cost::new(micro.wake_up / 2.0, "the other half"),
        client: Cost::new(client, &format!("load beside limit:cpus=1, {many}")),
        client_resume: Cost::new(
            resume(bare.client_of_one, client),
            &format!("load beside limit:cpus=1, {one}"),
        ),
        contention: Cost::new(CONTENTION, "assumed; see what it changes below"),
        variation: Cost::new(VARIATION, "assumed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fit_gives_back_what_was_put_in() {
        let micro = Micro { poll: 640.0, event: 100.0, hand_over: 50.0, wake_up: 4_000.0 };
        // 5 µs for a request, 3 µs to sleep and get up, 10 µs until awake; the client 4 and 2 µs.
        let bare = Fitted {
            cpu_of_one: 8_740.0,
            cpu_of_many: 5_110.0,
            client_of_one: 6_740.0,
            client_of_many: 4_102.5,
            latency_of_one: 35_480.0,
        };
        let group = Fitted { cpu_of_one: 9_840.0, cpu_of_many: 6_140.0, ..bare };
        let costs = fit(bare, group, micro);
        let near = |cost: &Cost, expected: f64| {
            assert!((cost.value - expected).abs() < 1e-6, "{cost:?} is not {expected}");
        };
        near(&costs.request, 5_000.0);
        near(&costs.resume, 3_000.0);
        near(&costs.group_request, 6_000.0);
        near(&costs.group_resume, 3_100.0);
        near(&costs.client, 4_000.0);
        near(&costs.client_resume, 2_000.0);
        near(&costs.delay, 10_000.0);
    }
}
