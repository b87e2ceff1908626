use std::panic::{self, AssertUnwindSafe};
use std::thread;

use super::*;

/// Announcer that logs its calls, and waits itself on request.
#[derive(Default)]
struct Log {
    heard: RefCell<Vec<&'static str>>,
    kept: RefCell<Vec<Stall>>,
    keeps: Cell<bool>,
    fails: Cell<bool>,
}

impl Log {
    fn installed() -> Rc<Self> {
        let log = Rc::new(Self::default());
        install(Some(log.clone()));
        log
    }

    fn hear(&self, what: &'static str) {
        self.heard.borrow_mut().push(what);
        run(|| run_as(Wait::Disk, || ()));
        if self.keeps.get() {
            self.kept.borrow_mut().push(enter());
        }
        assert!(!self.fails.get(), "told to fail");
    }

    fn take(&self) -> Vec<&'static str> {
        self.heard.take()
    }
}

impl Announce for Log {
    fn begin(&self) {
        self.hear("begin");
    }

    fn end(&self) {
        self.hear("end");
    }

    fn uncounted(&self) {
        self.hear("uncounted");
    }
}

#[test]
fn a_wait_begins_and_ends_once() {
    let log = Log::installed();
    let stall = enter();
    assert_eq!(log.take(), ["begin"]);
    drop(stall);
    assert_eq!(log.take(), ["end"]);
    assert_eq!(run(|| 7), 7);
    assert_eq!(log.take(), ["begin", "end"]);
}

#[test]
fn some_waits_do_not_count() {
    let log = Log::installed();
    for (wait, heard) in [
        (Wait::Lock, &["begin", "end"][..]),
        (Wait::Sleep, &["begin", "end"]),
        (Wait::Reply, &["begin", "end"]),
        (Wait::Network, &["begin", "end"]),
        (Wait::Other, &["begin", "end"]),
        (Wait::Disk, &["uncounted"]),
        (Wait::Sync, &["uncounted"]),
        (Wait::Commit, &["uncounted"]),
    ] {
        run_as(wait, || ());
        assert_eq!(log.take(), heard, "{wait:?}");
        assert_eq!(wait.is_counted(), heard.len() == 2, "{wait:?}");
    }
}

#[test]
fn nested_waits_count_once() {
    let log = Log::installed();
    run(|| {
        run_as(Wait::Lock, || run(|| ()));
        run_as(Wait::Disk, || run_as(Wait::Sleep, || ()));
    });
    assert_eq!(log.take(), ["begin", "end"]);
}

#[test]
fn a_wait_that_does_not_count_hides_none_that_does() {
    let log = Log::installed();
    run_as(Wait::Disk, || {
        run_as(Wait::Commit, || ());
        assert_eq!(log.take(), ["uncounted"]);
        run_as(Wait::Lock, || run_as(Wait::Sync, || ()));
        assert_eq!(log.take(), ["begin", "end"]);
        run_as(Wait::Commit, || ());
    });
    assert_eq!(log.take(), [""; 0]);
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let log = Log::installed();
    let (first, disk, second) = (enter(), enter_as(Wait::Disk), enter());
    drop(first);
    assert_eq!(log.take(), ["begin"]);
    let third = enter();
    drop(second);
    assert_eq!(log.take(), [""; 0]);
    drop(third);
    assert_eq!(log.take(), ["end"]);
    let fourth = enter();
    drop(disk);
    drop(fourth);
    assert_eq!(log.take(), ["begin", "end"]);
    run_as(Wait::Disk, || ());
    assert_eq!(log.take(), ["uncounted"]);
}

#[test]
fn a_panic_ends_the_wait() {
    let log = Log::installed();
    let caught = panic::catch_unwind(|| run(|| run(|| panic!("while waiting"))));
    assert!(caught.is_err());
    assert_eq!(log.take(), ["begin", "end"]);
    run(|| ());
    assert_eq!(log.take(), ["begin", "end"]);
}

#[test]
fn an_announcer_that_panics_is_heard_again() {
    let log = Log::installed();
    log.fails.set(true);
    let caught = panic::catch_unwind(AssertUnwindSafe(|| run_as(Wait::Disk, || ())));
    assert!(caught.is_err());
    log.fails.set(false);
    run_as(Wait::Disk, || ());
    run(|| ());
    assert_eq!(log.take(), ["uncounted", "uncounted", "begin", "end"]);
}

#[test]
fn what_the_announcer_keeps_does_not_count() {
    let log = Log::installed();
    log.keeps.set(true);
    run(|| run_as(Wait::Disk, || ()));
    log.keeps.set(false);
    assert_eq!((log.take(), log.kept.borrow().len()), (vec!["begin", "end"], 2));
    run(|| log.kept.take().clear());
    assert_eq!(log.take(), ["begin", "end"]);
}

#[test]
fn a_wait_ends_where_it_began() {
    let before = enter();
    let first = Log::installed();
    drop(before);
    assert_eq!(first.take(), [""; 0]);

    let stall = enter();
    let second = Log::installed();
    run(|| drop(stall));
    assert_eq!((first.take(), second.take()), (vec!["begin", "end"], vec!["begin", "end"]));

    let stall = enter();
    install(None);
    run(|| ());
    drop(stall);
    assert_eq!((first.take(), second.take()), (vec![], vec!["begin", "end"]));
    assert_eq!((Rc::strong_count(&first), Rc::strong_count(&second)), (1, 1));
}

#[test]
fn elsewhere_nothing_is_announced() {
    let log = Log::installed();
    let nobody = thread::spawn(|| {
        let stall = enter();
        let shown = format!("{stall:?}");
        drop(stall);
        run_as(Wait::Disk, || shown)
    });
    assert_eq!(nobody.join().expect("no panic"), "Stall { announced: false }");
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(format!("{:?}", enter()), "Stall { announced: true }");
}

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// Hook that waits, and counts its calls.
fn hook() {
    run(|| run_as(Wait::Disk, || CALLS.set(CALLS.get() + 1)));
    assert!(!FAILS.get(), "told to fail");
}

#[test]
fn the_hook_is_called_once_for_each_outermost_wait() {
    assert!(before_wait(Some(hook)).is_none());
    for (wait, calls) in [(Wait::Lock, 1), (Wait::Disk, 2)] {
        run_as(wait, || run(|| run_as(Wait::Commit, || ())));
        assert_eq!(CALLS.get(), calls, "{wait:?}, and nobody is told of it");
    }
    let (first, second) = (enter(), enter());
    drop(first);
    run(|| drop(second));
    assert_eq!(CALLS.get(), 3);
    assert!(is_heard(), "a lock announces its waits");
    assert!(before_wait(None).is_some());
    run(|| ());
    assert_eq!((CALLS.get(), is_heard()), (3, false));
}

#[test]
fn the_hook_is_called_before_the_wait_is_announced() {
    thread_local! {
        static SEEN: RefCell<Option<Rc<Log>>> = const { RefCell::new(None) };
    }
    let log = Log::installed();
    SEEN.set(Some(Rc::clone(&log)));
    before_wait(Some(|| {
        SEEN.with_borrow(|log| log.as_ref().expect("set").heard.borrow_mut().push("hook"));
        run(|| ());
    }));
    run(|| run(|| ()));
    assert_eq!(log.take(), ["hook", "begin", "end", "begin", "end"]);
    run_as(Wait::Disk, || ());
    assert_eq!(log.take(), ["hook", "begin", "end", "uncounted"]);
    let _ = before_wait(None);
    run(|| ());
    assert_eq!(log.take(), ["begin", "end"]);
}

#[test]
fn a_hook_that_panics_is_called_again() {
    let log = Log::installed();
    before_wait(Some(hook));
    FAILS.set(true);
    for wait in [Wait::Lock, Wait::Disk] {
        let waited = panic::catch_unwind(|| run_as(wait, || ()));
        assert!(waited.is_err());
        assert_eq!(log.take(), ["begin", "end"], "what the hook waited for, and nothing else");
    }
    FAILS.set(false);
    run(|| ());
    assert_eq!(log.take(), ["begin", "end", "begin", "end"]);
    assert_eq!(CALLS.get(), 3);
    before_wait(None);
}

#[test]
fn a_hook_may_come_and_go_within_a_wait() {
    run(|| {
        before_wait(Some(hook));
        run(|| before_wait(None));
        run(|| ());
        before_wait(Some(hook));
    });
    assert_eq!(CALLS.get(), 1);
    run(|| ());
    assert_eq!(CALLS.get(), 2);
    before_wait(None);
}

#[test]
fn a_thread_may_wait_while_it_ends() {
    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            run(|| ());
            install(None);
        }
    }

    impl Announce for Late {
        fn begin(&self) {}
        fn end(&self) {}
        fn uncounted(&self) {}
    }

    thread_local! {
        static BEFORE: RefCell<Vec<Late>> = const { RefCell::new(Vec::new()) };
        static AFTER: RefCell<Vec<Late>> = const { RefCell::new(Vec::new()) };
    }

    // The order of destructors is unspecified, so the test has one on either side of ours.
    let ends = thread::spawn(|| {
        before_wait(Some(|| ()));
        BEFORE.with_borrow_mut(|late| late.push(Late));
        install(Some(Rc::new(Late)));
        AFTER.with_borrow_mut(|late| late.push(Late));
    });
    ends.join().expect("no panic");
}
