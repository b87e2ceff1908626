//! Input that passes through the layers of a connection.

use std::io;
use std::mem;
use std::ptr;

use super::layers::Pass;
use super::receive::{Round, received};
use super::recv_state::{Ending, Recv, Stage};
use crate::runtime::source::WorkerContext;
use crate::sys::socket::Received;

impl Round<'_> {
    /// Receives once for the layers, unless they have more to decode, and delivers the bytes that they decode.
    #[inline(never)]
    pub(super) fn recv_and_decode(
        &mut self,
        recv: &mut Recv,
        context: &mut WorkerContext<'_>,
        most: usize,
    ) -> io::Result<(usize, Received)> {
        let asked = context.read_buf.len().min(most);
        // The rest of the last receive goes first. Counted as cut, so that the next one follows.
        if mem::take(&mut recv.undecoded) {
            self.decode(recv, &[]);
            return Ok((asked, Received { bytes: asked, cut: true }));
        }
        let mut arrived = self.recv_into(&mut context.read_buf[..asked])?;
        if arrived.bytes > 0 {
            self.heard(recv, context.lap.now);
            self.observe(context);
            self.decode(recv, &context.read_buf[..arrived.bytes]);
            arrived.cut |= recv.undecoded;
        }
        Ok((asked, arrived))
    }

    /// Passes bytes through the layers, behind those that they keep. Delivers the bytes that they decode.
    #[inline(never)]
    pub(super) fn decode(&mut self, recv: &mut Recv, raw: &[u8]) {
        let (decoded, mut pass) = self.pass_up(recv, raw);
        // Bytes that were decoded before the layers were ready are delivered with these.
        recv.again |= decoded > 0;
        let delivers = self.delivers(recv) && recv.ending.is_none();
        // Noted first, so that a callback which reads more finds the end of the layers, or their error.
        recv.undecoded |= pass.ended;
        if pass.error.is_some() {
            self.look_at_pass(recv, &mut pass);
        }
        if delivers {
            if recv.again && !self.conn.is_paused() {
                recv.again = false;
                let consumed = self.deliver(recv, None, received).all_consumed();
                self.received += consumed.max(decoded);
            } else {
                self.time_frame(recv, false);
            }
        }
        self.look_at_pass(recv, &mut pass);
    }

    /// Passes bytes through the layers. Returns the number of bytes that they have decoded.
    pub(super) fn pass_up(&mut self, recv: &mut Recv, raw: &[u8]) -> (usize, Pass) {
        let (before, len) = (recv.buf.capacity(), recv.buf.bytes().len());
        let client = self.conn.client_addr();
        let pass = self.conn.receive_layered(self.connection, raw, recv.buf.tail());
        let decoded = recv.buf.bytes().len() - len;
        recv.undecoded = pass.again;
        recv.partial = pass.left > 0;
        self.timed = true;
        self.account(recv, before);
        // The address counts also if another layer has panicked.
        if !ptr::eq(client, self.conn.client_addr()) {
            self.rename(recv);
        }
        if pass.ready && recv.ending.is_none() {
            self.layers_ready(recv);
        }
        (decoded, pass)
    }

    /// Looks at the end of the stream, and at errors of the layers. They take effect behind the bytes that
    /// the layers have decoded.
    pub(super) fn look_at_pass(&self, recv: &mut Recv, pass: &mut Pass) {
        if recv.ending.is_some() || !recv.stage.reads() {
            return;
        }
        if let Some(reason) = pass.error.take() {
            recv.ending = Some(Ending::Close(reason));
        } else if pass.ended {
            // Bytes that a layer can still decode come before the end. So do bytes that wait for
            // the user to resume or for the protocol to have room.
            let opened = recv.stage == Stage::Open;
            let paused = opened && (recv.again || self.conn.is_paused());
            if pass.again || recv.aside_until.is_some() || paused {
                recv.undecoded = true;
            } else {
                recv.ending = Some(Ending::EndOfStream);
            }
        } else if !pass.again {
            self.check_left_over(recv, pass.left);
        }
    }
}
