//! The other end of a connection: a plain blocking socket, misbehaving on request.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::Path;
use std::time::Duration;

use epoll_group::codec::frame::{Dialect, HEADER_BYTES, Header};
use epoll_group::net::Address;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::LONG;

/// A connected client. Reads give up after [`LONG`], so that a test fails and does not hang.
pub struct Peer(Socket);

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    Reset,
}

impl Peer {
    pub fn connect(to: &Address) -> Self {
        Self::try_connect(to, None).expect("connected")
    }

    /// `receive_buffer` bounds what the kernel holds for a peer that does not read.
    pub fn try_connect(to: &Address, receive_buffer: Option<usize>) -> io::Result<Self> {
        let (domain, raw): (_, SockAddr) = match to {
            Address::Tcp(addr) => (Domain::for_address(*addr), (*addr).into()),
            Address::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
            _ => unreachable!("there are two kinds"),
        };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if domain != Domain::UNIX {
            socket.set_tcp_nodelay(true)?;
        }
        Self(socket).to(&raw)
    }

    /// Connects a Unix socket that has a path of its own, by which the server knows the peer.
    pub fn connect_from(from: &Path, to: &Path) -> Self {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        socket.bind(&SockAddr::unix(from).expect("a short path")).expect("bound");
        Self(socket).to(&SockAddr::unix(to).expect("a short path")).expect("connected")
    }

    fn to(self, raw: &SockAddr) -> io::Result<Self> {
        self.0.set_read_timeout(Some(LONG))?;
        self.0.set_write_timeout(Some(LONG))?;
        self.0.connect(raw)?;
        Ok(self)
    }

    /// Reads give up after this.
    pub fn set_patience(&self, patience: Duration) {
        self.0.set_read_timeout(Some(patience)).expect("a time above 0");
    }

    /// The next connection of a listener that the test serves by hand.
    pub fn accept(from: &TcpListener) -> Self {
        SockRef::from(from).set_read_timeout(Some(LONG)).expect("set");
        let (socket, _) = from.accept().expect("accepted");
        let socket = Socket::from(socket);
        socket.set_tcp_nodelay(true).expect("set");
        socket.set_read_timeout(Some(LONG)).expect("set");
        socket.set_write_timeout(Some(LONG)).expect("set");
        Self(socket)
    }

    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("sent");
    }

    #[track_caller]
    /// # Errors
    ///
    /// The connection has ended.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    pub fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("received");
        bytes
    }

    /// One byte, or `None` at the end.
    pub fn receive_one(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte).is_ok().then_some(byte[0])
    }

    /// Everything up to the end, and the kind of the end.
    #[track_caller]
    pub fn receive_all(&mut self) -> (Vec<u8>, End) {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => (bytes, End::Finished),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => (bytes, End::Reset),
            Err(error) => panic!("after {} bytes: {error}", bytes.len()),
        }
    }

    /// Everything up to the end, which must be in order.
    #[track_caller]
    pub fn receive_to_finish(&mut self) -> Vec<u8> {
        let (bytes, end) = self.receive_all();
        assert_eq!(end, End::Finished, "after {} bytes", bytes.len());
        bytes
    }

    /// One frame, header and body.
    #[track_caller]
    pub fn receive_frame(&mut self) -> Vec<u8> {
        let mut bytes = self.receive(HEADER_BYTES);
        let header = Dialect::Legacy.parse(&bytes, u32::MAX).expect("a good header");
        bytes.extend(self.receive(header.expect("all of it").body_bytes as usize));
        bytes
    }

    /// Sends, and expects the same bytes back.
    #[track_caller]
    pub fn echo(&mut self, bytes: &[u8]) {
        self.send(bytes);
        assert!(self.receive(bytes.len()) == bytes, "the answer differs");
    }

    /// Half-closes: nothing more will be sent.
    pub fn finish(&self) {
        self.0.shutdown(Shutdown::Write).expect("finished sending");
    }

    /// Closes at once; TCP sends a reset.
    pub fn reset(self) {
        self.0.set_linger(Some(Duration::ZERO)).expect("a reset to come");
    }

    /// Another handle of the same socket, for another thread.
    pub fn other(&self) -> Self {
        Self(self.0.try_clone().expect("a second handle"))
    }

    /// Sends without waiting, until the socket is full or all is sent. Returns the number of bytes.
    pub fn stuff(&mut self, bytes: &[u8]) -> usize {
        self.0.set_nonblocking(true).expect("non-blocking");
        let mut sent = 0;
        while sent < bytes.len() {
            match self.0.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        self.0.set_nonblocking(false).expect("blocking again");
        sent
    }

    pub fn local_addr(&self) -> Option<std::net::SocketAddr> {
        self.0.local_addr().expect("an address").as_socket()
    }
}

impl Read for Peer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Peer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A frame as it goes on the wire.
pub fn frame(session: u64, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).expect("a body that fits");
    let mut bytes = Header::new(session, 9, size).encode().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// A header with any length, good or bad.
pub fn header_with_length(length: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = Header::new(1, 9, 0).encode();
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes
}
