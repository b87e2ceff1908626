//! Descriptors of the host that a group watches.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use super::class::Class;
use super::source::{CUT, FIRST_OWN_MARK, OVER, Source, WorkerContext};
use super::{Cost, Group, Interest, Readiness, Token};
use crate::sync::runner::{Marks, ROUNDS, Runner, Running};
use crate::sync::shim::atomic::{AtomicBool, Ordering};

type Code = Box<dyn FnMut(BorrowedFd<'_>, Readiness) + Send>;

/// A watched descriptor. Dropping this ends the watch. If a call is running on another thread, it
/// ends first, and then the descriptor is closed.
#[must_use = "dropped, it ends the watch"]
pub struct Registration {
    foreign: Arc<Foreign>,
}

struct Foreign {
    group: Arc<Group>,
    class: Class,
    fd: OwnedFd,
    token: OnceLock<Token>,
    code: Runner<Option<Code>>,
    watched: AtomicBool,
    cost: Cost,
}

const READABLE: Marks = Marks::bit(FIRST_OWN_MARK);
const WRITABLE: Marks = Marks::bit(FIRST_OWN_MARK + 1);
const HUNG_UP: Marks = Marks::bit(FIRST_OWN_MARK + 2);
const ERROR: Marks = Marks::bit(FIRST_OWN_MARK + 3);
const END: Marks = Marks::bit(FIRST_OWN_MARK + 4);

pub(super) fn register(
    group: &Arc<Group>,
    class: Class,
    fd: OwnedFd,
    interest: Interest,
    code: Code,
) -> io::Result<Registration> {
    let foreign = Arc::new(Foreign {
        group: Arc::clone(group),
        class,
        fd,
        token: OnceLock::new(),
        code: Runner::new(Some(code)),
        watched: AtomicBool::new(true),
        cost: Cost::unknown(),
    });
    let drains = || io::Error::other("the runtime drains");
    if group.is_draining() {
        return Err(drains());
    }
    let full = || io::Error::other("all slots of the group are in use");
    let source = |token| -> Box<dyn Source> {
        let _ = foreign.token.set(token);
        Box::new(Watched(Arc::clone(&foreign)))
    };
    let token = group.prepare(source).ok_or_else(full)?;
    // From here on a drain may end the source. At an error, the drop of `registration` ends it,
    // once.
    let registration = Registration { foreign };
    if group.is_draining() {
        return Err(drains());
    }
    group.watch(registration.foreign.fd.as_fd(), interest, token)?;
    Ok(registration)
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.foreign.end();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("fd", &self.foreign.fd).finish_non_exhaustive()
    }
}

/// Content of the slot.
struct Watched(Arc<Foreign>);

impl Foreign {
    fn end(&self) {
        if self.watched.swap(false, Ordering::AcqRel)
            && let Some(token) = self.token.get()
        {
            // A worker drops the code, after a call that may be running.
            self.group.notify_source(*token, END);
            self.group.unwatch(self.fd.as_fd(), *token);
        }
    }

    fn run(&self, running: Running<'_, Option<Code>>, context: &mut WorkerContext<'_>) {
        let ended = running.run(ROUNDS, |running, marks| {
            if marks.has(END | CUT | OVER) {
                let code = running.take();
                self.group.guard("drop", || drop(code));
                self.end();
            } else if let Some(code) = running.as_mut()
                && let readiness = readiness_of(marks)
                && !readiness.is_empty()
            {
                self.group.guard("foreign", || code(self.fd.as_fd(), readiness));
                context.charge(&self.cost);
            }
            ControlFlow::Continue(())
        });
        self.group.queue_rest(ended, self.token.get(), &self.code);
    }
}

impl Source for Watched {
    fn ready(&self, readiness: Readiness, context: &mut WorkerContext<'_>) {
        if let Some(running) = self.0.code.notify(marks_of(readiness)) {
            self.0.run(running, context);
        }
    }

    fn queue_ready(&self, readiness: Readiness) -> bool {
        self.queue_marks(marks_of(readiness))
    }

    fn queue_marks(&self, marks: Marks) -> bool {
        self.0.code.notify(marks).map(Running::queue).is_some()
    }

    fn resume(&self, context: &mut WorkerContext<'_>) {
        if let Some(running) = self.0.code.resume() {
            self.0.run(running, context);
        }
    }

    fn cost(&self) -> &Cost {
        &self.0.cost
    }

    fn class(&self) -> Class {
        self.0.class
    }
}

const BITS: [(Marks, i32); 4] = [
    (READABLE, libc::EPOLLIN),
    (WRITABLE, libc::EPOLLOUT),
    (HUNG_UP, libc::EPOLLHUP),
    (ERROR, libc::EPOLLERR),
];

fn marks_of(readiness: Readiness) -> Marks {
    BITS.iter()
        .filter(|(_, bit)| readiness.bits() & bit.cast_unsigned() != 0)
        .fold(Marks::NONE, |marks, (mark, _)| marks | *mark)
}

fn readiness_of(marks: Marks) -> Readiness {
    let bits = BITS.iter().filter(|(mark, _)| marks.has(*mark));
    Readiness::from_bits(bits.fold(0, |bits, (_, bit)| bits | bit.cast_unsigned()))
}
