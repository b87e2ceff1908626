//! A blocking thread for each connection: the fairness that the kernel's scheduler gives.
//!
//! Each thread receives, performs the frames, sends, and receives again. A slow handler holds up only its own
//! peer, and the scheduler shares the CPUs among the running threads: that is the latency to compare with
//! if some handlers are slow. The price is a stack, and two context switches a request, so it is no model
//! for many connections.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};

use super::{frames, threads};

const RECEIVE_BYTES: usize = 64 << 10;

/// Starts to accept. All threads serve until their peers leave or the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr) -> io::Result<SocketAddr> {
    threads::accept(address, serve)
}

fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut filled = 0;
    loop {
        let count = threads::receive(&socket, &mut buffer[filled..])?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        let whole = frames::perform(&buffer[..filled])?;
        socket.write_all(&buffer[..whole])?;
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
    }
}
