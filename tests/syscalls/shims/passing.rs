//! Descriptors that are passed along with bytes.

#![allow(unsafe_code, reason = "control messages are laid out by hand")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Sends bytes with a descriptor. Returns the number of bytes sent.
pub(crate) fn send(to: &UnixStream, bytes: &[u8]) -> usize {
    let mut piece =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // Aligned as a header of a control message wants it.
    let mut control = [0_u64; 8];
    // SAFETY: all zero is a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    message.msg_control = control.as_mut_ptr().cast();
    let payload = size_of::<RawFd>() as u32;
    // SAFETY: a plain number in, one out.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as usize;
    // SAFETY: the message has room for one header and a descriptor.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: a plain number in, one out.
    let len = unsafe { libc::CMSG_LEN(payload) } as usize;
    let (level, kind) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    // SAFETY: it points into `control`, which is large enough and aligned.
    unsafe { header.write(libc::cmsghdr { cmsg_len: len, cmsg_level: level, cmsg_type: kind }) };
    // SAFETY: behind the header there is room for the descriptor.
    let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
    // SAFETY: as above.
    unsafe { data.write_unaligned(to.as_raw_fd()) };
    // SAFETY: the message and all that it points to are live for the call.
    let sent = unsafe { libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).unwrap_or_else(|_| panic!("{}", io::Error::last_os_error()))
}
