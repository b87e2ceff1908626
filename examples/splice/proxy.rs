//! The proxy: two protocols, one for the connections of clients and one for those to the server behind.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use epoll_group::net::{
    Close, CloseReason, ConnectOptions, Connection, FullBacklog, HalfClose, Hold, Input,
    ListenError, ListenOptions, Listener, Protocol,
};
use epoll_group::{Config, Handle, Runtime};

/// Backlog in bytes from which the other side is no longer read.
pub(super) const HIGH: usize = 256 << 10;

/// Passes what one side sends to the other side.
fn pass(from: &Connection, to: &Connection, input: &mut Input<'_>) {
    to.send(input.take_all());
    if to.is_backlogged() {
        from.pause_reads();
        // The call of `drained` follows the pause, even if the backlog is low by now.
        to.notify_when_drained();
    }
}

/// Ends one side after the other has ended. If that broke or was cut before its stream had finished, a reset
/// says that bytes are missing.
fn pass_end(to: &Connection, reason: &CloseReason, finished: bool) {
    use CloseReason::{ByHandler, ByPeer};

    if finished || matches!(reason, ByPeer | ByHandler(_)) {
        to.close(reason.to_string());
    } else {
        to.abort(reason.to_string());
    }
}

/// Connections of clients.
struct Front {
    handle: Handle,
    to: SocketAddr,
}

/// Connection to the server behind, for `drained`, which has no state. `closed` takes it out, because
/// the two connections would keep each other alive.
type Behind = Mutex<Option<Connection>>;

fn lock(behind: &Behind) -> MutexGuard<'_, Option<Connection>> {
    behind.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of a client's connection.
struct Client {
    server: Connection,
    /// Set at the end of the client's stream.
    finished: bool,
    /// Keeps the connection open in a drain.
    hold: Option<Hold>,
}

impl Protocol for Front {
    type State = Client;

    fn opened(&self, conn: &Connection) -> Result<Client, Close> {
        // Both sides must be read when their own backlogs are full: otherwise two full ones would wait for
        // each other. Bytes sent before the connection is established wait.
        let options = ConnectOptions::new().full_backlog(FullBacklog::Notify);
        let back = Back { client: conn.clone() };
        let server = self.handle.connect_with(self.to, options, back).map_err(Close::error)?;
        let _ = conn.set_extension(Behind::new(Some(server.clone())));
        Ok(Client { server, finished: false, hold: None })
    }

    fn received(
        &self,
        conn: &Connection,
        client: &mut Client,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        pass(conn, &client.server, input);
        Ok(())
    }

    fn ended(&self, _: &Connection, client: &mut Client) -> Result<HalfClose, Close> {
        client.finished = true;
        client.server.shutdown_write();
        Ok(HalfClose::KeepOpen)
    }

    fn drained(&self, conn: &Connection) {
        if let Some(server) = conn.extension().map(lock).as_deref().and_then(Option::as_ref) {
            server.resume_reads();
        }
    }

    /// Both streams may finish until the deadline of the drain.
    fn draining(&self, conn: &Connection, client: &mut Client) {
        conn.read_while_held();
        client.hold = Some(conn.hold());
    }

    fn closed(&self, conn: &Connection, client: Client, reason: &CloseReason) {
        drop(conn.extension().map(lock).and_then(|mut behind| behind.take()));
        pass_end(&client.server, reason, client.finished);
    }
}

/// Connection to the server behind, for one client.
struct Back {
    client: Connection,
}

impl Protocol for Back {
    /// Set at the end of the server's stream.
    type State = bool;

    fn opened(&self, _: &Connection) -> Result<bool, Close> {
        Ok(false)
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        self.client.abort(reason.to_string());
    }

    fn received(
        &self,
        conn: &Connection,
        _: &mut bool,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        pass(conn, &self.client, input);
        Ok(())
    }

    fn ended(&self, _: &Connection, finished: &mut bool) -> Result<HalfClose, Close> {
        *finished = true;
        self.client.shutdown_write();
        Ok(HalfClose::KeepOpen)
    }

    fn drained(&self, _: &Connection) {
        self.client.resume_reads();
    }

    fn closed(&self, _: &Connection, finished: bool, reason: &CloseReason) {
        pass_end(&self.client, reason, finished);
    }
}

/// Starts the runtime. No handler here waits or computes, so each CPU has a group of one thread: the
/// groups share nothing. A handler's `connect` uses its own group, so a pair stays on its CPU.
pub(super) fn start() -> Result<Runtime, Box<dyn Error>> {
    let config = Config::default()
        .epoll_groups(thread::available_parallelism()?.get())
        .epoll_threads_per_group(1)
        .write_high_watermark_bytes(HIGH)
        .write_low_watermark_bytes(HIGH / 4);
    Ok(Runtime::builder().name("splice").config(config).start()?)
}

pub(super) fn listen(
    runtime: &Runtime,
    at: SocketAddr,
    to: SocketAddr,
) -> Result<Listener, ListenError> {
    let options = ListenOptions::new().full_backlog(FullBacklog::Notify);
    runtime.listen_with(at, options, Front { handle: runtime.handle(), to })
}
