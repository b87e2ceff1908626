//! Later answers of the engine: rows that come from elsewhere, and deferred requests.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::{ServerKind, ServerMessage};
use epoll_group::codec::proto::resultset::Row as RowMessage;
use epoll_group::session::{Ending, Relay, Relayed, SessionError, Wake};

use super::scene::{Said, Scene, Waiting, scene};
use super::service::{columns, failure, said, source};
use super::statement::{Form, Later};

/// Rows that come from elsewhere, now and then.
pub(super) struct Pieces {
    pub(super) tag: u64,
    pub(super) peer: usize,
    pub(super) session: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) index: u64,
    pub(super) body: Vec<u8>,
}

impl Relay for Pieces {
    fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError> {
        let scene = scene();
        if scene.chance.one_in(3) {
            scene.wakes.borrow_mut().push(wake.clone());
            scene.overlap();
            return Ok(Relayed::Later);
        }
        if self.index == self.rows {
            scene.count("service: rows of a relay");
            said(&scene, self.tag, self.peer, Said::Fine);
            let mut ending = Ending::default();
            ending.affected = self.tag;
            ending.insert_id = self.tag;
            return Ok(Relayed::End(ending));
        }
        scene.wrote(self.peer, self.session, self.bytes);
        let cell = |text: String| [text.as_bytes(), b"\0"].concat();
        let field = vec![
            cell(format!("{}:{}", self.tag, self.index)),
            cell("x".repeat(self.bytes as usize)),
        ];
        self.body.clear();
        ServerMessage::Row(RowMessage { field }).encode_body(Dialect::Legacy, &mut self.body);
        self.index += 1;
        Ok(Relayed::Frame { kind: ServerKind::Row, body: &self.body })
    }
}

/// Finishes a request that was put off.
pub fn finish(scene: &Scene, waiting: Waiting) {
    let Waiting { since, deferred, tag, peer, later, .. } = waiting;
    scene.note("finish", &[tag]);
    let limit = scene.plan.times.request;
    // A time limit that was looked at too late begins anew. So the server answers for it only from
    // the begin of the rest on.
    let begun = scene.resting.get().map(|resting| resting.max(since));
    let late = !limit.is_zero() && begun.is_some_and(|at| scene.now() > at + limit + LATE);
    scene.check(!late || deferred.is_cancelled(), || {
        format!("request {tag} takes longer than {limit:?}, and nobody says so")
    });
    if deferred.is_cancelled() {
        scene.count("service: put off, and cancelled meanwhile");
    }
    if later == Later::Drop {
        return drop(deferred);
    }
    let done = AssertUnwindSafe(|| {
        deferred.finish(|reply| {
            let ending = reply.ending();
            ending.affected = tag;
            ending.insert_id = tag;
            match later {
                Later::Error => return Err(failure(scene, tag, peer, false)),
                Later::Fatal => return Err(failure(scene, tag, peer, true)),
                Later::Panic => {
                    let session = scene.life(tag, peer, |life| life.session).unwrap_or(0);
                    scene.note_cause(peer, session, |causes| causes.panicked = true);
                    resume_unwind(Box::new("simulated"))
                }
                Later::Rows(rows) => {
                    reply.columns(&columns())?;
                    let session = scene.life(tag, peer, |life| life.session).unwrap_or(0);
                    source(tag, (peer, session), Form::Source, rows, 100, reply);
                    return Ok(());
                }
                Later::Again => {
                    let due = scene.now() + Duration::from_micros(scene.chance.below(1000));
                    let (deferred, later) = (reply.defer(), Later::Change);
                    let waiting = Waiting { since, due, deferred, tag, peer, later };
                    scene.deferred.borrow_mut().push(waiting);
                    return Ok(());
                }
                Later::Change | Later::Drop => {}
            }
            said(scene, tag, peer, Said::Fine);
            Ok(())
        })
    });
    match catch_unwind(done) {
        Ok(true) => scene.count("service: put off, and answered"),
        Ok(false) => scene.count("service: put off, and too late"),
        Err(_) => scene.count("service: put off, and panicked"),
    }
    scene.look_at_step();
}

/// Latest arrival of a time-out when nothing else is to be done.
pub const LATE: Duration = Duration::from_millis(10);
