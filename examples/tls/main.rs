//! TLS on a listener, whose certificate is replaced while it serves.
//!
//! ```text
//! cargo run --release -p tls           # a demonstration that checks itself
//! ```
//!
//! The server and its clients are protocols of the crate. TLS is a layer under them, which they need not
//! know. The certificates are made here, and each client trusts one of them.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use epoll_group::net::{
    Address, Close, CloseReason, ConnectOptions, Connection, Input, ListenOptions, Protocol,
    TlsClient, TlsInfo, TlsServer,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Handle, Runtime};
use rcgen::{CertifiedKey, KeyPair};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConfig};

const NAME: &str = "db.example";
const PROTOCOL: &[u8] = b"toy/1";
/// Time for each answer, and for the end of connections.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest line with its end, in bytes.
const LONGEST_LINE: usize = 1024;

/// Repeats each line of a client, behind the name that the client has asked for.
struct Lines;

impl Protocol for Lines {
    type State = String;

    fn opened(&self, conn: &Connection) -> Result<String, Close> {
        let info = conn.extension::<TlsInfo>().ok_or("this listener has TLS")?;
        if info.alpn.as_deref() != Some(PROTOCOL) {
            return Err("the client speaks another protocol".into());
        }
        Ok(info.server_name.clone().unwrap_or_default())
    }

    fn received(
        &self,
        conn: &Connection,
        name: &mut String,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let newline =
            |bytes: &[u8]| bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n');
        while let Some(end) = newline(input.bytes()) {
            conn.send([name.as_bytes(), b": ", input.take(end + 1)].concat());
        }
        if input.len() < LONGEST_LINE {
            return Ok(());
        }
        conn.send(format!("error: a line exceeds {LONGEST_LINE} bytes\n"));
        Err("a line is too long".into())
    }
}

/// Tells of each answer, with the results of the handshake, and of the end.
struct Asks(mpsc::Sender<Result<(String, TlsInfo), String>>);

impl Protocol for Asks {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let info = conn.extension::<TlsInfo>().ok_or("this connection has TLS")?;
        if input.bytes().ends_with(b"\n") {
            let answer = String::from_utf8_lossy(input.take_all()).into_owned();
            let _ = self.0.send(Ok((answer, info.clone())));
        }
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        let _ = self.0.send(Err(reason.to_string()));
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        let _ = self.0.send(Err(reason.to_string()));
    }
}

struct Client {
    conn: Connection,
    answers: mpsc::Receiver<Result<(String, TlsInfo), String>>,
}

impl Client {
    fn connect(
        handle: &Handle,
        to: &Address,
        config: &Arc<ClientConfig>,
    ) -> Result<Self, Box<dyn Error>> {
        let tls = TlsClient::new(Arc::clone(config), ServerName::try_from(NAME)?);
        let (told, answers) = mpsc::channel();
        let options = ConnectOptions::new().layer(tls);
        Ok(Self { conn: handle.connect_with(to, options, Asks(told))?, answers })
    }

    /// Asks, and returns the results of the handshake.
    fn ask(&self) -> Result<TlsInfo, Box<dyn Error>> {
        self.conn.send(b"hello\n");
        let (answer, info) = self.answers.recv_timeout(LIMIT)??;
        if answer != format!("{NAME}: hello\n") {
            return Err(format!("the answer was {answer:?}").into());
        }
        Ok(info)
    }
}

type Identity = CertifiedKey<KeyPair>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server(identity: &Identity) -> Result<Arc<ServerConfig>, Box<dyn Error>> {
    let key = PrivateKeyDer::try_from(identity.signing_key.serialize_der())?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

fn client(trusted: &Identity) -> Result<Arc<ClientConfig>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.cert.der().clone())?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Command line without options.
#[derive(clap::Parser)]
#[command(name = "tls")]
struct Args {}

fn main() -> ExitCode {
    lab::args::run(|_: Args, out| demonstrate(out))
}

fn demonstrate(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let [old, new] = [(); 2].map(|()| rcgen::generate_simple_self_signed([NAME.to_owned()]));
    let (old, new) = (old?, new?);
    let runtime = Runtime::builder().config(Config::default().epoll_groups(1)).start()?;
    let (handle, tls) = (runtime.handle(), TlsServer::new(server(&old)?));
    let options = ListenOptions::new().layer(tls.clone());
    let listener = runtime.listen_with("127.0.0.1:0", options, Lines)?;
    let at = listener.local_addr();
    writeln!(out, "{:<44} {:<11} cipher suite", "client", "handshake")?;
    let mut show =
        |what: &str, info: &TlsInfo, kind: HandshakeKind| -> Result<(), Box<dyn Error>> {
            if info.handshake != Some(kind) {
                return Err(format!("{what}: the handshake was {:?}", info.handshake).into());
            }
            let suite = info.cipher_suite.and_then(|suite| suite.as_str()).unwrap_or("unknown");
            Ok(writeln!(out, "{what:<44} {:<11} {suite}", format!("{kind:?}"))?)
        };

    let trusts_old = client(&old)?;
    let first = Client::connect(&handle, at, &trusts_old)?;
    show("the first one", &first.ask()?, HandshakeKind::Full)?;
    let again = Client::connect(&handle, at, &trusts_old)?;
    show("the same again", &again.ask()?, HandshakeKind::Resumed)?;

    tls.reload(server(&new)?);
    let second = Client::connect(&handle, at, &client(&new)?)?;
    show("one that trusts the new certificate", &second.ask()?, HandshakeKind::Full)?;
    show("the first one, still connected", &first.ask()?, HandshakeKind::Full)?;
    let late = Client::connect(&handle, at, &client(&old)?)?;
    let refusal = late.ask().err().ok_or("an old certificate was shown")?;
    let mut plain = TcpStream::connect(at.to_string())?;
    plain.set_read_timeout(Some(LIMIT))?;
    plain.write_all(b"hello\n")?;
    let mut alert = Vec::new();
    plain.read_to_end(&mut alert)?;
    writeln!(out, "one that trusts the old certificate: {refusal}")?;
    writeln!(out, "one without TLS: an alert of {} bytes, and the end", alert.len())?;
    if alert.first() != Some(&21) {
        return Err(format!("{alert:?} is no alert").into());
    }
    first.conn.send(vec![b'a'; LONGEST_LINE]);
    let (refusal, _) = first.answers.recv_timeout(LIMIT)??;
    let end =
        first.answers.recv_timeout(LIMIT)?.err().ok_or("a long line did not end the connection")?;
    write!(out, "the first one, with a line that does not end: {refusal}")?;
    if refusal != format!("error: a line exceeds {LONGEST_LINE} bytes\n") {
        return Err(format!("the answer to a long line was {refusal:?}, and {end}").into());
    }

    let cut = runtime.drain(LIMIT).cut;
    let handshakes = handle.stats().get(Counter::HandshakesCompleted);
    writeln!(out, "{handshakes} handshakes, counted on both sides; {cut} connections cut")?;
    if cut > 0 { Err("a connection was cut".into()) } else { Ok(()) }
}
