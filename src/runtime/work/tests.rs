//! Tests of queued work, and of stealable work.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::runtime::{Builder, Group, Runtime, after};
use crate::stall;
use crate::stats::Counter;

/// Work that calls a closure each time it runs.
struct Does<F>(F, Class, Cost);

impl<F: Fn() + Send + Sync + 'static> Work for Does<F> {
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>) {
        assert!(context.turn.last);
        (self.0)();
        context.charge(&self.2);
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

/// Config of one group of `workers` workers. None is added soon, unless handlers announce waits.
fn one_group(workers: usize) -> Config {
    Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(workers)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .enable_tasker(false)
}

fn start(workers: usize) -> (Runtime, Arc<Group>) {
    started(one_group(workers))
}

fn started(config: Config) -> (Runtime, Arc<Group>) {
    let runtime = Builder::default().config(config).start().expect("a runtime");
    let group = Arc::clone(&runtime.handle.shared.groups[0]);
    (runtime, group)
}

/// Longer than anything in these tests takes.
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
    // Three works wait for the fourth.
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
    after(&group, Class::Admin, Duration::from_millis(1), Box::new(push)).detach();
    hear(&told);
}

// ---- stealable work ----

/// Work that makes `behind` stealable, tells the test, and waits until the test lets it go on. Then
/// it tells if it could take `behind` back.
struct Sets {
    group: Arc<Group>,
    behind: Arc<dyn Work>,
    announced: bool,
    set: Sender<()>,
    go_on: std::sync::Mutex<Receiver<()>>,
    took: Sender<bool>,
    cost: Cost,
}

impl Work for Sets {
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>) {
        self.group.put_stealable(Arc::clone(&self.behind));
        self.set.send(()).expect("waited for");
        let wait = || hear(&self.go_on.lock().expect("nobody panics"));
        if self.announced {
            stall::run(wait)
        } else {
            wait()
        }
        let back = self.group.take_stealable();
        self.took.send(back.is_some()).expect("waited for");
        if let Some(behind) = back {
            behind.run(context);
        }
        context.charge(&self.cost);
    }

    fn class(&self) -> Class {
        Class::Ordinary
    }

    fn cost(&self) -> &Cost {
        &self.cost
    }
}

/// Running `Sets`, and its channels. The work behind it tells when it runs.
struct Setting {
    set: Receiver<()>,
    ran: Receiver<()>,
    go_on: Sender<()>,
    took: Receiver<bool>,
}

impl Setting {
    fn begin(group: &Arc<Group>, announced: bool, cost: Cost) -> Self {
        let ((set_tell, set), (ran_tell, ran)) = (mpsc::channel(), mpsc::channel());
        let ((go_on, go_on_told), (took_tell, took)) = (mpsc::channel(), mpsc::channel());
        let behind = does(Class::Ordinary, move || ran_tell.send(()).expect("waited for"));
        group.push_work(Arc::new(Sets {
            group: Arc::clone(group),
            behind,
            announced,
            set: set_tell,
            go_on: std::sync::Mutex::new(go_on_told),
            took: took_tell,
            cost,
        }));
        let setting = Self { set, ran, go_on, took };
        hear(&setting.set);
        setting
    }

    /// Another worker runs the stealable work, while the worker that made it stealable waits.
    fn goes_to_others(self) {
        hear(&self.ran);
        self.go_on.send(()).expect("it waits");
        assert!(!hear(&self.took), "it is run once");
    }
}

/// Cost of quick runs.
fn quick() -> Cost {
    let cost = Cost::unknown();
    cost.add(1_000);
    cost
}

#[test]
fn what_is_aside_behind_a_worker_that_waits_unannounced_goes_to_others() {
    for workers in [2, 3, 4] {
        for cost in [Cost::unknown, quick] {
            let (_runtime, group) = started(one_group(workers));
            for _ in 0..20 {
                Setting::begin(&group, false, cost()).goes_to_others();
            }
        }
    }
}

#[test]
fn what_is_aside_behind_an_announced_wait_is_queued() {
    for workers in [1, 2, 4] {
        let (_runtime, group) = start(workers);
        // Allows another thread in place of the waiting one.
        group.session_opened();
        for _ in 0..20 {
            Setting::begin(&group, true, quick()).goes_to_others();
        }
        group.session_closed();
    }
}

#[test]
fn what_was_set_aside_while_all_were_busy_is_taken_over_by_the_next_free_worker() {
    for cost in [Cost::unknown, quick] {
        let (_runtime, group) = started(one_group(2));
        for _ in 0..20 {
            let (let_go, held) = mpsc::channel();
            let (tell, told) = mpsc::channel();
            let held = std::sync::Mutex::new(held);
            group.push_work(does(Class::Ordinary, move || {
                tell.send(()).expect("waited for");
                hear(&held.lock().expect("nobody panics"))
            }));
            hear(&told);
            let setting = Setting::begin(&group, false, cost());
            let_go.send(()).expect("it waits");
            setting.goes_to_others();
        }
    }
}

#[test]
fn what_is_aside_where_everybody_is_stuck_gets_a_thread() {
    let (_runtime, group) =
        started(one_group(1).thread_deadlock_check_interval(Duration::from_millis(10)));
    group.session_opened();
    Setting::begin(&group, false, quick()).goes_to_others();
    group.session_closed();
}

#[test]
fn what_is_aside_beside_no_other_worker_runs_once() {
    let (_runtime, group) = start(1);
    for _ in 0..20 {
        let setting = Setting::begin(&group, false, quick());
        setting.go_on.send(()).expect("it waits");
        // The handler ran it, or a task did if the watchdog found the handler slow.
        let _ = hear(&setting.took);
        hear(&setting.ran);
        assert!(setting.ran.try_recv().is_err());
    }
}

#[test]
fn what_nobody_took_back_runs_all_the_same() {
    let (_runtime, group) = start(1);
    let (tell, told) = mpsc::channel();
    for fails in [false, true] {
        let (here, tell) = (Arc::clone(&group), tell.clone());
        group.push_work(does(Class::Ordinary, move || {
            for n in [1, 2] {
                let tell = tell.clone();
                here.put_stealable(does(Class::Ordinary, move || {
                    tell.send(n).expect("waited for")
                }));
            }
            assert!(!fails, "told to");
        }));
        assert_eq!([hear(&told), hear(&told)], [1, 2]);
    }
}

#[test]
fn elsewhere_and_in_a_wait_it_goes_to_the_queue_at_once() {
    let (_runtime, group) = start(1);
    let (tell, told) = mpsc::channel();
    let says = move || {
        let tell = tell.clone();
        does(Class::Ordinary, move || tell.send(()).expect("waited for"))
    };
    group.put_stealable(says());
    assert!(group.take_stealable().is_none(), "no worker, nothing stealable");
    hear(&told);

    let ((_other_runtime, other), here) = (start(1), Arc::clone(&group));
    let told = Arc::new(std::sync::Mutex::new(told));
    let heard = Arc::clone(&told);
    let (done, dones) = mpsc::channel();
    group.session_opened();
    group.push_work(does(Class::Ordinary, move || {
        other.put_stealable(says());
        assert!(other.take_stealable().is_none(), "no worker of that group");
        hear(&heard.lock().expect("nobody panics"));
        let _stall = stall::enter();
        here.put_stealable(says());
        assert!(here.take_stealable().is_none(), "it waits");
        hear(&heard.lock().expect("nobody panics"));
        done.send(()).expect("waited for");
    }));
    hear(&dones);
    group.session_closed();
}
