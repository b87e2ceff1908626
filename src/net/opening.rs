//! How a connection opens: its connect, the handshakes of its layers, and `opened`.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::close::CloseReason;
use super::conn::{HUNG_UP, NOTIFIED, READABLE, WRITABLE};
use super::phase::Phase;
use super::receive::Round;
use super::recv_state::{Ending, Recv, Stage};
use super::route::Attempt;
use crate::runtime::Origin;
use crate::stats::Counter;
use crate::sync::runner::Marks;
use crate::sys::{clock, socket};

impl Round<'_> {
    /// Finds out whether an outgoing connection was established or has failed.
    pub(super) fn establish(&self, recv: &mut Recv, marks: Marks) {
        // The first bytes of a server may be noticed before the connection.
        let told = marks.has(WRITABLE | READABLE | HUNG_UP);
        if !told && recv.stage.deadline().is_none_or(|until| clock::now() < until) {
            return;
        }
        let error = match socket::take_error(self.conn.fd()) {
            // At the deadline, the event that reports success may not have been handled yet.
            Ok(None) => socket::peer_addr(self.conn.fd()).err(),
            Ok(error) => error,
            Err(error) => Some(error),
        };
        match error {
            None => {
                recv.stage = Stage::New;
                if let Some(later) = recv.route.take().and_then(|route| route.later) {
                    self.conn.set_later_peer(later);
                }
                self.conn.send_early();
                self.conn.count(Counter::ConnectionsConnected, 1);
            }
            Some(mut error) => {
                if error.kind() == io::ErrorKind::NotConnected {
                    let late = recv.stage.deadline().is_some_and(|until| until <= clock::now());
                    if late && let Some(route) = &recv.route {
                        error = route.timed_out(self.conn.peer());
                    } else if matches!(socket::hang_ups(self.conn.fd()), Ok((_, false))) {
                        // The event was of the attempt before, and this one goes on.
                        return;
                    }
                }
                // The next socket is prepared by code of the user.
                let go_on = || self.go_on_connecting(recv, error);
                let reason = match self.conn.group.guard("prepare_socket", go_on) {
                    Some(Ok(())) => return,
                    Some(Err(error)) => CloseReason::ConnectFailed(Arc::new(error)),
                    None => CloseReason::Panic,
                };
                self.finish(recv, Some(reason));
            }
        }
    }

    /// Tries the next address of the server.
    pub(super) fn go_on_connecting(&self, recv: &mut Recv, failed: io::Error) -> io::Result<()> {
        let Some(route) = &mut recv.route else { return Err(failed) };
        let Attempt { address, socket, until } = route.go_on(failed)?;
        self.conn.change_socket(socket)?;
        route.later = Some(address);
        recv.hung_up = false;
        recv.stage = Stage::Connecting { until };
        until.into_iter().for_each(|until| self.conn.arm(until));
        Ok(())
    }

    /// Begins to serve an established connection: with the handshakes of its layers if it has some.
    #[inline(never)]
    pub(super) fn begin(&mut self, recv: &mut Recv) {
        if !self.conn.is_layered() {
            self.open(recv);
            return;
        }
        recv.stage = Stage::Handshaking;
        self.begin_handshake(recv);
        let layers = || self.conn.protocol().options().layers.make(self.connection);
        match self.conn.group.guard("layer", layers) {
            Some(Ok(layers)) => {
                self.conn.add_layers(layers);
                self.decode(recv, &[]);
            }
            Some(Err(close)) => self.start_closing(recv, close.0.of_layer()),
            None => self.finish(recv, Some(CloseReason::Panic)),
        }
    }

    /// Sets the deadline of a handshake. That of an accepted connection has begun when it was accepted.
    pub(super) fn begin_handshake(&self, recv: &mut Recv) {
        if recv.handshake_until.is_none() {
            let until = clock::now() + self.conn.handshake_timeout();
            recv.handshake_until = Some(until);
            self.conn.arm(until);
            self.count_handshake(true);
        }
    }

    pub(super) fn end_handshake(&self, recv: &mut Recv) {
        if recv.handshake_until.take().is_some() {
            self.count_handshake(false);
        }
    }

    pub(super) fn count_handshake(&self, begins: bool) {
        if self.conn.origin == Origin::Accepted {
            self.conn.group.usage().handshakes.change(begins);
        }
    }

    /// Returns true if the next step of an accepted connection's handshake goes to the background
    /// first, because it may take much CPU time.
    pub(super) fn defers(&self, recv: &mut Recv, is_urgent: bool) -> bool {
        if recv.handshake_until.is_none() || self.conn.origin == Origin::Outgoing {
            return false;
        }
        recv.deferred = !is_urgent && !recv.deferred;
        recv.deferred
    }

    /// Counts the connection under the address that a layer has named. If that has too many, the
    /// connection ends.
    pub(super) fn rename(&self, recv: &mut Recv) {
        let (peer, client) = (self.conn.peer(), self.conn.client_addr());
        if let Some(admissions) = &self.conn.protocol().options().admissions
            && let Err(limit) = admissions.rename(peer, client)
        {
            self.conn.count(Counter::ConnectionsRefusedLimit, 1);
            let text = format!("{client} has max_connections_per_address {limit} already");
            recv.ending = Some(Ending::Close(CloseReason::ByLayer(text.into())));
        }
    }

    /// Handles the end of the last layer's handshake.
    pub(super) fn layers_ready(&self, recv: &mut Recv) {
        self.end_handshake(recv);
        self.conn.count(Counter::HandshakesCompleted, 1);
        if recv.stage != Stage::Handshaking {
            if self.conn.phase() == Phase::HalfClosing {
                self.conn.end_stream();
            }
            self.conn.notify_recv(NOTIFIED);
            return;
        }
        if recv.buf.is_empty() && !recv.undecoded {
            // Earlier bytes were of a proxy or of a handshake.
            recv.has_spoken = false;
            if self.conn.origin == Origin::Accepted && recv.silent_until.is_none() {
                self.await_first_bytes(recv, clock::now());
            }
        }
        self.open(recv);
        let later = mem::take(&mut recv.later);
        if !later.is_empty() {
            self.conn.notify_recv(later);
        }
    }

    pub(super) fn open(&self, recv: &mut Recv) {
        recv.stage = Stage::Open;
        recv.unopened = false;
        if self.conn.advance(Phase::Open) == Phase::HalfClosing {
            self.conn.end_stream();
        }
        self.drain_if_late(recv);
        let protocol = Arc::clone(self.conn.protocol());
        match self.conn.group.guard("opened", || protocol.open(self.connection)) {
            Some(Ok(handler)) => {
                recv.handler = Some(handler);
                // Release: pairs with the Acquire in `TellDrained`, so its call follows `opened`.
                self.conn.has_opened.store(true, Ordering::Release);
                if self.conn.origin == Origin::Accepted {
                    let now = clock::now();
                    if recv.silent_until.is_none() {
                        // The first bytes have no limit, or have come with the end of a handshake.
                        recv.heard_at = Some(now);
                    }
                    // A silent peer has an idle time-out, too, if the user has set one already.
                    self.arm_idle(recv, now);
                }
            }
            Some(Err(close)) => self.start_closing(recv, close.0),
            None => self.finish(recv, Some(CloseReason::Panic)),
        }
    }
}
