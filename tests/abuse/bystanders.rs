//! Tests of the bystanders of the abuses: they count each request once, and notice what is wrong.

use std::time::Duration;

use epoll_group::stats::Counter;

use lab::abuse::Target;
use lab::abuse::bout::alone;
use lab::abuse::bystanders::{Bystanders, Habits, Report};
use lab::engine::{Fixture, PASSWORD, config};

const WINDOW: Duration = Duration::from_millis(50);

fn bystanders(fixture: &Fixture, statement: &'static str) -> Bystanders {
    let target = Target {
        address: fixture.addr(),
        logins: true,
        user: "root".into(),
        password: PASSWORD.into(),
        small: "one".into(),
        large: "source 1000 1000".into(),
    };
    let habits = Habits { connections: 4, statement, ..Habits::default() };
    Bystanders::connect(&target, habits).expect("all are let in")
}

fn window(bystanders: &mut Bystanders) -> Report {
    loop {
        let report = bystanders.run_for(WINDOW).expect("connections");
        assert!(report.is_complete(), "{report:?}");
        // On a busy machine a window may be over before a bystander has sent a request.
        if report.asked > 0 {
            return report;
        }
    }
}

#[test]
fn bystanders_of_a_good_server_get_all_their_answers() {
    let _alone = alone();
    let fixture = Fixture::start(config());
    let mut bystanders = bystanders(&fixture, "echo ");
    let mut all = window(&mut bystanders);
    // Many windows, because a request left over from one must not be counted in the next.
    (0..10).for_each(|_| all.add(&window(&mut bystanders)));
    assert_eq!((all.failed, all.hist.len()), (0, all.requests), "{all:?}");
    assert!(all.quantile(0.5) <= all.quantile(0.99));
}

#[test]
fn bystanders_see_wrong_answers_and_errors() {
    let _alone = alone();
    let fixture = Fixture::start(config());
    for statement in ["text ", "fail "] {
        let report = window(&mut bystanders(&fixture, statement));
        assert_eq!((report.requests, report.hist.len()), (0, 0), "{report:?}");
        assert!(report.first_error.is_some_and(|why| why.contains("asked for")));
    }
}

#[test]
fn bystanders_whose_connection_is_cut_fail_their_requests_and_connect_again() {
    let _alone = alone();
    let fixture = Fixture::start(config());
    let mut bystanders = bystanders(&fixture, "fatal ");
    let report = window(&mut bystanders);
    assert_eq!((report.requests, report.failed), (0, report.asked), "{report:?}");
    // At least one bystander has asked.
    fixture.wait_for(Counter::SessionsClosed, 1);
    let _ = window(&mut bystanders);
    assert_eq!(bystanders.open(), 4);
}
