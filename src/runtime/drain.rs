//! The end of a runtime, in numbered steps. [`Serving`]: the connection that waits for a thread.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::end::{LEAVE_NOW, LEAVE_WHEN_EMPTY};
use super::group::Group;
use super::handle::Shared;
use super::schedule::Schedule;
use super::slots::Token;
use super::source::{CUT, DRAIN, OVER};
use super::usage::Origin;
use crate::stats::{Counter, Snapshot};
use crate::sys::clock;

/// Result of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainReport {
    /// Connections, accepted and outgoing, that ended during the drain and were not cut. Those that
    /// broke, timed out or panicked are among them.
    pub finished: u64,
    /// Connections that were refused at a limit of connections or handshakes or for lack of
    /// descriptors, layers that were refused in mid-stream, and closures that `spawn` returned.
    pub refused: u64,
    /// Connections that were cut at the deadline: with requests or replies unfinished, or because no
    /// worker was free to end them.
    pub cut: u64,
    /// Names of threads that were still inside a handler or a destructor. Such a thread ends when the
    /// handler or destructor does. The watchdog is among them if the host's log blocks it.
    pub stuck: Vec<String>,
    /// Duration of the drain.
    pub took: Duration,
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { finished, refused, cut, stuck, took } = self;
        write!(f, "drained in {took:.0?}: {finished} finished, {refused} refused, {cut} cut, ")?;
        match stuck.as_slice() {
            [] => f.write_str("no thread stuck"),
            names => write!(f, "stuck: {}", names.join(", ")),
        }
    }
}

thread_local! {
    /// Connection for which this thread runs code. `None` elsewhere: in a task, a timer, a destructor,
    /// and on threads of the host.
    static SERVES: Cell<Option<Served>> = const { Cell::new(None) };
}

/// Connection that waits for the code of a thread. The address of its group is only compared.
#[derive(Clone, Copy)]
struct Served {
    origin: Origin,
    group: *const Group,
    token: Token,
}

/// Guard. Until it is dropped, a connection waits for the code that this thread runs.
pub(crate) struct Serving {
    before: Option<Served>,
}

impl Serving {
    pub(crate) fn begin(origin: Origin, group: &Group, token: Token) -> Self {
        Self { before: SERVES.replace(Some(Served { origin, group, token })) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVES.set(self.before);
    }
}

/// Time after the deadline in which connections are cut and threads leave.
const GRACE: Duration = Duration::from_millis(100);
/// Time in which one more thread of a group starts, ends what stuck threads cannot, and leaves.
const LEAVING: Duration = Duration::from_secs(1);

pub(super) fn drain(shared: &Shared, limit: Duration) -> DrainReport {
    let began = clock::now();
    let deadline = began + limit;
    let (usage, threads) = (&shared.usage, &shared.threads);
    let on_worker = threads.is_one();
    let before = counted(shared);

    // A handler that drains its own runtime does not wait for its own connection. That may end
    // meanwhile, and is then not counted any more.
    let own = usize::from(on_worker);
    let serves = if on_worker { SERVES.get() } else { None };
    let is_open = serves.and_then(|served| {
        let group = shared.groups.iter().find(|group| ptr::eq(&***group, served.group));
        group.and_then(|group| group.watch_end(served.token))
    });
    let served = || usize::from(is_open.as_ref().is_some_and(|is_open| is_open()));

    // 1. From now on `spawn` refuses closures, and `spawn_wait` no longer waits for room.
    usage.start_draining();
    shared.groups.iter().for_each(|group| group.room.look_again());
    // 2. All sources are notified. Listeners empty their backlog and close, accepted connections
    //    finish. Outgoing connections ignore it: requests in progress may wait for their answers.
    notify(shared, DRAIN);
    // Listeners are checked first: a closed listener has counted all connections that it accepted.
    let serves_accepted = serves.is_some_and(|served| served.origin == Origin::Accepted);
    let served_accepted = || if serves_accepted { served() } else { 0 };
    let only_outgoing =
        || usage.listeners() == 0 && usage.connections_of(Origin::Accepted) <= served_accepted();
    let in_time = usage.wait_until(deadline, only_outgoing);
    // 3. No accepted connection is left to send requests, so the outgoing ones are notified.
    usage.start_draining_outgoing();
    if in_time && usage.connections_of(Origin::Outgoing) > 0 {
        notify(shared, DRAIN);
    }
    let done = || usage.listeners() == 0 && usage.connections() <= served();
    usage.wait_until(deadline, done);
    // 4. At the deadline, the rest is cut, and the workers get a little time for it. Two kinds of
    //    sources end in any case: foreign descriptors, which have no other end, and the connection
    //    of a handler that drains its own runtime.
    let late = !done();
    notify(shared, if late { CUT } else { OVER });
    let cut_deadline = deadline.max(clock::now() + GRACE);
    if late {
        usage.wait_until(cut_deadline, || usage.connections() <= served());
    }
    // 5. The threads finish the queued tasks and leave.
    for group in &shared.groups {
        group.end_spawning();
        group.stop_workers(LEAVE_WHEN_EMPTY);
    }
    threads.exits.wait(own, cut_deadline);
    for group in &shared.groups {
        group.stop_workers(LEAVE_NOW);
    }
    threads.close();
    threads.exits.wait(own, clock::now() + GRACE);
    // The threads that are left wait in handlers. They may wait to learn that their connections
    // end, and no free worker has notified them. Other threads than the caller notify them, because
    // code of the user may wait for a lock that a stuck handler holds.
    let left = threads.exits.alive();
    if left > own {
        // The caller ends the rest of its own group when it leaves.
        let has_stuck = |group: &&Arc<Group>| group.end.alive() > usize::from(group.is_current());
        shared.groups.iter().filter(has_stuck).for_each(|group| threads.start_ending(group));
        threads.exits.wait(left, clock::now() + LEAVING);
        threads.exits.wait(own, clock::now() + GRACE);
    }
    // 6. The watchdog ends last. Threads that left are joined, the others are named.
    shared.watch.stop();
    let blocked = threads.join_watchdog(LEAVING);
    let mut stuck = threads.join_all();
    if stuck.is_empty() {
        // The last worker of each group has ended its timers, if there was one. The caller does so
        // when it leaves: here it may hold a lock that their destructors take.
        shared
            .groups
            .iter()
            .filter(|group| !group.is_current())
            .for_each(|group| group.end_timers());
    }

    // Connections that no worker closed any more. They are not among the closed ones below.
    let left_over = usage.connections().saturating_sub(served());
    let mut report = DrainReport::of(&counted(shared).since(&before));
    report.cut += left_over as u64;
    stuck.extend(blocked);
    report.stuck = stuck;
    report.took = clock::since(began);
    report
}

fn notify(shared: &Shared, marks: crate::sync::runner::Marks) {
    for group in &shared.groups {
        group.notify_all(marks);
    }
}

fn counted(shared: &Shared) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for group in &shared.groups {
        group.add_to(&mut snapshot);
    }
    snapshot
}

impl DrainReport {
    /// Makes the report from the counters of the time of the drain.
    fn of(counted: &Snapshot) -> Self {
        let refused = [
            Counter::ConnectionsRefusedLimit,
            Counter::ConnectionsRefusedSilentLimit,
            Counter::ConnectionsRefusedHandshakes,
            Counter::ConnectionsRefusedDescriptors,
            Counter::SpawnRefused,
        ];
        let cut = counted.get(Counter::ClosedCut);
        Self {
            // A connection that ends just now, after a stuck handler, may be counted as cut only.
            finished: counted.get(Counter::ConnectionsClosed).saturating_sub(cut),
            refused: refused.map(|counter| counted.get(counter)).iter().sum(),
            cut,
            ..Self::default()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::Builder;
    use crate::stats::Counters;

    #[test]
    fn a_process_that_was_forked_does_not_drain_the_runtime_of_its_parent() {
        let (mut runtime, _watchdog) = Builder::default().assemble(None).expect("descriptors");
        // The process id differs, as in a forked process.
        runtime.process += 1;
        let handle = runtime.handle();
        drop(runtime);
        assert!(!handle.usage().is_draining());
    }

    #[test]
    fn a_connection_that_is_counted_among_the_cut_ones_only_so_far_has_not_finished() {
        let counters = Counters::new();
        counters.add(Counter::ClosedCut, 1);
        let mut counted = Snapshot::default();
        counted.absorb(&counters);
        let DrainReport { finished, cut, .. } = DrainReport::of(&counted);
        assert_eq!((finished, cut), (0, 1));
    }
}
