//! Connections for a driver.

use std::io;

use socket2::Socket;

use super::Target;

/// Connects, and waits until that is done.
///
/// # Errors
/// Those of the system.
pub fn connect(target: &Target) -> io::Result<Socket> {
    let (socket, address) = target.socket()?;
    socket.connect(&address)?;
    prepare(socket)
}

/// Makes a connection non-blocking, and sends without delay.
///
/// # Errors
/// Those of the system.
pub fn prepare(socket: Socket) -> io::Result<Socket> {
    if !socket.local_addr()?.is_unix() {
        socket.set_tcp_nodelay(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}
