//! [`Layers`]: the layers of one connection, under one lock for both directions.
//!
//! A sender encodes its bytes under the lock and leaves them in the inbox before it gives the lock up. So
//! they leave in the order in which they were encoded. No system call is made under the lock.
#![forbid(unsafe_code)]

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::{Mutex, OnceLock};

use super::address::Address;
use super::close::{Close, CloseReason};
use super::conn::{ABORT, CLOSE, Conn};
use super::connection::Connection;
use super::layer::{Decoded, Layer, LayerState};
use super::pieces::{Chunk, Pieces};
use super::read_buf::Input;
use super::send_queue::{INBOX, Sent};
use crate::runtime::{Origin, leaves_room};
use crate::stats::Counter;
use crate::sync::shim::atomic::Ordering;
use crate::sync::shim::lock;

/// Layers of a connection that has or had some.
#[derive(Default)]
pub(super) struct Layers {
    stack: Mutex<Stack>,
    /// Address that a layer has named. Written by the receiver.
    pub(super) client: OnceLock<Address>,
}

#[derive(Default)]
struct Stack {
    /// The layer next to the socket first.
    slots: Vec<Slot>,
    /// Bytes that were sent before all layers were ready. They count as pending.
    early: Vec<u8>,
    /// Set while no layer handshakes.
    ready: bool,
    /// Set when the last bytes of the layers were sent. Nothing may follow them.
    finished: bool,
    /// Bytes that the layers keep, as counted in the runtime's sum.
    counted: usize,
    /// Layers that are done, until the lock is given up.
    done: Vec<Box<dyn Layer>>,
}

struct Slot {
    layer: Box<dyn Layer>,
    /// Unconsumed input.
    input: Vec<u8>,
    /// `None` before the start.
    state: Option<LayerState>,
    /// Set when the layer was asked for the client's address.
    asked: bool,
    /// Set if the layer is to be called although no input has arrived for it.
    again: bool,
}

/// Effect of one pass through the layers.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Reason for which the connection must end.
    pub(super) error: Option<CloseReason>,
    /// Set if more can be decoded although nothing arrives.
    pub(super) again: bool,
    /// Largest number of bytes that a layer has left unconsumed.
    pub(super) left: usize,
    /// Set if the last layer became ready.
    pub(super) ready: bool,
    /// Set if the peer has ended its stream.
    pub(super) ended: bool,
}

/// Most layers of a connection.
const MOST_LAYERS: usize = 8;

impl Conn {
    /// Sends through the layers. Bytes sent before they are ready wait.
    pub(super) fn send_layered(self: &Arc<Self>, pieces: Pieces<'_>) -> Sent {
        let joined;
        let bytes = match pieces.chunk() {
            Chunk::One(bytes) if bytes.len() == pieces.len() => bytes,
            _ => {
                joined = pieces.iter().collect::<Vec<_>>().concat();
                &joined
            }
        };
        let mut held = None;
        let (sent, left) = self.with_layers(|stack, encoded| {
            // Checked under the lock, so that nothing follows the last bytes of the layers.
            if !self.phase().sends() {
                return Ok(false);
            }
            if !stack.ready {
                stack.early.extend_from_slice(bytes);
                held = Some(self.note_pending(0, bytes.len()));
                return Ok(true);
            }
            encode(&mut stack.slots, bytes, encoded).inspect_err(|_| encoded.clear())?;
            Ok(true)
        });
        match sent {
            Some(Ok(true)) => {}
            Some(Err(Close(reason))) => {
                self.begin_close(reason.of_layer(), CLOSE);
                return Sent::Closed;
            }
            Some(Ok(false)) | None => return Sent::Closed,
        }
        if let Some(total) = held {
            self.keep_budget(total);
        }
        left.unwrap_or_else(|| self.answer(0))
    }

    /// Passes received bytes through the layers. `decoded` gets the result.
    pub(super) fn receive_layered(
        self: &Arc<Self>,
        connection: &Connection,
        raw: &[u8],
        decoded: &mut Vec<u8>,
    ) -> Pass {
        let mut had_early = false;
        let (pass, _) = self.with_layers(|stack, encoded| {
            let mut received = stack.receive(connection, raw, decoded, encoded);
            let ready = !stack.ready && stack.slots.iter().all(Slot::is_ready);
            if ready {
                stack.ready = true;
                let early = mem::take(&mut stack.early);
                had_early = !early.is_empty();
                self.note_pending(early.len(), 0);
                let sent = encode(&mut stack.slots, &early, encoded);
                received = received.and(sent);
            }
            let reached = stack.reached();
            Pass {
                error: received.err().map(|Close(reason)| reason.of_layer()),
                again: stack.slots[..reached].iter().any(|slot| slot.again),
                left: stack.slots.iter().map(|slot| slot.input.len()).max().unwrap_or(0),
                ready,
                ended: stack.slots.iter().any(|slot| slot.state == Some(LayerState::Ended)),
            }
        });
        if had_early {
            // If the layers keep the early bytes, nothing is sent. A sender may wait for the
            // backlog, in which they counted.
            self.mark_send(INBOX);
        }
        pass.unwrap_or_default()
    }

    /// Checks that one more handshake may begin in mid-stream.
    ///
    /// # Errors
    ///
    /// The limit is reached.
    pub(super) fn may_handshake(&self) -> Result<(), Close> {
        let limit = self.group.config().max_handshakes;
        if self.origin == Origin::Outgoing || self.group.usage().handshakes.get() < limit {
            return Ok(());
        }
        self.count(Counter::ConnectionsRefusedHandshakes, 1);
        Err(Close(CloseReason::ByLayer(format!("max_handshakes {limit} is reached").into())))
    }

    /// Adds the layers of a connection that has been established.
    pub(super) fn add_layers(self: &Arc<Self>, layers: Vec<Box<dyn Layer>>) {
        self.with_layers(|stack, _| stack.slots.extend(layers.into_iter().map(Slot::new)));
    }

    /// Starts a layer in mid-stream. It gets the rest of `input`. Bytes sent from now on pass through it.
    pub(super) fn start_layer(
        self: &Arc<Self>,
        connection: &Connection,
        input: &mut Input<'_>,
        layer: Box<dyn Layer>,
    ) -> Result<(), Close> {
        self.layers.get_or_init(Box::default);
        // If it is refused, it is dropped outside of the lock.
        let mut layer = Some(layer);
        let (started, _) = self.with_layers(|stack, encoded| {
            let most = MOST_LAYERS;
            if stack.slots.len() >= most {
                return Err(Close::from(format!("a connection has {most} layers at most")));
            }
            let layer = layer.take().expect("this runs once");
            stack.ready = false;
            let rest = input.cut();
            stack.slots.push(Slot { again: !rest.is_empty(), input: rest, ..Slot::new(layer) });
            // Release: pairs with `is_layered`.
            self.layered.store(true, Ordering::Release);
            let top = stack.slots.len() - 1;
            if stack.slots[..top].iter().all(Slot::is_ready) {
                stack.start(top, connection, encoded)?;
            }
            Ok(())
        });
        started.unwrap_or(Err(Close(CloseReason::Panic)))
    }

    /// Tells the layers that the peer's stream has ended.
    ///
    /// # Errors
    ///
    /// The reason of a layer for which the stream may not end here.
    pub(super) fn end_layers(self: &Arc<Self>) -> Result<(), Close> {
        if !self.is_layered() {
            return Ok(());
        }
        let (ended, _) = self.with_layers(|stack, _| {
            // The layers below an ended one are not asked, because their streams go on.
            let is_ended = |slot: &Slot| slot.state == Some(LayerState::Ended);
            let first = stack.slots.iter().rposition(is_ended).unwrap_or(0);
            let mut started =
                stack.slots[first..].iter_mut().take_while(|slot| slot.state.is_some());
            started.try_for_each(|slot| slot.layer.ended())
        });
        let ended = ended.unwrap_or(Err(Close(CloseReason::Panic)));
        ended.map_err(|Close(reason)| Close(reason.of_layer()))
    }

    /// Sends the end of the stream, behind the last bytes of the layers. If the layers are not ready, it
    /// follows when they are.
    pub(super) fn end_stream(self: &Arc<Self>) {
        let ready = || self.with_layers(|stack, _| stack.ready).0 == Some(true);
        if !self.is_layered() || ready() {
            self.finish_layers();
            self.tell_when_flushed();
        }
    }

    /// Sends the last bytes of the layers. No send may begin any more.
    pub(super) fn finish_layers(self: &Arc<Self>) {
        if self.is_layered() {
            self.with_layers(Stack::finish);
        }
    }

    /// Drops the layers at the end of the connection.
    pub(super) fn drop_layers(&self) {
        if let Some(layers) = self.layers.get() {
            let stack = mem::take(&mut *lock(&layers.stack));
            self.note_pending(stack.early.len(), 0);
            self.group.usage().buffer_changed(stack.counted, 0);
            self.group.guard("layer", || drop(stack));
        }
    }

    /// Runs `code` under the lock, and sends the bytes that it encodes. Returns its result, unless it
    /// panicked, and the result of the send, unless there are no such bytes.
    fn with_layers<R>(
        self: &Arc<Self>,
        code: impl FnOnce(&mut Stack, &mut Vec<u8>) -> R,
    ) -> (Option<R>, Option<Sent>) {
        let Some(layers) = self.layers.get() else { return (None, None) };
        let mut stack = lock(&layers.stack);
        let mut encoded = Vec::new();
        let was_finished = stack.finished;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let result = code(&mut stack, &mut encoded);
            (result, stack.kept_bytes())
        }));
        let (result, kept) = match outcome {
            Ok((result, kept)) => (Ok(result), kept),
            Err(payload) => (Err(payload), stack.counted),
        };
        let left = if encoded.is_empty() {
            None
        } else if was_finished {
            Some(None)
        } else {
            Some(self.leave_chunk_in_inbox(encoded))
        };
        let before = mem::replace(&mut stack.counted, kept);
        // Under the lock, so that `drop_layers` takes nothing from the sum that is not in it.
        let changed = (kept != before).then(|| self.group.usage().buffer_changed(before, kept));
        if stack.ready && stack.slots.is_empty() {
            // Release: pairs with `is_layered`. A sender that sees it finds the bytes left above.
            self.layered.store(false, Ordering::Release);
        }
        let done = mem::take(&mut stack.done);
        drop(stack);
        if !done.is_empty() {
            self.group.guard("layer", || drop(done));
        }
        // Noted outside of the lock: the log may send on this connection.
        let result = result.map_err(|payload| self.group.note_panic("layer", payload)).ok();
        if result.is_none() {
            self.begin_close(CloseReason::Panic, ABORT);
        }
        if let Some(bytes) = changed {
            let (limit, own) = (self.group.config().max_buffered_bytes, kept);
            if kept > before && !leaves_room(own, bytes, limit) {
                self.break_off(CloseReason::MemoryBudget { own, bytes, limit }, ABORT);
            }
        }
        let send = |left: Option<_>| left.map_or(Sent::Closed, |left| self.send_inbox(left));
        (result, left.map(send))
    }
}

impl Stack {
    /// Starts the layer at `index`. Those below are ready.
    fn start(
        &mut self,
        index: usize,
        conn: &Connection,
        encoded: &mut Vec<u8>,
    ) -> Result<(), Close> {
        let mut answer = Vec::new();
        let (below, rest) = self.slots.split_at_mut(index);
        let started = rest[0].layer.start(conn, &mut answer);
        encode(below, &answer, encoded)?;
        rest[0].state = Some(started?);
        Ok(())
    }

    /// Returns the number of layers that bytes reach: a layer that is not ready passes none up.
    fn reached(&self) -> usize {
        let ready = self.slots.iter().take_while(|slot| slot.is_ready()).count();
        self.slots.len().min(ready + 1)
    }

    /// Passes bytes up to the first layer that is not ready. `raw` is empty if a layer can decode
    /// more without new bytes.
    fn receive(
        &mut self,
        conn: &Connection,
        raw: &[u8],
        decoded: &mut Vec<u8>,
        encoded: &mut Vec<u8>,
    ) -> Result<(), Close> {
        // The highest layer that can decode more goes first.
        let reached = self.reached();
        let mut index = self.slots[..reached].iter().rposition(|slot| slot.again).unwrap_or(0);
        let mut raw = Some(raw);
        while index < self.slots.len() {
            if self.slots[index].state.is_none() {
                self.start(index, conn, encoded)?;
            }
            let (below, rest) = self.slots.split_at_mut(index);
            let Some((slot, above)) = rest.split_first_mut() else { break };
            let mut answer = Vec::new();
            let new = raw.take().unwrap_or_default();
            let received = match above.first_mut() {
                Some(next) => {
                    let before = next.input.len();
                    let received = slot.receive(conn, new, &mut next.input, &mut answer);
                    next.again |= next.input.len() > before;
                    received
                }
                None => slot.receive(conn, new, decoded, &mut answer),
            };
            encode(below, &answer, encoded)?;
            received?;
            if slot.state != Some(LayerState::Handshaking)
                && !mem::replace(&mut slot.asked, true)
                && let Some(client) = slot.layer.client_addr()
                && let Some(layers) = conn.0.layers.get()
            {
                // An address that was named before counts.
                let _ = layers.client.set(client);
            }
            match slot.state {
                Some(LayerState::Handshaking) | None => break,
                Some(LayerState::Done) => self.done.push(self.slots.remove(index).layer),
                Some(_) => index += 1,
            }
        }
        // Without layers, bytes pass.
        decoded.extend_from_slice(raw.unwrap_or_default());
        Ok(())
    }

    /// Encodes the last bytes of each layer, once.
    fn finish(&mut self, encoded: &mut Vec<u8>) {
        if mem::replace(&mut self.finished, true) {
            return;
        }
        for index in (0..self.slots.len()).rev() {
            let (below, rest) = self.slots.split_at_mut(index);
            if rest[0].state.is_some() {
                let mut last = Vec::new();
                rest[0].layer.finish(&mut last);
                // A layer that cannot encode them ends without them.
                let _ = encode(below, &last, encoded);
            }
        }
    }

    fn kept_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.input.capacity() + slot.layer.kept_bytes()).sum()
    }
}

impl Slot {
    fn new(layer: Box<dyn Layer>) -> Self {
        Self { layer, input: Vec::new(), state: None, asked: false, again: false }
    }

    fn is_ready(&self) -> bool {
        matches!(self.state, Some(LayerState::Ready | LayerState::Ended))
    }

    /// Calls the layer with its unconsumed input and the new one.
    fn receive(
        &mut self,
        conn: &Connection,
        new: &[u8],
        decoded: &mut Vec<u8>,
        answer: &mut Vec<u8>,
    ) -> Result<(), Close> {
        if self.state == Some(LayerState::Ended) {
            self.input = Vec::new();
            self.again = false;
            return Ok(());
        }
        if new.is_empty() && !self.again {
            return Ok(());
        }
        let has_own = !self.input.is_empty();
        if has_own {
            self.input.extend_from_slice(new);
        }
        let mut input = Input::new(if has_own { &self.input } else { new }, 0, None);
        let mut output = Decoded::new(decoded);
        let state = match self.state {
            // It was done at its start.
            Some(LayerState::Done) => LayerState::Done,
            _ => self.layer.received(conn, &mut input, &mut output, answer)?,
        };
        self.state = Some(state);
        self.again = output.room() == 0 && state != LayerState::Ended;
        if state == LayerState::Done {
            decoded.extend_from_slice(input.take_all());
        } else if state == LayerState::Ended {
            input.take_all();
        }
        let (consumed, left) = (input.consumed(), input.len());
        if left == 0 {
            self.input = Vec::new();
        } else if has_own {
            self.input.drain(..consumed);
        } else {
            self.input.extend_from_slice(&new[consumed..]);
        }
        Ok(())
    }
}

/// Passes bytes down through these layers.
fn encode(slots: &mut [Slot], bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
    match slots.split_last_mut() {
        _ if bytes.is_empty() => Ok(()),
        None => {
            encoded.extend_from_slice(bytes);
            Ok(())
        }
        Some((slot, [])) => slot.layer.send(bytes, encoded),
        Some((slot, below)) => {
            let mut above = Vec::new();
            slot.layer.send(bytes, &mut above)?;
            encode(below, &above, encoded)
        }
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::net::{HalfClose, ListenOptions, Protocol};
    use crate::runtime::Runtime;
    use crate::sys::clock::Instant;

    const LONG: Duration = Duration::from_secs(60);

    /// Layer that passes bytes unchanged, until its stream ends with a `.`.
    struct Dot;

    impl Layer for Dot {
        fn start(&mut self, _: &Connection, _: &mut Vec<u8>) -> Result<LayerState, Close> {
            Ok(LayerState::Ready)
        }

        fn received(
            &mut self,
            _: &Connection,
            input: &mut Input<'_>,
            decoded: &mut Decoded<'_>,
            _: &mut Vec<u8>,
        ) -> Result<LayerState, Close> {
            let bytes = input.take_all();
            decoded.push(bytes);
            Ok(if bytes.ends_with(b".") { LayerState::Ended } else { LayerState::Ready })
        }

        fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
            encoded.extend_from_slice(bytes);
            Ok(())
        }
    }

    #[derive(Debug)]
    enum Call {
        Aside(Connection),
        Received(Vec<u8>),
        Ended,
    }

    /// Has no room for its first bytes, until it is resumed.
    struct Full(mpsc::Sender<Call>);

    impl Protocol for Full {
        type State = bool;

        fn opened(&self, _: &Connection) -> Result<bool, Close> {
            Ok(true)
        }

        fn received(
            &self,
            conn: &Connection,
            full: &mut bool,
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            let call = if mem::take(full) {
                input.set_aside(Instant::now() + LONG);
                Call::Aside(conn.clone())
            } else {
                Call::Received(input.take_all().to_vec())
            };
            let _ = self.0.send(call);
            Ok(())
        }

        fn ended(&self, _: &Connection, _: &mut bool) -> Result<HalfClose, Close> {
            let _ = self.0.send(Call::Ended);
            Ok(HalfClose::End)
        }
    }

    #[test]
    fn input_that_was_set_aside_comes_before_the_end_behind_it() {
        let runtime = Runtime::builder().start().expect("a runtime");
        let (calls, called) = mpsc::channel();
        let options = ListenOptions::new().layer(|_: &Connection| Ok(Box::new(Dot) as _));
        let listener = runtime.listen_with("127.0.0.1:0", options, Full(calls)).expect("bound");
        let Address::Tcp(to) = listener.local_addr() else { unreachable!("TCP") };
        let mut peer = TcpStream::connect(to).expect("connected");
        peer.write_all(b"last.").expect("sent");
        let next = || called.recv_timeout(LONG).expect("a call");
        let Call::Aside(conn) = next() else { panic!("it was full") };
        conn.resume();
        assert!(matches!(next(), Call::Received(bytes) if bytes == b"last."));
        assert!(matches!(next(), Call::Ended));
    }
}
