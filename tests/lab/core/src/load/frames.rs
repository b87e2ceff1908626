//! Load of an echo server: frames that must come back as they were sent.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::question::{HEADER_BYTES, HEAVY_FRAME_BYTES, Pattern, Question, Shape};
use super::{Answer, Conversation, Driver, Habit, Pause, Progress, Report, Target, connect};

/// Load of an echo server.
#[derive(Clone, Debug)]
pub struct Options {
    pub target: Target,
    pub connections: usize,
    pub sessions_per_connection: usize,
    /// Requests in flight for each session.
    pub pipeline: usize,
    /// Size of a frame with its header.
    pub frame_bytes: usize,
    pub pace: Pace,
    /// CPU time that each frame burns in the server. It needs frames of 25 bytes.
    pub burn: Duration,
    pub heavy: Option<Heavy>,
    /// Silence of the server after which the end of a window, or connecting, gives up.
    pub quiesce: Duration,
}

/// When the light connections ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A pause after the answer, which may be zero.
    After(Duration),
    /// At random times, with this mean pause of a session.
    Random(Duration),
    /// `size` connections at the same time, and after `every` the next ones, in turn. A connection
    /// that still waits for its answer leaves its turn out.
    Bursts { size: usize, every: Duration },
}

/// Further connections that ask without pause for frames that burn CPU time in the server.
#[derive(Clone, Copy, Debug)]
pub struct Heavy {
    pub connections: usize,
    pub burn: Duration,
    /// Requests in flight on each.
    pub pipeline: usize,
}

/// Open connections to an echo server. They are quiet except inside [`run_for`](Self::run_for).
///
/// ```ignore
/// let mut load = Load::connect(&Options::new("127.0.0.1:4711".parse()?))?;
/// let report = load.run_for(Duration::from_secs(1), |_| ())?;
/// ```
#[derive(Debug)]
pub struct Load {
    driver: Driver<Frames>,
}

/// Questions and answers of one connection: frames, numbered for each session.
#[derive(Debug)]
pub struct Frames {
    connection: usize,
    shape: Shape,
    pattern: Arc<Pattern>,
    /// Frames asked and answered, of each session.
    sessions: Vec<(u64, u64)>,
    /// First bytes of the arriving answer, which name its session. The rest is compared as it arrives.
    id: [u8; ID_BYTES],
    seen: usize,
    session: u32,
    question: Question,
}

const ID_BYTES: usize = 8;
/// Connections that are opened before they are greeted. A listener's queue often has room for 128, and
/// the kernel retries a connect that overflows it only after a second.
const WAVE: usize = 64;

impl Options {
    /// One connection with one request of 64 bytes in flight.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            connections: 1,
            sessions_per_connection: 1,
            pipeline: 1,
            frame_bytes: 64,
            pace: Pace::AT_ONCE,
            burn: Duration::ZERO,
            heavy: None,
            quiesce: Duration::from_secs(10),
        }
    }
}

impl Pace {
    pub const AT_ONCE: Self = Self::After(Duration::ZERO);

    /// Pauses of one of so many connections.
    fn pause(self, place: usize, connections: usize) -> Pause {
        match self {
            Self::AT_ONCE => Pause::None,
            Self::After(pause) => Pause::Exactly(pause),
            Self::Random(mean) => Pause::Random(mean),
            Self::Bursts { size, every } => {
                let bursts = connections.div_ceil(size.max(1)) as u32;
                let offset = every * (place / size.max(1)) as u32;
                Pause::Until { every: every * bursts, offset }
            }
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(pause) => write!(f, "think {} µs", pause.as_micros()),
            Self::Random(mean) => write!(f, "at random, each after {} µs", mean.as_micros()),
            Self::Bursts { size, every } => {
                write!(f, "bursts of {size} each {} µs", every.as_micros())
            }
        }
    }
}

impl Load {
    /// Opens all connections and exchanges one frame on each, so that the server knows all of them
    /// before the first window and holds none of them for silent.
    ///
    /// # Errors
    /// The first connection that cannot be opened, or that does not echo.
    pub fn connect(options: &Options) -> io::Result<Self> {
        let Options { target, connections, frame_bytes, .. } = options;
        let heavy =
            options.heavy.unwrap_or(Heavy { connections: 0, burn: Duration::ZERO, pipeline: 1 });
        if *frame_bytes < HEADER_BYTES {
            let bytes = frame_bytes;
            let text = format!("a frame of {bytes} bytes is below its header's {HEADER_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if options.sessions_per_connection == 0 || options.pipeline.min(heavy.pipeline) == 0 {
            let text = "a connection needs at least one session and a pipeline of one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let burn = (!options.burn.is_zero()).then_some(options.burn);
        if burn.is_some() && *frame_bytes < HEAVY_FRAME_BYTES {
            let bytes = frame_bytes;
            let text = format!("a frame of {bytes} bytes has no room for its {HEAVY_FRAME_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let light_shape = Shape { frame_bytes: *frame_bytes, burn };
        let heavy_shape =
            Shape { frame_bytes: HEAVY_FRAME_BYTES.max(*frame_bytes), burn: Some(heavy.burn) };
        let light_habit = |place| Habit {
            sessions: options.sessions_per_connection as u32,
            pipeline: options.pipeline,
            pause: options.pace.pause(place, *connections),
            heavy: false,
        };
        let heavy_habit =
            Habit { sessions: 1, pipeline: heavy.pipeline, pause: Pause::None, heavy: true };
        let pattern = Arc::new(Pattern::new(heavy_shape.frame_bytes));
        let mut driver = Driver::new(options.quiesce, 0)?;
        let count = connections + heavy.connections;
        for place in 0..count {
            let (shape, habit) = match place < *connections {
                true => (light_shape, light_habit(place)),
                false => (heavy_shape, heavy_habit),
            };
            let socket = connect(target).map_err(|error| {
                io::Error::new(error.kind(), format!("connection {place} to {target}: {error}"))
            })?;
            let frames = Frames::new(place, shape, &pattern, habit.sessions as usize);
            driver.add(socket, frames, habit)?;
            if (place + 1).is_multiple_of(WAVE) || place + 1 == count {
                driver.greet(place / WAVE * WAVE..place + 1)?;
            }
        }
        Ok(Self { driver })
    }

    /// Asks for this long, then waits for what is in flight, see [`Driver::run_for`].
    ///
    /// # Errors
    /// Epoll fails. Failures of connections are in the report.
    pub fn run_for(
        &mut self,
        time: Duration,
        progress: impl FnMut(&Progress),
    ) -> io::Result<Report> {
        self.driver.run_for(time, progress)
    }

    /// All answers since the connections were opened, the ones exchanged then included.
    pub fn answers_total(&self) -> u64 {
        self.driver.answers_total()
    }

    /// The driver, to run it together with others.
    pub fn into_driver(self) -> Driver<Frames> {
        self.driver
    }
}

impl Frames {
    /// One session with frames of this size.
    pub fn plain(connection: usize, frame_bytes: usize) -> Self {
        let shape = Shape { frame_bytes, burn: None };
        Self::new(connection, shape, &Arc::new(Pattern::new(frame_bytes)), 1)
    }

    fn new(connection: usize, shape: Shape, pattern: &Arc<Pattern>, sessions: usize) -> Self {
        Self {
            connection,
            shape,
            pattern: Arc::clone(pattern),
            sessions: vec![(0, 0); sessions],
            id: [0; ID_BYTES],
            seen: 0,
            session: 0,
            question: Question::new(shape, 0, 0),
        }
    }

    /// The first bytes of the answer are here: finds the oldest open question of their session.
    fn begin_answer(&mut self) -> Result<(), String> {
        let id = u64::from_le_bytes(self.id);
        let session = id as u32;
        let known = self.sessions.get(session as usize);
        let Some(&(asked, answered)) = known.filter(|_| id == session_id(self.connection, session))
        else {
            return Err(format!("an answer to {id:#x}, which is none of its sessions"));
        };
        if asked == answered {
            return Err(format!("session {session}: an answer without a question"));
        }
        self.session = session;
        self.question = Question::new(self.shape, id, answered);
        Ok(())
    }
}

impl Conversation for Frames {
    fn ask(&mut self, session: u32, out: &mut Vec<u8>) {
        let (asked, _) = &mut self.sessions[session as usize];
        let id = session_id(self.connection, session);
        Question::new(self.shape, id, *asked).append_to(out, &self.pattern);
        *asked += 1;
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        _: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.seen < ID_BYTES {
                let count = bytes.len().min(ID_BYTES - self.seen);
                let (id, rest) = bytes.split_at(count);
                self.id[self.seen..][..count].copy_from_slice(id);
                self.seen += count;
                bytes = rest;
                if self.seen == ID_BYTES {
                    self.begin_answer()?;
                }
                continue;
            }
            let count = bytes.len().min(self.question.frame_bytes - self.seen);
            let (found, rest) = bytes.split_at(count);
            let (_, answered) = &mut self.sessions[self.session as usize];
            if let Err(difference) = self.question.compare(&self.pattern, self.seen, found) {
                return Err(format!(
                    "session {}: byte {} of the answer to request {answered} is {:#04x}, but {:#04x} \
                     was sent",
                    self.session, difference.offset, difference.found, difference.expected,
                ));
            }
            self.seen += count;
            bytes = rest;
            if self.seen == self.question.frame_bytes {
                self.seen = 0;
                *answered += 1;
                answers.push(Answer { session: self.session, wrong: None });
            }
        }
        Ok(())
    }
}

/// Wire id of a session. Ids differ between connections, so that an answer on the wrong connection
/// is noticed.
pub fn session_id(connection: usize, session: u32) -> u64 {
    ((connection as u64 + 1) << 32) | u64::from(session)
}
