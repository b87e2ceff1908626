//! The load of a lane, whichever generator makes it.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::affinity;
use super::cpu;
use super::experiment::Shape;
use super::load::{self, Target};
use super::sessions;
use super::suite::{locks, many, slow_links};

/// What a server is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// Frames that are to come back as they are.
    Frames(Shape),
    /// The same from so many threads, on the last CPUs of the machine; the connections are shared
    /// out among them.
    Crowd(Shape, usize),
    /// Statements of sessions.
    Sessions(sessions::Shape),
    /// Locks that are held between two requests.
    Locks(locks::Shape),
    /// Short frames beside large ones that trickle.
    SlowLinks(slow_links::Shape),
    /// Frames on some of very many connections.
    Many(many::Shape),
}

/// Open connections, quiet but for [`Load::run_for`].
#[derive(Debug)]
pub(crate) enum Load {
    Frames(Box<load::Load>),
    Crowd(Vec<load::Load>),
    Sessions(sessions::Load),
    Locks(locks::Load),
    SlowLinks(Box<slow_links::Load>),
    Many(Box<many::Load>),
}

/// One window: all requests that were asked in it, each with its answer.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) requests: u64,
    pub(crate) heavy_requests: u64,
    pub(crate) seconds: f64,
    /// Nanoseconds.
    pub(crate) hist: Histogram<u64>,
    pub(crate) client_cpu: Duration,
}

impl Workload {
    pub(crate) fn connect(&self, address: SocketAddr) -> Result<Load, Box<dyn Error>> {
        Ok(match self {
            Self::Frames(shape) => Load::Frames(Box::new(connect_frames(*shape, address)?)),
            Self::Crowd(shape, threads) => {
                let share = |thread| Shape {
                    connections: (shape.connections + thread) / threads,
                    ..*shape
                };
                let loads = (0..*threads).map(|thread| connect_frames(share(thread), address));
                Load::Crowd(loads.collect::<Result<_, _>>()?)
            }
            Self::Sessions(shape) => Load::Sessions(sessions::Load::connect(address, shape)?),
            Self::Locks(shape) => Load::Locks(locks::Load::connect(address, shape)?),
            Self::SlowLinks(shape) => {
                Load::SlowLinks(Box::new(slow_links::Load::connect(address, shape)?))
            }
            Self::Many(shape) => Load::Many(Box::new(many::Load::connect(address, shape)?)),
        })
    }
}

impl Load {
    /// Asks for so long, then waits for what is in flight.
    ///
    /// # Errors
    /// Any connection on which anything but the right answer came.
    pub(crate) fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        match self {
            Self::Frames(load) => Ok(frames(load, time)?),
            Self::Crowd(loads) => ask_all(loads, time),
            Self::Sessions(load) => {
                let report = load.run_for(time)?;
                if let Some(failure) = report.first_error {
                    let text = format!("{} connections failed, first: {failure}", report.errors);
                    return Err(io::Error::other(text).into());
                }
                Ok(Report {
                    requests: report.requests,
                    heavy_requests: 0,
                    seconds: report.seconds,
                    hist: report.hist,
                    client_cpu: report.client_cpu,
                })
            }
            Self::Locks(load) => load.run_for(time),
            Self::SlowLinks(load) => load.run_for(time),
            Self::Many(load) => load.run_for(time),
        }
    }

    /// All answers since the connections were opened.
    pub(crate) fn answers_total(&self) -> u64 {
        match self {
            Self::Frames(load) => load.answers_total(),
            Self::Crowd(loads) => loads.iter().map(load::Load::answers_total).sum(),
            Self::Sessions(load) => load.answers_total(),
            Self::Locks(load) => load.answers_total(),
            Self::SlowLinks(load) => load.answers_total(),
            Self::Many(load) => load.answers_total(),
        }
    }

    /// Closes the connections; all answers that came until then.
    ///
    /// # Errors
    /// What was quiet or under way, and is not answered now.
    pub(crate) fn finish(self) -> Result<u64, Box<dyn Error>> {
        match self {
            Self::SlowLinks(load) => Ok(load.finish()?),
            Self::Many(load) => load.finish(),
            other => Ok(other.answers_total()),
        }
    }
}

fn connect_frames(shape: Shape, address: SocketAddr) -> io::Result<load::Load> {
    load::Load::connect(&shape.options(Target::Tcp(address)))
}

/// One window of the usual load of frames.
pub(crate) fn frames(load: &mut load::Load, time: Duration) -> io::Result<Report> {
    let cpu_before = cpu::of_thread();
    let report = load.run_for(time, |_| ())?;
    if let Some(failure) = report.first_error {
        return Err(io::Error::other(failure.to_string()));
    }
    Ok(Report {
        requests: report.requests,
        heavy_requests: report.heavy_requests,
        seconds: report.seconds,
        hist: report.hist,
        client_cpu: cpu::of_thread().saturating_sub(cpu_before),
    })
}

/// One window of all threads, each in its own.
fn ask_all(loads: &mut [load::Load], time: Duration) -> Result<Report, Box<dyn Error>> {
    let threads = loads.len();
    let reports: Vec<_> = thread::scope(|scope| {
        let start = |load| {
            scope.spawn(move || {
                affinity::bind_to_last(threads)?;
                frames(load, time)
            })
        };
        let started: Vec<_> = loads.iter_mut().map(start).collect();
        let joined = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        started.into_iter().map(joined).collect()
    });
    let mut reports = reports.into_iter();
    let mut all = reports.next().ok_or("a load of no threads")??;
    for report in reports {
        let report = report?;
        all.requests += report.requests;
        all.heavy_requests += report.heavy_requests;
        all.seconds = all.seconds.max(report.seconds);
        all.hist.add(&report.hist)?;
        all.client_cpu += report.client_cpu;
    }
    Ok(all)
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames(shape) => shape.fmt(f),
            Self::Crowd(shape, threads) => write!(f, "{shape} from {threads} threads"),
            Self::Sessions(shape) => shape.fmt(f),
            Self::Locks(shape) => shape.fmt(f),
            Self::SlowLinks(shape) => shape.fmt(f),
            Self::Many(shape) => shape.fmt(f),
        }
    }
}
