//! Large requests that come in trickles, whose answers are taken in trickles, and short ones.
//!
//! A slow connection sends one frame chunk by chunk, takes the answer chunk by chunk, and begins again. A
//! clock says when it is its turn, so it needs no readiness. Between windows it stops where it is.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::cpu;
use lab::load::{self, Conversation, Pace, Report, sys};
use socket2::{Domain, Socket, Type};

use super::hot::HEAVY_REQUESTS;
use super::{SERVERS, Suite, line_up, section};
use crate::experiment::Plan;
use crate::report::Section;
use crate::table::{CPU_EACH, P50, P99_EACH, P99_RATIO, P999, PEAK, REQUESTS, THREADS};
use crate::workload::{Frames, Load, Workload};

pub const SUITE: Suite = Suite {
    name: "slow_links",
    question: "How long do others wait while large requests trickle in?",
    run,
};

const LIGHT: usize = 32;
const SLOW: usize = 64;
/// All light connections together ask 10 000 times a second.
const THINK: Duration = Duration::from_micros(100 * LIGHT as u64);
/// Bytes that a slow connection sends or takes at a time, and the pause after it.
const CHUNK_BYTES: usize = 4 << 10;
const PAUSE: Duration = Duration::from_millis(4);
/// Frame sizes of the slow connections, in turn.
const FRAME_BYTES: [usize; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Small, so that a slow answer waits in the server and not in the kernel.
const RECEIVE_BUFFER: usize = 16 << 10;
/// Wait for an answer when the load is over.
const PATIENCE: Duration = Duration::from_secs(10);

const TEXT: &str = "\
64 connections send frames of 64 KiB to 1 MiB, 4 KiB every 4 ms, and take their answers as slowly. Beside \
them 32 connections ask now and then with 64 bytes, 10 000 times a second together: latencies and requests/s \
are theirs. CPU time per request is all that the server takes, over all answers; most of it goes to the large \
frames. A server that reads a request to its end before it looks at another one has its threads wait for the \
slow ones. One that buffers pays with memory, which is bounded by the frames in progress.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let name = format!("{LIGHT} light connections, {SLOW} slow ones");
    let workload = Workload::new(&name, |address| Ok(SlowLinks::connect(address, LIGHT, SLOW)?));
    let found = [line_up(&name, &SERVERS, &workload, plan)?];
    let columns =
        [P50, P99_EACH, P99_RATIO, P999, REQUESTS, HEAVY_REQUESTS, CPU_EACH, PEAK, THREADS];
    Ok(section("Large requests on slow links", TEXT, &found, &columns))
}

/// The light connections, and the slow ones with the number of the next one.
struct SlowLinks {
    light: load::Load,
    slow: Vec<Link>,
    next: usize,
}

struct Link {
    socket: TcpStream,
    frames: load::Frames,
    /// Rest of the question.
    out: Vec<u8>,
    /// It has asked and has no answer.
    waits: bool,
    answers: u64,
}

impl SlowLinks {
    fn connect(address: SocketAddr, light: usize, slow: usize) -> io::Result<Self> {
        let light = Frames { pace: Pace::After(THINK), ..Frames::plain(light) }.connect(address)?;
        let mut slow =
            (0..slow).map(|place| Link::connect(address, place)).collect::<io::Result<Vec<_>>>()?;
        // A server may close a connection that is silent for long, and the load may begin late.
        slow.iter_mut().try_for_each(Link::turn)?;
        Ok(Self { light, slow, next: 0 })
    }

    /// Lets the slow links have their turns. Returns the CPU time that this has cost.
    fn trickle(slow: &mut [Link], next: &mut usize, over: &AtomicBool) -> io::Result<Duration> {
        sys::wake_precisely()?;
        let pause = PAUSE / slow.len().max(1) as u32;
        let mut at = Instant::now();
        while !over.load(Ordering::Relaxed) {
            at += pause;
            thread::sleep(at.saturating_duration_since(Instant::now()));
            slow[*next].turn()?;
            *next = (*next + 1) % slow.len();
        }
        Ok(cpu::of_thread())
    }

    fn slow_answers(&self) -> u64 {
        self.slow.iter().map(|link| link.answers).sum()
    }
}

impl Load for SlowLinks {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        let (over, before) = (AtomicBool::new(false), self.slow_answers());
        let Self { light, slow, next } = self;
        let (report, cpu) = thread::scope(|scope| {
            let trickle = scope.spawn(|| Self::trickle(slow, next, &over));
            let report = Load::run_for(light, time);
            over.store(true, Ordering::Relaxed);
            (report, trickle.join().expect("a slow link does not panic"))
        });
        let mut report = report?;
        report.heavy_requests = self.slow_answers() - before;
        report.client_cpu += cpu?;
        Ok(report)
    }

    fn answers_total(&self) -> u64 {
        self.light.answers_total() + self.slow_answers()
    }

    /// Ends the frames in progress, without a pause.
    fn finish(mut self: Box<Self>) -> Result<u64, Box<dyn Error>> {
        self.slow.iter_mut().try_for_each(Link::finish)?;
        Ok(self.answers_total())
    }
}

impl Link {
    fn connect(address: SocketAddr, place: usize) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        socket.connect(&address.into())?;
        socket.set_tcp_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let frames = load::Frames::plain(place, FRAME_BYTES[place % FRAME_BYTES.len()]);
        Ok(Self { socket: socket.into(), frames, out: Vec::new(), waits: false, answers: 0 })
    }

    /// Moves one chunk, there or back.
    fn turn(&mut self) -> io::Result<()> {
        if !self.waits {
            self.frames.ask(0, &mut self.out);
            self.waits = true;
        }
        if !self.out.is_empty() {
            let chunk = &self.out[..CHUNK_BYTES.min(self.out.len())];
            let sent = moved(self.socket.write(chunk))?.unwrap_or(0);
            self.out.drain(..sent);
            return Ok(());
        }
        self.receive()
    }

    /// Ends the frame in progress.
    fn finish(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(PATIENCE))?;
        self.socket.write_all(&self.out)?;
        while self.waits {
            self.receive()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut answers = Vec::new();
        match moved(self.socket.read(&mut chunk))? {
            Some(0) => return Err(io::Error::other("a slow link was closed by the server")),
            count => {
                let bytes = &chunk[..count.unwrap_or(0)];
                let taken = self.frames.take(bytes, &mut self.out, &mut answers);
                taken.map_err(io::Error::other)?;
            }
        }
        self.answers += answers.len() as u64;
        self.waits = answers.is_empty();
        Ok(())
    }
}

/// `None`: the socket would have to wait.
fn moved(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_trickle_come_back_whole() {
        for spec in ["epoll-group:2", "thread-per-connection", "limit:1"] {
            let any = ([127, 0, 0, 1], 0).into();
            let server = baselines::Server::start(&spec.parse().unwrap(), any).unwrap();
            let mut load = SlowLinks::connect(server.address(), 2, 3).unwrap();
            let mut large = 0;
            // The smallest is sixteen chunks long, there and back.
            while large < 2 {
                let report = load.run_for(Duration::from_millis(50)).unwrap();
                assert!(report.requests > 0);
                large += report.heavy_requests;
            }
            let answers = load.answers_total();
            assert!(Box::new(load).finish().unwrap() >= answers);
        }
    }
}
