//! Loads of a lane.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lab::load::{
    self, Churn, Conversation, Driver, Heavy, Options, Pace, Report, Target, run_together,
};
use lab::{cpu, sessions};

/// A load, before its connections are open.
#[derive(Clone)]
pub struct Workload {
    label: String,
    #[expect(clippy::type_complexity, reason = "a name for it would say no more")]
    pub connect: Rc<dyn Fn(SocketAddr) -> Result<Box<dyn Load>, Box<dyn Error>>>,
}

/// Open connections. They are quiet except inside [`Load::run_for`].
pub trait Load {
    /// Does what belongs before a window and is not measured.
    ///
    /// # Errors
    /// A connection that cannot be opened.
    fn prepare(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// Asks for this long, then waits for what is in flight.
    ///
    /// # Errors
    /// A connection with anything but the right answers.
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>>;

    /// All answers since the connections were opened.
    fn answers_total(&self) -> u64;

    /// Closes the connections. Returns all answers that came until then.
    ///
    /// # Errors
    /// A connection that was quiet or in progress, and does not answer now.
    fn finish(self: Box<Self>) -> Result<u64, Box<dyn Error>> {
        Ok(self.answers_total())
    }
}

/// Frames that must come back as they were sent.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    pub connections: usize,
    pub sessions: usize,
    pub pipeline: usize,
    pub frame_bytes: usize,
    pub pace: Pace,
    /// CPU time that each frame burns in the server.
    pub burn: Duration,
    pub heavy: Option<Heavy>,
}

impl Workload {
    pub fn new<L: Load + 'static>(
        label: impl fmt::Display,
        connect: impl Fn(SocketAddr) -> Result<L, Box<dyn Error>> + 'static,
    ) -> Self {
        let connect = move |address| Ok(Box::new(connect(address)?) as Box<dyn Load>);
        Self { label: label.to_string(), connect: Rc::new(connect) }
    }

    /// Frames from one thread.
    pub fn frames(frames: Frames) -> Self {
        Self::new(frames, move |address| Ok(frames.connect(address)?))
    }

    /// Frames from several threads on the last CPUs of the machine, which share the connections out.
    pub fn crowd(frames: Frames, threads: usize) -> Self {
        Self::new(format!("{frames} from {threads} threads"), move |address| {
            Crowd::connect(frames, threads, address)
        })
    }

    /// Frames on new connections for each window. Before a window, the old connections are closed and
    /// the new ones are opened.
    pub fn reopened(frames: Frames) -> Self {
        Self::new(format!("{frames}, just opened"), move |address| {
            Ok(Reopened { frames, address, load: None, answers_before: 0 })
        })
    }

    /// Connections that ask once each, so many at a time.
    pub fn churn(clients: usize) -> Self {
        Self::new(format!("{clients} clients"), move |address| Ok(Churn::new(address, clients)))
    }

    /// Statements of sessions.
    pub fn sessions(shape: sessions::Shape) -> Self {
        Self::new(shape, move |address| sessions::Load::connect(address, &shape))
    }
}

impl Frames {
    /// False if handlers burn CPU time: they read the clock all the time, by system calls.
    pub const fn counts_syscalls(&self) -> bool {
        self.heavy.is_none() && self.burn.is_zero()
    }

    /// Connections with one request of 64 bytes in flight each.
    pub fn plain(connections: usize) -> Self {
        let (pace, burn) = (Pace::AT_ONCE, Duration::ZERO);
        Self { connections, sessions: 1, pipeline: 1, frame_bytes: 64, pace, burn, heavy: None }
    }

    pub fn connect(&self, address: SocketAddr) -> std::io::Result<load::Load> {
        load::Load::connect(&Options {
            connections: self.connections,
            sessions_per_connection: self.sessions,
            pipeline: self.pipeline,
            frame_bytes: self.frame_bytes,
            pace: self.pace,
            burn: self.burn,
            heavy: self.heavy,
            ..Options::new(Target::Tcp(address))
        })
    }
}

impl Load for load::Load {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        Ok(Self::run_for(self, time, |_| ())?.checked()?)
    }

    fn answers_total(&self) -> u64 {
        Self::answers_total(self)
    }
}

impl<C: Conversation + Send> Load for sessions::Load<C> {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        Ok(Self::run_for(self, time)?.checked()?)
    }

    fn answers_total(&self) -> u64 {
        Self::answers_total(self)
    }
}

impl Load for Churn {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        Ok(Self::run_for(self, time)?)
    }

    fn answers_total(&self) -> u64 {
        Self::answers_total(self)
    }
}

/// Frames on connections of which each serves one window.
struct Reopened {
    frames: Frames,
    address: SocketAddr,
    load: Option<load::Load>,
    /// Answers on connections that are closed.
    answers_before: u64,
}

impl Load for Reopened {
    fn prepare(&mut self) -> Result<(), Box<dyn Error>> {
        self.answers_before = self.answers_total();
        // Closed before the others are opened.
        self.load = None;
        self.load = Some(self.frames.connect(self.address)?);
        Ok(())
    }

    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        let load = self.load.as_mut().ok_or("the connections are not open")?;
        Load::run_for(load, time)
    }

    fn answers_total(&self) -> u64 {
        self.answers_before + self.load.as_ref().map_or(0, load::Load::answers_total)
    }
}

/// Frames from several threads.
struct Crowd(Vec<Driver<load::Frames>>);

impl Crowd {
    fn connect(
        frames: Frames,
        threads: usize,
        address: SocketAddr,
    ) -> Result<Self, Box<dyn Error>> {
        let share =
            |thread| Frames { connections: (frames.connections + thread) / threads, ..frames };
        let loads = (0..threads).map(|thread| Ok(share(thread).connect(address)?.into_driver()));
        Ok(Self(loads.collect::<Result<_, Box<dyn Error>>>()?))
    }
}

impl Load for Crowd {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        let threads = self.0.len();
        Ok(run_together(&mut self.0, time, || cpu::bind_to_last(threads))?.checked()?)
    }

    fn answers_total(&self) -> u64 {
        self.0.iter().map(Driver::answers_total).sum()
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.connections)?;
        if self.sessions > 1 {
            write!(f, " x {} sessions", self.sessions)?;
        }
        write!(f, " x {}", self.pipeline)?;
        if self.frame_bytes != 64 {
            write!(f, ", {} bytes", self.frame_bytes)?;
        }
        if self.pace != Pace::AT_ONCE {
            write!(f, ", {}", self.pace)?;
        }
        if !self.burn.is_zero() {
            write!(f, ", burn {} µs", self.burn.as_micros())?;
        }
        if let Some(Heavy { connections, burn, pipeline }) = self.heavy {
            write!(f, ", heavy {connections}:{} x {pipeline}", burn.as_micros())?;
        }
        Ok(())
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

#[cfg(test)]
mod tests {
    use baselines::Server;

    use super::*;

    #[test]
    fn a_crowd_shares_out_its_connections_and_adds_up_its_answers() {
        let any = ([127, 0, 0, 1], 0).into();
        let server = Server::start(&"epoll-group:2".parse().unwrap(), any).unwrap();
        let mut load = Crowd::connect(Frames::plain(7), 3, server.address()).unwrap();
        // Each connection is greeted.
        let answers: Vec<_> = load.0.iter().map(Driver::answers_total).collect();
        assert_eq!(answers, [2, 2, 3]);
        let report = Load::run_for(&mut load, Duration::from_millis(20)).unwrap();
        assert!(report.requests >= 7);
        assert_eq!(report.hist.len(), report.requests);
        assert_eq!(load.answers_total(), 7 + report.requests);
    }
}
