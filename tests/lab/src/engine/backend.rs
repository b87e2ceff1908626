//! Another server as a relay sees it: the test adds pieces of its answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoll_group::codec::chunk::{BlockKind, ChunkWriter};
use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::error::EncodeError;
use epoll_group::codec::frame::Decoder;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ServerKind;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::{Ending, Relay, Relayed, SessionError, Wake};

use super::super::xrpc::{Client, Ticket};
use super::Fixture;

/// A piece of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    Frame(ServerKind, Vec<u8>),
    End(Ending),
    Fail(SessionError),
    Panic,
}

/// The test's side of one answer.
#[derive(Clone, Default)]
pub struct Backend(Arc<Shared>);

#[derive(Default)]
struct Shared {
    pieces: Mutex<Pieces>,
    /// Dropping the relay panics.
    trap: AtomicBool,
}

#[derive(Default)]
struct Pieces {
    queue: VecDeque<Piece>,
    wake: Option<Wake>,
    /// The relay has said `Later` and was not asked since.
    later: bool,
    /// Number of times that the relay was asked.
    asked: u64,
    dropped: u64,
}

/// The session layer's side of one answer.
pub struct Answer {
    shared: Arc<Shared>,
    body: Vec<u8>,
}

impl Backend {
    /// A backend with the whole answer.
    pub fn of(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let backend = Self::default();
        backend.lock().queue.extend(pieces);
        backend
    }

    pub fn relay(&self) -> Answer {
        Answer { shared: Arc::clone(&self.0), body: Vec::new() }
    }

    /// Sends a statement of this form, whose reply is relayed from here.
    #[track_caller]
    pub fn send(
        &self,
        server: &Fixture,
        client: &mut Client,
        session: u64,
        form: StmtExecute,
    ) -> Ticket {
        let (name, answer) = (format!("of {session}"), self.relay());
        server.control.plant(&name, |reply| {
            reply.relay(answer);
            Ok(())
        });
        let stmt = Some(format!("script {name}").into());
        client.send_sql(session, StmtExecute { stmt, ..form })
    }

    /// Adds pieces, and wakes the relay.
    pub fn push(&self, pieces: impl IntoIterator<Item = Piece>) {
        self.lock().queue.extend(pieces);
        self.wake();
    }

    /// Wakes the relay without new pieces.
    pub fn wake(&self) {
        let wake = self.lock().wake.clone();
        wake.iter().for_each(Wake::wake);
    }

    /// Returns the waker of the relay, which must have been asked before.
    #[track_caller]
    pub fn waker(&self) -> Wake {
        self.lock().wake.clone().expect("it was asked")
    }

    /// True if the relay has said that it has no piece.
    pub fn is_waiting(&self) -> bool {
        self.lock().later
    }

    pub fn asked(&self) -> u64 {
        self.lock().asked
    }

    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    pub fn panic_when_dropped(&self) {
        self.0.trap.store(true, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.0.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay for Answer {
    fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError> {
        let mut pieces = self.shared.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.asked += 1;
        pieces.wake.get_or_insert_with(|| wake.clone());
        let piece = pieces.queue.pop_front();
        pieces.later = piece.is_none();
        drop(pieces);
        match piece {
            Some(Piece::Frame(kind, body)) => {
                self.body = body;
                Ok(Relayed::Frame { kind, body: &self.body })
            }
            Some(Piece::End(ending)) => Ok(Relayed::End(ending)),
            Some(Piece::Fail(error)) => Err(error),
            Some(Piece::Panic) => panic!("a panic that is meant"),
            None => Ok(Relayed::Later),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut pieces = self.shared.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.dropped += 1;
        drop(pieces);
        assert!(!self.shared.trap.load(Ordering::SeqCst), "a panic that is meant");
    }
}

/// The frames that `code` writes.
pub fn frames(code: impl FnOnce(&mut Encoder<'_>) -> Result<(), EncodeError>) -> Vec<Piece> {
    let mut buffer = OutBuffer::default();
    code(&mut Encoder::new(&mut buffer, 7)).expect("they are short");
    let mut decoder = Decoder::new(Limits::default());
    decoder.feed(&buffer.to_vec());
    let mut pieces = Vec::new();
    while let Some(frame) = decoder.next_frame().expect("they were encoded") {
        let kind = ServerKind::from_number(frame.kind()).expect("a kind that is known");
        pieces.push(Piece::Frame(kind, frame.body().to_vec()));
    }
    pieces
}

/// The description of rows of a number and a text.
pub fn meta() -> Vec<Piece> {
    frames(|encoder| {
        encoder.column(&Column::signed("id"))?;
        encoder.column(&Column::text("pad", 45, 255))
    })
}

/// A row of a number and a text.
pub fn row(id: i64, pad: &str) -> Piece {
    let row = frames(|encoder| {
        encoder.row(|row| {
            row.int(id);
            row.text(pad);
        })
    });
    row.into_iter().next().expect("one row")
}

/// A chunk with one such row.
pub fn chunk(id: i64, pad: &str) -> Piece {
    let mut writer = ChunkWriter::new(&[BlockKind::Signed, BlockKind::Bytes]);
    writer.row(&[Value::Signed(id), Value::Bytes(pad.as_bytes())]).expect("two columns");
    let chunk = frames(|encoder| {
        writer.write_to(encoder).expect("it is short");
        Ok(())
    });
    chunk.into_iter().next().expect("one chunk")
}

/// Another result follows.
pub fn more() -> Piece {
    Piece::Frame(ServerKind::FetchDoneMoreResultsets, Vec::new())
}

pub fn end() -> Piece {
    Piece::End(Ending::default())
}

/// A whole result of so many rows.
pub fn result(rows: i64, pad: &str) -> Vec<Piece> {
    meta().into_iter().chain((0..rows).map(|id| row(id, pad))).chain([end()]).collect()
}
