//! [`Wire`]: the way between a client and the server, with all that can happen on it.
//!
//! ```text
//!  client ──▶ up ──▶ socket ──▶ server          each arrow a step of its own, of as many bytes as
//!  client ◀── in ◀── down ◀── socket ◀──┘        chance says
//! ```

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use epoll_group::codec::frame::Decoder;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ServerMessage;
use epoll_group::codec::proto::generic::Severity;

use super::scene::Scene;
use super::time::Outlet;

pub struct Wire {
    peer: usize,
    socket: Option<Rc<UnixStream>>,
    /// Bytes that were taken from the socket.
    taken: Rc<Cell<u64>>,
    /// Under way to the server, and to the client.
    up: Vec<u8>,
    down: Vec<u8>,
    /// Times until which nothing moves up, nothing moves down, and the client does not read.
    up_at: Option<Instant>,
    down_at: Option<Instant>,
    reads_at: Option<Instant>,
    /// The client sends nothing more, once all is sent that is under way.
    finishing: bool,
    finished: bool,
    /// The server has ended it.
    ended: bool,
    tap: Tap,
}

impl Wire {
    pub fn new(peer: usize, socket: UnixStream) -> Self {
        Self {
            peer,
            socket: Some(Rc::new(socket)),
            taken: Rc::default(),
            up: Vec::new(),
            down: Vec::new(),
            up_at: None,
            down_at: None,
            reads_at: None,
            finishing: false,
            finished: false,
            ended: false,
            tap: Tap::new(),
        }
    }

    /// The client's end, to look at; for a new wire.
    pub fn outlet(&self) -> Outlet {
        let socket = self.socket.as_ref().expect("a new wire has its socket");
        Outlet::new(socket, &self.taken)
    }

    /// Takes bytes from the client. After a half-close they are dropped.
    pub fn send(&mut self, bytes: &[u8]) {
        if !self.finishing && self.socket.is_some() {
            self.up.extend_from_slice(bytes);
        }
    }

    /// Bytes that the client has sent and the socket has not taken.
    pub fn unsent(&self) -> usize {
        self.up.len()
    }

    /// Nothing more will come.
    pub fn is_over(&self) -> bool {
        self.socket.is_none() || self.ended && self.down.is_empty()
    }

    pub const fn is_cut(&self) -> bool {
        self.socket.is_none()
    }

    /// When something moves again, if it does not now.
    pub fn next_time(&self, now: Instant) -> Option<Instant> {
        let times = [self.up_at, self.down_at, self.reads_at];
        times.into_iter().flatten().filter(|&at| at > now).min()
    }

    /// True if a fault has held the wire in some direction during the last `time`.
    pub fn was_held_within(&self, scene: &Scene, time: Duration) -> bool {
        let until = self.up_at.max(self.down_at).max(self.reads_at);
        until.is_some_and(|until| until + time > scene.now())
    }

    // ---- what moves ----

    /// Moves at most `most` bytes to the server. Returns how many moved.
    pub fn push(&mut self, scene: &Scene, most: usize) -> usize {
        if is_held(self.up_at, scene) || self.finished {
            return 0;
        }
        let Some(mut socket) = self.socket.as_deref() else { return 0 };
        let most = most.min(self.up.len());
        let mut sent = 0;
        if most > 0 {
            corrupt(scene, self.peer, &mut self.up[..most]);
            match socket.write(&self.up[..most]) {
                Ok(taken) => sent = taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    scene.count("wire: the server does not read");
                }
                // The server has ended the connection. Bytes that it sent before may still be read.
                Err(_) => {
                    self.up.clear();
                    self.finished = true;
                }
            }
            self.up.drain(..sent.min(self.up.len()));
            if sent > 0 {
                scene.note("up", &[self.peer as u64, sent as u64]);
            }
        }
        if self.finishing && self.up.is_empty() && !self.finished {
            self.finished = true;
            let _ = socket.shutdown(Shutdown::Write);
            scene.note("half-closed", &[self.peer as u64]);
        }
        sent
    }

    /// Moves at most `most` bytes from the server. Returns how many moved.
    pub fn pull(&mut self, scene: &Scene, most: usize) -> usize {
        if is_held(self.reads_at, scene) || self.ended || self.down.len() > ROOM {
            return 0;
        }
        let Some(mut socket) = self.socket.as_deref() else { return 0 };
        let mut bytes = [0; 65_536];
        let most = most.min(bytes.len());
        match socket.read(&mut bytes[..most]) {
            Ok(0) => {
                self.ended = true;
                scene.note("ended", &[self.peer as u64]);
                1
            }
            Ok(count) => {
                self.taken.set(self.taken.get() + count as u64);
                if !scene.is_spoiled(self.peer) {
                    self.tap.hear(scene, self.peer, &bytes[..count]);
                }
                corrupt(scene, self.peer, &mut bytes[..count]);
                self.down.extend_from_slice(&bytes[..count]);
                scene.note("down", &[self.peer as u64, count as u64]);
                count
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.ended = true;
                scene.note("reset", &[self.peer as u64]);
                1
            }
        }
    }

    /// Takes at most `most` bytes that reach the client.
    pub fn arrive(&mut self, scene: &Scene, most: usize) -> Vec<u8> {
        if is_held(self.down_at, scene) {
            return Vec::new();
        }
        let most = most.min(self.down.len());
        self.down.drain(..most).collect()
    }

    /// The client takes what comes.
    pub fn reads(&self, scene: &Scene) -> bool {
        !is_held(self.reads_at, scene)
    }

    // ---- what goes wrong ----

    pub fn hold_up(&mut self, until: Instant) {
        self.up_at = Some(until);
    }

    pub fn hold_down(&mut self, until: Instant) {
        self.down_at = Some(until);
    }

    pub fn stop_reading(&mut self, until: Instant) {
        self.reads_at = Some(until);
    }

    pub fn half_close(&mut self) {
        self.finishing = true;
    }

    /// Ends both directions. Bytes under way are lost. If the socket has unread bytes, the server
    /// gets a reset.
    pub fn cut(&mut self) {
        self.socket = None;
        self.up.clear();
        self.down.clear();
    }
}

/// Reads the server's bytes before faults change them.
struct Tap {
    decoder: Decoder,
    /// Sessions whose end the server has told.
    dead: BTreeSet<u64>,
}

impl Tap {
    fn new() -> Self {
        Self { decoder: Decoder::new(Limits::default()), dead: BTreeSet::new() }
    }

    /// Checks that frames are whole, and that a session that has ended gets no frame but errors.
    fn hear(&mut self, scene: &Scene, peer: usize, bytes: &[u8]) {
        self.decoder.feed(bytes);
        loop {
            let frame = match self.decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error) => return scene.fail(format!("peer {peer} is told {error}")),
            };
            let session = frame.session();
            match frame.server_message(&Limits::default()) {
                Ok(ServerMessage::Error(error)) if error.severity == Some(Severity::Fatal) => {
                    self.dead.insert(session);
                }
                Ok(ServerMessage::Error(_)) => {}
                Ok(other) if self.dead.contains(&session) => {
                    let kind = other.kind();
                    scene.fail(format!("peer {peer}: dead session {session:#x} says {kind}"));
                }
                Ok(_) => {}
                Err(error) => scene.fail(format!("peer {peer} is told {error}")),
            }
        }
    }
}

fn is_held(until: Option<Instant>, scene: &Scene) -> bool {
    until.is_some_and(|until| until > scene.now())
}

fn corrupt(scene: &Scene, peer: usize, bytes: &mut [u8]) {
    if bytes.is_empty() || !scene.chance.happens(scene.plan.faults.corrupt) {
        return;
    }
    let at = scene.chance.index(bytes.len());
    let change = if scene.chance.one_in(2) {
        1 << scene.chance.below(8)
    } else {
        scene.chance.between(1, 255) as u8
    };
    bytes[at] ^= change;
    scene.spoiled.borrow_mut().insert(peer);
    scene.count("fault: a byte is changed");
    scene.note("corrupt", &[peer as u64, at as u64, u64::from(change)]);
}

/// Most bytes under way to a client, without the last piece.
const ROOM: usize = 64 << 10;
