//! [`ProxyHeader`]: the bytes of a PROXY header, without sockets.
//!
//! The format is that of HAProxy's `proxy-protocol.txt` of 2020-03-05:
//!
//! ```text
//! version 1 = "PROXY " ┬ "TCP4" or "TCP6" ┬ ' ' source ' ' destination ' ' port ' ' port ┬ "\r\n"
//!                      └ "UNKNOWN" ───────┴ anything ────────────────────────────────────┘
//!
//!              12             13                  14                15 16
//! version 2 = signature │ 2 │ command │ family │ transport │ length u16 BE │ addresses │ TLVs
//!                       └ half a byte each ────────────────┘
//! ```
//!
//! Further fields (TLVs: type, length, value) are skipped, and so is the checksum among them. The
//! parser is written here because the crates `ppp` 2.3 and `proxy-header` 0.1 accept ports such as
//! `+80`, and their errors have no values.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::super::address::Address;

/// Addresses that a proxy passes on in front of the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyHeader {
    /// The connection is the proxy's own, such as a health check, or the proxy does not know the
    /// client. The addresses of the socket count.
    Local,
    /// The proxy passes on the connection of a client.
    Proxied {
        /// Address of the client.
        client: Address,
        /// Address to which the client connected.
        server: Address,
    },
}

/// Format of a PROXY header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyVersion {
    /// A line of text. It has no form for Unix sockets, and sends their addresses as unknown.
    V1,
    /// Binary.
    #[default]
    V2,
}

/// Reason why bytes are no PROXY header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeaderError {
    /// The stream does not begin with a header.
    Signature {
        /// Position of the first byte that differs.
        position: usize,
        /// That byte.
        byte: u8,
    },
    /// A field has a value that it must not have.
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value. Bytes that are no text are replaced.
        value: String,
    },
    /// The header is longer than allowed.
    TooLong {
        /// Announced bytes of the header. Of a line that goes on: one more than the limit.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The announced length has no room for the addresses of the family.
    TooShort {
        /// Announced length.
        bytes: usize,
        /// Length of the addresses.
        needed: usize,
    },
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PROXY header: ")?;
        match self {
            Self::Signature { position, byte } => {
                write!(f, "byte {position} of the stream is {byte:#04x}, which begins no header")
            }
            Self::Field { field, value } => write!(f, "{field} {value:?} is invalid"),
            Self::TooLong { bytes, limit } => write!(f, "length {bytes} exceeds {limit}"),
            Self::TooShort { bytes, needed } => {
                write!(f, "length {bytes} is below the {needed} of its addresses")
            }
        }
    }
}

impl std::error::Error for ProxyHeaderError {}

/// Longest line of version 1, by the specification.
const MAX_LINE: usize = 107;
/// Longest header of version 2. Senders keep below 536; nginx has the same limit.
const MAX_BINARY: usize = 4096;

const LINE_START: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the addresses of version 2.
const FIXED: usize = 16;
/// Bytes of a path in version 2.
const PATH: usize = 108;

impl ProxyHeader {
    /// Reads the header at the beginning of a stream. Returns it with its length, or `None` if its end
    /// has not arrived. An error is found with the same bytes, however they arrive.
    pub(crate) fn parse(stream: &[u8]) -> Result<Option<(Self, usize)>, ProxyHeaderError> {
        let start = if stream.first() == Some(&LINE_START[0]) { LINE_START } else { SIGNATURE };
        let pairs = stream.iter().zip(start);
        if let Some(position) = pairs.clone().position(|(byte, expected)| byte != expected) {
            return Err(ProxyHeaderError::Signature { position, byte: stream[position] });
        }
        if pairs.len() < start.len() {
            return Ok(None);
        }
        if start == LINE_START { parse_line(stream) } else { parse_binary(stream) }
    }

    /// Returns the bytes of the header. Addresses that its version cannot express are sent as unknown.
    pub(crate) fn encode(&self, version: ProxyVersion) -> Vec<u8> {
        let addresses = match self {
            Self::Local => None,
            Self::Proxied { client, server } => Addresses::new(client, server),
        };
        match version {
            ProxyVersion::V1 => line(addresses.as_ref()).into_bytes(),
            ProxyVersion::V2 => binary(self == &Self::Local, addresses.as_ref()),
        }
    }
}

type Parsed = Result<Option<(ProxyHeader, usize)>, ProxyHeaderError>;

fn parse_line(stream: &[u8]) -> Parsed {
    let front = &stream[..stream.len().min(MAX_LINE)];
    let Some(end) = front.windows(2).position(|pair| pair == b"\r\n") else {
        let too_long = ProxyHeaderError::TooLong { bytes: MAX_LINE + 1, limit: MAX_LINE };
        return if front.len() < MAX_LINE { Ok(None) } else { Err(too_long) };
    };
    let mut fields = front[LINE_START.len()..end].split(|&byte| byte == b' ');
    let mut next = |field| Field { field, bytes: fields.next().unwrap_or_default() };
    let protocol = next("protocol");
    let header = match protocol.bytes {
        b"UNKNOWN" => ProxyHeader::Local,
        b"TCP4" | b"TCP6" => {
            let ip: fn(Field<'_>) -> Result<IpAddr, ProxyHeaderError> = match protocol.bytes {
                b"TCP4" => |field| field.parse::<Ipv4Addr>().map(Into::into),
                _ => |field| field.parse::<Ipv6Addr>().map(Into::into),
            };
            let (client, server) = (ip(next("source address"))?, ip(next("destination address"))?);
            let client = SocketAddr::new(client, next("source port").port()?);
            let server = SocketAddr::new(server, next("destination port").port()?);
            if let Some(bytes) = fields.next() {
                return Err(Field { field: "field behind the ports", bytes }.invalid());
            }
            ProxyHeader::Proxied { client: client.into(), server: server.into() }
        }
        _ => return Err(protocol.invalid()),
    };
    Ok(Some((header, end + 2)))
}

/// Field of a line.
#[derive(Clone, Copy)]
struct Field<'a> {
    field: &'static str,
    bytes: &'a [u8],
}

impl Field<'_> {
    fn invalid(self) -> ProxyHeaderError {
        let value = String::from_utf8_lossy(self.bytes).into_owned();
        ProxyHeaderError::Field { field: self.field, value }
    }

    fn parse<T: std::str::FromStr>(self) -> Result<T, ProxyHeaderError> {
        let value = str::from_utf8(self.bytes).ok().and_then(|text| text.parse().ok());
        value.ok_or_else(|| self.invalid())
    }

    /// A number of digits only, without leading zeros.
    fn port(self) -> Result<u16, ProxyHeaderError> {
        match self.bytes {
            [b'0'] | [b'1'..=b'9', ..] => self.parse(),
            _ => Err(self.invalid()),
        }
    }
}

fn parse_binary(stream: &[u8]) -> Parsed {
    let [command, family, length @ ..] = &stream[SIGNATURE.len()..] else {
        // Without the second byte the first is checked later, with the same result.
        return Ok(None);
    };
    let field = |field, value: u8| ProxyHeaderError::Field { field, value: value.to_string() };
    if command >> 4 != 2 {
        return Err(field("version", command >> 4));
    }
    let is_local = match command & 0xf {
        0 => true,
        1 => false,
        other => return Err(field("command", other)),
    };
    // The family of the proxy's own connection is ignored.
    let (family, transport) = if is_local { (0, 0) } else { (family >> 4, family & 0xf) };
    let needed = match family {
        0 => 0,
        1 => 2 * (4 + 2),
        2 => 2 * (16 + 2),
        3 => 2 * PATH,
        other => return Err(field("address family", other)),
    };
    if transport > 2 {
        return Err(field("transport", transport));
    }
    let [high, low, ..] = length else { return Ok(None) };
    let bytes = usize::from(u16::from_be_bytes([*high, *low]));
    if bytes < needed {
        return Err(ProxyHeaderError::TooShort { bytes, needed });
    }
    let total = FIXED + bytes;
    if total > MAX_BINARY {
        return Err(ProxyHeaderError::TooLong { bytes: total, limit: MAX_BINARY });
    }
    let Some(addresses) = stream.get(FIXED..total) else { return Ok(None) };
    // Datagrams and unknown transports have no address here.
    let header = if transport == 1 { addresses_of(family, addresses) } else { ProxyHeader::Local };
    Ok(Some((header, total)))
}

/// Reads the addresses of a stream. There are enough bytes for the family.
fn addresses_of(family: u8, bytes: &[u8]) -> ProxyHeader {
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (client, server) = match family {
        1 => {
            let ip = |at| Ipv4Addr::from(array::<4>(bytes, at));
            (tcp(ip(0), port(8)), tcp(ip(4), port(10)))
        }
        2 => {
            let ip = |at| Ipv6Addr::from(array::<16>(bytes, at));
            (tcp(ip(0), port(32)), tcp(ip(16), port(34)))
        }
        3 => (unix(&bytes[..PATH]), unix(&bytes[PATH..2 * PATH])),
        _ => return ProxyHeader::Local,
    };
    ProxyHeader::Proxied { client, server }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn tcp(ip: impl Into<IpAddr>, port: u16) -> Address {
    SocketAddr::new(ip.into(), port).into()
}

/// Path up to the first zero byte, or an abstract name up to the zero bytes behind it.
fn unix(bytes: &[u8]) -> Address {
    let is_zero = |&byte: &u8| byte == 0;
    let end = match bytes.first() {
        Some(0) => bytes.iter().rposition(|byte| !is_zero(byte)).map_or(0, |last| last + 1),
        _ => bytes.iter().position(is_zero).unwrap_or(bytes.len()),
    };
    Address::Unix(OsString::from_vec(bytes[..end].to_vec()).into())
}

/// Two addresses of one family.
enum Addresses<'a> {
    V4([Ipv4Addr; 2], [u16; 2]),
    V6([Ipv6Addr; 2], [u16; 2]),
    Unix([&'a [u8]; 2]),
}

impl<'a> Addresses<'a> {
    /// Returns `None` if the addresses have no common form.
    fn new(client: &'a Address, server: &'a Address) -> Option<Self> {
        match (client, server) {
            (Address::Tcp(client), Address::Tcp(server)) => {
                let ports = [client.port(), server.port()];
                Some(match [client, server].map(|addr| addr.ip().to_canonical()) {
                    [IpAddr::V4(client), IpAddr::V4(server)] => Self::V4([client, server], ports),
                    ips => Self::V6(ips.map(mapped), ports),
                })
            }
            (Address::Unix(client), Address::Unix(server)) => {
                let paths = [client, server].map(|path| path.as_os_str().as_bytes());
                paths.iter().all(|path| path.len() <= PATH).then_some(Self::Unix(paths))
            }
            _ => None,
        }
    }
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn line(addresses: Option<&Addresses<'_>>) -> String {
    match addresses {
        Some(Addresses::V4([client, server], [from, to])) => {
            format!("PROXY TCP4 {client} {server} {from} {to}\r\n")
        }
        Some(Addresses::V6([client, server], [from, to])) => {
            format!("PROXY TCP6 {client} {server} {from} {to}\r\n")
        }
        Some(Addresses::Unix(_)) | None => "PROXY UNKNOWN\r\n".to_owned(),
    }
}

fn binary(is_local: bool, addresses: Option<&Addresses<'_>>) -> Vec<u8> {
    let be = |ports: &[u16; 2]| ports.map(u16::to_be_bytes).concat();
    let (family, addresses) = match addresses {
        Some(Addresses::V4(ips, ports)) => {
            (0x11, [ips.map(|ip| ip.octets()).concat(), be(ports)].concat())
        }
        Some(Addresses::V6(ips, ports)) => {
            (0x21, [ips.map(|ip| ip.octets()).concat(), be(ports)].concat())
        }
        Some(Addresses::Unix(paths)) => {
            let padded = |path: &[u8]| [path, &[0; PATH][path.len()..]].concat();
            (0x31, paths.map(padded).concat())
        }
        None => (0, Vec::new()),
    };
    let command = if is_local { 0x20 } else { 0x21 };
    let length = (addresses.len() as u16).to_be_bytes();
    [SIGNATURE, &[command, family], &length, &addresses].concat()
}

/// Checks what holds for the first bytes of any stream: the decision is the same under every cut and
/// comes within the limits, and a header that is read can be sent.
///
/// # Panics
///
/// Panics if it does not hold.
#[cfg(any(test, feature = "internal"))]
pub(crate) fn check(stream: &[u8]) {
    let whole = ProxyHeader::parse(stream);
    let decided = (0..=stream.len()).find_map(|end| {
        let decision = ProxyHeader::parse(&stream[..end]).transpose()?;
        Some((end, decision))
    });
    assert_eq!(decided.as_ref().map(|(_, decision)| decision.clone()), whole.transpose());
    let Some((end, decision)) = decided else {
        assert!(stream.len() < MAX_BINARY, "undecided after {} bytes", stream.len());
        return;
    };
    assert!(end <= if stream[0] == b'P' { MAX_LINE } else { MAX_BINARY }, "{end} bytes");
    match decision {
        Ok((header, length)) => {
            assert_eq!(length, end);
            for version in [ProxyVersion::V1, ProxyVersion::V2] {
                let sent = header.encode(version);
                let (read, length) = ProxyHeader::parse(&sent).expect("valid").expect("whole");
                assert_eq!(length, sent.len());
                let same = |one: &Address, other: &Address| match (one, other) {
                    (Address::Tcp(one), Address::Tcp(other)) => {
                        (mapped(one.ip()), one.port()) == (mapped(other.ip()), other.port())
                    }
                    (one, other) => one == other,
                };
                match (&header, &read) {
                    (
                        ProxyHeader::Proxied { client, server },
                        ProxyHeader::Proxied { client: client_read, server: server_read },
                    ) => assert!(same(client, client_read) && same(server, server_read)),
                    (ProxyHeader::Proxied { client: Address::Unix(_), .. }, ProxyHeader::Local) => {
                        assert_eq!(version, ProxyVersion::V1);
                    }
                    _ => assert_eq!(header, read),
                }
            }
        }
        Err(error) => assert!(error.to_string().len() < 6 * MAX_LINE + 100, "{error}"),
    }
}

#[cfg(test)]
mod tests;
