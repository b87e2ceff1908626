//! Comparisons too short to measure anything.

use super::*;

pub(super) fn args() -> Args {
    let line = "designs --clients 3 --key-space-size 150 --val-size 64 --records 20000 --growing 50 \
                --pairs 2 --seconds 0.005";
    match crate::args::tests::parse(line).map(|command| command.task) {
        Ok(Some(crate::args::Task::Designs(args))) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_design_is_compared_with_the_default() {
    let mut out = Vec::new();
    run(&args(), &mut out).expect("they run, and stores are as they should be");
    let text = String::from_utf8(out).expect("it is text");
    for design in compared() {
        let is_row = |line: &&str| line.split_whitespace().nth(3) == Some(design.name());
        let rows = text.lines().filter(is_row).count();
        assert_eq!(rows, 1 + 2 * REVISIONS.len(), "{design}: {text}");
    }
}

#[test]
fn what_was_put_later_is_forgotten() {
    for (revisions, keys) in [(1, 150), (3, 150), (7, 2)] {
        let case = Case { revisions, keys };
        let subject = held(&args(), case, BASE).expect("it is filled");
        let records = || subject.records().expect("they agree");
        assert_eq!(records(), revisions * keys);
        for _ in 0..3 {
            subject.window(Level::Store, Until::Requests(100)).expect("it puts");
            assert!(records() > revisions * keys);
            subject.forget().expect("it compacts");
        }
        // The revisions that are kept are counted in transactions, of up to 100 puts.
        assert!(records() <= revisions * keys + 100, "{} of {case:?}", records());
        assert!(records() >= keys);
    }
}

#[test]
fn as_many_are_put_as_asked_for() {
    let subject = held(&args(), Case { revisions: 1, keys: 150 }, BASE).expect("it is filled");
    for level in [Level::Store, Level::Network] {
        let window = subject.window(level, Until::Requests(100)).expect("it puts");
        assert_eq!(window.puts, 100, "{level}");
    }
    assert_eq!(subject.records().expect("they agree"), 350);
}
