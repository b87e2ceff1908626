//! The statements.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::Any;
use epoll_group::codec::row::{Column, ColumnType};
use epoll_group::session::{Deferred, Reply, Request, Row, RowSource, SessionError};

use super::{Control, Counts, Session};

impl Session {
    pub(super) fn run(
        &mut self,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match request {
            Request::Sql(sql) => {
                let text = String::from_utf8_lossy(sql.text).into_owned();
                match &*text {
                    "args ?" => arguments(sql.args, reply),
                    text => self.statement(text, reply),
                }
            }
            Request::Plan(plan) => {
                reply.columns(&[Column::signed("type"), Column::signed("parameters")])?;
                reply.row(|row| {
                    row.int(plan.plan.plan_type as i64);
                    row.int(plan.parameters.len() as i64);
                })
            }
            Request::Savepoint(savepoint) => match (savepoint.action, savepoint.name) {
                (Operation::Set, b"result") => reply.columns(&[Column::signed("none")]),
                (Operation::Set, b"deferred") => {
                    self.control.put_deferred("savepoint", reply.defer());
                    Ok(())
                }
                (Operation::Rollback, _) => {
                    Err(SessionError::new(1305, b"42000", "SAVEPOINT does not exist"))
                }
                _ => Ok(()),
            },
            _ => Err(SessionError::unsupported("a new kind of request")),
        }
    }

    fn statement(&mut self, text: &str, reply: &mut Reply<'_>) -> Result<(), SessionError> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut numbers = rest.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        let mut number = || numbers.next().unwrap_or(0);
        match word {
            "one" => one_number(reply, 1),
            "number" => one_number(reply, self.id.number.into()),
            "echo" => one_text(reply, rest),
            "text" => one_text(reply, text),
            "who" => one_text(reply, &self.account),
            "affect" => {
                reply.ending().affected = number();
                Ok(())
            }
            "insert" => {
                let ending = reply.ending();
                ending.affected = 1;
                ending.insert_id = number();
                ending.info = "inserted".into();
                Ok(())
            }
            "warn" => {
                for at in 0..number() {
                    reply.ending().warning(Level::Warning, 1000 + at as u32, "careful");
                }
                Ok(())
            }
            "fail" => Err(SessionError::new(number() as u32, b"42000", "it failed")),
            "fatal" => Err(SessionError::fatal(number() as u32, b"42000", "it failed")),
            "begin" | "commit" => self.set_in_transaction(word == "begin"),
            "lock" => self.lock(),
            "locked" => {
                self.lock()?;
                self.statement(rest, reply)
            }
            "unlock" => {
                self.control.unlock(self.id.number);
                Ok(())
            }
            "gate" | "gate-unannounced" => {
                if !self.control.pass(rest, word == "gate", &self.cancelled) {
                    return Err(SessionError::interrupted());
                }
                one_text(reply, rest)
            }
            "pause" => {
                thread::sleep(Duration::from_micros(number()));
                Ok(())
            }
            // Does not care that it was cancelled.
            "stubborn" => {
                one_text(reply, "before")?;
                self.control.pass(rest, true, &false.into());
                for _ in 0..100 {
                    let _ = reply.row(|row| row.text("behind"));
                }
                Ok(())
            }
            "trap" => {
                rest.clone_into(&mut self.trap);
                self.trap_cancel.store(rest == "cancel", Ordering::SeqCst);
                Ok(())
            }
            "rows" => {
                let (count, bytes) = (number(), number());
                reply.columns(&[Column::signed("id"), Column::text("pad", 45, 255)])?;
                let pad = "x".repeat(bytes as usize);
                let result = (0..count).try_for_each(|at| {
                    reply.row(|row| {
                        row.int(at as i64);
                        row.text(&pad);
                    })
                });
                Counts::add(&self.control.counts.writers_ended);
                result
            }
            "declared" | "cost" | "geometry" => special_row(word, number(), reply),
            "twice" => {
                one_number(reply, 1)?;
                one_number(reply, 2)
            }
            "panic" => panic!("a panic that is meant"),
            "panic-row" => {
                reply.columns(&[Column::signed("id"), Column::signed("id")])?;
                for _ in 0..10 {
                    reply.row(|row| {
                        row.int(1);
                        row.int(2);
                    })?;
                }
                reply.row(|row| {
                    row.int(1);
                    panic!("a panic that is meant");
                })
            }
            "script" => self.control.run_script(rest, reply),
            "no-columns" => reply.row(|row| row.int(1)),
            _ if word.starts_with("defer") => self.deferring(word, rest, reply),
            _ => self.source(word, text, number(), number(), reply),
        }
    }

    fn lock(&self) -> Result<(), SessionError> {
        let locked = self.control.lock(self.id.number, &self.cancelled);
        locked.then_some(()).ok_or_else(SessionError::interrupted)
    }

    /// Begins or ends a transaction.
    fn set_in_transaction(&mut self, is: bool) -> Result<(), SessionError> {
        self.in_transaction = is;
        Ok(())
    }

    fn deferring(&self, word: &str, rest: &str, reply: &mut Reply<'_>) -> Result<(), SessionError> {
        match word {
            "defer" => {
                self.control.put_deferred(rest, reply.defer());
                Ok(())
            }
            "defer-drop" => {
                drop(reply.defer());
                Ok(())
            }
            "defer-finish" => {
                let _ = reply.defer().finish(|reply| one_text(reply, rest));
                Ok(())
            }
            // The test keeps the handle, and the handler fails.
            "defer-fail" => {
                self.control.put_deferred(rest, reply.defer());
                Err(SessionError::new(1234, b"42000", "deferred, and failed"))
            }
            "defer-finish-fail" => {
                let _ = reply.defer().finish(|reply| one_text(reply, rest));
                Err(SessionError::new(1234, b"42000", "finished, and failed"))
            }
            _ => Err(SessionError::unsupported("deferred in a new way")),
        }
    }

    fn source(
        &self,
        word: &str,
        text: &str,
        count: u64,
        bytes: u64,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let control = Arc::clone(&self.control);
        let end = match word {
            "source" | "source-bare" => End::Good,
            "source-fail" => End::Fail,
            "source-panic" => End::Panic,
            "source-drop-panic" => End::PanicWhenDropped,
            _ => {
                let message = format!("no such statement: {text}");
                return Err(SessionError::new(1064, b"42000", message));
            }
        };
        if word != "source-bare" {
            reply.columns(&[Column::signed("id"), Column::text("pad", 45, 255)])?;
        }
        reply.source(Numbers { control, next: 0, count, pad: "x".repeat(bytes as usize), end });
        Ok(())
    }
}

/// A result of one row with one number.
pub(super) fn one_number(reply: &mut Reply<'_>, number: i64) -> Result<(), SessionError> {
    reply.columns(&[Column::signed("1")])?;
    reply.row(|row| row.int(number))
}

/// Writes a row for each argument, with its value.
fn arguments(args: &[Any], reply: &mut Reply<'_>) -> Result<(), SessionError> {
    reply.columns(&[Column::text("argument", 45, 255)])?;
    args.iter().try_for_each(|arg| reply.row(|row| row.text(format!("{:?}", arg.value()))))
}

/// One row: of a text column of this declared length, of a geometry, or with its cost.
fn special_row(word: &str, length: u64, reply: &mut Reply<'_>) -> Result<(), SessionError> {
    let column = match word {
        "declared" => Column::text("value", 45, length as u32),
        "geometry" => Column::new("value", ColumnType::Geometry),
        _ => {
            let ending = reply.ending();
            ending.feedback = Some((100, "shop.t.PRIMARY".into()));
            ending.server_state = 1;
            return one_number(reply, 1);
        }
    };
    reply.columns(&[column])?;
    reply.row(|row| row.text("x"))
}

/// A result of one row with one text.
pub fn one_text(reply: &mut Reply<'_>, text: &str) -> Result<(), SessionError> {
    reply.columns(&[Column::text("text", 45, 255)])?;
    reply.row(|row| row.text(text))
}

/// Finishes a deferred request with one row.
pub fn finish_with(deferred: Deferred, text: &str) -> bool {
    deferred.finish(|reply| one_text(reply, text))
}

/// Rows of a number and a text.
pub struct Numbers {
    control: Arc<Control>,
    next: u64,
    count: u64,
    pad: String,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Good,
    Fail,
    Panic,
    PanicWhenDropped,
}

impl Numbers {
    pub fn new(control: &Arc<Control>, count: u64, bytes: usize) -> Self {
        let (control, pad) = (Arc::clone(control), "x".repeat(bytes));
        Self { control, next: 0, count, pad, end: End::Good }
    }
}

impl RowSource for Numbers {
    fn next(&mut self, row: &mut Row<'_>) -> Result<bool, SessionError> {
        Counts::add(&self.control.counts.rows_pulled);
        if self.next == self.count {
            return match self.end {
                End::Good | End::PanicWhenDropped => Ok(false),
                End::Fail => {
                    row.int(7);
                    Err(SessionError::new(1234, b"42000", "no more rows"))
                }
                End::Panic => {
                    row.int(7);
                    panic!("a panic that is meant")
                }
            };
        }
        row.int(self.next as i64);
        row.text(&self.pad);
        self.next += 1;
        Ok(true)
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        Counts::add(&self.control.counts.sources_dropped);
        assert!(self.end != End::PanicWhenDropped, "a panic that is meant");
    }
}
