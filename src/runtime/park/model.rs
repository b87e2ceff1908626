//! Loom models of waking: [`Park`] and [`TaskQueue`] as shipped, below a worker that makes the calls of
//! `worker.rs` in the same order, and above an epoll that is a list of edges.
//!
//! A lost wake-up shows as a deadlock: the workers of a model leave when a handler "never returns", so
//! when nothing is lost all of them end.
//!
//! Left out: the lookout's time-out (nobody's time is ever over in a model; what it does when it finds
//! somebody stuck is a model of its own), how a group comes to its demand, timers, and the ring of the
//! queue (see `queue.rs`).

use std::collections::VecDeque;

use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Demand, Park, Rest, Wake};
use crate::runtime::queue::TaskQueue;
use crate::sync::mutant::{Mutant, making, mutant};

const WORKERS: usize = 2;
/// Handlers are quick: one waits in epoll, the other sleeps.
const CALM: Demand = Demand { pollers: 1, all_wait: false };
/// Batches come full: one waits, the other looks.
const BUSY: Demand = Demand { pollers: 2, all_wait: false };
/// Handlers are slow: both wait.
const OPEN: Demand = Demand { pollers: 2, all_wait: true };

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Quick,
    /// Its handler never returns.
    Stuck,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    EventFd,
    /// Of a connection whose handler never returns.
    Conn,
}

/// Edge-triggered: an edge is in the list once and goes to one of those who ask.
#[derive(Default)]
struct Epoll {
    edges: Mutex<VecDeque<Edge>>,
    more: Condvar,
}

impl Epoll {
    fn add(&self, edge: Edge) {
        let mut edges = self.edges.lock().expect("no panic");
        if edge == Edge::Conn || !edges.contains(&edge) {
            edges.push_back(edge);
        }
        self.more.notify_one();
    }

    /// One event per wait.
    fn wait(&self, block: bool) -> Option<Edge> {
        let mut edges = self.edges.lock().expect("no panic");
        while block && edges.is_empty() {
            edges = self.more.wait(edges).expect("no panic");
        }
        let edge = edges.pop_front();
        if !edges.is_empty() {
            self.more.notify_one();
        }
        edge
    }
}

struct Group {
    park: Park,
    queue: TaskQueue<Task>,
    epoll: Epoll,
    stop: AtomicU8,
    begun: AtomicUsize,
}

impl Group {
    fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            park: Park::new(),
            queue: TaskQueue::new(capacity),
            epoll: Epoll::default(),
            stop: AtomicU8::new(0),
            begun: AtomicUsize::new(0),
        })
    }

    fn push(&self, task: Task) {
        let _ = self.queue.push(task);
        self.wake_one();
    }

    fn wake_one(&self) {
        match self.park.wake() {
            None => {}
            Some(Wake::Sleeper) => self.park.post(),
            Some(Wake::Waiter) => self.epoll.add(Edge::EventFd),
        }
    }

    fn stop(&self) {
        self.stop.fetch_max(1, Ordering::AcqRel);
        if mutant!(false, StopWakesOne => true) {
            return self.wake_one();
        }
        for _ in 0..WORKERS {
            self.park.post();
        }
        self.epoll.add(Edge::EventFd);
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire) != 0
    }

}

fn start_workers(group: &Arc<Group>, demand: Demand) -> Vec<thread::JoinHandle<()>> {
    let start = |_| {
        let mut worker = Worker { group: Arc::clone(group), demand, has_permit: false };
        thread::spawn(move || drop(worker.run()))
    };
    (0..WORKERS).map(start).collect()
}

fn join(workers: Vec<thread::JoinHandle<()>>) {
    for worker in workers {
        worker.join().expect("no panic");
    }
}

struct Worker {
    group: Arc<Group>,
    demand: Demand,
    has_permit: bool,
}

/// This worker is in a handler that never returns.
struct Gone;

impl Worker {
    /// `Worker::run` in `worker.rs`, with its numbers.
    fn run(&mut self) -> Result<(), Gone> {
        let group = Arc::clone(&self.group);
        loop {
            // 1.
            while let Some(task) = group.queue.pop() {
                self.start(task)?;
                // As if `tasks_per_poll` were one.
                self.poll(None)?;
            }
            // 2.
            if group.stopping() {
                break;
            }
            // 3.
            let rest = group.park.rest(std::mem::take(&mut self.has_permit), self.demand);
            self.has_permit = !matches!(rest, Rest::Sleep { .. });
            let looks_again = mutant!(true, RestWithoutLook => false);
            if looks_again && (!group.queue.is_empty() || group.stopping()) {
                group.park.rise(rest);
                continue;
            }
            if group.park.wants_poller(self.demand) {
                group.wake_one();
            }
            // 4.
            match rest {
                Rest::Wait => self.poll(Some(rest))?,
                Rest::Look => {
                    self.poll(None)?;
                    // Found or not, it does not look for ever.
                    self.demand = CALM;
                }
                Rest::Sleep { .. } => {
                    let _ = group.park.sleep(None);
                    group.park.rise(rest);
                }
            }
        }
        if std::mem::take(&mut self.has_permit) {
            group.park.give_permit();
        }
        if mutant!(true, StopNotPassedOn => false) {
            group.epoll.add(Edge::EventFd);
        }
        Ok(())
    }

    fn poll(&mut self, rest: Option<Rest>) -> Result<(), Gone> {
        let edge = self.group.epoll.wait(rest.is_some());
        match rest {
            Some(rest) => self.group.park.rise(rest),
            None if edge == Some(Edge::EventFd) => self.group.park.end_waking(),
            None => {}
        }
        if edge == Some(Edge::Conn) { self.start(Task::Stuck) } else { Ok(()) }
    }

    fn start(&mut self, task: Task) -> Result<(), Gone> {
        let quick = task == Task::Quick;
        if !quick && std::mem::take(&mut self.has_permit) {
            self.group.park.give_permit();
        }
        // `wake_for_what_waits`.
        let wants_poller = || {
            self.group.park.wants_poller(self.demand)
                && mutant!(true, PermitLeftUnclaimed => false)
        };
        if mutant!(true, NoWakeBeforeStart => false)
            && (!self.group.queue.is_empty() || wants_poller())
        {
            self.group.wake_one();
        }
        self.group.begun.fetch_add(1, Ordering::Relaxed);
        if quick { Ok(()) } else { Err(Gone) }
    }
}

/// Tasks that are pushed while both workers come to rest, or rest.
fn pushes(demand: Demand, capacity: usize, tasks: &'static [Task]) {
    loom::model(move || {
        let group = Group::new(capacity);
        let workers = start_workers(&group, demand);
        for task in tasks {
            group.push(*task);
        }
        join(workers);
        assert_eq!(group.begun.load(Ordering::Relaxed), tasks.len());
    });
}

const TWO: &[Task] = &[Task::Stuck, Task::Stuck];
const THREE: &[Task] = &[Task::Quick, Task::Stuck, Task::Stuck];

/// Two connections have something, and then a task is pushed: for two workers that is one too many,
/// so of the three things two are begun.
fn polling_goes_on(demand: Demand) {
    loom::model(move || {
        let group = Group::new(2);
        let workers = start_workers(&group, demand);
        group.epoll.add(Edge::Conn);
        group.epoll.add(Edge::Conn);
        join(workers);
        assert_eq!(group.begun.load(Ordering::Relaxed), 2);
    });
}

/// One that is stuck holds the permit; or it does no longer, and goes to rest at this moment.
///
/// `running` and `polls` are those of its seat. That nothing was completed since the last look is
/// taken for granted.
fn permit_is_taken_from_the_stuck() {
    loom::model(|| {
        let park = Arc::new(Park::new());
        let seat = Arc::new((AtomicBool::new(true), AtomicBool::new(true)));
        let first = park.rest(false, CALM);
        park.rise(first);
        let sleeping = park.rest(false, CALM);
        let (park_2, seat_2) = (Arc::clone(&park), Arc::clone(&seat));
        let stuck = thread::spawn(move || {
            let (running, polls) = &*seat_2;
            let has_permit = polls.swap(false, Ordering::AcqRel);
            let rest = park_2.rest(has_permit, CALM);
            if mutant!(false, WaiterShowsPermit => true) {
                polls.store(rest == Rest::Wait, Ordering::Release);
            }
            running.store(false, Ordering::Relaxed);
            rest
        });
        let (running, polls) = &*seat;
        let taken = running.load(Ordering::Relaxed) && polls.swap(false, Ordering::AcqRel);
        let mine = taken.then(|| {
            park.rise(sleeping);
            park.rest(true, CALM)
        });
        let theirs = stuck.join().expect("no panic");
        let waiting = [mine, Some(theirs)].iter().filter(|rest| **rest == Some(Rest::Wait)).count();
        assert_eq!(waiting, 1, "one waits, whoever it is");
        assert_ne!(mine, Some(Rest::Look), "it would look for ever");
        assert_eq!(park.word().pollers(), 1);
    });
}

/// Workers that come to rest, or rest, or run the one task, are told to stop.
fn stop(demand: Demand, tasks: &'static [Task]) {
    loom::model(move || {
        let group = Group::new(2);
        let workers = start_workers(&group, demand);
        for task in tasks {
            group.push(*task);
        }
        group.stop();
        join(workers);
        assert_eq!(group.begun.load(Ordering::Relaxed), tasks.len());
        assert_eq!((group.park.resting(), group.park.word().pollers()), (0, 0));
    });
}

#[test]
fn two_pushes_calm() {
    pushes(CALM, 2, TWO);
}

#[test]
fn two_pushes_open() {
    pushes(OPEN, 2, TWO);
}

#[test]
fn two_pushes_busy() {
    pushes(BUSY, 2, TWO);
}

#[test]
fn two_pushes_of_which_one_overflows() {
    pushes(CALM, 1, TWO);
}

#[test]
fn three_pushes_and_a_look_in_between() {
    pushes(CALM, 3, THREE);
}

#[test]
fn polling_goes_on_calm() {
    polling_goes_on(CALM);
}

#[test]
fn polling_goes_on_open() {
    polling_goes_on(OPEN);
}

#[test]
fn permit_of_the_stuck() {
    permit_is_taken_from_the_stuck();
}

#[test]
fn stop_calm() {
    stop(CALM, &[Task::Quick]);
}

#[test]
fn stop_open() {
    stop(OPEN, &[]);
}

#[test]
#[should_panic = "deadlock"]
fn wake_without_fence() {
    making(Mutant::WakeWithoutFence, || pushes(CALM, 2, TWO));
}

#[test]
#[should_panic = "deadlock"]
fn rest_without_fence() {
    making(Mutant::RestWithoutFence, || pushes(CALM, 2, TWO));
}

#[test]
#[should_panic = "deadlock"]
fn rise_without_fence() {
    making(Mutant::RiseWithoutFence, || pushes(CALM, 2, TWO));
}

#[test]
#[should_panic = "deadlock"]
fn rise_that_keeps_the_wake_up() {
    making(Mutant::RiseKeepsWakeUp, || pushes(OPEN, 2, TWO));
}

#[test]
#[should_panic = "deadlock"]
fn rest_without_look() {
    making(Mutant::RestWithoutLook, || pushes(CALM, 2, TWO));
}

#[test]
#[should_panic = "deadlock"]
fn start_without_waking() {
    making(Mutant::NoWakeBeforeStart, || pushes(CALM, 2, TWO));
}

#[test]
#[should_panic = "deadlock"]
fn edge_that_a_look_swallows() {
    making(Mutant::EdgeKeepsWakeUp, || pushes(BUSY, 2, TWO));
}

#[test]
#[should_panic = "deadlock"]
fn permit_that_nobody_claims() {
    making(Mutant::PermitLeftUnclaimed, || polling_goes_on(CALM));
}

#[test]
#[should_panic]
fn permit_that_a_waiter_shows() {
    making(Mutant::WaiterShowsPermit, permit_is_taken_from_the_stuck);
}

#[test]
#[should_panic = "deadlock"]
fn stop_that_wakes_one() {
    making(Mutant::StopWakesOne, || stop(CALM, &[]));
}

#[test]
#[should_panic = "deadlock"]
fn stop_not_passed_on() {
    making(Mutant::StopNotPassedOn, || stop(OPEN, &[]));
}
