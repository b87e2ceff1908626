//! A server that takes over from a predecessor, and is replaced by a successor.

use std::error::Error;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::net::{Close, Connection, HalfClose, Input, ListenOptions, Listener, Protocol};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::LIMIT;

/// Limit on the sockets that are passed on. There is one for each group of workers, and a runtime has at
/// most 128 groups. The kernel passes at most 253 descriptors at once.
const MOST_SOCKETS: usize = 128;

/// Answers each byte with the number of its server.
struct Number(u8);

impl Protocol for Number {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send(vec![self.0; input.take_all().len()]);
        Ok(())
    }

    fn ended(&self, _: &Connection, (): &mut ()) -> Result<HalfClose, Close> {
        Ok(HalfClose::End)
    }
}

/// Serves until a successor has taken over.
pub fn serve(control: &Path, number: u8, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().start()?;
    let mut predecessor = UnixStream::connect(control).ok();
    let listener = match &predecessor {
        Some(predecessor) => {
            let sockets = receive(predecessor)?;
            runtime.listen_on(sockets, ListenOptions::new(), Number(number))?
        }
        None => runtime.listen("127.0.0.1:0", Number(number))?,
    };
    let own = control.with_extension(std::process::id().to_string());
    let successors = UnixListener::bind(&own)?;
    // This byte ends the predecessor. After a failure above, the predecessor goes on with its socket.
    if let Some(predecessor) = &mut predecessor {
        predecessor.write_all(b"!")?;
    }
    std::fs::rename(own, control)?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    out.flush()?;
    loop {
        let (successor, _) = successors.accept()?;
        match hand_over(&listener, successor) {
            Ok(()) => break,
            Err(error) => eprintln!("a successor failed, so this server goes on: {error}"),
        }
    }
    drop(listener);
    // Accepting ends first. Then the accepted connections end.
    let deadline = Instant::now() + LIMIT;
    let is_busy = || runtime.stats().listeners > 0 || runtime.stats().connections > 0;
    while is_busy() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    let report = runtime.drain(Duration::ZERO);
    Ok(writeln!(out, "{} connections were cut", report.cut)?)
}

/// Passes the sockets on, and waits until the successor listens.
fn hand_over(listener: &Listener, mut successor: UnixStream) -> Result<(), Box<dyn Error>> {
    successor.set_read_timeout(Some(LIMIT))?;
    pass_on(listener, &successor)?;
    let says_so = successor.read_exact(&mut [0]);
    says_so.map_err(|error| format!("it did not say that it listens: {error}").into())
}

/// Sends the sockets to a successor.
fn pass_on(listener: &Listener, to: &UnixStream) -> Result<(), Box<dyn Error>> {
    let sockets = listener.sockets()?;
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    if !message.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(format!("{} sockets, at most {MOST_SOCKETS}", sockets.len()).into());
    }
    rustix::net::sendmsg(to, &[IoSlice::new(b".")], &mut message, SendFlags::empty())?;
    Ok(())
}

/// Receives the sockets of a predecessor.
///
/// # Errors
/// The message is missing or incomplete. A server with a part of the sockets would lose the
/// connections in the backlogs of the others.
pub fn receive(from: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let bytes = &mut [IoSliceMut::new(&mut byte)];
    let received = rustix::net::recvmsg(from, bytes, &mut message, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::Error::other("the predecessor passed no sockets on"));
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the sockets of the predecessor did not all arrive"));
    }
    let mut sockets = Vec::new();
    for part in message.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            sockets.extend(descriptors);
        }
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_sockets_is_an_error() {
        let (predecessor, successor) = UnixStream::pair().expect("a pair");
        let pass_on = |count: usize| {
            let sockets = vec![predecessor.as_fd(); count];
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * MOST_SOCKETS))];
            let mut message = SendAncillaryBuffer::new(&mut space);
            assert!(message.push(SendAncillaryMessage::ScmRights(&sockets)));
            let bytes = [IoSlice::new(b".")];
            rustix::net::sendmsg(&predecessor, &bytes, &mut message, SendFlags::empty())
        };
        pass_on(MOST_SOCKETS).expect("sent");
        assert_eq!(receive(&successor).expect("all of them").len(), MOST_SOCKETS);
        pass_on(MOST_SOCKETS + 64).expect("sent");
        let error = receive(&successor).expect_err("a part").to_string();
        assert_eq!(error, "the sockets of the predecessor did not all arrive");
        drop(predecessor);
        let error = receive(&successor).expect_err("none").to_string();
        assert_eq!(error, "the predecessor passed no sockets on");
    }
}
