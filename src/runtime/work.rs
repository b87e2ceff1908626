//! [`Work`]: what a layer above has in the queue that is neither registered nor a closure.

use std::sync::Arc;

use super::class::Class;
use super::cost::Cost;
use super::source::Lent;

/// Something that becomes runnable again and again: a session with messages in its mailbox.
///
/// In the queue it is a cloned reference, so that a run costs no allocation. Who pushes it sees to it
/// that it does not run twice at once (by a [`Runner`](crate::sync::runner::Runner), whose `queue` is
/// followed by the push). It may be dropped without having run, when the runtime ends.
///
/// It does not count towards the threads that a group may have: a layer above tells of those who could
/// use one by [`Group::session_opened`](super::Group::session_opened).
pub(crate) trait Work: Send + Sync + 'static {
    /// Runs it. It times itself, see [`Lent::charge`]. A panic ends in the worker, which lives; what
    /// the panic means for whom it is about is theirs to see.
    fn run(self: Arc<Self>, lent: &mut Lent<'_>);

    /// Whose work it is: asked when it is queued, and again before it runs.
    fn class(&self) -> Class;

    /// How long a run takes, as far as known.
    fn cost(&self) -> &Cost;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use super::*;
    use crate::runtime::{Builder, Group, Runtime, after};
    use crate::stats::Counter;
    use crate::{Config, stall};

    /// Calls a closure each time it runs.
    struct Does<F>(F, Class, Cost);

    impl<F: Fn() + Send + Sync + 'static> Work for Does<F> {
        fn run(self: Arc<Self>, lent: &mut Lent<'_>) {
            assert!(lent.turn.is_last());
            (self.0)();
            lent.charge(&self.2);
        }

        fn class(&self) -> Class {
            self.1
        }

        fn cost(&self) -> &Cost {
            &self.2
        }
    }

    fn does(class: Class, code: impl Fn() + Send + Sync + 'static) -> Arc<dyn Work> {
        Arc::new(Does(code, class, Cost::unknown()))
    }

    /// One group with so many workers, to which none are added.
    fn start(workers: usize) -> (Runtime, Arc<Group>) {
        let config = Config::default()
            .epoll_groups(1)
            .epoll_threads_per_group(workers)
            .thread_deadlock_check_interval(Duration::from_secs(10))
            .enable_tasker(false);
        let runtime = Builder::default().config(config).start().expect("a runtime");
        let group = Arc::clone(&runtime.handle.shared.groups[0]);
        (runtime, group)
    }

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(30);

    fn hear<T>(told: &Receiver<T>) -> T {
        told.recv_timeout(LONG).expect("it comes")
    }

    #[test]
    fn the_same_work_runs_whenever_it_was_pushed() {
        let (_runtime, group) = start(2);
        let (tell, told) = mpsc::channel();
        let work = Arc::new(Does(
            move || tell.send(()).expect("waited for"),
            Class::Ordinary,
            Cost::unknown(),
        ));
        for _ in 0..3 {
            group.push_work(Arc::clone(&work) as Arc<dyn Work>);
            hear(&told);
        }
        drop(_runtime);
        assert!(work.cost().nanos().is_some(), "it timed itself");
        assert_eq!(Arc::strong_count(&work), 1);
    }

    #[test]
    fn work_that_panics_leaves_its_worker_alive() {
        let (runtime, group) = start(1);
        let (tell, told) = mpsc::channel();
        for class in [Class::Ordinary, Class::InProgress] {
            group.push_work(does(class, || panic!("told to")));
        }
        group.push_work(does(Class::Ordinary, move || tell.send(()).expect("waited for")));
        hear(&told);
        assert_eq!(runtime.stats().get(Counter::Panics), 2);
    }

    #[test]
    fn what_is_queued_at_the_end_is_dropped() {
        struct Drops(Sender<()>);

        impl Drop for Drops {
            fn drop(&mut self) {
                self.0.send(()).expect("waited for");
                panic!("told to");
            }
        }

        let (runtime, group) = start(1);
        let ((begin, begun), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let ends = std::sync::Mutex::new(ends);
        group.push_work(does(Class::Ordinary, move || {
            begin.send(()).expect("waited for");
            hear(&ends.lock().expect("nobody panics"));
        }));
        hear(&begun);
        let (tell, told) = mpsc::channel();
        let drops = std::sync::Mutex::new(Drops(tell));
        group.push_work(does(Class::Ordinary, move || drop(drops.lock())));
        assert_eq!(runtime.drain(Duration::ZERO).stuck.len(), 1);
        end.send(()).expect("it waits");
        hear(&told);
    }

    #[test]
    fn a_session_may_have_a_thread_of_its_own() {
        let (_runtime, group) = start(1);
        let (tell, told) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let released = Arc::new(std::sync::Mutex::new(released));
        for _ in 0..4 {
            group.session_opened();
        }
        // Three wait for what the fourth does.
        for _ in 0..3 {
            let (released, tell) = (Arc::clone(&released), tell.clone());
            group.push_work(does(Class::Ordinary, move || {
                stall::run(|| hear(&released.lock().expect("nobody panics")));
                tell.send(()).expect("waited for");
            }));
        }
        group.push_work(does(Class::Ordinary, move || {
            for _ in 0..3 {
                release.send(()).expect("somebody waits");
            }
        }));
        for _ in 0..3 {
            hear(&told);
        }
        for _ in 0..4 {
            group.session_closed();
        }
    }

    #[test]
    fn a_timer_of_a_group_pushes_work() {
        let (_runtime, group) = start(1);
        let (tell, told) = mpsc::channel();
        let work = does(Class::Admin, move || tell.send(()).expect("waited for"));
        let here = Arc::downgrade(&group);
        let push = move || here.upgrade().expect("it runs").push_work(work);
        let _ = after(&group, Class::Admin, Duration::from_millis(1), Box::new(push));
        hear(&told);
    }
}
