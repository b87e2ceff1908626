//! The simulation: one event after the other, in the order of their times.
//!
//! ```text
//!                     queue                thread of that queue, on a core
//!   client ──────▶ ▢▢▢▢▢▢▢▢ ── batch ──▶ poll │ job │ job │ job ──▶ answer
//!     ▲                      one at a time:        ▲                  │
//!     │                      `take` each         cost                 │
//!     └───────────────────── think, network ◀─────────────────────────┘
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hdrhistogram::Histogram;

/// Queues, the threads that serve them, and clients.
#[derive(Clone, Debug)]
pub struct System {
    pub cores: usize,
    pub queues: Vec<Queue>,
    /// Queue that each thread serves.
    pub threads: Vec<usize>,
    /// Queue of each client's requests.
    pub clients: Vec<usize>,
    /// CPU time of a request.
    pub cost: u64,
    /// Mean time, exponentially distributed, after which a client asks again.
    pub think: u64,
    /// Part of each request's cost that is random, exponentially distributed: 0 to 1.
    pub variation: f64,
    /// Chance that a request takes longer, and its further cost.
    pub burn: Option<(f64, u64)>,
}

/// Jobs that wait for the threads of this queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    /// Jobs that a thread takes at a time.
    pub batch: usize,
    /// CPU time of one taking.
    pub poll: u64,
    /// Time for each job in which no other thread takes from this queue.
    pub take: u64,
    /// CPU time of a batch from which on the thread that took it wakes another one to take meanwhile.
    /// Without it, one thread takes at a time.
    pub wakes_next: Option<u64>,
    /// Time from the first job for sleeping threads until one of them is ready to run.
    pub wake_delay: u64,
    /// CPU time of the thread that is woken.
    pub resume: u64,
    /// Time between two checks of the watchdog. A thread that has finished nothing between them loses
    /// its batch and its turn to take. Until it is done, all threads take, one job at a time.
    pub watchdog_tick: Option<u64>,
}

/// Observations after the warm-up.
#[derive(Clone, Debug)]
pub struct Seen {
    pub requests: u64,
    pub seconds: f64,
    /// CPU time per request.
    pub cpu: f64,
    /// Nanoseconds.
    pub latencies: Histogram<u64>,
}

/// Least requests and nanoseconds to simulate. A quarter of it comes before, and is not counted.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub requests: u64,
    pub nanos: u64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    client: usize,
    asked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask(usize),
    /// A woken thread wants a core.
    Ready(usize),
    Done(usize),
    /// A look at a thread, if it is still at that job.
    Look(usize, u64),
}

#[derive(Clone, Debug, Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    sleepers: Vec<usize>,
    takers: usize,
    stuck: usize,
    free_at: u64,
}

#[derive(Clone, Debug, Default)]
struct ThreadState {
    batch: VecDeque<Job>,
    job: Option<Job>,
    jobs: u64,
    on_core_since: u64,
    /// CPU time to spend before the next job.
    debt: u64,
    takes: bool,
    stuck: bool,
}

/// CPU time of a thread before other ready threads have their turn.
const SLICE: u64 = 3_000_000;
/// Latencies beyond are counted as this.
const MOST: u64 = 60_000_000_000;

struct Simulation<'a> {
    system: &'a System,
    now: u64,
    /// Events of the same time are in the order of their numbers.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    queues: Vec<QueueState>,
    threads: Vec<ThreadState>,
    idle_cores: usize,
    ready: VecDeque<usize>,
    busy: u64,
    random: fastrand::Rng,
    finished: u64,
    warm: bool,
    latencies: Histogram<u64>,
}

pub fn simulate(system: &System, seed: u64, length: Length) -> Seen {
    let mut run = Simulation::new(system, seed);
    run.run_for(Length { requests: length.requests / 4, nanos: length.nanos / 4 });
    let began = run.now;
    run.warm = true;
    run.busy = 0;
    run.run_for(length);
    Seen {
        requests: run.finished,
        seconds: (run.now - began) as f64 / 1e9,
        cpu: run.busy as f64 / run.finished as f64,
        latencies: run.latencies,
    }
}

impl Seen {
    pub fn throughput(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub fn p99(&self) -> f64 {
        self.latencies.value_at_quantile(0.99) as f64
    }
}

impl<'a> Simulation<'a> {
    fn new(system: &'a System, seed: u64) -> Self {
        let mut queues = vec![QueueState::default(); system.queues.len()];
        for (thread, &place) in system.threads.iter().enumerate() {
            queues[place].sleepers.push(thread);
        }
        let mut run = Self {
            system,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            queues,
            threads: vec![ThreadState::default(); system.threads.len()],
            idle_cores: system.cores,
            ready: VecDeque::new(),
            busy: 0,
            random: fastrand::Rng::with_seed(seed),
            finished: 0,
            warm: false,
            latencies: Histogram::new_with_max(MOST, 3).expect("three digits are allowed"),
        };
        (0..system.clients.len()).for_each(|client| run.think(client));
        run
    }

    fn run_for(&mut self, length: Length) {
        self.finished = 0;
        let end = self.now + length.nanos;
        while self.finished < length.requests || self.now < end {
            let Reverse((time, _, event)) = self.events.pop().expect("clients ask for ever");
            self.now = time;
            match event {
                Event::Ask(client) => self.ask(client),
                Event::Ready(thread) => self.ready(thread),
                Event::Done(thread) => self.done(thread),
                Event::Look(thread, job) => self.look(thread, job),
            }
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((time, self.scheduled, event)));
    }

    fn think(&mut self, client: usize) {
        let time = self.exponential(self.system.think);
        self.at(self.now + time, Event::Ask(client));
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.random.f64()).ln() * mean as f64).round() as u64
    }

    fn ask(&mut self, client: usize) {
        let place = self.system.clients[client];
        self.queues[place].jobs.push_back(Job { client, asked: self.now });
        self.wake(place);
    }

    /// Returns true if a thread may take besides this number of others.
    fn may_take(&self, place: usize, others: usize) -> bool {
        let shared = self.system.queues[place].wakes_next.is_some();
        others == 0 || shared || self.queues[place].stuck > 0
    }

    /// Wakes a thread for a job if no other takes, or if one is stuck.
    fn wake(&mut self, place: usize) {
        let queue = &self.queues[place];
        if !queue.jobs.is_empty() && (queue.takers == 0 || queue.stuck > 0) {
            self.wake_sleeper(place);
        }
    }

    fn wake_sleeper(&mut self, place: usize) {
        let spec = self.system.queues[place];
        let queue = &mut self.queues[place];
        let Some(thread) = queue.sleepers.pop() else { return };
        queue.takers += 1;
        self.threads[thread].takes = true;
        self.threads[thread].debt += spec.resume;
        self.at(self.now + spec.wake_delay, Event::Ready(thread));
    }

    /// Gives a thread a core, or a place among those that wait for one.
    fn ready(&mut self, thread: usize) {
        if self.idle_cores == 0 {
            return self.ready.push_back(thread);
        }
        self.idle_cores -= 1;
        self.run_on_core(thread);
    }

    fn run_on_core(&mut self, thread: usize) {
        self.threads[thread].on_core_since = self.now;
        self.next(thread);
    }

    /// Gives a core that became free to the first waiting thread.
    fn leave_core(&mut self) {
        match self.ready.pop_front() {
            Some(next) => self.run_on_core(next),
            None => self.idle_cores += 1,
        }
    }

    /// Lets a thread that has a core begin its next job, or sleep.
    fn next(&mut self, thread: usize) {
        let place = self.system.threads[thread];
        if self.threads[thread].batch.is_empty() && !self.take_batch(thread) {
            self.queues[place].sleepers.push(thread);
            return self.leave_core();
        }
        let state = &mut self.threads[thread];
        let job = state.batch.pop_front().expect("a batch has jobs");
        let debt = std::mem::take(&mut state.debt);
        let varying = (self.system.cost as f64 * self.system.variation) as u64;
        let mut cost = self.system.cost - varying + self.exponential(varying);
        if let Some((chance, burn)) = self.system.burn
            && self.random.f64() < chance
        {
            cost += burn;
            if let Some(tick) = self.system.queues[place].watchdog_tick {
                // The first of the two looks is up to a tick away.
                let until = debt + tick + (tick as f64 * self.random.f64()) as u64;
                let look = Event::Look(thread, self.threads[thread].jobs);
                self.at(self.now + until, look);
            }
        }
        self.busy += debt + cost;
        self.threads[thread].job = Some(job);
        self.at(self.now + debt + cost, Event::Done(thread));
    }

    /// Returns false if there is no job that this thread may take.
    fn take_batch(&mut self, thread: usize) -> bool {
        let place = self.system.threads[thread];
        let spec = self.system.queues[place];
        let others = self.queues[place].takers - usize::from(self.threads[thread].takes);
        let may_take = self.may_take(place, others);
        let queue = &mut self.queues[place];
        let state = &mut self.threads[thread];
        let count = queue.jobs.len().min(if queue.stuck > 0 { 1 } else { spec.batch });
        state.takes = count > 0 && may_take;
        queue.takers = others + usize::from(state.takes);
        if !state.takes {
            return false;
        }
        state.batch.extend(queue.jobs.drain(..count));
        // One thread at a time takes.
        queue.free_at = queue.free_at.max(self.now) + spec.take * count as u64;
        state.debt += spec.poll + queue.free_at - self.now;
        let lasts = self.system.cost * count as u64;
        if spec.wakes_next.is_some_and(|least| lasts >= least) {
            self.threads[thread].takes = false;
            self.queues[place].takers -= 1;
            // It no longer counts as taking, so a new job may wake a thread, too.
            self.wake_sleeper(place);
        } else {
            self.wake(place);
        }
        true
    }

    fn done(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.jobs += 1;
        let job = state.job.take().expect("it was at work");
        if std::mem::take(&mut state.stuck) {
            self.queues[self.system.threads[thread]].stuck -= 1;
        }
        self.finished += 1;
        if self.warm {
            self.latencies.saturating_record(self.now - job.asked);
        }
        match self.system.think {
            0 => self.ask(job.client),
            _ => self.think(job.client),
        }
        if self.now - self.threads[thread].on_core_since > SLICE && !self.ready.is_empty() {
            self.ready.push_back(thread);
            self.leave_core();
        } else {
            self.next(thread);
        }
    }

    /// Takes the jobs from a stuck thread that others could do.
    fn look(&mut self, thread: usize, job: u64) {
        if self.threads[thread].jobs != job {
            return;
        }
        let place = self.system.threads[thread];
        if self.queues[place].sleepers.is_empty() {
            // Without an idle thread, the jobs would only be queued again.
            let tick = self.system.queues[place].watchdog_tick.expect("it had one before");
            return self.at(self.now + tick, Event::Look(thread, job));
        }
        let (queue, state) = (&mut self.queues[place], &mut self.threads[thread]);
        state.stuck = true;
        queue.stuck += 1;
        queue.takers -= usize::from(std::mem::take(&mut state.takes));
        while let Some(job) = state.batch.pop_back() {
            queue.jobs.push_front(job);
        }
        for _ in 0..self.queues[place].jobs.len() {
            self.wake(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One queue and threads with a core each, which all take; a job takes 1 µs.
    fn station(threads: usize, clients: usize, think: u64, variation: f64) -> System {
        System {
            cores: threads,
            queues: vec![Queue { batch: 1, wakes_next: Some(0), ..Queue::default() }],
            threads: vec![0; threads],
            clients: vec![0; clients],
            cost: 1_000,
            think,
            variation,
            burn: None,
        }
    }

    fn run(system: &System) -> Seen {
        simulate(system, 1, Length { requests: 100_000, nanos: 0 })
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64, tolerance: f64) {
        let error = (found / expected - 1.0).abs();
        assert!(error < tolerance, "{found} is not {expected}");
    }

    #[test]
    fn one_server_with_many_clients_that_rarely_ask_waits_as_m_m_1() {
        let load = 0.7;
        let clients = 1_000;
        let think = (f64::from(clients) * 1_000.0 / load) as u64;
        let seen = run(&station(1, clients as usize, think, 1.0));
        assert_near(seen.latencies.mean(), 1_000.0 / (1.0 - load), 0.06);
        // An exponential distribution: the last percent begins at ln 100 means.
        assert_near(seen.p99(), 100_f64.ln() * 1_000.0 / (1.0 - load), 0.1);
    }

    #[test]
    fn a_closed_loop_is_a_birth_death_process() {
        for (servers, think, clients) in [(1, 5_000.0, 12), (4, 2_000.0, 12)] {
            let (mut weight, mut total, mut busy) = (1.0, 1.0, 0.0);
            for present in 1..=clients {
                let at_work = f64::from(present.min(servers));
                weight *= f64::from(clients - present + 1) / think / (at_work / 1_000.0);
                total += weight;
                busy += at_work * weight;
            }
            let seen = run(&station(servers as usize, clients as usize, think as u64, 1.0));
            assert_near(seen.throughput() / 1e9, busy / total / 1_000.0, 0.01);
            // Little's law: clients are at the server, or think.
            let present = seen.throughput() / 1e9 * (seen.latencies.mean() + think);
            assert_near(present, f64::from(clients), 0.01);
        }
    }

    #[test]
    fn no_core_rests_while_a_thread_is_ready() {
        // More threads than cores, each with a queue that never runs dry.
        let mut system = station(1, 24, 0, 1.0);
        system.cores = 2;
        system.queues = vec![system.queues[0]; 3];
        system.threads = vec![0, 1, 2];
        system.clients = (0..24).map(|client| client % 3).collect();
        let seen = run(&system);
        assert_near(seen.throughput() * seen.cpu / 1e9, 2.0, 0.001);
    }

    #[test]
    fn exclusive_time_polls_and_wake_ups_cost_what_they_should() {
        let mut system = station(8, 64, 0, 0.0);
        system.queues[0].take = 250;
        assert_near(run(&system).throughput(), 4e6, 0.001);

        let mut system = station(1, 16, 0, 0.0);
        system.queues[0] = Queue { batch: 16, poll: 1_600, ..system.queues[0] };
        assert_near(run(&system).cpu, 1_100.0, 0.01);
        system.queues[0].batch = 1;
        assert_near(run(&system).cpu, 2_600.0, 0.01);

        let mut system = station(1, 1, 10_000, 0.0);
        system.queues[0] = Queue { wake_delay: 5_000, resume: 500, ..system.queues[0] };
        let seen = run(&system);
        assert_eq!(seen.cpu, 1_500.0);
        assert_eq!((seen.latencies.min(), seen.p99()), (6_500, 6_503.0));
    }

    #[test]
    fn a_thread_with_a_long_batch_wakes_the_next_one() {
        let mut system = station(4, 64, 0, 0.0);
        system.queues[0] = Queue { batch: 4, wakes_next: None, ..system.queues[0] };
        assert_near(run(&system).throughput(), 1e6, 0.001);
        system.queues[0].wakes_next = Some(4_001);
        assert_near(run(&system).throughput(), 1e6, 0.001);
        system.queues[0].wakes_next = Some(4_000);
        assert_near(run(&system).throughput(), 4e6, 0.001);
    }

    #[test]
    fn the_watchdog_frees_the_jobs_behind_a_burner() {
        let mut system = station(4, 64, 100_000, 0.0);
        system.queues[0] = Queue { batch: 16, wakes_next: None, ..system.queues[0] };
        system.burn = Some((0.001, 5_000_000));
        let alone = run(&system).p99();
        system.queues[0].watchdog_tick = Some(500_000);
        let freed = run(&system).p99();
        assert!(alone > 4e6 && 3.0 * freed < alone, "{alone} {freed}");
    }
}
