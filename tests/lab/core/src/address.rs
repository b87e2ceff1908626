//! [`Address`]: TCP or Unix, to listen on or to connect to.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

/// `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// A socket of the address's family, and the address in the form that system calls take.
    pub fn socket(&self) -> io::Result<(Socket, SockAddr)> {
        let (domain, address) = match self {
            Self::Tcp(address) => (Domain::for_address(*address), (*address).into()),
            Self::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        };
        Ok((Socket::new(domain, Type::STREAM, None)?, address))
    }

    /// Connects within `limit`.
    pub fn connect(&self, limit: Duration) -> io::Result<Socket> {
        let (socket, address) = self.socket()?;
        socket.connect_timeout(&address, limit)?;
        Ok(socket)
    }

    /// Listens. Port 0 takes a free one, which the returned address names.
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
    type Err = String;

    /// Takes the first address of a host name.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let wrong = |error| format!("{text} is neither HOST:PORT nor unix:PATH: {error}");
        let mut found = text.to_socket_addrs().map_err(wrong)?;
        found.next().map(Self::Tcp).ok_or_else(|| format!("{text} has no address"))
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
