//! Ports at which no server answers, and servers with several addresses.

use std::io;
use std::net::{SocketAddr, TcpStream};

use epoll_group::net::{Address, ToAddress};
use socket2::{Domain, Socket, Type};

/// A port that refuses connections, for as long as the socket lives.
pub fn refusing() -> (Socket, SocketAddr) {
    // Bound, so that no other process gets the port, but not listening.
    let port = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    port.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    let at = port.local_addr().expect("its number").as_socket().expect("TCP");
    (port, at)
}

/// A port at which connects are not answered, for as long as both sockets live.
pub fn silent() -> ((Socket, TcpStream), SocketAddr) {
    // A backlog with one place. Once the place is taken, the kernel drops further connects.
    let (full, at) = refusing();
    full.listen(0).expect("it listens");
    let taken = TcpStream::connect(at).expect("there is one place");
    ((full, taken), at)
}

/// A name with several addresses.
pub struct Name(Vec<Address>);

impl Name {
    pub fn of<A: Into<Address>>(addresses: impl IntoIterator<Item = A>) -> Self {
        Self(addresses.into_iter().map(Into::into).collect())
    }
}

impl ToAddress for Name {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(self.0.clone())
    }
}
