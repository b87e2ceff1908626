//! Load of an echo server: connections that come, ask once, and go.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{Conversation, Frames, Report};
use crate::cpu;

/// Clients on one thread. Each connects, asks, takes the answer, closes, and begins again.
///
/// The thread waits for the clients in turn, so that all but one of them have always asked. Latencies
/// hold the time in which an answer waited for its turn.
#[derive(Debug)]
pub struct Churn {
    server: SocketAddr,
    clients: usize,
    answers_total: u64,
}

/// A client that has asked.
struct Client {
    socket: Socket,
    frames: Frames,
    began: Instant,
}

const FRAME_BYTES: usize = 64;
/// Silence of the server after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(10);

impl Churn {
    /// Clients that are to connect to a server on this machine.
    pub fn new(server: SocketAddr, clients: usize) -> Self {
        Self { server, clients, answers_total: 0 }
    }

    /// Comes and goes for this long, then waits for what is in flight.
    ///
    /// # Errors
    /// The first connection that cannot be opened or does not echo.
    pub fn run_for(&mut self, time: Duration) -> io::Result<Report> {
        let cpu_before = cpu::of_thread();
        let began = Instant::now();
        let mut report = Report::new();
        let mut clients = Vec::new();
        for place in 0..self.clients {
            clients.push(Client::ask(self.server, place)?);
        }
        let mut buffer = [0; 2 * FRAME_BYTES];
        while began.elapsed() < time {
            for (place, client) in clients.iter_mut().enumerate() {
                client.take(&mut buffer, &mut report)?;
                *client = Client::ask(self.server, place)?;
            }
        }
        for mut client in clients {
            client.take(&mut buffer, &mut report)?;
        }
        report.asked = report.requests;
        report.seconds = began.elapsed().as_secs_f64();
        report.client_cpu = cpu::of_thread().saturating_sub(cpu_before);
        self.answers_total += report.requests;
        Ok(report)
    }

    /// All answers.
    pub fn answers_total(&self) -> u64 {
        self.answers_total
    }
}

impl Client {
    fn ask(server: SocketAddr, place: usize) -> io::Result<Self> {
        let began = Instant::now();
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        if server.is_ipv4() {
            // An address of its own: the ports of one do not last, as each is kept for a minute.
            let from = IpAddr::V4(Ipv4Addr::new(127, 1, (place >> 8) as u8, place as u8));
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        socket.connect(&server.into())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut frames = Frames::plain(place, FRAME_BYTES);
        let mut question = Vec::with_capacity(FRAME_BYTES);
        frames.ask(0, &mut question);
        (&socket).write_all(&question)?;
        Ok(Self { socket, frames, began })
    }

    /// Waits for the answer.
    fn take(&mut self, buffer: &mut [u8], report: &mut Report) -> io::Result<()> {
        let mut answers = Vec::new();
        while answers.is_empty() {
            let count = match self.socket.read(buffer) {
                Ok(0) => return Err(io::Error::other("closed by the server before the answer")),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count?,
            };
            let taken = self.frames.take(&buffer[..count], &mut Vec::new(), &mut answers);
            taken.map_err(io::Error::other)?;
        }
        report.requests += 1;
        report.hist.saturating_record(self.began.elapsed().as_nanos() as u64);
        Ok(())
    }
}
