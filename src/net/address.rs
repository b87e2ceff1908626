//! Addresses: to listen on, to connect to, and of peers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::SockAddr;

/// One end of a connection. `listen` and `connect` accept its text form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A TCP endpoint.
    Tcp(SocketAddr),
    /// A Unix socket. The path is empty for an unnamed socket, as most clients have.
    Unix(PathBuf),
}

impl Address {
    pub(super) fn from_raw(addr: &SockAddr) -> Self {
        addr.as_socket().map_or_else(
            || Self::Unix(addr.as_pathname().map(Path::to_path_buf).unwrap_or_default()),
            Self::Tcp,
        )
    }

    pub(super) fn to_raw(&self) -> io::Result<SockAddr> {
        match self {
            Self::Tcp(addr) => Ok((*addr).into()),
            Self::Unix(path) => SockAddr::unix(path),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

const UNIX_PREFIX: &str = "unix:";

/// Process, user and group of the peer of a Unix socket, at the time when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// Process id.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Value that can be turned into an address to connect to: `"127.0.0.1:3306"`, `"localhost:3306"`,
/// `"unix:/run/db.sock"`, a [`SocketAddr`], an [`Address`], a [`Path`].
///
/// Resolving a host name blocks. The first address is taken.
pub trait ToAddress {
    /// Returns the address.
    ///
    /// # Errors
    ///
    /// If the text is not an address or does not resolve.
    fn to_address(&self) -> io::Result<Address>;
}

impl ToAddress for str {
    fn to_address(&self) -> io::Result<Address> {
        if let Some(path) = self.strip_prefix(UNIX_PREFIX) {
            return Ok(Address::Unix(path.into()));
        }
        let mut found = self.to_socket_addrs()?;
        let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        found.next().map(Address::Tcp).ok_or_else(nothing)
    }
}

impl ToAddress for String {
    fn to_address(&self) -> io::Result<Address> {
        self.as_str().to_address()
    }
}

impl ToAddress for SocketAddr {
    fn to_address(&self) -> io::Result<Address> {
        Ok(Address::Tcp(*self))
    }
}

impl ToAddress for Address {
    fn to_address(&self) -> io::Result<Address> {
        Ok(self.clone())
    }
}

impl ToAddress for Path {
    fn to_address(&self) -> io::Result<Address> {
        Ok(Address::Unix(self.to_path_buf()))
    }
}

impl<A: ToAddress + ?Sized> ToAddress for &A {
    fn to_address(&self) -> io::Result<Address> {
        (**self).to_address()
    }
}

/// Source of connections: an address to bind, or a listener that the host made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Listen {
    /// Bind the address. For TCP with one listener per group, so that the kernel spreads the
    /// connections.
    Bind(Address),
    /// Take over the listener. One group watches it and deals its connections to the groups in
    /// turn.
    Ready(OwnedFd),
}

/// Value that can be listened on: each [`ToAddress`], or a ready [`TcpListener`] or
/// [`UnixListener`].
pub trait ToListen {
    /// Returns the address or the listener.
    ///
    /// # Errors
    ///
    /// If the text is not an address or does not resolve.
    fn to_listen(self) -> io::Result<Listen>;
}

impl<A: ToAddress> ToListen for A {
    fn to_listen(self) -> io::Result<Listen> {
        self.to_address().map(Listen::Bind)
    }
}

impl ToListen for TcpListener {
    fn to_listen(self) -> io::Result<Listen> {
        Ok(Listen::Ready(self.into()))
    }
}

impl ToListen for UnixListener {
    fn to_listen(self) -> io::Result<Listen> {
        Ok(Listen::Ready(self.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_accepted_again() {
        for text in ["127.0.0.1:4711", "[::1]:80", "unix:/run/db.sock"] {
            let address = text.to_address().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        assert!("nonsense".to_address().is_err());
    }
}
