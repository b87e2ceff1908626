//! [`Address`]: where a relay listens, or passes on to.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use socket2::{Domain, SockAddr, Socket, Type};

/// `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// A socket of its family, and the address as the system takes it.
    pub fn socket(&self) -> io::Result<(Socket, SockAddr)> {
        let (domain, address) = match self {
            Self::Tcp(address) => (Domain::for_address(*address), (*address).into()),
            Self::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        };
        Ok((Socket::new(domain, Type::STREAM, None)?, address))
    }

    /// Listens there; port 0 takes a free one, which the address returned names.
    pub fn listen(&self) -> io::Result<(Socket, Self)> {
        let (socket, address) = self.socket()?;
        if matches!(self, Self::Tcp(_)) {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address)?;
        socket.listen(4096)?;
        let bound = socket.local_addr()?.as_socket();
        Ok((socket, bound.map_or_else(|| self.clone(), Self::Tcp)))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for Address {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let found = text.to_socket_addrs()?.next();
        found.map(Self::Tcp).ok_or_else(|| io::Error::other("the name has no address"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
