//! tokio: a task for each connection, on the runtime with many threads.
//!
//! ```text
//!  worker thread ── epoll ──▶ task of a connection: read, perform, write_all ─▶ await read
//!       │  one worker at a time waits in epoll; tasks it wakes are its own first
//!       └──▶ run queue of each worker; who has none steals from the others
//! ```
//!
//! What a Rust author would otherwise pick, written as its tutorial has it: a loop of
//! `read().await` and `write_all().await` over `TcpStream`, one task a connection, the runtime of
//! `#[tokio::main]` with as many workers as asked for. No framing crate stands between, one buffer
//! is used again for all of a connection, and `write_all` tries the socket before it waits: there is
//! no cheaper loop in this shape. A runtime with one thread for each CPU and connections that never
//! move would be cheaper still; that is no longer what tokio is picked for, and it is what
//! `limit.rs` measures.
//!
//! Good at: an even load, and code that reads from top to bottom. A task that wakes runs on the
//! worker that saw its event, and others steal it when that worker is busy. Bad at: handlers that
//! burn CPU or block. A worker inside one polls nothing meanwhile, and the task it would have run
//! next waits with it. Frames that burn and sleep are worked off in place, as most programs do with
//! what they expect to be short. Who waits for a lock does so in `block_in_place`, which first gives
//! the worker's queue to another thread: the way that the documentation names for code that blocks.

use std::io;
use std::net::SocketAddr;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task;

use super::epoll::{self, Address};
use super::frames;

/// Of a connection's buffer at first, and what it grows to where receives fill it: most connections
/// never do, and each has one.
const FIRST_BYTES: usize = 1 << 10;
const RECEIVE_BYTES: usize = 64 << 10;

/// Starts the runtime; it serves until the process ends.
pub(crate) fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
    let listener = epoll::listen(address, Address::Alone)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_io().build()?;
    thread::spawn(move || {
        let error = runtime.block_on(accept(listener)).expect_err("the loop has no other end");
        panic!("accept: {error}");
    });
    Ok(address)
}

async fn accept(listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        // What a peer does before it is accepted concerns nobody else.
        if let Ok((socket, _)) = listener.accept().await {
            // An error ends its connection, as it would end any connection.
            tokio::spawn(serve(socket));
        }
    }
}

async fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = vec![0; FIRST_BYTES];
    let mut filled = 0;
    loop {
        let count = socket.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        let is_full = filled == buffer.len();
        let whole = frames::perform_in(&buffer[..filled], |wait| task::block_in_place(wait))?;
        socket.write_all(&buffer[..whole]).await?;
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        if filled == buffer.len() || (is_full && buffer.len() < RECEIVE_BYTES) {
            buffer.resize(2 * buffer.len(), 0);
        }
    }
}
