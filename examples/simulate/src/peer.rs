//! [`Peer`]: one client connection, what it asks, and what it gets.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use epoll_group::client::{Options, Request};
use epoll_group::codec::proto::expect::Open;
use epoll_group::codec::proto::plan::AnyPlan;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::Scalar;
use epoll_group::internal::simulated::{Asking, Client, socket_pair};
use epoll_group::net::Address;

use super::outcome::Answer;
use super::scene::{End, Life, Scene};
use super::service::password;
use super::statement::Task;
use super::wire::Wire;

pub struct Peer {
    pub index: usize,
    pub client: Client,
    pub wire: Wire,
    /// Its number at the server, if it was let in.
    number: Option<u64>,
    /// Not taken by the client yet.
    input: Vec<u8>,
    pub sessions: Vec<u64>,
    /// Sessions in a block in which no request may fail, with the tag of its begin.
    blocks: BTreeMap<u64, u64>,
    pub asked: Vec<Asked>,
    /// Its password is wrong.
    stranger: bool,
    pub half_closed: Option<Instant>,
    over: bool,
}

/// A request without an outcome.
pub struct Asked {
    pub asking: Asking,
    pub tag: u64,
    pub task: Task,
    pub at: Instant,
    pub due: Instant,
    pub answer: Answer,
    /// In a session of its own, where there is no window.
    once: bool,
}

impl Peer {
    pub fn connect(scene: &Scene, index: usize) -> Self {
        let sockets = socket_pair(scene.plan.socket_bytes);
        let (ours, theirs) = sockets.expect("descriptors");
        let address = if scene.plan.local {
            Address::Unix("".into())
        } else {
            Address::Tcp(([10, 0, 0, index as u8], 1000).into())
        };
        let connection = scene.server.accept(theirs, address);
        let wire = Wire::new(index, ours);
        let number = connection.as_ref().map(|connection| connection.id().number);
        if let (Some(number), Some(connection)) = (number, connection) {
            scene.owners.borrow_mut().insert(number, index);
            let end = End { peer: index, connection, outlet: wire.outlet() };
            scene.ends.borrow_mut().insert(number, end);
        } else {
            scene.count("server: a connection is refused");
        }
        let stranger = scene.chance.happens(scene.plan.faults.wrong_password);
        let secret = password(if stranger { usize::MAX } else { index });
        let options = Options::new("unix:/", format!("u{index}"))
            .password(secret)
            .window_bytes(scene.plan.window_bytes)
            .max_pipelined(scene.plan.max_pipelined);
        let mut client = Client::new(options, scene.now());
        client.connected(scene.now());
        scene.note("connect", &[index as u64, u64::from(stranger)]);
        Self {
            index,
            client,
            wire,
            number,
            input: Vec::new(),
            sessions: Vec::new(),
            blocks: BTreeMap::new(),
            asked: Vec::new(),
            stranger,
            half_closed: None,
            over: false,
        }
    }

    /// Its connection has ended and everything has its outcome.
    pub fn is_done(&self) -> bool {
        self.over && self.asked.is_empty()
    }

    pub const fn is_over(&self) -> bool {
        self.over
    }

    // ---- what the client does ----

    pub fn act(&mut self, scene: &Scene) {
        let chance = &scene.chance;
        let faults = scene.plan.faults;
        let some = chance.index(self.asked.len());
        let session = (!self.sessions.is_empty()).then(|| chance.pick(&self.sessions));
        if let Some(session) = session {
            if chance.happens(faults.cancel) {
                self.interrupted(scene, session);
                self.client.cancel(session);
                scene.count("client: cancels");
            }
            if chance.happens(faults.close) {
                self.close(scene, session);
            }
        }
        let session = session.filter(|session| self.sessions.contains(session));
        if !self.asked.is_empty() && chance.happens(faults.abandon) {
            let asked = self.asked.swap_remove(some);
            scene.life(asked.tag, self.index, |life| life.interrupted = true);
            self.interrupted(scene, asked.asking.session);
            self.client.abandon(asked.asking);
            scene.count("outcome: nobody wanted it");
            scene.note("abandon", &[asked.tag]);
        } else {
            match chance.below(12) {
                0 if self.sessions.len() < scene.plan.sessions => {
                    self.sessions.extend(self.client.open());
                }
                1 => self.ask_once(scene),
                2 => self.ask_time(scene),
                3..8 if !self.asked.is_empty() => self.take(scene, some),
                _ => match session {
                    Some(session) if chance.one_in(10) => self.ask_expect(scene, session),
                    Some(session) => self.ask(scene, session),
                    None => self.sessions.extend(self.client.open()),
                },
            }
        }
        self.send();
    }

    /// Marks the requests of the session as ones that may be interrupted.
    pub(super) fn interrupted(&self, scene: &Scene, session: u64) {
        for asked in self.asked.iter().filter(|asked| asked.asking.session == session) {
            scene.life(asked.tag, self.index, |life| life.interrupted = true);
        }
    }

    pub fn close(&mut self, scene: &Scene, session: u64) {
        self.sessions.retain(|&open| open != session);
        scene.note_cause(self.index, session, |causes| causes.closed = true);
        self.client.close(session, scene.now());
        scene.count("client: closes a session");
        scene.note("close", &[self.index as u64, session]);
    }

    fn due(scene: &Scene) -> Instant {
        let short = scene.chance.happens(scene.plan.faults.short_deadline);
        let micros = if short { scene.chance.below(200_000) } else { 3_600_000_000 };
        scene.now() + Duration::from_micros(micros)
    }

    fn ask(&mut self, scene: &Scene, session: u64) {
        let task = Task::draw(scene, &scene.plan);
        let due = Self::due(scene);
        let tag = self.enter(scene, session, task);
        let request = match task {
            Task::Savepoint => Request::savepoint(Operation::Set, tag.to_string()),
            _ => {
                let request = Self::request(scene, tag, task);
                // If the server does not know the cached text, it answers with an error. In a block no
                // request may fail.
                let cached = scene.chance.one_in(3) && !self.blocks.contains_key(&session);
                if cached { request.cached() } else { request }
            }
        };
        let if_no_error = scene.chance.one_in(6);
        let request = if if_no_error { request.if_no_error() } else { request };
        scene.life(tag, self.index, |life| life.if_no_error = if_no_error);
        let asking = self.client.ask(session, request, due);
        self.entered(scene, tag, task, due, asking.ok());
        if !self.client.is_alive(session) {
            self.sessions.retain(|&open| open != session);
        }
    }

    /// Begins a block in a session, or ends it.
    fn ask_expect(&mut self, scene: &Scene, session: u64) {
        let due = Self::due(scene);
        let ends = self.blocks.contains_key(&session);
        let (task, open) = if ends {
            (Task::ExpectClose, None)
        } else {
            (Task::ExpectOpen, Some(Open::no_error()))
        };
        let tag = self.enter(scene, session, task);
        if ends {
            self.blocks.remove(&session);
        } else {
            self.blocks.insert(session, tag);
        }
        let asking = self.client.ask_expect(session, open, due);
        self.entered(scene, tag, task, due, asking.ok());
    }

    fn ask_once(&mut self, scene: &Scene) {
        if !self.client.is_ready() {
            return;
        }
        let mut task = Task::draw(scene, &scene.plan);
        if task == Task::Savepoint {
            task = Task::Change;
        }
        let due = Self::due(scene);
        let tag = self.enter(scene, 0, task);
        let asking = self.client.ask_once(Self::request(scene, tag, task), due);
        self.entered(scene, tag, task, due, asking.ok());
    }

    /// A statement, or a plan that is the same for all, with the task among its parameters.
    fn request(scene: &Scene, tag: u64, task: Task) -> Request {
        let text = task.to_string();
        // A session for one statement takes no plan.
        let once = scene.requests.borrow()[tag as usize].session == 0;
        let request = if !once && scene.chance.one_in(4) {
            scene.count("asked: a plan");
            let plan = Request::plan(AnyPlan::default());
            plan.arg(Scalar::unsigned(tag)).arg(Scalar::octets(text))
        } else {
            Request::sql(text).arg(Scalar::unsigned(tag))
        };
        if !scene.chance.one_in(4) {
            return request;
        }
        scene.count("asked: chunks");
        scene.requests.borrow_mut()[tag as usize].chunks = true;
        request.chunks()
    }

    fn ask_time(&mut self, scene: &Scene) {
        if !self.client.is_ready() {
            return;
        }
        let count = scene.chance.between(1, 5);
        let due = Self::due(scene);
        let tag = self.enter(scene, 0, Task::Time(count));
        let asking = self.client.ask_time(count as i32, due);
        self.entered(scene, tag, Task::Time(count), due, asking.ok());
    }

    fn enter(&self, scene: &Scene, session: u64, task: Task) -> u64 {
        let block = self.blocks.get(&session).copied();
        scene.enter(Life { block, ..Life::new(self.index, session, task) })
    }

    fn entered(
        &mut self,
        scene: &Scene,
        tag: u64,
        task: Task,
        due: Instant,
        asking: Option<Asking>,
    ) {
        let Some(asking) = asking else {
            scene.count("outcome: not even sent");
            return;
        };
        scene.life(tag, self.index, |life| life.session = asking.session);
        scene.note("ask", &[self.index as u64, asking.session, tag]);
        scene.count(task.kind());
        let chunks = scene.requests.borrow()[tag as usize].chunks;
        let answer = Answer::new(chunks);
        let (at, once) = (scene.now(), !self.sessions.contains(&asking.session));
        self.asked.push(Asked { asking, tag, task, at, due, answer, once });
        if scene.chance.one_in(8) {
            self.client.watch(asking, 1, || super::scene::scene().count("client: is told"));
        }
    }

    /// Takes what has come of one answer.
    pub fn take(&mut self, scene: &Scene, index: usize) {
        let asked = &mut self.asked[index];
        let (bytes, result) = self.client.take(asked.asking);
        let spoiled = scene.is_spoiled(self.index);
        // If the server's message that it has stopped crosses a new window on the way, the client
        // grants another window.
        let room = scene.plan.window_bytes * 3 + ROW;
        let within = asked.once || spoiled || bytes.len() <= room;
        scene.check(within, || format!("{} bytes came at once, of {room}", bytes.len()));
        if let Err(why) = asked.answer.add(&bytes, asked.tag, asked.task)
            && !spoiled
        {
            scene.fail(format!("peer {}, request {}: {why}", self.index, asked.tag));
        }
        if let Some(result) = result {
            let asked = self.asked.swap_remove(index);
            scene.note("outcome", &[asked.tag, u64::from(result.is_ok())]);
            self.judge(scene, &asked, result);
        }
    }

    // ---- what moves ----

    /// Puts the client's bytes on their way.
    pub fn send(&mut self) {
        let out = self.client.out();
        self.wire.send(&out);
        self.client.tell();
    }

    pub fn push(&mut self, scene: &Scene, most: usize) -> usize {
        let sent = self.wire.push(scene, most);
        self.client.set_full(self.wire.unsent() > 256 << 10);
        self.send();
        sent
    }

    pub fn pull(&mut self, scene: &Scene, most: usize) -> usize {
        self.wire.pull(scene, most)
    }

    pub fn arrive(&mut self, scene: &Scene, most: usize) -> usize {
        let bytes = self.wire.arrive(scene, most);
        if !bytes.is_empty() {
            self.input.extend_from_slice(&bytes);
            let taken = self.client.input(&self.input, scene.now());
            self.input.drain(..taken);
            let let_in = self.stranger && self.client.is_ready() && !scene.is_spoiled(self.index);
            scene.check(!let_in, || format!("peer {} is let in", self.index));
            self.send();
        }
        let ends = !self.over && (self.wire.is_over() || self.client.lost().is_some());
        if ends {
            self.end(scene);
        }
        bytes.len() + usize::from(ends)
    }

    /// The connection has ended, by whomever.
    fn end(&mut self, scene: &Scene) {
        self.over = true;
        scene.note("over", &[self.index as u64]);
        (0..self.asked.len()).rev().for_each(|index| self.take(scene, index));
        self.look_at_end(scene);
        self.client.end("the connection has ended");
        self.wire.cut();
        self.sessions.clear();
        self.send();
        if let Some(number) = self.number {
            scene.ends.borrow_mut().remove(&number);
        }
    }

    /// May let the peer stop reading at the end, for longer than the server waits.
    pub fn go_silent(&mut self, scene: &Scene) {
        if scene.plan.faults.stop_reading > 0 && scene.chance.one_in(4) {
            self.wire.stop_reading(scene.now() + scene.plan.times.write * 4);
        }
    }

    /// Chance breaks the connection.
    pub fn suffer(&mut self, scene: &Scene) {
        let (chance, faults) = (&scene.chance, scene.plan.faults);
        let later = || scene.now() + Duration::from_micros(chance.below(300_000));
        if chance.happens(faults.delay) {
            self.wire.hold_up(later());
            scene.count("fault: delay to the server");
        }
        if chance.happens(faults.delay) {
            self.wire.hold_down(later());
            scene.count("fault: delay to the client");
        }
        if chance.happens(faults.stop_reading) {
            let millis = chance.pick(&[10, 300, 2000, 12_000]);
            self.wire.stop_reading(scene.now() + Duration::from_millis(millis));
            scene.count("fault: the client stops reading");
        }
        if chance.happens(faults.half_close) && self.half_closed.is_none() {
            self.wire.half_close();
            self.half_closed = Some(scene.now());
            scene.count("fault: half-close");
            scene.note("half-close", &[self.index as u64]);
        }
        if chance.happens(faults.cut) {
            self.wire.cut();
            scene.count("fault: cut");
            scene.note("cut", &[self.index as u64]);
        }
    }
}

/// Bytes that may come beyond a window: the row or chunk that spends it, and the description of the
/// columns.
const ROW: usize = 8 << 10;
