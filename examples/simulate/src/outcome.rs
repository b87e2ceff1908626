//! Outcomes of requests, and the check that each is a legal one.

use std::time::Duration;

use epoll_group::client::{Error, ErrorKind, Fate};
use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner};
use epoll_group::codec::error::{Scope, code};
use epoll_group::codec::frame::{Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{Notice, ServerMessage};
use epoll_group::codec::proto::generic::ErrorReply;
use epoll_group::codec::value::Value;

use super::peer::{Asked, Peer};
use super::scene::{Life, Said, Scene};
use super::statement::{ERROR, FATAL, Form, Later, Task};

/// Silence after which a client gives its connection up: `probe_interval` and `probe_timeout`.
const SILENCE: Duration = Duration::from_secs(15);

/// Bytes of one chunk at most.
const MOST_CHUNK_BYTES: usize = 1 << 20;

/// The part of an answer that has come so far.
#[derive(Debug, Default)]
pub struct Answer {
    rows: u64,
    affected: Option<u64>,
    insert_id: Option<u64>,
    time: Option<u64>,
    /// Set if it was asked for in chunks.
    chunks: Option<ChunkJoiner>,
}

impl Answer {
    pub fn new(chunks: bool) -> Self {
        let joiner = || ChunkJoiner::new(&[BlockKind::Bytes; 2], MOST_CHUNK_BYTES);
        Self { chunks: chunks.then(joiner), ..Self::default() }
    }

    /// Takes whole frames, which have to be the next ones of this request.
    pub fn add(&mut self, mut bytes: &[u8], tag: u64, task: Task) -> Result<(), String> {
        let limits = Limits::default();
        loop {
            let parsed = Frame::parse(bytes, Dialect::Legacy, &limits);
            let Some((frame, length)) = parsed.map_err(|error| error.to_string())? else { break };
            bytes = &bytes[length..];
            match frame.server_message(&limits).map_err(|error| error.to_string())? {
                ServerMessage::Row(row) => {
                    let relayed = matches!(task, Task::Rows(Form::Relay, ..));
                    if self.chunks.is_some() && !relayed {
                        return Err("a row in place of a chunk".into());
                    }
                    let cell = row.field.first().map_or(&[][..], Vec::as_slice);
                    self.row(tag, cell.strip_suffix(b"\0"))?;
                }
                ServerMessage::Chunk(_) => {
                    let mut joiner = self.chunks.take().ok_or("nobody asked for a chunk")?;
                    let parsed =
                        ChunkFrame::parse(frame.body()).map_err(|error| error.to_string())?;
                    let chunk = joiner.push(parsed).map_err(|error| error.to_string())?;
                    for cell in chunk.iter().flat_map(|chunk| chunk.values(0)) {
                        match cell.map_err(|error| error.to_string())? {
                            Value::Bytes(cell) => self.row(tag, Some(cell))?,
                            other => return Err(format!("{other:?} is no text")),
                        }
                    }
                    self.chunks = Some(joiner);
                }
                ServerMessage::Notice(notice) => match Notice::read(&notice, &limits) {
                    Ok(Notice::RowsAffected(rows)) => self.affected = Some(rows),
                    Ok(Notice::InsertId(id)) => self.insert_id = Some(id),
                    other => return Err(format!("a notice: {other:?}")),
                },
                ServerMessage::Tso(tso) => self.time = Some(tso.ts),
                ServerMessage::ColumnMetaData(_) | ServerMessage::FetchDone(_) => {}
                other => return Err(format!("{task}: a message of kind {}", other.kind())),
            }
        }
        if bytes.is_empty() { Ok(()) } else { Err("half a frame".into()) }
    }

    /// Takes the first cell of the next row.
    fn row(&mut self, tag: u64, cell: Option<&[u8]>) -> Result<(), String> {
        let expected = format!("{tag}:{}", self.rows);
        if cell != Some(expected.as_bytes()) {
            let text = cell.map(|cell| cell.escape_ascii().to_string());
            return Err(format!("row {text:?} in place of {expected:?}"));
        }
        self.rows += 1;
        Ok(())
    }

    fn is_whole(&self, tag: u64, task: Task) -> bool {
        let rows = match task {
            Task::Rows(Form::Handler | Form::Source | Form::Relay, rows, _)
            | Task::Later(Later::Rows(rows), _) => rows,
            _ => 0,
        };
        let told = self.affected == Some(tag) && (self.insert_id == Some(tag) || tag == 0);
        self.rows == rows && (told || task == Task::Savepoint)
    }
}

impl Peer {
    /// Checks that this outcome is a legal one.
    pub(super) fn judge(&self, scene: &Scene, asked: &Asked, result: Result<(), Error>) {
        let Some(life) = scene.life(asked.tag, self.index, |life| life.clone()) else { return };
        let session = asked.asking.session;
        if result.as_ref().is_err_and(Error::is_timeout) {
            self.interrupted(scene, session);
        }
        let verdict = match &result {
            Ok(()) => self.fine(scene, asked, &life).map(|()| "outcome: answered"),
            Err(error) => self.failed(scene, asked, &life, error),
        };
        match verdict {
            Ok(what) => scene.count(what),
            Err(_) if scene.is_spoiled(self.index) => {
                scene.count("outcome: of a spoiled connection")
            }
            Err(why) => {
                let (index, tag, task) = (self.index, asked.tag, asked.task);
                scene.fail(format!("peer {index}, request {tag} ({task}): {why}; {life:?}"));
            }
        }
    }

    fn fine(&self, scene: &Scene, asked: &Asked, life: &Life) -> Result<(), String> {
        if let Task::Time(count) = asked.task {
            let mut times = scene.times.borrow_mut();
            let mine = |time: &&mut (u64, u64, usize, bool)| {
                *time == &mut (asked.answer.time.unwrap_or(0), count, self.index, false)
            };
            let given = times.iter_mut().find(mine);
            return given
                .map(|given| given.3 = true)
                .ok_or_else(|| format!("nobody gave it {:?}", asked.answer.time));
        }
        self.fine_in_block(scene, asked.tag, life)?;
        if matches!(asked.task, Task::ExpectOpen | Task::ExpectClose) {
            return Ok(());
        }
        if life.executed != 1 || life.said != Said::Fine {
            return Err("it is answered, but was not done".into());
        }
        if !asked.answer.is_whole(asked.tag, asked.task) {
            return Err(format!("its answer is not whole: {:?}", asked.answer));
        }
        Ok(())
    }

    /// Notes that the request has succeeded, and checks that no earlier one of its block has
    /// failed.
    fn fine_in_block(&self, scene: &Scene, tag: u64, life: &Life) -> Result<(), String> {
        scene.life(tag, self.index, |life| life.succeeded = true);
        let Some(block) = life.block else { return Ok(()) };
        let failed = |&tag: &u64| {
            let failed =
                |before: &mut Life| before.block == life.block && before.said == Said::Failed;
            scene.life(tag, self.index, failed) == Some(true)
        };
        match (block..tag).find(failed).filter(|_| scene.has_succeeded(block)) {
            Some(failed) => Err(format!("request {failed} has failed in its block")),
            None => Ok(()),
        }
    }

    /// True if an earlier request of the session has not succeeded, as far as the client knows.
    fn is_behind_a_failure(&self, scene: &Scene, tag: u64, session: u64) -> bool {
        let requests = scene.requests.borrow();
        requests[..tag as usize].iter().any(|before| {
            before.peer == self.index && before.session == session && !before.succeeded
        })
    }

    fn failed(
        &self,
        scene: &Scene,
        asked: &Asked,
        life: &Life,
        error: &Error,
    ) -> Result<&'static str, String> {
        if error.fate() == Fate::NotSent && life.executed > 0 {
            return Err(format!("was done, and is said not to be sent: {error}"));
        }
        let bad = || Err(format!("unexpected: {error}"));
        match error.kind() {
            ErrorKind::Server(server) => self.refused(scene, asked, life, server),
            ErrorKind::Deadline(_) if scene.now() >= asked.due => {
                Ok("outcome: time-out of the client")
            }
            ErrorKind::Lost(_) if self.wire.is_over() => Ok("outcome: the connection ended"),
            ErrorKind::Lost(_) if self.wire.was_held_within(scene, SILENCE) => {
                Ok("outcome: the server was silent")
            }
            ErrorKind::SessionEnded if scene.causes(self.index, life.session).closed => {
                Ok("outcome: the session ended")
            }
            _ => bad(),
        }
    }

    fn refused(
        &self,
        scene: &Scene,
        asked: &Asked,
        life: &Life,
        error: &ErrorReply,
    ) -> Result<&'static str, String> {
        let bad = |why: &str| Err(format!("{why}: {error}"));
        let is_fatal = error.scope() == Scope::Session;
        if !is_fatal && life.said == Said::Fine {
            return bad("was done, and is said to have failed");
        }
        let text = String::from_utf8_lossy(&error.msg);
        let of = text.parse::<u64>().ok();
        let causes = scene.causes(self.index, life.session);
        let in_session = |tag: u64| {
            scene.life(tag, self.index, |other| other.session == life.session).unwrap_or(false)
        };
        if life.if_no_error && life.executed == 0 && !is_fatal && of.is_none_or(in_session) {
            return Ok("outcome: behind an error, or with one of its own");
        }
        match error.code {
            ERROR if text == "no session" && life.executed == 0 => Ok("outcome: no session"),
            ERROR if of == Some(asked.tag) && life.said == Said::Failed => {
                Ok("outcome: error of the service")
            }
            FATAL if of.is_some_and(in_session) => Ok("outcome: fatal error of the service"),
            code::INTERRUPTED if text == "The request was dropped without an answer." => {
                let is_dropped = matches!(asked.task, Task::Later(Later::Drop, _));
                if is_dropped {
                    Ok("outcome: dropped without an answer")
                } else {
                    bad("not dropped")
                }
            }
            code::INTERRUPTED if self.may_be_interrupted(scene, life) => Ok("outcome: interrupted"),
            code::TIMED_OUT => {
                let limit = scene.plan.times.request;
                let late = !limit.is_zero() && scene.now() - asked.at >= limit;
                if late { Ok("outcome: time-out of the server") } else { bad("too early") }
            }
            code::SHUTDOWN if scene.drained.get() => Ok("outcome: the server drains"),
            code::EXPECT_FAILED if life.executed == 0 => {
                let behind = self.is_behind_a_failure(scene, asked.tag, life.session);
                if behind { Ok("outcome: in a failed block") } else { bad("nothing has failed") }
            }
            code::EXPECT_NOT_OPEN
                if life.block.is_some_and(|begin| !scene.has_succeeded(begin)) =>
            {
                Ok("outcome: its block was not begun")
            }
            code::CACHE_MISS if life.executed == 0 => Ok("outcome: the text was not known"),
            code::SERVER => match &*text {
                "Session is killing." if causes.closed => Ok("outcome: the session was killed"),
                "Session unexpected killed." if is_fatal && causes.panicked => {
                    Ok("outcome: a handler panicked")
                }
                "Failed to get tso." if matches!(asked.task, Task::Time(_)) => {
                    Ok("outcome: no timestamp")
                }
                _ if text.ends_with("limit exceed.") || text.ends_with("limit exceed") => {
                    if scene.plan.narrow { Ok("outcome: beyond a limit") } else { bad("no limit") }
                }
                _ => bad("unexpected"),
            },
            _ => bad("unexpected"),
        }
    }

    fn may_be_interrupted(&self, scene: &Scene, life: &Life) -> bool {
        let closed = scene.causes(self.index, life.session).closed;
        life.interrupted || closed || self.half_closed.is_some() || scene.drained.get()
    }

    /// When the connection ends in order, whatever was begun has its outcome: also behind a half-close,
    /// unless that takes too long, and in a drain.
    pub(super) fn look_at_end(&self, scene: &Scene) {
        let slow = scene.slow.borrow().contains(&self.index);
        let broken = self.wire.is_cut() || scene.cut.get() || slow;
        let waited = |since| scene.now() >= since + scene.plan.times.half_close;
        if broken || self.half_closed.is_some_and(waited) || scene.is_spoiled(self.index) {
            return;
        }
        for asked in &self.asked {
            let begun = scene.life(asked.tag, self.index, |life| life.executed > 0);
            scene.check(begun != Some(true), || {
                format!("peer {}: the answer of request {} is lost", self.index, asked.tag)
            });
        }
        if !self.asked.is_empty() || self.half_closed.is_some() || scene.drained.get() {
            scene.count("client: told in order that it ends");
        }
    }
}
