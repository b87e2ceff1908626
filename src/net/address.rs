//! Addresses: to listen on, to connect to, and of peers.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use socket2::SockAddr;

use crate::stall::{Wait, run_as};
use crate::sys::socket::Family;

/// One end of a connection. `listen` and `connect` accept its text form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A TCP endpoint.
    Tcp(SocketAddr),
    /// A Unix socket. The path is empty for an unnamed socket, as most clients have. It begins with a
    /// zero byte for a name in the abstract namespace, which has no file; its text form is
    /// `"unix:@name"`.
    Unix(PathBuf),
}

impl Address {
    pub(super) fn from_raw(addr: &SockAddr) -> Self {
        addr.as_socket().map_or_else(
            || {
                let path = addr.as_pathname().map(Path::to_path_buf);
                let path = path.or_else(|| addr.as_abstract_namespace().map(abstract_path));
                Self::Unix(path.unwrap_or_default())
            },
            Self::Tcp,
        )
    }

    pub(super) fn to_raw(&self) -> io::Result<SockAddr> {
        match self {
            Self::Tcp(addr) => Ok((*addr).into()),
            Self::Unix(path) => {
                if !self.is_abstract() {
                    check_path(path)?;
                }
                SockAddr::unix(path)
            }
        }
    }

    pub(super) fn family(&self) -> Family {
        match self {
            Self::Tcp(_) => Family::Tcp,
            Self::Unix(_) => Family::Unix,
        }
    }

    /// Returns true for a Unix socket without a file.
    pub(super) fn is_abstract(&self) -> bool {
        matches!(self, Self::Unix(path) if path.as_os_str().as_bytes().first() == Some(&0))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => match path.as_os_str().as_bytes() {
                [0, name @ ..] => write!(f, "{UNIX_PREFIX}@{}", String::from_utf8_lossy(name)),
                // Without `./` this path would be read as an abstract name.
                [b'@', ..] => write!(f, "{UNIX_PREFIX}./{}", path.display()),
                _ => write!(f, "{UNIX_PREFIX}{}", path.display()),
            },
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

const UNIX_PREFIX: &str = "unix:";

/// Path that stands for a name in the abstract namespace.
fn abstract_path(name: &[u8]) -> PathBuf {
    OsString::from_vec([b"\0", name].concat()).into()
}

/// Refuses an empty path, for which the kernel would choose a name, and a path with a zero byte, at
/// which the kernel would cut it.
fn check_path(path: &Path) -> io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        let text = format!("the path {path:?} is empty or has a zero byte");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

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
/// `"unix:/run/db.sock"`, `"unix:@abstract"`, a [`SocketAddr`], an [`Address`], a [`Path`].
///
/// Resolving a host name waits for the resolver. On a worker this wait is announced, so other threads
/// go on. [`connect`](crate::Handle::connect) tries all addresses of the name, in the resolver's order.
/// [`listen`](crate::Handle::listen) takes the first one.
pub trait ToAddress {
    /// Returns all addresses, in the order in which they are tried. Addresses of TCP and of Unix
    /// sockets may not be mixed.
    ///
    /// # Errors
    ///
    /// If the text is not an address or does not resolve.
    fn to_addresses(&self) -> io::Result<Vec<Address>>;
}

impl ToAddress for str {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        if let Some(path) = self.strip_prefix(UNIX_PREFIX) {
            let path = if let Some(name) = path.strip_prefix('@') {
                abstract_path(name.as_bytes())
            } else {
                check_path(path.as_ref())?;
                path.into()
            };
            return Ok(vec![Address::Unix(path)]);
        }
        if let Ok(addr) = self.parse() {
            return Ok(vec![Address::Tcp(addr)]);
        }
        // Without this, an empty host, a path or a part of an IPv6 address would be looked up as a name.
        let host = self.rsplit_once(':').map_or("", |(host, _)| host);
        let has_brackets = host.starts_with('[') && host.ends_with(']');
        if host.is_empty()
            || host == "*"
            || host.contains('/')
            || host.contains(':') != has_brackets
        {
            let text = format!("{self:?} is no HOST:PORT, [IPV6]:PORT or unix:PATH");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let named = |error: io::Error| match error.raw_os_error() {
            // Unchanged: the caller may look at the number of the error, for example for EMFILE.
            Some(_) => error,
            None => io::Error::new(error.kind(), format!("{self:?}: {error}")),
        };
        let found = run_as(Wait::Network, || self.to_socket_addrs()).map_err(named)?;
        let addresses: Vec<_> = found.map(Address::Tcp).collect();
        if addresses.is_empty() {
            let text = format!("{self:?} has no address");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(addresses)
    }
}

impl ToAddress for String {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        self.as_str().to_addresses()
    }
}

impl ToAddress for SocketAddr {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(vec![Address::Tcp(*self)])
    }
}

impl ToAddress for Address {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(vec![self.clone()])
    }
}

impl ToAddress for Path {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(vec![Address::Unix(self.to_path_buf())])
    }
}

impl<A: ToAddress + ?Sized> ToAddress for &A {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        (**self).to_addresses()
    }
}

/// Error for a list without an address.
pub(super) fn nowhere() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the list of addresses is empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_accepted_again() {
        for text in
            ["127.0.0.1:4711", "[::1]:80", "unix:/run/db.sock", "unix:@a\\é", "unix:./@file"]
        {
            let addresses = text.to_addresses().expect("an address");
            assert_eq!(addresses[0].to_string(), text);
        }
        for text in ["nonsense", "unix:", "unix:/run/a\0b"] {
            assert!(text.to_addresses().is_err(), "{text:?}");
        }
        let file = Address::Unix("@file".into());
        assert_eq!(file.to_string(), "unix:./@file");
    }
}
