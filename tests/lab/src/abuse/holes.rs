//! Sockets that vanish without a word to the peer.

#![allow(unsafe_code, reason = "filters and TCP_REPAIR are socket options without a safe wrapper")]

use std::io;
use std::os::fd::AsRawFd;

use socket2::Socket;

/// Makes the kernel drop every packet for the socket from now on, ACKs and resets too.
pub fn take_nothing(socket: &Socket) -> io::Result<()> {
    // BPF_RET | BPF_K: keep no byte of it.
    let mut code = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    let size = size_of_val(&program) as libc::socklen_t;
    // SAFETY: `program` is of that type and size, and its one instruction outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel close the socket without telling the peer.
pub fn forget(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = size_of_val(&on) as libc::socklen_t;
    // SAFETY: `on` is of that type and size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            (&raw const on).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
