//! tokio: a task for each connection, on the runtime with many threads.
//!
//! ```text
//!  worker thread ── epoll ──▶ task of a connection: read, perform, write_all ─▶ await read
//!       │  one worker at a time waits in epoll; tasks it wakes are its own first
//!       └──▶ run queue of each worker; an idle worker steals from the others
//! ```
//!
//! A common choice of Rust authors, written like its tutorial: a loop of `read().await` and
//! `write_all().await` over `TcpStream`, one task a connection, on the runtime of `#[tokio::main]`. There is no
//! framing crate, a connection has one buffer, and `write_all` tries the socket before it waits, so no loop of
//! this shape is cheaper. A runtime with one thread for each CPU and connections that never move would be
//! cheaper still, but is not why tokio is chosen; `loops.rs` measures that shape.
//!
//! Good at: an even load, and code that reads from top to bottom. A task that wakes runs on the worker that
//! saw its event, and others steal it if that worker is busy. Bad at: handlers that burn CPU or block. A worker
//! inside one does not poll, and the task that it would have run next waits with it. Frames that burn and
//! sleep run in place, as most programs run work that they expect to be short. Waits for a lock happen in
//! `block_in_place`, which first gives the worker's queue to another thread. The documentation recommends it
//! for code that blocks.

use std::io;
use std::net::SocketAddr;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task;

use super::epoll::{self, Address};
use super::frames;

/// First size of a connection's buffer. Most connections never fill it.
const FIRST_BYTES: usize = 1 << 10;
/// Size to which it grows if receives fill it.
const RECEIVE_BYTES: usize = 64 << 10;

/// Starts the runtime. It serves until the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
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
        // A peer that leaves before it is accepted is no reason to stop.
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
