//! The system clock jumps: no code of the crate depends on it.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use epoll_group::stats::{Counter, Stage};

use crate::shims::{Call, Effect, Side, day_is_off_by, on_behalf};
use crate::transfers::{Pair, always};
use crate::world::World;
use lab::LONG;

const DAY: i64 = 86_400;

#[test]
fn a_clock_that_jumps_by_a_day_changes_no_time_out_no_login_and_no_statistics() {
    let world = World::enter();
    let pair = Pair::start();
    pair.server.handle().reconfigure(|config| config.enable_perf_hist(true)).expect("live");
    for seconds in [DAY, -DAY, 0, -DAY, DAY] {
        let jump = always(Call::ClockGettime, Effect::Off(seconds));
        let began = Instant::now();
        let (tell, told) = mpsc::channel();
        let delay = Duration::from_millis(20);
        let timer = pair.server.handle().after(delay, move || {
            tell.send(Instant::now()).expect("waited for");
        });
        pair.converse(5);
        let fired = told.recv_timeout(LONG).expect("it fires");
        assert!(fired >= began + delay, "not before its time");
        drop(timer);
        assert_eq!(jump.iter().map(|fault| fault.hits()).sum::<usize>(), 0, "nobody asks");
        // The clock did jump.
        let off = on_behalf(Side::Server, day_is_off_by).expect("a clock");
        assert!(off.abs_diff(Duration::from_secs(seconds.unsigned_abs())) < LONG, "{off:?}");
    }
    let stats = pair.server.stats();
    for stage in [Stage::Timer, Stage::Run, Stage::Schedule, Stage::WorkQueue] {
        let longest = stats.histogram(stage).and_then(|histogram| histogram.max());
        assert!(longest.is_none_or(|longest| longest < 2 * LONG), "{stage:?} {longest:?}");
    }
    let ends = [Counter::ClosedLoginTimeout, Counter::ClosedWriteTimeout, Counter::RequestsExpired];
    assert_eq!(ends.map(|counter| stats.get(counter)), [0; 3]);
    pair.end();
    world.is_as_before();
}
