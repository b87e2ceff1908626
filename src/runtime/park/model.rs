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

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Demand, Park, Rest, Wake};
use crate::runtime::end::{End, LEAVE_WHEN_EMPTY, RUN};
use crate::runtime::queue::TaskQueue;
use crate::runtime::seat::SeatState;
use crate::sync::mutant::{explore, explore_up_to, mutant, mutants};

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
    workers: usize,
    park: Park,
    queue: TaskQueue<Task>,
    epoll: Epoll,
    end: End,
    /// Things that were begun or swept.
    begun: AtomicUsize,
}

impl Group {
    fn new(workers: usize, capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            workers,
            park: Park::new(),
            queue: TaskQueue::new(capacity),
            epoll: Epoll::default(),
            end: End::new(),
            begun: AtomicUsize::new(0),
        })
    }

    fn push(&self, task: Task) {
        let _ = self.queue.push(task);
        self.wake_one();
        if self.end.is_over() {
            self.sweep();
        }
    }

    fn sweep(&self) {
        while self.queue.pop().is_some() {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wake_one(&self) {
        match self.park.wake() {
            None => {}
            Some(Wake::Sleeper) => self.park.post(),
            Some(Wake::Waiter) => self.epoll.add(Edge::EventFd),
        }
    }

    fn stop(&self) {
        self.end.advance(LEAVE_WHEN_EMPTY);
        for _ in 0..mutant!(self.workers, StopPostsNobody => 0) {
            self.park.post();
        }
        self.epoll.add(Edge::EventFd);
    }

    fn stopping(&self) -> bool {
        self.end.stage() != RUN
    }
}

fn start_workers(group: &Arc<Group>, demands: &[Demand]) -> Vec<thread::JoinHandle<()>> {
    let start = |demand: &Demand| {
        let group = Arc::clone(group);
        let mut worker = Worker { group, demand: *demand, has_permit: false };
        thread::spawn(move || drop(worker.run()))
    };
    demands.iter().map(start).collect()
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
        group.end.enter();
        loop {
            // 1.
            while let Some(task) = group.queue.pop() {
                self.start(task)?;
                // As if `tasks_per_poll` were one.
                self.poll(None)?;
            }
            // 2.
            if group.stopping() && group.queue.is_empty() {
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
                    // It does not look for ever: that is up to the mode.
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
        if group.end.leave() {
            group.sweep();
        }
        Ok(())
    }

    fn poll(&mut self, rest: Option<Rest>) -> Result<(), Gone> {
        let edge = self.group.epoll.wait(rest.is_some());
        if let Some(rest) = rest {
            self.group.park.rise(rest);
        }
        if edge == Some(Edge::EventFd) {
            self.group.park.end_waking();
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
            self.group.park.wants_poller(self.demand) && mutant!(true, PermitLeftUnclaimed => false)
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
fn pushes(demands: [Demand; 2], capacity: usize, tasks: &'static [Task]) {
    explore(move || {
        let group = Group::new(2, capacity);
        let workers = start_workers(&group, &demands);
        for task in tasks {
            group.push(*task);
        }
        join(workers);
        assert_eq!(group.begun.load(Ordering::Relaxed), tasks.len());
    });
}

const TWO: &[Task] = &[Task::Stuck, Task::Stuck];
const THREE: &[Task] = &[Task::Quick, Task::Stuck, Task::Stuck];

#[derive(Clone, Copy)]
enum Last {
    Event,
    Task,
}

/// A connection has something, then another one, or a task is pushed. No handler returns: who takes
/// the first gives the permit back, and somebody else has to be there for the last.
fn polling_goes_on(demands: [Demand; 2], last: Last) {
    explore(move || {
        let group = Group::new(2, 2);
        let workers = start_workers(&group, &demands);
        group.epoll.add(Edge::Conn);
        match last {
            Last::Event => group.epoll.add(Edge::Conn),
            Last::Task => group.push(Task::Stuck),
        }
        join(workers);
        assert_eq!(group.begun.load(Ordering::Relaxed), 2);
    });
}

/// A lookout finds a worker stuck that holds the permit, and goes to rest at this moment after all.
/// That it completed nothing since the last look is taken for granted.
fn permit_is_taken_from_the_stuck() {
    explore(|| {
        let park = Arc::new(Park::new());
        let seat = Arc::new(SeatState::default());
        let first = park.rest(false, CALM);
        park.rise(first);
        seat.run(true);
        let sleeping = park.rest(false, CALM);
        let (park_2, seat_2) = (Arc::clone(&park), Arc::clone(&seat));
        let stuck = thread::spawn(move || {
            let has_permit = seat_2.rest();
            park_2.rest(has_permit, CALM)
        });
        let taken = seat.runs() && seat.take_permit();
        let mine = taken.then(|| {
            park.rise(sleeping);
            park.rest(true, CALM)
        });
        let theirs = stuck.join().expect("no panic");
        let waits = [mine, Some(theirs)].map(|rest| rest == Some(Rest::Wait));
        // One that looks while the other waits would do so without end.
        assert!(waits[0] != waits[1] && mine != Some(Rest::Look), "one waits and the other sleeps");
        assert_eq!(park.word().pollers(), 1);
    });
}

/// Workers that come to rest, or rest, or run the one task, are told to stop.
fn stop<const N: usize>(demands: [Demand; N], tasks: &'static [Task]) {
    // Three workers have too many interleavings for more.
    let most = if N > 2 { 1 } else { usize::MAX };
    explore_up_to(most, move || {
        let group = Group::new(N, 2);
        let threads = start_workers(&group, &demands);
        for task in tasks {
            group.push(*task);
        }
        group.stop();
        join(threads);
        assert_eq!(group.begun.load(Ordering::Relaxed), tasks.len());
        assert_eq!((group.park.resting(), group.park.word().pollers()), (0, 0));
    });
}

/// A task is pushed while the workers leave: one of them runs it, or the last one or the pusher sweeps
/// it out of the queue.
fn push_at_the_end<const N: usize>(demands: [Demand; N]) {
    explore_up_to(if N > 1 { 2 } else { usize::MAX }, move || {
        let group = Group::new(N, 2);
        let workers = start_workers(&group, &demands);
        let here = Arc::clone(&group);
        let pusher = thread::spawn(move || here.push(Task::Quick));
        group.stop();
        join(workers);
        pusher.join().expect("no panic");
        assert_eq!(group.begun.load(Ordering::Relaxed), 1, "a task is left behind");
    });
}

#[test]
fn push_at_the_end_one_worker() {
    push_at_the_end([CALM]);
}

#[test]
fn push_at_the_end_two_workers() {
    push_at_the_end([CALM; 2]);
}

#[test]
fn two_pushes_calm() {
    pushes([CALM; 2], 2, TWO);
}

#[test]
fn two_pushes_open() {
    pushes([OPEN; 2], 2, TWO);
}

#[test]
fn two_pushes_busy() {
    pushes([BUSY; 2], 2, TWO);
}

#[test]
fn two_pushes_of_which_one_overflows() {
    pushes([CALM; 2], 1, TWO);
}

#[test]
fn three_pushes_and_a_look_in_between() {
    pushes([CALM; 2], 3, THREE);
}

#[test]
fn two_pushes_while_the_mode_changes() {
    pushes([CALM, OPEN], 2, TWO);
}

#[test]
fn polling_goes_on_while_the_mode_changes() {
    polling_goes_on([OPEN, CALM], Last::Event);
}

#[test]
fn an_event_and_a_push() {
    polling_goes_on([CALM; 2], Last::Task);
}

#[test]
fn polling_goes_on_calm() {
    polling_goes_on([CALM; 2], Last::Event);
}

#[test]
fn polling_goes_on_open() {
    polling_goes_on([OPEN; 2], Last::Event);
}

#[test]
fn permit_of_the_stuck() {
    permit_is_taken_from_the_stuck();
}

#[test]
fn stop_calm() {
    stop([CALM; 2], &[Task::Quick]);
}

#[test]
fn stop_calm_three_workers() {
    stop([CALM; 3], &[]);
}

#[test]
fn stop_open() {
    stop([OPEN; 2], &[Task::Quick]);
}

mutants! {
    wake_without_fence: WakeWithoutFence, pushes([CALM; 2], 2, TWO), "deadlock";
    rest_without_fence: RestWithoutFence, pushes([CALM; 2], 2, TWO), "deadlock";
    rise_without_fence: RiseWithoutFence, pushes([CALM; 2], 2, TWO), "deadlock";
    rise_that_keeps_the_wake_up: RiseKeepsWakeUp, pushes([CALM; 2], 2, TWO), "deadlock";
    rest_without_look: RestWithoutLook, pushes([CALM; 2], 2, TWO), "deadlock";
    start_without_waking: NoWakeBeforeStart, pushes([CALM; 2], 2, TWO), "deadlock";
    edge_that_a_look_swallows: EdgeKeepsWakeUp, pushes([BUSY; 2], 2, TWO), "deadlock";
    permit_that_nobody_claims: PermitLeftUnclaimed, polling_goes_on([CALM; 2], Last::Event), "deadlock";
    permit_that_a_resting_one_shows: RestingShowsPermit, permit_is_taken_from_the_stuck(), "one waits and the other sleeps";
    stop_without_posts: StopPostsNobody, stop([CALM; 2], &[]), "deadlock";
    stop_not_passed_on: StopNotPassedOn, stop([OPEN; 2], &[]), "deadlock";
    end_without_fence: EndWithoutFence, push_at_the_end([CALM]), "a task is left behind";
}
