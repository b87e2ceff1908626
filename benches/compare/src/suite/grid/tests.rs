use super::*;
use crate::experiment::{AROUND_WINDOW, MeasuredLane, Round, Shape};

/// Three servers under two loads, without a measurement: the first needs 1000 ns, the others as many
/// percent as given for each of five rounds.
fn found(percent: [[f64; 5]; 2]) -> Found {
    let grid = Grid {
        contenders: vec![
            Contender::echo("epoll-group"),
            Contender::echo("limit"),
            Contender::echo("thread-per-connection"),
        ],
        ours: 0,
        loads: vec![32, 1024],
        unit: "connections",
        workload: |connections| Workload::Frames(Shape::plain(connections)),
    };
    let measured = grid.loads.iter().map(|&load| {
        let experiment = grid.experiment(load);
        let lanes = experiment.lanes.iter().map(|lane| {
            let mut lane = MeasuredLane::new(lane).unwrap();
            lane.syscalls_per_request = vec![2.0, 2.5, 3.0];
            lane.resident_bytes = vec![3 << 20];
            lane
        });
        let round = |round: usize| {
            let nanos = [1000.0, 10.0 * percent[0][round], 10.0 * percent[1][round]];
            let windows = nanos.into_iter().map(window).enumerate();
            Round { cycle: round, windows: windows.collect() }
        };
        Measured {
            name: experiment.name.clone(),
            lanes: lanes.collect(),
            rounds: (0..5).map(round).collect(),
        }
    });
    Found { measured: measured.collect(), grid }
}

fn window(nanos: f64) -> Window {
    Window {
        requests: 1000,
        heavy_requests: 0,
        seconds: 0.1,
        threads: 1,
        requests_per_second: 10_000.0,
        p50: 1000,
        p99: 2000,
        p999: 3000,
        max: 4000,
        server_cpu_per_request: nanos,
        voluntary_switches_per_request: 0.25,
        involuntary_switches_per_request: 0.5,
        client_cpu_per_request: 0.0,
        other_cpu_seconds: 0.0,
    }
}

#[test]
fn ratios_say_what_is_a_tie() {
    let found = found([[97.0, 99.0, 101.0, 102.0, 103.0], [150.0, 160.0, 170.0, 180.0, 190.0]]);
    let expected = "\
| connections | epoll-group | limit                | thread-per-connection |
|-------------|-------------|----------------------|-----------------------|
| 32          | 1           | 1.01 [0.97–1.03] tie | 1.70 [1.50–1.90]      |
| 1024        | 1           | 1.01 [0.97–1.03] tie | 1.70 [1.50–1.90]      |
";
    assert_eq!(found.cpu_ratios().to_string(), expected);
}

#[test]
fn tables_have_a_row_for_each_load() {
    let found = found([[100.0; 5], [200.0; 5]]);
    let last = |table: &Table| table.to_string().lines().last().unwrap().replace(' ', "");
    assert_eq!(last(&found.throughput()), "|1024|10000|10000|10000|");
    assert_eq!(last(&found.cpu()), "|1024|1.00µs|1.00µs|2.00µs|");
    assert_eq!(last(&found.p99()), "|1024|2.00µs|2.00µs|2.00µs|");
    assert_eq!(last(&found.switches()), "|1024|0.250+0.500|0.250+0.500|0.250+0.500|");
    assert_eq!(last(&found.syscalls()), "|1024|2.50|2.50|2.50|");
    assert_eq!(last(&found.wakeups()), "|1024|–|–|–|");
    assert_eq!(last(&found.resident()), "|1024|3.0|3.0|3.0|");
}

#[test]
fn charts_have_a_line_for_each_server() {
    let found = found([[100.0; 5], [200.0; 5]]);
    let chart = found.cpu_chart();
    let points: Vec<_> = chart.series.iter().map(|series| series.points.clone()).collect();
    assert_eq!(points[1], [(32.0, 1.0), (1024.0, 1.0)]);
    assert_eq!(points[2], [(32.0, 2.0), (1024.0, 2.0)]);
    assert_eq!(found.latency_chart(1024).series.len(), 3);
}

#[test]
fn time_grows_with_servers_loads_and_rounds() {
    let grid = found([[100.0; 5], [200.0; 5]]).grid;
    let plan = |cycles| Plan {
        cycles,
        window: std::time::Duration::from_millis(300),
        fresh_every: 4,
        counts_syscalls: true,
        quick: false,
    };
    // Six lanes, three starts.
    let expected = 6.0 * (11.0 * (0.3 + AROUND_WINDOW) + 3.0 * (START + 0.3));
    assert!((grid.seconds(&plan(11)) - expected).abs() < 1e-6);
    assert!(grid.seconds(&plan(5)) < expected);
}
