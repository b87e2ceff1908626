//! Loom models of the [`Runner`].
//!
//! The first model is receiving: notifiers with different marks, one of which queues. In the
//! second, a task goes back to the queue because of a mark that was left meanwhile. In the third a
//! run ends by a panic. The next two are the end of a connection, which waits for the end of its
//! requests. In the sixth an owner waits for one of two marks. In the seventh a run becomes urgent, as
//! when its connection changes its class. The last is sending: the order of
//! calls is that of `net`, reduced to a counter of bytes. The socket is a lock around its room, as in
//! the kernel. Senders hand over to a task after one round or two. The worker or the last thread runs
//! it.
//!
//! Left out: more than three threads, and more marks than threads.

use std::ops::ControlFlow;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{Bell, Ended, Marks, Runner, Running};
use crate::sync::mutant::{explore, mutants};

const MARKS: [Marks; 3] = [Marks::bit(0), Marks::bit(1), Marks::bit(2)];

/// Object that does some work for each mark that is left for it.
struct Thing {
    /// Number of times that each mark was taken.
    runner: Runner<[u32; 3]>,
    /// Work that happened before the mark was left.
    happened: [AtomicBool; 3],
}

impl Thing {
    fn notify(&self, n: usize) -> Option<Running<'_, [u32; 3]>> {
        self.happened[n].store(true, Ordering::Relaxed);
        self.runner.notify(MARKS[n])
    }

    fn run(&self, mut running: Running<'_, [u32; 3]>) {
        loop {
            let marks = running.take_marks();
            for (n, mark) in MARKS.into_iter().enumerate() {
                if marks.has(mark) {
                    assert!(self.happened[n].load(Ordering::Relaxed), "seen by who takes the mark");
                    running[n] += 1;
                }
            }
            match running.finish() {
                Some(again) => running = again,
                None => return,
            }
        }
    }
}

fn every_mark_is_taken_once() {
    explore(|| {
        let thing = Arc::new(Thing { runner: Runner::new([0; 3]), happened: Default::default() });
        let here = Arc::clone(&thing);
        let runs = thread::spawn(move || {
            if let Some(running) = here.notify(0) {
                here.run(running);
            }
        });
        let here = Arc::clone(&thing);
        let queues = thread::spawn(move || {
            let Some(mut running) = here.notify(1) else {
                return false;
            };
            // An owner without budget leaves its marks for the thread that resumes.
            let marks = running.take_marks();
            running.mark(marks);
            running.queue();
            true
        });
        if let Some(running) = thing.notify(2) {
            thing.run(running);
        }
        // The resuming thread may know of the queueing by the word alone.
        let resumed = thing.runner.resume().map(|running| thing.run(running)).is_some();
        let queued = queues.join().expect("no panic");
        if queued && !resumed {
            thing.run(thing.runner.resume().expect("it was queued"));
        }
        runs.join().expect("no panic");
        let running = thing.runner.notify(Marks::NONE).expect("idle at the end");
        assert_eq!(*running, [1; 3]);
        assert!(running.finish().is_none());
    });
}

/// An owner that finds a mark at its end queues. The thread that resumes sees the marks.
fn what_is_left_is_queued() {
    explore(|| {
        let thing = Arc::new(Thing { runner: Runner::new([0; 3]), happened: Default::default() });
        let here = Arc::clone(&thing);
        let task = thread::spawn(move || {
            let Some(mut running) = here.notify(0) else {
                return false;
            };
            let marks = running.take_marks();
            for (n, mark) in MARKS.into_iter().enumerate() {
                running[n] += u32::from(marks.has(mark));
            }
            running.finish_or_queue()
        });
        if let Some(running) = thing.notify(2) {
            thing.run(running);
        }
        if task.join().expect("no panic") {
            thing.run(thing.runner.resume().expect("it was queued"));
        }
        let running = thing.runner.notify(Marks::NONE).expect("idle at the end");
        assert_eq!(*running, [1, 0, 1]);
        assert!(running.finish().is_none());
    });
}

/// A run ends by a panic. Marks that were left meanwhile are there for the next run.
fn a_panic_lets_go() {
    explore(|| {
        let thing = Arc::new(Thing { runner: Runner::new([0; 3]), happened: Default::default() });
        let here = Arc::clone(&thing);
        let panics = thread::spawn(move || {
            if let Some(mut running) = here.notify(0) {
                running[0] += 1;
                drop(running);
            }
        });
        if let Some(running) = thing.notify(2) {
            thing.run(running);
        }
        panics.join().expect("no panic");
        let running = thing.runner.notify(Marks::NONE).expect("idle at the end");
        thing.run(running);
        let running = thing.runner.notify(Marks::NONE).expect("idle at the end");
        assert_eq!((running[0] > 0, running[2]), (true, 1), "a mark was lost");
        assert!(running.finish().is_none());
    });
}

const REQUEST: Marks = Marks::bit(0);
const END: Marks = Marks::bit(1);
const DONE: Marks = Marks::bit(2);

/// Connection that ends when its requests have been released.
struct Held {
    /// Number of times that the connection has ended.
    ended: Runner<u32>,
    /// Access by each request, and by the end.
    requests: [UnsafeCell<()>; 2],
}

impl Held {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ended: Runner::new(0),
            requests: [UnsafeCell::new(()), UnsafeCell::new(())],
        })
    }

    fn notify(&self, marks: Marks) {
        if let Some(running) = self.ended.notify(marks) {
            self.run(running);
        }
    }

    fn run(&self, mut running: Running<'_, u32>) {
        let mut received = false;
        loop {
            let marks = running.take_marks();
            // An ended connection receives nothing.
            received |= marks.has(REQUEST) && *running == 0;
            if marks.has(END | DONE) {
                if std::mem::take(&mut received) {
                    self.requests[0].with_mut(|_| ());
                }
                if self.ended.await_holds() {
                    self.requests.iter().for_each(|request| request.with_mut(|_| ()));
                    *running += 1;
                }
            }
            let finished = if received { running.finish_and_hold() } else { running.finish() };
            match finished {
                Some(again) => running = again,
                None => break,
            }
        }
        if received {
            self.end_hold(0);
        }
    }

    fn end_hold(&self, request: usize) {
        self.requests[request].with_mut(|_| ());
        if let Some(running) = self.ended.end_hold(DONE) {
            self.run(running);
        }
    }

    fn assert_ended(&self) {
        let running = self.ended.notify(Marks::NONE).expect("idle at the end");
        assert_eq!(*running, 1, "the end came once");
        assert!(running.finish().is_none());
    }
}

/// Two requests end on two threads while the end comes.
fn the_last_hold_to_end_leaves_a_mark() {
    explore(|| {
        let held = Held::new();
        let requests = [0, 1].map(|request| {
            held.ended.hold();
            let here = Arc::clone(&held);
            thread::spawn(move || here.end_hold(request))
        });
        held.notify(END);
        requests.into_iter().for_each(|request| request.join().expect("no panic"));
        held.assert_ended();
    });
}

/// A worker receives a request and releases it after its run. The end comes meanwhile.
fn a_run_leaves_a_hold() {
    explore(|| {
        let held = Held::new();
        let here = Arc::clone(&held);
        let receives = thread::spawn(move || here.notify(REQUEST));
        held.notify(END);
        receives.join().expect("no panic");
        held.assert_ended();
    });
}

/// An owner waits for one mark, and another one is left meanwhile. Neither is lost.
fn a_waiting_owner_is_woken() {
    explore(|| {
        let thing = Arc::new(Thing { runner: Runner::new([0; 3]), happened: Default::default() });
        let bell = Arc::new(Bell::new());
        let mut running = thing.notify(2).expect("idle");
        running.take_marks();
        let notifiers = [0_usize, 1].map(|n| {
            let (thing, bell) = (Arc::clone(&thing), Arc::clone(&bell));
            thread::spawn(move || {
                thing.happened[n].store(true, Ordering::Relaxed);
                if let Some(running) = thing.runner.notify_or_wake(MARKS[n], &bell) {
                    thing.run(running);
                }
            })
        });
        while thing.runner.take(MARKS[0]).is_empty() {
            thing.runner.wait(MARKS[0], &bell, None);
        }
        assert!(thing.happened[0].load(Ordering::Relaxed), "seen by who takes the mark");
        thing.runner.put_back(MARKS[0]);
        thing.run(running);
        for notifier in notifiers {
            notifier.join().expect("no panic");
        }
        let running = thing.runner.notify(Marks::NONE).expect("idle at the end");
        assert_eq!(*running, [1, 1, 0]);
        assert!(running.finish().is_none());
    });
}

const WRITABLE: Marks = Marks::bit(0);
const INBOX: Marks = Marks::bit(1);

struct Conn {
    send: Runner<Outbound>,
    inbox: Mutex<u32>,
    socket: Mutex<Socket>,
    /// Tasks that go on sending.
    tasks: Mutex<u32>,
    /// Rounds before a sender hands over.
    most_rounds: u32,
}

#[derive(Default)]
struct Outbound {
    backlog: u32,
    blocked: bool,
}

#[derive(Default)]
struct Socket {
    room: u32,
    taken: u32,
    /// True if a send found no room. There will be an edge when there is some.
    wants_edge: bool,
}

impl Conn {
    fn send_one(&self) {
        if let Some(running) = self.send.notify(Marks::NONE) {
            self.run(running, 1);
        } else {
            *self.inbox.lock().expect("no panic") += 1;
            if let Some(running) = self.send.notify(INBOX) {
                self.run(running, 0);
            }
        }
    }

    fn run(&self, running: Running<'_, Outbound>, mut bytes: u32) {
        let ended = running.run(self.most_rounds, |running, marks| {
            running.backlog += std::mem::take(&mut bytes);
            if marks.has(INBOX) {
                running.backlog += std::mem::take(&mut *self.inbox.lock().expect("no panic"));
            }
            running.blocked &= !marks.has(WRITABLE);
            if !running.blocked && running.backlog > 0 {
                let mut socket = self.socket.lock().expect("no panic");
                let sent = socket.room.min(running.backlog);
                socket.room -= sent;
                socket.taken += sent;
                running.backlog -= sent;
                running.blocked = running.backlog > 0;
                socket.wants_edge |= running.blocked;
            }
            let blocked = running.blocked;
            running.set_flag(blocked);
            ControlFlow::Continue(())
        });
        if ended == Ended::Queued {
            *self.tasks.lock().expect("no panic") += 1;
        }
    }

    /// Runs a task, if there is one.
    fn run_task(&self) -> bool {
        let mut tasks = self.tasks.lock().expect("no panic");
        let Some(left) = tasks.checked_sub(1) else { return false };
        *tasks = left;
        drop(tasks);
        if let Some(running) = self.send.resume() {
            self.run(running, 0);
        }
        true
    }

    /// Reads as the peer does. Returns `true` if that causes an edge.
    fn make_room(&self) -> bool {
        let mut socket = self.socket.lock().expect("no panic");
        socket.room += 1;
        std::mem::take(&mut socket.wants_edge)
    }

    /// Handles a writable edge, as a worker does.
    fn writable(&self) {
        if self.send.is_owned_or_flagged()
            && let Some(running) = self.send.notify(WRITABLE)
        {
            self.run(running, 0);
        }
    }
}

/// Two senders, and a worker that gets the edges of a peer that reads twice.
fn what_is_sent_leaves(most_rounds: u32) {
    explore(move || {
        let conn = Arc::new(Conn {
            send: Runner::new(Outbound::default()),
            inbox: Mutex::new(0),
            socket: Mutex::default(),
            tasks: Mutex::new(0),
            most_rounds,
        });
        let here = Arc::clone(&conn);
        let sender = thread::spawn(move || here.send_one());
        let here = Arc::clone(&conn);
        let worker = thread::spawn(move || {
            for _ in 0..2 {
                if here.make_room() {
                    here.writable();
                }
            }
            // An edge for another reason.
            here.writable();
            here.run_task();
        });
        conn.send_one();
        sender.join().expect("no panic");
        worker.join().expect("no panic");
        while conn.run_task() {}
        assert_eq!(conn.socket.lock().expect("no panic").taken, 2, "a byte was left behind");
    });
}

fn a_run_that_becomes_urgent_is_queued_as_urgent() {
    explore(|| {
        let thing = Arc::new((Runner::new(0), AtomicBool::new(false)));
        let there = Arc::clone(&thing);
        let queues = thread::spawn(move || {
            let (runner, urgent) = &*there;
            runner.notify(MARKS[0]).expect("nobody runs").queue();
            urgent.load(Ordering::Relaxed)
        });
        let (runner, urgent) = &*thing;
        urgent.swap(true, Ordering::AcqRel);
        let again = runner.is_queued();
        assert!(queues.join().expect("no panic") || again, "it is in no urgent queue");
    });
}

#[test]
fn marks() {
    every_mark_is_taken_once();
}

#[test]
fn finishing_or_queueing() {
    what_is_left_is_queued();
}

#[test]
fn panicking() {
    a_panic_lets_go();
}

#[test]
fn holding() {
    the_last_hold_to_end_leaves_a_mark();
}

#[test]
fn finishing_with_a_hold() {
    a_run_leaves_a_hold();
}

#[test]
fn waiting() {
    a_waiting_owner_is_woken();
}

#[test]
fn becoming_urgent() {
    a_run_that_becomes_urgent_is_queued_as_urgent();
}

#[test]
fn sending() {
    what_is_sent_leaves(2);
}

#[test]
fn sending_by_tasks() {
    what_is_sent_leaves(1);
}

mutants! {
    marks_without_their_cause: NotifyWithoutRelease, every_mark_is_taken_once(), "seen by who takes the mark";
    finish_without_release: FinishRelaxed, every_mark_is_taken_once(), "Causality violation";
    queue_without_release: QueueRelaxed, every_mark_is_taken_once(), "Causality violation";
    finish_without_second_look: FinishWithoutLook, every_mark_is_taken_once(), "right: [1, 1, 1]";
    finish_or_queue_without_look: FinishWithoutLook, what_is_left_is_queued(), "right: [1, 0, 1]";
    let_go_without_release: LetGoRelaxed, a_panic_lets_go(), "Causality violation";
    holds_whose_end_is_not_told: HoldsEndUntold, the_last_hold_to_end_leaves_a_mark(), "the end came once";
    hold_that_ends_without_release: EndHoldRelaxed, the_last_hold_to_end_leaves_a_mark(), "Causality violation";
    holds_awaited_without_acquire: AwaitHoldsRelaxed, the_last_hold_to_end_leaves_a_mark(), "Causality violation";
    finish_without_hold: FinishWithoutHold, a_run_leaves_a_hold(), "panicked";
    waiting_owner_left_asleep: WaitingOwnerUnseen, a_waiting_owner_is_woken(), "deadlock";
    wait_without_look: WaitWithoutMarks, a_waiting_owner_is_woken(), "deadlock";
    queued_run_looked_at_by_load: LookAtQueuedByLoad, a_run_that_becomes_urgent_is_queued_as_urgent(), "it is in no urgent queue";
    sending_without_the_flag: FlagForgotten, what_is_sent_leaves(2), "a byte was left behind";
    sending_on_without_the_right: HandOverLetsGo, what_is_sent_leaves(1), "a byte was left behind";
    sending_past_a_busy_sender: LookAtFlagOnly, what_is_sent_leaves(2), "a byte was left behind";
}
