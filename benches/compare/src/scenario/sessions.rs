//! Statements of sessions: `select 1` against a server with a thread for each session, the same
//! against fewer sessions, and kinds of point selects against each other.

use std::error::Error;
use std::io::Write;

use super::{BASE, Check, Outcome, SUBJECT, Target};
use crate::args::{Part, Sessions};
use crate::experiment::{Experiment, Lane, Measured, Processes, Window};
use crate::load::raise_descriptor_limit;
use crate::server::{Server, Sql};
use crate::sessions::{Question, Shape};
use crate::spread::Spread;
use crate::workload::Workload;

/// At least this, times the base, at so many sessions.
const FASTER: f64 = 2.0;
const FASTER_AT: usize = 1024;
/// At least this, times the peak, at all larger numbers of sessions.
const NO_FALL: f64 = 0.9;
/// CPU of a text that differs each time, at least so many times that of a plan.
const PLAN_GAIN: f64 = 1.36;

/// `select 1` looks at none: so that the servers start soon.
const FEW_ROWS: u32 = 1000;

const POINTS: [Question; 4] =
    [Question::Text, Question::Digest, Question::Plan, Question::PlanChunk];
/// Lanes of the point selects, in the order of [`POINTS`].
const TEXT: usize = 0;
const PLAN: usize = 2;

pub(crate) fn run(args: &Sessions, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let mut outcome = Outcome::new(&args.length);
    let experiments: Vec<_> = args.parts.iter().flat_map(|&part| of_part(args, part)).collect();
    outcome.measure(&experiments)?;
    let mut checks = Vec::new();
    let mut measured = outcome.experiments.iter();
    for part in &args.parts {
        match part {
            Part::Base => {
                for (&count, measured) in args.sessions.iter().zip(measured.by_ref()) {
                    checks.extend(faster(count, measured));
                }
            }
            Part::Scale => checks.extend(measured.next().and_then(|found| falls(args, found))),
            Part::Points => checks.extend(measured.next().into_iter().flat_map(gains)),
        }
    }
    outcome.checks = checks;
    outcome.print("sessions", out)?;
    outcome.write_down(&args.json, out)
}

fn of_part(args: &Sessions, part: Part) -> Vec<Experiment> {
    let lane = |server: &Sql, sessions: usize, question: Question| Lane {
        server: Server::Sql(server.clone(), if question.is_point() { args.rows } else { FEW_ROWS }),
        workload: Workload::Sessions(Shape {
            connections: server.connections(args.connections, sessions),
            sessions,
            question,
            rows: args.rows,
            threads: args.load_threads,
        }),
    };
    match part {
        Part::Base => {
            let against_base = |&count: &usize| Experiment {
                name: format!("{count} sessions"),
                lanes: vec![
                    lane(&args.base, count, Question::SelectOne),
                    lane(&args.subject, count, Question::SelectOne),
                ],
                groups: vec![vec![BASE, SUBJECT]],
                processes: Processes::OneEach,
            };
            args.sessions.iter().map(against_base).collect()
        }
        Part::Scale => {
            let counts = args.sessions.iter();
            let lanes: Vec<_> =
                counts.map(|&count| lane(&args.subject, count, Question::SelectOne)).collect();
            vec![in_turn("scale", lanes, Processes::OneEach)]
        }
        Part::Points => {
            let lanes = POINTS.map(|question| lane(&args.subject, args.point_sessions, question));
            vec![in_turn("points", lanes.into(), Processes::OneForEqual)]
        }
    }
}

/// All lanes one right after the other.
fn in_turn(name: &str, lanes: Vec<Lane>, processes: Processes) -> Experiment {
    let groups = vec![(0..lanes.len()).collect()];
    Experiment { name: name.to_owned(), lanes, groups, processes }
}

fn faster(count: usize, measured: &Measured) -> [Check; 2] {
    let check = |what: &str, metric: fn(&Window) -> f64, target| {
        let what = format!("{what}, select 1, {count} sessions: ratio to the base");
        Check::ratio(what, measured, (SUBJECT, BASE, None), metric, target)
    };
    let throughput_target = if count == FASTER_AT { Target::AtLeast(FASTER) } else { Target::Seen };
    [
        check("requests/s", |window| window.requests_per_second, throughput_target),
        check("server CPU per request", |window| window.server_cpu_per_request, Target::Seen),
    ]
}

/// The lowest of the larger numbers of sessions, beside the number that was the fastest.
fn falls(args: &Sessions, measured: &Measured) -> Option<Check> {
    let throughput = |window: &Window| window.requests_per_second;
    let median =
        |lane: usize| measured.values(lane, throughput).map_or(0.0, |spread: Spread| spread.median);
    let lanes = 0..args.sessions.len();
    let peak = lanes.clone().max_by(|&a, &b| median(a).total_cmp(&median(b)))?;
    let beyond = lanes.filter(|&lane| args.sessions[lane] >= args.sessions[peak]);
    let lowest = beyond.min_by(|&a, &b| median(a).total_cmp(&median(b)))?;
    let (low, high) = (args.sessions[lowest], args.sessions[peak]);
    let what = format!("requests/s, select 1, {low} sessions: ratio to the peak at {high}");
    let target = Target::AtLeast(NO_FALL);
    Some(Check::ratio(what, measured, (lowest, peak, None), throughput, target))
}

/// What the other kinds save of the CPU time that a text takes.
fn gains(measured: &Measured) -> Vec<Check> {
    let others = (0..POINTS.len()).filter(|&lane| lane != TEXT);
    let check = |lane: usize| {
        let what = format!("server CPU per point select, text to {}: ratio", POINTS[lane]);
        let target = if lane == PLAN { Target::AtLeast(PLAN_GAIN) } else { Target::Seen };
        let cpu = |window: &Window| window.server_cpu_per_request;
        Check::ratio(what, measured, (TEXT, lane, None), cpu, target)
    };
    others.map(check).collect()
}
