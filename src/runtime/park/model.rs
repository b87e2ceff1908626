//! Loom models of waking. [`Park`] and [`TaskQueue`] are the shipped code. The worker of the model
//! makes the calls of `worker.rs` in the same order. Its epoll is a list of edges.
//!
//! A lost wake-up shows as a deadlock. A worker of a model leaves when a handler "never returns", so
//! all workers end if no wake-up is lost.
//!
//! Left out: timers; the demand of a group, and when it has threads to spare; and the ticks of the
//! watchdog, because no time passes in a model. What the watchdog does to a stuck worker has a model of
//! its own. The model starts no thread in place of a worker that waits: that worker plays the new one
//! too.

use std::collections::VecDeque;

use loom::sync::atomic::{AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Demand, Park, Rest, Wake};
use crate::runtime::end::{End, LEAVE_WHEN_EMPTY, RUN};
use crate::runtime::queue::TaskQueue;
use crate::runtime::seat::SeatState;
use crate::sync::mutant::{explore, explore_up_to, mutant, mutants};

/// Handlers are quick: one worker waits in epoll, the other sleeps.
const CALM: Demand = Demand { pollers: 1, all_wait: false };
/// Batches are full: one worker waits, the other looks.
const BUSY: Demand = Demand { pollers: 2, all_wait: false };
/// Handlers are slow: both workers wait.
const OPEN: Demand = Demand { pollers: 2, all_wait: true };

/// Another worker, which runs a handler, holds the only permit.
const TAKEN: Demand = Demand { pollers: 0, all_wait: false };

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Quick,
    /// Its handler never returns.
    Stuck,
    /// Like `Stuck`, but the task was known to be quick, and its handler announces a wait.
    Stalls,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    EventFd,
    /// Edge of a connection, and the task that handles it.
    Conn(Task),
}

/// Edge-triggered: an edge is in the list once, and only one of the workers that ask gets it.
#[derive(Default)]
struct Epoll {
    edges: Mutex<VecDeque<Edge>>,
    more: Condvar,
}

impl Epoll {
    fn add(&self, edge: Edge) {
        let mut edges = self.edges.lock().expect("no panic");
        if edge != Edge::EventFd || !edges.contains(&edge) {
            edges.push_back(edge);
        }
        self.more.notify_one();
    }

    /// Returns at most one event.
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
    run_queues: Vec<TaskQueue<Task>>,
    epoll: Epoll,
    end: End,
    /// Number of workers that run or could run something.
    free: AtomicUsize,
    /// Number of tasks and events that were begun, or swept.
    begun: AtomicUsize,
    /// Count for the test, with a notification for each task or event that is begun. `None` if the test
    /// does not wait for it.
    told: Option<(Mutex<usize>, Condvar)>,
}

impl Group {
    fn new(workers: usize, capacity: usize) -> Arc<Self> {
        Arc::new(Self::with(workers, capacity, None))
    }

    fn with_two_lanes(workers: usize, capacity: usize) -> Arc<Self> {
        let mut group = Self::with(workers, capacity, None);
        group.run_queues.push(TaskQueue::new(capacity));
        Arc::new(group)
    }

    fn that_tells(workers: usize, capacity: usize) -> Arc<Self> {
        let told = Some((Mutex::new(0), Condvar::new()));
        Arc::new(Self::with(workers, capacity, told))
    }

    fn with(workers: usize, capacity: usize, told: Option<(Mutex<usize>, Condvar)>) -> Self {
        Self {
            workers,
            park: Park::new(),
            run_queues: vec![TaskQueue::new(capacity)],
            epoll: Epoll::default(),
            end: End::new(),
            free: AtomicUsize::new(workers),
            begun: AtomicUsize::new(0),
            told,
        }
    }

    fn tell(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        if let Some((begun, changed)) = &self.told {
            *begun.lock().expect("no panic") += 1;
            changed.notify_one();
        }
    }

    fn wait_until_begun(&self, count: usize) {
        let (begun, changed) = self.told.as_ref().expect("a group that tells");
        let mut begun = begun.lock().expect("no panic");
        while *begun < count {
            begun = changed.wait(begun).expect("no panic");
        }
    }

    fn push(&self, task: Task) {
        self.push_to(0, task);
    }

    fn push_to(&self, lane: usize, task: Task) {
        let _ = self.run_queues[lane].push(task);
        self.wake_one();
        if self.end.is_over() {
            self.sweep();
        }
    }

    fn pop(&self) -> Option<Task> {
        self.run_queues.iter().find_map(TaskQueue::pop)
    }

    fn is_empty(&self) -> bool {
        self.run_queues.iter().all(TaskQueue::is_empty)
    }

    fn sweep(&self) {
        while self.pop().is_some() {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wake_one(&self) {
        self.make(self.park.wake());
    }

    fn wake_poller(&self, demand: Demand) {
        if self.park.wants_poller(demand) && mutant!(true, PermitLeftUnclaimed => false) {
            self.make(self.park.wake());
        }
    }

    fn wake_for_what_waits(&self, demand: Demand) {
        if self.is_empty() {
            self.wake_poller(demand);
        } else {
            self.wake_one();
        }
    }

    fn make(&self, wake: Option<Wake>) {
        match wake {
            None => {}
            Some(Wake::Waiter) => self.epoll.add(Edge::EventFd),
            Some(Wake::Sleeper) => self.park.post(),
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
        let mut worker = Worker::new(group, *demand);
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
    /// Demand of the group.
    demand: Demand,
    has_permit: bool,
    leaves: Leaves,
}

/// Time at which a worker finds that it is surplus.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Never,
    AtOnce,
    /// When it has run something and holds a permit.
    WithPermit,
}

/// This worker is in a handler that never returns.
struct Gone;

impl Worker {
    fn new(group: Arc<Group>, demand: Demand) -> Self {
        Self { group, demand, has_permit: false, leaves: Leaves::Never }
    }

    /// `Worker::run` in `worker.rs`.
    fn run(&mut self) -> Result<(), Gone> {
        let group = Arc::clone(&self.group);
        group.end.enter();
        let left = self.serve()?;
        if !left && mutant!(true, StopNotPassedOn => false) {
            group.epoll.add(Edge::EventFd);
        }
        if group.end.leave() && !left {
            group.sweep();
        }
        Ok(())
    }

    /// `Worker::serve`, with its step numbers. Returns true if the worker left while the others go on.
    fn serve(&mut self) -> Result<bool, Gone> {
        let group = Arc::clone(&self.group);
        let left = loop {
            // 1.
            while let Some(task) = group.pop() {
                self.start(task)?;
                // As if `tasks_per_poll` were one.
                self.poll(None)?;
            }
            // 2.
            if group.stopping() && group.is_empty() {
                break false;
            }
            if self.is_surplus() {
                break true;
            }
            // 3.
            let rest = group.park.rest(std::mem::take(&mut self.has_permit), self.demand);
            self.has_permit = matches!(rest, Rest::Wait | Rest::Look);
            let looks_again = mutant!(true, RestWithoutLook => false);
            if looks_again && (!group.is_empty() || group.stopping()) {
                group.park.rise(rest);
                continue;
            }
            group.wake_poller(self.demand);
            // 4.
            match rest {
                Rest::Wait => self.poll(Some(rest))?,
                Rest::Look => {
                    self.poll(None)?;
                    // The worker does not look for ever: the mode ends that.
                    self.demand = CALM;
                }
                Rest::Sleep => {
                    let _ = group.park.sleep(None);
                    group.park.rise(rest);
                }
            }
        };
        if std::mem::take(&mut self.has_permit) && mutant!(true, LeaveKeepsPermit => false) {
            group.park.give_permit();
        }
        mutant!(group.wake_for_what_waits(self.demand), LeaveWakesNobody => ());
        Ok(left)
    }

    /// `Worker::is_surplus`, with `Group::may_leave`. The worker asks once.
    fn is_surplus(&mut self) -> bool {
        let group = &self.group;
        let asks = match self.leaves {
            Leaves::Never => false,
            Leaves::AtOnce => true,
            Leaves::WithPermit => self.has_permit,
        };
        if !asks || group.free.load(Ordering::SeqCst) <= 1 {
            return false;
        }
        self.leaves = Leaves::Never;
        group.free.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let nobody_else = || group.free.load(Ordering::SeqCst) == 0;
        // A waiting task is found in the queue. A waiting event is not: the count of free workers must
        // tell that no other worker would take it.
        let seen = mutant!(nobody_else(), LeaveUnseen => false) || !group.is_empty();
        let stays = mutant!(seen, LeaveWithoutLook => false);
        if stays {
            group.free.fetch_add(1, Ordering::SeqCst);
        }
        !stays
    }

    fn poll(&mut self, rest: Option<Rest>) -> Result<(), Gone> {
        let edge = self.group.epoll.wait(rest.is_some());
        if let Some(rest) = rest {
            self.group.park.rise(rest);
        }
        if edge == Some(Edge::EventFd) {
            self.group.park.end_waking();
        }
        if let Some(Edge::Conn(task)) = edge { self.start(task) } else { Ok(()) }
    }

    fn start(&mut self, task: Task) -> Result<(), Gone> {
        if task == Task::Stuck && std::mem::take(&mut self.has_permit) {
            self.group.park.give_permit();
        }
        mutant!(self.group.wake_for_what_waits(self.demand), NoWakeBeforeStart => ());
        self.group.tell();
        match task {
            Task::Quick => Ok(()),
            Task::Stuck => Err(Gone),
            Task::Stalls => self.stall(),
        }
    }

    /// `Stalls::begin`, and the thread that is started if no other worker is free.
    fn stall(&mut self) -> Result<(), Gone> {
        let free = self.group.free.fetch_sub(1, Ordering::SeqCst) - 1;
        if std::mem::take(&mut self.has_permit) {
            self.group.park.give_permit();
        }
        mutant!(self.group.wake_for_what_waits(self.demand), StallWakesNobody => ());
        if free == 0 {
            self.group.free.fetch_add(1, Ordering::SeqCst);
            drop(Self::new(Arc::clone(&self.group), self.demand).run());
        }
        Err(Gone)
    }
}

/// Tasks are pushed while both workers come to rest, or rest.
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

/// Two tasks are pushed to different run_queues while both workers come to rest, or rest. The lock of the
/// lane from which a worker takes one task does not order its look at the other lane.
fn pushes_to_two_lanes(demands: [Demand; 2]) {
    explore(move || {
        let group = Group::with_two_lanes(2, 2);
        let workers = start_workers(&group, &demands);
        for lane in 0..2 {
            group.push_to(lane, Task::Stuck);
        }
        join(workers);
        assert_eq!(group.begun.load(Ordering::Relaxed), 2);
    });
}

const TWO: &[Task] = &[Task::Stuck, Task::Stuck];
const THREE: &[Task] = &[Task::Quick, Task::Stuck, Task::Stuck];

#[derive(Clone, Copy)]
enum Last {
    Event,
    Task,
}

impl Last {
    fn happens(self, group: &Group, task: Task) {
        match self {
            Self::Event => group.epoll.add(Edge::Conn(task)),
            Self::Task => group.push(task),
        }
    }
}

/// A connection has an event. Then another connection has one, or a task is pushed. No handler returns.
/// The worker that takes the first event gives the permit back, at once or when it waits. The other
/// worker must take the last event or task.
fn polling_goes_on(demands: [Demand; 2], first: Task, last: Last) {
    explore(move || {
        let group = Group::new(2, 2);
        let workers = start_workers(&group, &demands);
        group.epoll.add(Edge::Conn(first));
        last.happens(&group, Task::Stuck);
        join(workers);
        assert_eq!(group.begun.load(Ordering::Relaxed), 2);
    });
}

/// Starts two workers. The first one leaves, the other stays.
fn one_leaves(group: &Arc<Group>, when: Leaves) -> Vec<thread::JoinHandle<()>> {
    // The worker that leaves is not the last one of the group.
    group.end.enter();
    let mut leaving = Worker::new(Arc::clone(group), CALM);
    leaving.leaves = when;
    let mut threads = vec![thread::spawn(move || drop(leaving.run()))];
    threads.extend(start_workers(group, &[CALM]));
    threads
}

/// A worker leaves because it found another one free, while that one begins to wait. The last event or
/// task must find a worker.
fn leaving_beside_a_stall(last: Last) {
    explore(move || {
        let group = Group::that_tells(2, 2);
        let threads = one_leaves(&group, Leaves::AtOnce);
        group.push(Task::Stalls);
        last.happens(&group, Task::Stalls);
        group.wait_until_begun(2);
        group.stop();
        join(threads);
    });
}

/// A worker that has a permit leaves. Another worker goes on in its place.
fn leaving_with_the_permit(last: Last) {
    explore(move || {
        let group = Group::that_tells(2, 2);
        let threads = one_leaves(&group, Leaves::WithPermit);
        group.epoll.add(Edge::Conn(Task::Quick));
        last.happens(&group, Task::Stalls);
        group.wait_until_begun(2);
        group.stop();
        join(threads);
    });
}

/// The watchdog finds that the worker with the permit is stuck. At the same moment that worker goes to
/// rest. Another worker sleeps. The model assumes that the first worker completed nothing since the
/// last tick.
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
        let woken = relieve(&park, &seat);
        let mine = woken.then(|| {
            park.rise(sleeping);
            park.rest(false, CALM)
        });
        let theirs = stuck.join().expect("no panic");
        let waits = [mine, Some(theirs)].map(|rest| rest == Some(Rest::Wait));
        // If a worker looked while the other waits, it would do so without end.
        assert!(waits[0] != waits[1] && mine != Some(Rest::Look), "one waits and the other sleeps");
        assert_eq!(park.word().pollers(), 1);
    });
}

/// `Group::relieve`, for the permit only. Returns true if it woke a sleeper.
fn relieve(park: &Park, seat: &SeatState) -> bool {
    if !seat.runs() || !seat.take_permit() {
        return false;
    }
    park.give_permit();
    wake_sleeper(park)
}

/// `Group::wake_poller` while no worker waits in epoll. Returns true if it woke a sleeper.
fn wake_sleeper(park: &Park) -> bool {
    let wakes = park.wants_poller(CALM) && park.wake() == Some(Wake::Sleeper);
    if wakes {
        park.post();
    }
    wakes
}

/// The worker with the permit begins to wait while the watchdog finds it stuck. Another worker sleeps.
/// The thread that gives the permit back wakes the sleeper, which then polls. The model assumes that
/// the first worker completed nothing since the last tick.
fn permit_of_one_that_waits() {
    explore(|| {
        let park = Arc::new(Park::new());
        let seat = Arc::new(SeatState::default());
        let first = park.rest(false, CALM);
        park.rise(first);
        seat.run(true);
        let sleeping = park.rest(false, CALM);
        let (park_2, seat_2) = (Arc::clone(&park), Arc::clone(&seat));
        let waits = thread::spawn(move || {
            if seat_2.stall() {
                park_2.give_permit();
            }
            wake_sleeper(&park_2);
            // The wait is over.
            seat_2.go_on();
        });
        let _ = relieve(&park, &seat);
        let _ = park.sleep(None);
        park.rise(sleeping);
        let mine = park.rest(false, CALM);
        waits.join().expect("no panic");
        assert_eq!((mine, park.word().pollers()), (Rest::Wait, 1), "one polls, with one permit");
    });
}

/// Workers are told to stop while they come to rest, rest, or run the one task.
fn stop<const N: usize>(demands: [Demand; N], tasks: &'static [Task]) {
    // Three workers have too many interleavings for more preemptions.
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

/// A task is pushed while the workers leave. One of them runs it, or the last worker or the pusher
/// sweeps the queue.
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
fn two_pushes_to_two_lanes() {
    pushes_to_two_lanes([CALM; 2]);
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
fn two_pushes_of_which_one_waits() {
    pushes([CALM; 2], 2, &[Task::Stalls, Task::Stuck]);
}

#[test]
fn polling_goes_on_while_the_mode_changes() {
    polling_goes_on([OPEN, CALM], Task::Stuck, Last::Event);
}

#[test]
fn an_event_and_a_push() {
    polling_goes_on([CALM; 2], Task::Stuck, Last::Task);
}

#[test]
fn polling_goes_on_calm() {
    polling_goes_on([CALM; 2], Task::Stuck, Last::Event);
}

#[test]
fn polling_goes_on_open() {
    polling_goes_on([OPEN; 2], Task::Stuck, Last::Event);
}

#[test]
fn polling_goes_on_while_one_waits() {
    polling_goes_on([CALM; 2], Task::Stalls, Last::Event);
}

#[test]
fn an_event_that_waits_and_a_push() {
    polling_goes_on([CALM; 2], Task::Stalls, Last::Task);
}

#[test]
fn one_leaves_while_the_other_begins_to_wait_and_an_event_comes() {
    leaving_beside_a_stall(Last::Event);
}

#[test]
fn one_leaves_while_the_other_begins_to_wait_and_a_task_comes() {
    leaving_beside_a_stall(Last::Task);
}

#[test]
fn one_with_the_permit_leaves_and_an_event_comes() {
    leaving_with_the_permit(Last::Event);
}

#[test]
fn one_with_the_permit_leaves_and_a_task_comes() {
    leaving_with_the_permit(Last::Task);
}

#[test]
fn permit_of_a_stall() {
    permit_of_one_that_waits();
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
fn stop_while_both_sleep() {
    stop([TAKEN; 2], &[Task::Quick]);
}

#[test]
fn stop_open() {
    stop([OPEN; 2], &[Task::Quick]);
}

mutants! {
    wake_without_fence: WakeWithoutFence, pushes([CALM; 2], 2, TWO), "deadlock";
    rest_without_fence: RestWithoutFence, pushes([CALM; 2], 2, TWO), "deadlock";
    rise_without_fence_between_lanes: RiseWithoutFence, pushes_to_two_lanes([CALM; 2]), "deadlock";
    length_written_without_the_lock: LengthWrittenUnlocked, pushes([CALM; 2], 2, TWO), "deadlock";
    rise_that_keeps_the_wake_up: RiseKeepsWakeUp, pushes([CALM; 2], 2, TWO), "deadlock";
    rest_without_look: RestWithoutLook, pushes([CALM; 2], 2, TWO), "deadlock";
    start_without_waking: NoWakeBeforeStart, pushes([CALM; 2], 2, TWO), "deadlock";
    edge_that_a_look_swallows: EdgeKeepsWakeUp, pushes([BUSY; 2], 2, TWO), "deadlock";
    permit_that_nobody_claims: PermitLeftUnclaimed, polling_goes_on([CALM; 2], Task::Stuck, Last::Event), "deadlock";
    permit_that_one_shows_who_waits: StallShowsPermit, permit_of_one_that_waits(), "one polls, with one permit";
    stall_that_wakes_nobody: StallWakesNobody, polling_goes_on([CALM; 2], Task::Stalls, Last::Event), "deadlock";
    leave_beside_a_stall: LeaveUnseen, leaving_beside_a_stall(Last::Event), "deadlock";
    leave_without_look: LeaveWithoutLook, leaving_beside_a_stall(Last::Task), "deadlock";
    leave_with_the_permit: LeaveKeepsPermit, leaving_with_the_permit(Last::Event), "deadlock";
    leave_without_waking: LeaveWakesNobody, leaving_with_the_permit(Last::Event), "deadlock";
    permit_that_a_resting_one_shows: RestingShowsPermit, permit_is_taken_from_the_stuck(), "one waits and the other sleeps";
    stop_without_posts: StopPostsNobody, stop([TAKEN; 2], &[]), "deadlock";
    stop_not_passed_on: StopNotPassedOn, stop([OPEN; 2], &[]), "deadlock";
    end_without_fence: EndWithoutFence, push_at_the_end([CALM]), "a task is left behind";
}
