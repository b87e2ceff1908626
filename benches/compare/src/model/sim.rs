//! The simulation: one event after the other, in the order of their times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hdrhistogram::Histogram;

use super::dice::Dice;
use super::system::{Arrivals, System};

/// What was seen after the warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// CPU time per request of the threads of the first so many queues.
    pub(crate) cpu: Vec<f64>,
    /// Nanoseconds.
    pub(crate) latencies: Histogram<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    client: usize,
    hop: usize,
    asked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask(usize),
    /// A woken thread wants a core.
    Ready(usize),
    Done(usize),
    /// At a thread, if it is still at that job.
    Look(usize, u64),
}

#[derive(Debug, Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    sleepers: Vec<usize>,
    takers: usize,
    stuck: usize,
    free_at: u64,
}

#[derive(Debug, Default)]
struct ThreadState {
    batch: VecDeque<Job>,
    job: Option<Job>,
    jobs: u64,
    core: u32,
    on_core_since: u64,
    /// CPU time to spend before the next job.
    debt: u64,
    takes: bool,
    stuck: bool,
}

/// What a thread has before others that are ready have their turn.
const SLICE: u64 = 3_000_000;
/// Latencies beyond are counted as this.
const MOST: u64 = 60_000_000_000;

#[derive(Debug)]
struct Simulation<'a> {
    system: &'a System,
    now: u64,
    /// Events of the same time in the order of their numbers.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    queues: Vec<QueueState>,
    threads: Vec<ThreadState>,
    idle_cores: u128,
    ready: VecDeque<usize>,
    busy: Vec<u64>,
    dice: Dice,
    finished: u64,
    warm: bool,
    latencies: Histogram<u64>,
}

/// How long is simulated: so many requests, and so many nanoseconds. A quarter of it goes before, and
/// is not counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) requests: u64,
    pub(crate) nanos: u64,
}

pub(crate) fn simulate(system: &System, seed: u64, length: Length) -> Seen {
    let mut run = Simulation::new(system, seed);
    run.run_for(Length { requests: length.requests / 4, nanos: length.nanos / 4 });
    let began = run.now;
    run.warm = true;
    run.busy.fill(0);
    run.run_for(length);
    let per_request = |busy: &u64| *busy as f64 / run.finished as f64;
    Seen {
        requests: run.finished,
        seconds: (run.now - began) as f64 / 1e9,
        cpu: run.busy.iter().map(per_request).collect(),
        latencies: run.latencies,
    }
}

impl Seen {
    pub(crate) fn throughput(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(crate) fn p99(&self) -> f64 {
        self.latencies.value_at_quantile(0.99) as f64
    }
}

impl<'a> Simulation<'a> {
    fn new(system: &'a System, seed: u64) -> Self {
        assert!(system.cores <= u128::BITS, "a bit for each core");
        let mut queues: Vec<_> = system.queues.iter().map(|_| QueueState::default()).collect();
        for (thread, spec) in system.threads.iter().enumerate() {
            queues[spec.queue].sleepers.push(thread);
        }
        let mut run = Self {
            system,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            queues,
            threads: system.threads.iter().map(|_| ThreadState::default()).collect(),
            idle_cores: u128::MAX >> (u128::BITS - system.cores),
            ready: VecDeque::new(),
            busy: vec![0; system.queues.len()],
            dice: Dice::new(seed),
            finished: 0,
            warm: false,
            latencies: Histogram::new_with_max(MOST, 3).expect("three digits are allowed"),
        };
        match system.arrivals {
            Arrivals::Closed { .. } => {
                (0..system.routes.len()).for_each(|client| run.think(client))
            }
            Arrivals::Open { .. } => run.think(0),
        }
        run
    }

    fn run_for(&mut self, length: Length) {
        self.finished = 0;
        let end = self.now + length.nanos;
        while self.finished < length.requests || self.now < end {
            let Reverse((time, _, event)) = self.events.pop().expect("clients ask for ever");
            self.now = time;
            match event {
                Event::Ask(client) => self.ask(client, None),
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
        let (Arrivals::Closed { think: mean } | Arrivals::Open { between: mean }) =
            self.system.arrivals;
        let time = self.dice.exponential(mean);
        self.at(self.now + time, Event::Ask(client));
    }

    fn ask(&mut self, client: usize, by: Option<usize>) {
        self.put(Job { client, hop: 0, asked: self.now }, by);
        if let Arrivals::Open { .. } = self.system.arrivals {
            let next = self.dice.below(self.system.routes.len());
            self.think(next);
        }
    }

    /// Puts a job into the queue of its hop.
    fn put(&mut self, job: Job, by: Option<usize>) {
        let place = self.system.routes[job.client][job.hop].queue;
        if let Some(thread) = by {
            let time = self.system.queues[place].put;
            self.threads[thread].debt += self.exclusively(place, time);
        }
        self.queues[place].jobs.push_back(job);
        self.wake(place, by);
    }

    /// How long it takes to have had a queue for oneself for so long.
    fn exclusively(&mut self, place: usize, time: u64) -> u64 {
        if time == 0 {
            return 0;
        }
        let queue = &mut self.queues[place];
        queue.free_at = queue.free_at.max(self.now) + time;
        queue.free_at - self.now
    }

    fn most_takers(&self, place: usize) -> usize {
        let stuck = self.queues[place].stuck;
        if stuck > 0 { usize::MAX } else { self.system.queues[place].pollers }
    }

    /// Wakes a thread if there is something that it may take.
    fn wake(&mut self, place: usize, by: Option<usize>) {
        let spec = self.system.queues[place];
        let most = self.most_takers(place);
        let queue = &mut self.queues[place];
        let enough = if queue.takers == 0 || queue.stuck > 0 { 1 } else { spec.crowd };
        if queue.jobs.len() < enough || queue.takers >= most {
            return;
        }
        let Some(thread) = queue.sleepers.pop() else { return };
        queue.takers += 1;
        self.threads[thread].takes = true;
        self.threads[thread].debt += spec.resume;
        let waker = by.map_or(0, |_| spec.wake);
        if let Some(by) = by {
            self.threads[by].debt += waker;
        }
        self.at(self.now + waker + spec.wake_delay, Event::Ready(thread));
    }

    /// Gives a thread a core, or a place among those that wait for one.
    fn ready(&mut self, thread: usize) {
        let free = self.idle_cores & self.system.threads[thread].cores;
        if free == 0 {
            self.ready.push_back(thread);
        } else {
            // Who may run anywhere leaves the first cores to those who may not.
            self.run_on(thread, u128::BITS - 1 - free.leading_zeros());
        }
    }

    fn run_on(&mut self, thread: usize, core: u32) {
        self.idle_cores &= !(1 << core);
        self.threads[thread].core = core;
        self.threads[thread].on_core_since = self.now;
        self.next(thread);
    }

    /// Gives the core of a thread to the first one that waits for it.
    fn leave_core(&mut self, thread: usize) {
        let core = self.threads[thread].core;
        self.idle_cores |= 1 << core;
        if let Some(place) = self.waiting_for(core) {
            let next = self.ready.remove(place).expect("it was found there");
            self.run_on(next, core);
        }
    }

    fn waiting_for(&self, core: u32) -> Option<usize> {
        let may_run = |thread: &usize| self.system.threads[*thread].cores & (1 << core) != 0;
        self.ready.iter().position(may_run)
    }

    /// A thread that has a core begins its next job, or sleeps.
    fn next(&mut self, thread: usize) {
        if self.threads[thread].batch.is_empty() && !self.take_batch(thread) {
            let place = self.system.threads[thread].queue;
            self.queues[place].sleepers.push(thread);
            return self.leave_core(thread);
        }
        let place = self.system.threads[thread].queue;
        let state = &mut self.threads[thread];
        let job = state.batch.pop_front().expect("a batch has jobs");
        let debt = std::mem::take(&mut state.debt);
        let hop = self.system.routes[job.client][job.hop];
        let varying = hop.cost as f64 * self.system.variation;
        let mut cost = hop.cost - varying as u64 + self.dice.exponential(varying as u64);
        if let Some(burn) = self.system.burn
            && hop.handler
            && self.dice.chance() < burn.chance
        {
            cost += burn.cost;
            if let Some(tick) = self.system.queues[place].lookout {
                // The look that sees it begin is up to a tick away.
                let until = debt + tick + (tick as f64 * self.dice.chance()) as u64;
                let look = Event::Look(thread, self.threads[thread].jobs);
                self.at(self.now + until, look);
            }
        }
        self.busy[place] += debt + cost;
        self.threads[thread].job = Some(job);
        self.at(self.now + debt + cost, Event::Done(thread));
    }

    /// `false`: there is nothing that this thread may take.
    fn take_batch(&mut self, thread: usize) -> bool {
        let place = self.system.threads[thread].queue;
        let spec = self.system.queues[place];
        let most = self.most_takers(place);
        let queue = &mut self.queues[place];
        let state = &mut self.threads[thread];
        let count = queue.jobs.len().min(if queue.stuck > 0 { 1 } else { spec.batch });
        let others = queue.takers - usize::from(state.takes);
        if count == 0 || others >= most {
            queue.takers = others;
            state.takes = false;
            return false;
        }
        queue.takers = others + 1;
        state.takes = true;
        state.batch.extend(queue.jobs.drain(..count));
        let time = spec.poll + self.exclusively(place, spec.take * count as u64);
        self.threads[thread].debt += time;
        self.wake(place, Some(thread));
        true
    }

    fn done(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.jobs += 1;
        let job = state.job.take().expect("it was at work");
        if std::mem::take(&mut state.stuck) {
            self.queues[self.system.threads[thread].queue].stuck -= 1;
        }
        if job.hop + 1 < self.system.routes[job.client].len() {
            self.put(Job { hop: job.hop + 1, ..job }, Some(thread));
        } else {
            self.answered(job, thread);
        }
        let state = &self.threads[thread];
        if self.now - state.on_core_since > SLICE && self.waiting_for(state.core).is_some() {
            self.ready.push_back(thread);
            self.leave_core(thread);
        } else {
            self.next(thread);
        }
    }

    fn answered(&mut self, job: Job, by: usize) {
        self.finished += 1;
        if self.warm {
            self.latencies.saturating_record(self.now - job.asked);
        }
        match self.system.arrivals {
            Arrivals::Closed { think: 0 } => self.ask(job.client, Some(by)),
            Arrivals::Closed { .. } => self.think(job.client),
            Arrivals::Open { .. } => {}
        }
    }

    /// Takes from a thread that is stuck what others could do.
    fn look(&mut self, thread: usize, job: u64) {
        if self.threads[thread].jobs != job {
            return;
        }
        let place = self.system.threads[thread].queue;
        let spec = self.system.queues[place];
        if self.queues[place].sleepers.is_empty() {
            // Nobody rests, nobody looks.
            let tick = spec.lookout.expect("it had one before");
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
            self.wake(place, None);
        }
    }
}
