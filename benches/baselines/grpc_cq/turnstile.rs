//! One thread polls, the others sleep; each completion wakes one of them.
//!
//! ```text
//!  thread 1 ── epoll_wait ──▶ 3 completions: the first is its own
//!                               │ the second         │ the third         │ polling
//!                               ▼                    ▼                   ▼
//!                            thread 4             thread 3            thread 2      threads 5 …
//!                            runs it              runs it             epoll_wait    sleep on
//! ```
//!
//! Whoever sleeps relies on somebody who polls: nobody sleeps while nobody polls, nor while a
//! completion is queued. When there are fewer sleepers than completions, the rest are queued, and
//! who first finds the queue empty polls.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Queue;
use super::reactor::{Batch, Completion, Reactor};

pub(super) struct Turnstile(Mutex<State<Completion>>);

/// `C` is a completion.
pub(super) struct State<C> {
    completions: VecDeque<C>,
    /// The last to sleep is woken first.
    sleeping: Vec<Arc<Place<C>>>,
    polling: bool,
}

/// Where a thread sleeps, and what it is woken for.
pub(super) struct Place<C> {
    task: Mutex<Option<Task<C>>>,
    given: Condvar,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task<C> {
    Run(C),
    Poll,
}

pub(super) struct Seat {
    place: Arc<Place<Completion>>,
    batch: Batch,
}

impl Default for Turnstile {
    fn default() -> Self {
        Self(Mutex::new(State::new()))
    }
}

impl Queue for Turnstile {
    type Seat = Seat;

    fn seat() -> io::Result<Seat> {
        Ok(Seat { place: Arc::new(Place::new()), batch: Batch::default() })
    }

    fn put(&self, completion: Completion) {
        // Nobody is woken: the caller is about to take it, if nobody else does before.
        self.state().completions.push_back(completion);
    }

    fn next(&self, seat: &mut Seat, reactor: &Reactor) -> io::Result<Completion> {
        let mut state = self.state();
        if let Some(completion) = state.completions.pop_front() {
            return Ok(completion);
        }
        if state.polling {
            state.sleeping.push(Arc::clone(&seat.place));
            drop(state);
            if let Task::Run(completion) = seat.place.sleep() {
                return Ok(completion);
            }
        } else {
            state.polling = true;
            drop(state);
        }
        loop {
            reactor.poll(&mut seat.batch, -1)?;
            let dealt = self.state().deal(&mut seat.batch.completions);
            if let Some((own, given)) = dealt {
                given.into_iter().for_each(|(place, task)| place.give(task));
                return Ok(own);
            }
        }
    }
}

impl Turnstile {
    fn state(&self) -> MutexGuard<'_, State<Completion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> State<C> {
    pub(super) fn new() -> Self {
        Self { completions: VecDeque::new(), sleeping: Vec::new(), polling: false }
    }

    /// What the poller has found: the first completion is its own, and each sleeper in the list is
    /// to be given its task. If a sleeper is left after that, one polls; the caller does not any
    /// more. `None`: nothing has completed, and the caller goes on.
    #[expect(clippy::type_complexity, reason = "a name for it would say no more")]
    pub(super) fn deal(
        &mut self,
        found: &mut Vec<C>,
    ) -> Option<(C, Vec<(Arc<Place<C>>, Task<C>)>)> {
        self.completions.extend(found.drain(..));
        let own = self.completions.pop_front()?;
        let mut given = Vec::new();
        self.polling = false;
        while !self.polling
            && let Some(place) = self.sleeping.pop()
        {
            let task = match self.completions.pop_front() {
                Some(completion) => Task::Run(completion),
                None => {
                    self.polling = true;
                    Task::Poll
                }
            };
            given.push((place, task));
        }
        Some((own, given))
    }
}

#[cfg(test)]
impl<C> State<C> {
    pub(super) fn polled_by_one(sleeping: Vec<Arc<Place<C>>>) -> Self {
        Self { completions: VecDeque::new(), sleeping, polling: true }
    }

    /// Completions in the queue, sleepers, and whether somebody polls.
    pub(super) fn left(&self) -> (usize, usize, bool) {
        (self.completions.len(), self.sleeping.len(), self.polling)
    }
}

impl<C> Place<C> {
    pub(super) fn new() -> Self {
        Self { task: Mutex::new(None), given: Condvar::new() }
    }

    fn sleep(&self) -> Task<C> {
        let mut task = self.task();
        loop {
            if let Some(task) = task.take() {
                return task;
            }
            task = self.given.wait(task).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give(&self, given: Task<C>) {
        *self.task() = Some(given);
        self.given.notify_one();
    }

    fn task(&self) -> MutexGuard<'_, Option<Task<C>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
