//! TLS as a [`Layer`], with [`rustls`].
#![forbid(unsafe_code)]

use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, ServerConfig,
    ServerConnection,
};

use super::close::Close;
use super::connection::Connection;
use super::layer::{Decoded, Layer, LayerState, MakeLayer};
use super::read_buf::Input;
use crate::sync::shim::lock;

/// TLS for accepted connections: a [`MakeLayer`] for
/// [`ListenOptions::layer`](super::ListenOptions::layer), or for
/// [`Connection::start_layer`] in mid-stream.
///
/// The configuration has the certificates, the check of client certificates, the protocols of ALPN, and
/// the tickets or the cache with which sessions are resumed.
///
/// *Shape*: cheap to clone. All clones have one configuration.
///
/// Early data (0-RTT) is refused, as it can be a replay. The client sends it again.
///
/// A stream that ends without `close_notify` may be truncated. Then the connection ends as a layer's
/// [error](Layer::ended) says, and [`ended`](super::Protocol::ended) is not called.
///
/// ```no_run
/// # fn serve(runtime: &epoll_group::Runtime, protocol: impl epoll_group::net::Protocol)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use epoll_group::net::{ListenOptions, TlsServer};
/// use rustls::ServerConfig;
/// use rustls::pki_types::pem::PemObject;
/// use rustls::pki_types::{CertificateDer, PrivateKeyDer};
///
/// let config = || -> Result<Arc<ServerConfig>, Box<dyn std::error::Error>> {
///     let certificates = CertificateDer::pem_file_iter("server.crt")?.collect::<Result<_, _>>()?;
///     let key = PrivateKeyDer::from_pem_file("server.key")?;
///     let config = ServerConfig::builder().with_no_client_auth();
///     Ok(Arc::new(config.with_single_cert(certificates, key)?))
/// };
/// let tls = TlsServer::new(config()?);
/// let options = ListenOptions::new().layer(tls.clone());
/// let listener = runtime.listen_with("0.0.0.0:33660", options, protocol)?;
/// // When the files have changed:
/// tls.reload(config()?);
/// # drop(listener);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TlsServer(Arc<Mutex<Arc<ServerConfig>>>);

impl TlsServer {
    /// Makes the layers by this configuration.
    #[must_use]
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(Mutex::new(config)))
    }

    /// Replaces the configuration, for example after a certificate was renewed. It is used for handshakes
    /// that begin from now on.
    pub fn reload(&self, config: Arc<ServerConfig>) {
        // The old one is dropped outside of the lock.
        let _old = std::mem::replace(&mut *lock(&self.0), config);
    }
}

impl MakeLayer for TlsServer {
    fn make(&self, _: &Connection) -> Result<Box<dyn Layer>, Close> {
        let config = Arc::clone(&lock(&self.0));
        let mut tls = ServerConnection::new(config).map_err(Close::error)?;
        tls.reject_early_data();
        Ok(Box::new(Tls::from(rustls::Connection::from(tls))))
    }
}

/// TLS for outgoing connections: a [`MakeLayer`] for
/// [`ConnectOptions::layer`](super::ConnectOptions::layer) and for the options of a client.
///
/// *Shape*: as of a [`TlsServer`]. Connections with the same configuration resume each other's sessions.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsClient {
    /// Makes the layers by this configuration, for a server whose certificate must have this name.
    #[must_use]
    pub const fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Self {
        Self { config, name }
    }
}

impl MakeLayer for TlsClient {
    fn make(&self, _: &Connection) -> Result<Box<dyn Layer>, Close> {
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        Ok(Box::new(Tls::from(rustls::Connection::from(tls.map_err(Close::error)?))))
    }
}

/// Results of a TLS handshake: an [extension](Connection::extension) of the connection, from `opened` on,
/// or from the call of `notified` that follows a start in mid-stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TlsInfo {
    /// Name of the server that the client has asked for (SNI), on the server's side.
    pub server_name: Option<String>,
    /// Protocol of the application that both sides have agreed on.
    pub alpn: Option<Vec<u8>>,
    /// Certificates of the peer, its own first. Empty if it has sent none.
    pub peer_certificates: Vec<CertificateDer<'static>>,
    /// Version of TLS.
    pub version: Option<ProtocolVersion>,
    /// Cipher suite.
    pub cipher_suite: Option<CipherSuite>,
    /// Kind of the handshake: full or resumed.
    pub handshake: Option<HandshakeKind>,
}

impl TlsInfo {
    fn of(tls: &rustls::Connection) -> Self {
        let server_name = match tls {
            rustls::Connection::Server(tls) => tls.server_name().map(str::to_owned),
            rustls::Connection::Client(_) => None,
        };
        let peer_certificates = tls.peer_certificates().unwrap_or_default();
        Self {
            server_name,
            alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
            peer_certificates: peer_certificates
                .iter()
                .cloned()
                .map(|one| one.into_owned())
                .collect(),
            version: tls.protocol_version(),
            cipher_suite: tls.negotiated_cipher_suite().map(|suite| suite.suite()),
            handshake: tls.handshake_kind(),
        }
    }
}

/// Layer of one connection.
#[derive(Debug)]
struct Tls {
    tls: rustls::Connection,
    /// Set until the handshake is complete.
    handshaking: bool,
    /// Number of bytes passed to `rustls` since it last decoded some. It may keep all of them: the
    /// messages of a handshake, and the beginning of a later message that spans records.
    kept_bytes: usize,
    /// Set when the peer has sent `close_notify`.
    ended: bool,
}

impl From<rustls::Connection> for Tls {
    fn from(mut tls: rustls::Connection) -> Self {
        // No limit is needed: bytes are passed on at once, and those sent before the handshake wait
        // in the connection.
        tls.set_buffer_limit(None);
        Self { tls, handshaking: true, kept_bytes: 0, ended: false }
    }
}

impl Tls {
    /// Passes the whole records of `input` on.
    fn advance(
        &mut self,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<(), Close> {
        while decoded.room() > 0
            && !self.ended
            && let Some(size) = record_size(input.bytes())
        {
            self.kept_bytes += size;
            let read = self.read(input.take(size), decoded);
            // Also after a failed read, to send its alert.
            self.write(answer);
            read?;
            if self.handshaking && !self.tls.is_handshaking() {
                self.handshaking = false;
                self.kept_bytes = 0;
            }
        }
        Ok(())
    }

    /// Passes one record to `rustls`, and the bytes in it to `decoded`.
    fn read(&mut self, mut record: &[u8], decoded: &mut Decoded<'_>) -> Result<(), Close> {
        while !record.is_empty() {
            self.tls.read_tls(&mut record)?;
        }
        let state = self.tls.process_new_packets().map_err(Close::error)?;
        self.ended = state.peer_has_closed();
        let mut reader = self.tls.reader();
        // An error says that there is no more.
        while let Ok(bytes) = reader.fill_buf()
            && !bytes.is_empty()
        {
            decoded.push(bytes);
            self.kept_bytes = 0;
            let count = bytes.len();
            reader.consume(count);
        }
        Ok(())
    }

    fn write(&mut self, encoded: &mut Vec<u8>) {
        // A vector takes all.
        while self.tls.wants_write() && self.tls.write_tls(encoded).is_ok() {}
    }
}

impl Layer for Tls {
    fn start(&mut self, _: &Connection, answer: &mut Vec<u8>) -> Result<LayerState, Close> {
        self.write(answer);
        Ok(LayerState::Handshaking)
    }

    fn received(
        &mut self,
        conn: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        let before = self.handshaking;
        let advanced = self.advance(input, decoded, answer);
        if before && !self.handshaking {
            // A second TLS layer leaves the results of the first.
            let _ = conn.set_extension(TlsInfo::of(&self.tls));
        }
        advanced?;
        Ok(match (self.handshaking, self.ended) {
            (true, _) => LayerState::Handshaking,
            (false, false) => LayerState::Ready,
            (false, true) => LayerState::Ended,
        })
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        self.tls.writer().write_all(bytes)?;
        self.write(encoded);
        Ok(())
    }

    fn ended(&mut self) -> Result<(), Close> {
        if self.ended { Ok(()) } else { Err("the peer ended without close_notify".into()) }
    }

    fn finish(&mut self, encoded: &mut Vec<u8>) {
        self.tls.send_close_notify();
        self.write(encoded);
    }

    fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}

/// The TLS of a server without a connection, which gets a stream in pieces.
#[cfg(feature = "internal")]
#[derive(Debug)]
pub struct TlsPieces {
    tls: Tls,
    input: Vec<u8>,
}

#[cfg(feature = "internal")]
impl TlsPieces {
    /// Creates the server's side of one stream.
    ///
    /// # Errors
    ///
    /// The error of `rustls`.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let tls = Tls::from(rustls::Connection::from(ServerConnection::new(config)?));
        Ok(Self { tls, input: Vec::new() })
    }

    /// Decodes the next bytes. Returns true if the peer has ended its stream.
    ///
    /// # Errors
    ///
    /// The reason for which a connection would end.
    pub fn receive(
        &mut self,
        piece: &[u8],
        decoded: &mut Vec<u8>,
        answer: &mut Vec<u8>,
    ) -> Result<bool, String> {
        self.input.extend_from_slice(piece);
        let mut input = Input::new(&self.input, 0, None);
        let advanced = self.tls.advance(&mut input, &mut Decoded::new(decoded), answer);
        let consumed = input.consumed();
        self.input.drain(..consumed);
        advanced.map_err(|Close(reason)| reason.to_string())?;
        Ok(self.tls.ended)
    }
}

/// Returns the size of the record at the front, if it is there as a whole. `rustls` refuses a bad header
/// and gets it without its body, whose length means nothing.
fn record_size(bytes: &[u8]) -> Option<usize> {
    let [kind, _, _, high, low, ..] = *bytes else { return None };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let good = KINDS.contains(&kind) && length < TOO_LONG;
    let size = HEADER + if good { length } else { 0 };
    (bytes.len() >= size).then_some(size)
}

/// Bytes before the body of a record, kinds of records, and the least length that is refused (RFC 8446,
/// section 5, and RFC 5246, section 6.2.3).
const HEADER: usize = 5;
const KINDS: std::ops::RangeInclusive<u8> = 20..=24;
const TOO_LONG: usize = (16 << 10) + (2 << 10);
