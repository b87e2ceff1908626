//! The check of an answer, frame by frame.
//!
//! ```text
//!  Start ──metadata──▶ Metadata ──row, chunk──▶ Rows ──fetch done──▶ FetchDone
//!                        │  ▲ metadata                                  │ rows affected
//!                        └──┘                                           ▼
//!                                              done ◀──execute ok── Affected
//! ```
//!
//! Other notices and the end of the budget may arrive in any state. Servers send the same metadata and the
//! same notice again and again, so a body that was decoded once is recognised by its bytes.

use epoll_group::codec::chunk::{BlockKind, ChunkFrame};
use epoll_group::codec::frame::Frame;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{Notice, ServerKind, ServerMessage};
use epoll_group::codec::row::{Column, cells};
use epoll_group::codec::value::Value;

use super::question::Question;

/// State of the answer to a session's request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    step: Step,
    columns: usize,
    rows: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Start,
    Metadata,
    Rows,
    FetchDone,
    Affected,
}

/// Result of one frame of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    More,
    /// The answer is complete, and right.
    Done,
    /// The server's cache does not have the text. The request must be sent again with it.
    Missed,
    /// The server waits for another budget.
    OutOfTokens,
}

/// Checks the answers to one kind of question.
#[derive(Debug)]
pub(super) struct Checker {
    question: Question,
    limits: Limits,
    /// Columns in their order. All answers have the same.
    columns: Vec<Known<BlockKind>>,
    notices: Vec<Known<Notice>>,
}

/// Body of a frame, and its meaning.
#[derive(Debug)]
struct Known<T> {
    body: Vec<u8>,
    meaning: T,
}

impl Checker {
    pub(super) fn new(question: Question) -> Self {
        let (columns, notices) = (Vec::new(), Vec::new());
        Self { question, limits: Limits::default(), columns, notices }
    }

    /// Takes the next frame of an answer. A point select asked for `id`.
    ///
    /// # Errors
    /// Description of what is wrong with the frame.
    pub(super) fn take(
        &mut self,
        progress: &mut Progress,
        id: i64,
        frame: &Frame<'_>,
    ) -> Result<Next, String> {
        let kind = ServerKind::from_number(frame.kind());
        match (kind, progress.step) {
            (Some(ServerKind::ColumnMetaData), Step::Start | Step::Metadata) => {
                self.metadata(progress.columns, frame)?;
                progress.columns += 1;
                progress.step = Step::Metadata;
                Ok(Next::More)
            }
            (Some(ServerKind::Row), Step::Metadata | Step::Rows) => {
                self.row(progress.columns, id, frame.body())?;
                progress.rows += 1;
                progress.step = Step::Rows;
                Ok(Next::More)
            }
            (Some(ServerKind::Chunk), Step::Metadata | Step::Rows) => {
                progress.rows += self.chunk(progress.columns, id, frame.body())?;
                progress.step = Step::Rows;
                Ok(Next::More)
            }
            (Some(ServerKind::FetchDone), Step::Metadata | Step::Rows) => {
                if progress.rows != 1 {
                    return Err(format!("{} rows for id {id}", progress.rows));
                }
                progress.step = Step::FetchDone;
                Ok(Next::More)
            }
            (Some(ServerKind::Notice), step) => {
                if let Notice::RowsAffected(rows) = self.notice(frame)? {
                    if step != Step::FetchDone || *rows != 0 {
                        return Err(format!("{rows} rows affected in step {step:?}"));
                    }
                    progress.step = Step::Affected;
                }
                Ok(Next::More)
            }
            (Some(ServerKind::StmtExecuteOk), Step::FetchDone | Step::Affected) => {
                *progress = Progress::default();
                Ok(Next::Done)
            }
            (Some(ServerKind::TokenDone), _) => Ok(Next::OutOfTokens),
            (Some(ServerKind::Error), step) => {
                match frame.server_message(&self.limits).map_err(text)? {
                    ServerMessage::Error(error) if error.is_cache_miss() && step == Step::Start => {
                        Ok(Next::Missed)
                    }
                    ServerMessage::Error(error) => Err(error.to_string()),
                    other => Err(format!("{other:?} in place of an error")),
                }
            }
            (_, step) => Err(format!("a frame of kind {} in step {step:?}", frame.kind())),
        }
    }

    fn metadata(&mut self, place: usize, frame: &Frame<'_>) -> Result<(), String> {
        match self.columns.get(place) {
            Some(known) if known.body == frame.body() => return Ok(()),
            Some(_) => return Err(format!("column {place} is another one than before")),
            None => {}
        }
        let ServerMessage::ColumnMetaData(message) =
            frame.server_message(&self.limits).map_err(text)?
        else {
            return Err("no metadata".to_owned());
        };
        let column = Column::from_message(&message);
        let kind = BlockKind::of_types(column.field_type, column.original_type);
        let meaning = kind.ok_or_else(|| format!("column {place} has no type"))?;
        let expected = match (self.question.is_point(), place) {
            (_, 0) => matches!(meaning, BlockKind::Signed | BlockKind::Unsigned),
            (true, 1) => meaning == BlockKind::Bytes,
            _ => false,
        };
        if !expected {
            return Err(format!("column {place} is {meaning:?}"));
        }
        self.columns.push(Known { body: frame.body().to_vec(), meaning });
        Ok(())
    }

    fn row(&self, columns: usize, id: i64, body: &[u8]) -> Result<(), String> {
        if self.question == Question::PlanChunk {
            return Err("a row where a chunk was asked for".to_owned());
        }
        let mut cells = cells(body);
        for (place, column) in self.columns[..columns].iter().enumerate() {
            let cell = cells.next().ok_or("a row with too few cells")?.map_err(text)?;
            let value = match column.meaning {
                BlockKind::Signed => cell.signed().map(|value| value.map(Value::Signed)),
                BlockKind::Unsigned => cell.unsigned().map(|value| value.map(Value::Unsigned)),
                _ => cell.bytes().map(|value| value.map(Value::Bytes)),
            };
            self.value(place, id, value.map_err(text)?.unwrap_or(Value::Null))?;
        }
        match cells.next() {
            None => Ok(()),
            Some(_) => Err("a row with too many cells".to_owned()),
        }
    }

    fn chunk(&self, columns: usize, id: i64, body: &[u8]) -> Result<u32, String> {
        if self.question != Question::PlanChunk {
            return Err("a chunk without a request for one".to_owned());
        }
        let chunk = ChunkFrame::parse(body).map_err(text)?;
        if chunk.column_count() != columns {
            return Err(format!("a chunk of {} columns", chunk.column_count()));
        }
        let rows = chunk.row_count();
        for (place, block) in chunk.columns().enumerate() {
            let kind = self.columns[place].meaning;
            for value in block.values(kind, rows, place as u32).map_err(text)? {
                self.value(place, id, value.map_err(text)?)?;
            }
        }
        Ok(rows)
    }

    fn value(&self, place: usize, id: i64, value: Value<'_>) -> Result<(), String> {
        let expected = if self.question.is_point() { id } else { 1 };
        let right = match (place, value) {
            (0, Value::Signed(value)) => value == expected,
            (0, Value::Unsigned(value)) => u64::try_from(expected) == Ok(value),
            (1, Value::Bytes(bytes)) => !bytes.is_empty(),
            _ => false,
        };
        if right {
            Ok(())
        } else {
            Err(format!("column {place} is {value:?} in the answer for {expected}"))
        }
    }

    fn notice(&mut self, frame: &Frame<'_>) -> Result<&Notice, String> {
        let known = self.notices.iter().position(|known| known.body == frame.body());
        if let Some(place) = known {
            return Ok(&self.notices[place].meaning);
        }
        let ServerMessage::Notice(message) = frame.server_message(&self.limits).map_err(text)?
        else {
            return Err("no notice".to_owned());
        };
        let meaning = Notice::read(&message, &self.limits).map_err(text)?;
        if self.notices.len() == MOST_NOTICES {
            self.notices.clear();
        }
        self.notices.push(Known { body: frame.body().to_vec(), meaning });
        Ok(&self.notices[self.notices.len() - 1].meaning)
    }
}

/// Notices that are recognised. Usually there is one.
const MOST_NOTICES: usize = 16;

fn text(error: impl std::error::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use epoll_group::codec::chunk::ChunkWriter;
    use epoll_group::codec::encoder::{Encoder, OutBuffer};
    use epoll_group::codec::error::EncodeError;
    use epoll_group::codec::error::{GENERAL_STATE, code};
    use epoll_group::codec::frame::Dialect;
    use epoll_group::codec::proto::generic::Severity;

    use super::*;

    /// Results of the frames, up to the first that is wrong.
    fn check(
        question: Question,
        write: impl FnOnce(&mut Encoder<'_>) -> Result<(), EncodeError>,
    ) -> Result<Vec<Next>, String> {
        let mut buffer = OutBuffer::default();
        write(&mut Encoder::new(&mut buffer, 2)).unwrap();
        let bytes = buffer.to_vec();
        let (mut checker, mut progress) = (Checker::new(question), Progress::default());
        let (mut rest, mut seen) = (&bytes[..], Vec::new());
        while let Some((frame, length)) =
            Frame::parse(rest, Dialect::Legacy, &Limits::default()).unwrap()
        {
            let next = checker.take(&mut progress, 7, &frame)?;
            if next != Next::More {
                seen.push(next);
            }
            rest = &rest[length..];
        }
        Ok(seen)
    }

    fn columns(out: &mut Encoder<'_>) -> Result<(), EncodeError> {
        out.column(&Column::signed("id"))?;
        out.column(&Column::text("c", 45, 480))
    }

    fn end(out: &mut Encoder<'_>) {
        out.fetch_done();
        out.rows_affected(0);
        out.execute_ok();
    }

    #[test]
    fn answers_in_rows_and_chunks_are_right_again_and_again() {
        let rows = |out: &mut Encoder<'_>| {
            for _ in 0..3 {
                columns(out)?;
                out.row(|row| {
                    row.int(7);
                    row.text("x");
                })?;
                end(out);
            }
            Ok(())
        };
        assert_eq!(check(Question::Text, rows), Ok(vec![Next::Done; 3]));
        let chunks = |out: &mut Encoder<'_>| {
            columns(out)?;
            let mut writer = ChunkWriter::new(&[BlockKind::Signed, BlockKind::Bytes]);
            writer.row(&[Value::Signed(7), Value::Bytes(b"x")]).unwrap();
            writer.write_to(out).unwrap();
            end(out);
            Ok(())
        };
        assert_eq!(check(Question::PlanChunk, chunks), Ok(vec![Next::Done]));
        assert!(check(Question::Plan, chunks).is_err());
        assert!(check(Question::PlanChunk, rows).is_err());
    }

    #[test]
    fn a_wrong_value_and_a_wrong_number_of_rows_are_errors() {
        for ids in [&[8][..], &[], &[7, 7]] {
            let result = check(Question::Plan, |out| {
                columns(out)?;
                for &id in ids {
                    out.row(|row| {
                        row.int(id);
                        row.text("x");
                    })?;
                }
                end(out);
                Ok(())
            });
            assert!(result.is_err(), "{ids:?}");
        }
        let two = check(Question::SelectOne, |out| {
            out.column(&Column::signed("1"))?;
            out.row(|row| row.int(2))
        });
        assert!(two.is_err());
    }

    #[test]
    fn frames_out_of_order_are_errors() {
        let result = check(Question::Text, |out| out.row(|row| row.int(7)));
        assert!(result.unwrap_err().contains("kind 13 in step Start"));
        let result = check(Question::Text, |out| {
            out.rows_affected(0);
            Ok(())
        });
        assert!(result.is_err());
    }

    #[test]
    fn a_miss_is_no_error_and_any_other_error_is_one() {
        let fail = |code| {
            move |out: &mut Encoder<'_>| out.error(Severity::Error, code, GENERAL_STATE, "x")
        };
        assert_eq!(check(Question::Digest, fail(code::CACHE_MISS)), Ok(vec![Next::Missed]));
        assert!(check(Question::Digest, fail(code::SERVER)).is_err());
    }
}
