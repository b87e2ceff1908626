//! [`TimestampQueue`]: requests for timestamps, on open sessions and on other ids.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::conn_shared::ConnShared;
use super::error::{SessionError, put_error};
use super::output::Output;
use super::server_conn::{Runnable, TURN};
use super::service::Service;
use super::session_shared::SessionShared;
use crate::codec::encoder::Metadata;
use crate::net::Hold;
use crate::runtime::{Class, Cost, Lap, Work, WorkerContext};
use crate::sync::runner::{Marks, Runner, Running};
use crate::sync::shim::lock;
use crate::sys::clock::Instant;

/// Requests for timestamps of one connection, answered in order. Any worker may run them, because a
/// service may need time to find a timestamp.
pub(super) struct TimestampQueue<S: Service> {
    conn: Arc<ConnShared>,
    service: Arc<S>,
    asked: Mutex<Asked>,
    runner: Runner<()>,
    cost: Cost,
}

#[derive(Default)]
struct Asked {
    queue: VecDeque<TimestampRequest>,
    hold: Option<Hold>,
}

pub(super) struct TimestampRequest {
    pub(super) id: u64,
    /// Open session with this id. It gets no answer after its end. An id without a session gets one in
    /// any case.
    pub(super) session: Option<Arc<SessionShared>>,
    /// Number of timestamps. `None` if a drain refuses the request.
    pub(super) count: Option<i32>,
}

const ASKED: Marks = Marks::bit(0);

/// Requests for timestamps that may wait on a connection.
pub(super) const MOST_WAITING: usize = 1024;

impl<S: Service> TimestampQueue<S> {
    pub(super) fn new(conn: Arc<ConnShared>, service: Arc<S>) -> Self {
        Self {
            conn,
            service,
            asked: Mutex::default(),
            runner: Runner::new(()),
            cost: Cost::unknown(),
        }
    }

    /// Adds a request. Returns false if too many wait already.
    pub(super) fn ask(&self, request: TimestampRequest) -> bool {
        let mut asked = lock(&self.asked);
        if asked.queue.len() >= MOST_WAITING {
            return false;
        }
        asked.queue.push_back(request);
        asked.hold.get_or_insert_with(|| self.conn.net.hold());
        true
    }

    /// Returns true if a request waits or runs.
    pub(super) fn is_asked(&self) -> bool {
        lock(&self.asked).hold.is_some()
    }

    fn next(&self) -> Option<TimestampRequest> {
        let mut asked = lock(&self.asked);
        let gone = self.conn.has_ended().then(|| std::mem::take(&mut asked.queue));
        let next = asked.queue.pop_front();
        drop(asked);
        // A session may be dropped with its request, which runs foreign code: not under the lock.
        drop(gone);
        next
    }

    fn answer(&self, out: &Output, request: &TimestampRequest) {
        out.begin(request.session.as_ref());
        match &request.session {
            // The message about its end has answered the request.
            Some(session) if session.is_dead() => {}
            Some(session) => {
                self.write(out, request);
                session.answer_timestamps(|| out.pass_on());
            }
            None => self.write(out, request),
        }
    }

    fn write(&self, out: &Output, request: &TimestampRequest) {
        let result = match request.count.map(|count| (count, u32::try_from(count))) {
            Some((_, Ok(count @ 1..))) => {
                let asked = || self.service.timestamp(self.conn.peer(), count);
                catch_unwind(AssertUnwindSafe(asked)).unwrap_or_else(|payload| {
                    self.conn.note_panic(payload);
                    Err(SessionError::unsupported("Failed to get tso."))
                })
            }
            Some((count, _)) => {
                Err(SessionError::unsupported(format!("batch_count {count} is below 1")))
            }
            None => Err(SessionError::shutdown()),
        };
        out.write(request.id, Metadata::Full, |encoder| match result {
            Ok(first) => encoder.timestamps(first),
            Err(error) => put_error(encoder, &error),
        });
    }
}

impl<S: Service> Runnable for TimestampQueue<S> {
    fn becomes_runnable(&self) -> bool {
        self.runner.notify(ASKED).map(Running::queue).is_some()
    }

    fn run_here(self: Arc<Self>, out: &Output, now: Instant) -> Instant {
        let Some(mut running) = self.runner.resume() else { return now };
        let mut lap = Lap::from(now);
        let _marks = running.take_marks();
        let group = Arc::clone(self.conn.group());
        let budget = group.config().session_budget;
        let mut done = 0;
        while let Some(request) = self.next() {
            self.answer(out, &request);
            done += 1;
            self.cost.add(lap.end());
            // The service may wait for the next timestamp.
            out.flush();
            // After a full turn other connections go first.
            if done >= budget || lap.now.duration_since(now) >= TURN {
                running.mark(ASKED);
                running.queue();
                group.push_spent_work(self);
                return lap.now;
            }
        }
        {
            let mut asked = lock(&self.asked);
            let hold = if asked.queue.is_empty() { asked.hold.take() } else { None };
            drop(asked);
            drop(hold);
        }
        if running.finish_or_queue() {
            group.push_work(self);
        }
        lap.now
    }
}

impl<S: Service> Work for TimestampQueue<S> {
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>) {
        let conn = Arc::clone(&self.conn);
        context.lap.now = Output::with(&conn, |out| self.run_here(out, context.lap.now));
    }

    fn class(&self) -> Class {
        // A transaction that is about to commit may need a timestamp.
        Class::InProgress
    }

    fn cost(&self) -> &Cost {
        &self.cost
    }
}
