//! TLS, against `rustls` with blocking sockets and against OpenSSL.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{
    Address, Close, CloseReason, ConnectOptions, Connection, Input, ListenOptions, Listener,
    MakeLayer, Protocol, TlsClient, TlsInfo, TlsServer,
};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use lab::protocol::{Bytes, echo};
use lab::{LONG, Peer, TempDir, assert_clean, child, config, eventually, eventually_or, pattern};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    StreamOwned, SupportedProtocolVersion,
};

const NAME: &str = "db.example";
const ALPN: &[u8] = b"toy/1";

/// A certificate that is its own root.
struct Identity(CertifiedKey<KeyPair>);

impl Identity {
    fn new() -> Self {
        Self(generate_simple_self_signed([NAME.to_owned()]).expect("a certificate"))
    }

    fn certificate(&self) -> CertificateDer<'static> {
        self.0.cert.der().clone()
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.0.signing_key.serialize_der()).expect("a key")
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).expect("a root");
        Arc::new(roots)
    }

    fn server(&self) -> Arc<ServerConfig> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth();
        let mut config =
            config.with_single_cert(vec![self.certificate()], self.key()).expect("good");
        config.alpn_protocols = vec![ALPN.to_vec()];
        Arc::new(config)
    }

    /// A client that trusts this identity.
    fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Arc::new(config)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn name() -> ServerName<'static> {
    NAME.try_into().expect("a name")
}

type Foreign = StreamOwned<ClientConnection, TcpStream>;

fn connect(to: &Address) -> TcpStream {
    let Address::Tcp(to) = to else { unreachable!("TCP alone") };
    let stream = TcpStream::connect(to).expect("connected");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(LONG)).expect("set");
    stream
}

fn foreign(to: &Address, config: &Arc<ClientConfig>) -> Foreign {
    let tls = ClientConnection::new(Arc::clone(config), name()).expect("a client");
    StreamOwned::new(tls, connect(to))
}

#[track_caller]
fn ask(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).expect("sent");
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).expect("answered");
    assert!(answer == bytes, "the answer differs");
}

fn start(config: Config) -> Runtime {
    lab::make_room();
    Runtime::builder().config(config).start().expect("a runtime")
}

fn listen(runtime: &Runtime, tls: &TlsServer, protocol: impl Protocol) -> Listener {
    let options = ListenOptions::new().layer(tls.clone());
    runtime.listen_with("127.0.0.1:0", options, protocol).expect("a listener")
}

/// Echoes, and tells of the results of handshakes and of ends.
struct Echo {
    infos: mpsc::Sender<TlsInfo>,
    ends: mpsc::Sender<String>,
}

type Told = (mpsc::Receiver<TlsInfo>, mpsc::Receiver<String>);

impl Echo {
    fn new() -> (Self, Told) {
        let ((infos, told), (ends, ended)) = (mpsc::channel(), mpsc::channel());
        (Self { infos, ends }, (told, ended))
    }
}

impl Protocol for Echo {
    type State = ();

    fn opened(&self, conn: &Connection) -> Result<(), Close> {
        let info = conn.extension::<TlsInfo>().expect("the handshake is over");
        let _ = self.infos.send(info.clone());
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        echo(conn, input)
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        let _ = self.ends.send(reason.to_string());
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        let _ = self.ends.send(reason.to_string());
    }
}

#[track_caller]
fn next<T>(told: &mpsc::Receiver<T>) -> T {
    told.recv_timeout(LONG).expect("told")
}

fn wait_for(runtime: &Runtime, counter: Counter, count: u64) {
    eventually_or(LONG, || runtime.stats().get(counter) >= count, || runtime.stats());
}

#[test]
fn a_foreign_client_is_served_resumes_and_says_what_it_wants() {
    let (runtime, identity) = (start(config()), Identity::new());
    let (protocol, (infos, ends)) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(identity.server()), protocol);
    let large = pattern(3 << 20);
    for version in [&TLS12, &TLS13] {
        let client = identity.client(&[version]);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut stream = foreign(listener.local_addr(), &client);
            ask(&mut stream, b"hello");
            let info = next(&infos);
            assert_eq!(info.server_name.as_deref(), Some(NAME));
            assert_eq!(info.alpn.as_deref(), Some(ALPN));
            assert_eq!((info.version, info.handshake), (Some(version.version), Some(kind)));
            assert!(info.peer_certificates.is_empty() && info.cipher_suite.is_some());
            let mut sends = stream.sock.try_clone().expect("a second handle");
            // A blocking client must read while it sends.
            for part in large.chunks(256 << 10) {
                ask(&mut stream, part);
            }
            stream.conn.send_close_notify();
            stream.conn.write_tls(&mut sends).expect("sent");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("an end in order, with close_notify");
            assert_eq!((rest, next(&ends)), (vec![], "the peer finished".to_owned()));
        }
    }
}

#[test]
fn both_sides_of_the_crate_show_their_certificates() {
    let (runtime, server, client) = (start(config()), Identity::new(), Identity::new());
    let verifier = WebPkiClientVerifier::builder_with_provider(client.roots(), provider());
    let server_config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![server.certificate()], server.key())
        .expect("a good key");
    let (protocol, (infos, ends)) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(Arc::new(server_config)), protocol);
    let client_config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(server.roots())
        .with_client_auth_cert(vec![client.certificate()], client.key())
        .expect("a good key");
    let options = ConnectOptions::new().layer(TlsClient::new(Arc::new(client_config), name()));
    let (told, answers) = mpsc::channel();
    let collect = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        let info = conn.extension::<TlsInfo>().expect("the handshake is over").clone();
        let _ = told.send((info, input.take_all().to_vec()));
        Ok(())
    });
    let conn = runtime.connect_with(listener.local_addr(), options, collect).expect("begun");
    conn.send(b"sent before the handshake");
    let (info, answer) = next(&answers);
    assert_eq!(answer, b"sent before the handshake");
    assert_eq!(info.peer_certificates, [server.certificate()]);
    assert_eq!(next(&infos).peer_certificates, [client.certificate()]);
    conn.close("done");
    assert_eq!(next(&ends), "the peer finished", "with close_notify");
    assert_clean(&runtime.drain(LONG));
}

#[test]
fn a_client_without_trust_fails_on_both_sides() {
    let (runtime, identity, other) = (start(config()), Identity::new(), Identity::new());
    let (protocol, (infos, _ends)) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(identity.server()), protocol);
    let (client, (_infos, failed)) = Echo::new();
    let tls = TlsClient::new(other.client(&[&TLS13]), name());
    let options = ConnectOptions::new().layer(tls);
    runtime.connect_with(listener.local_addr(), options, client).expect("begun");
    let reason = next(&failed);
    assert!(reason.starts_with("invalid peer certificate"), "{reason}");
    wait_for(&runtime, Counter::ClosedByLayer, 2);
    assert!(infos.try_recv().is_err(), "the server has opened none");
}

#[test]
fn keys_may_change_in_mid_stream() {
    let (runtime, identity) = (start(config()), Identity::new());
    let (protocol, _told) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(identity.server()), protocol);
    let mut stream = foreign(listener.local_addr(), &identity.client(&[&TLS13]));
    for round in 0..10 {
        ask(&mut stream, &pattern(1000 * round + 1));
        stream.conn.refresh_traffic_keys().expect("after the handshake");
    }
}

/// A message may span records, and `rustls` keeps its beginning. Key updates stand for such records.
#[test]
fn records_without_data_count_as_kept_until_data_comes() {
    let (runtime, identity) = (start(config()), Identity::new());
    let (protocol, _told) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(identity.server()), protocol);
    let mut stream = foreign(listener.local_addr(), &identity.client(&[&TLS13]));
    ask(&mut stream, b"hello");
    eventually(LONG, || runtime.stats().buffered_bytes == 0);
    stream.conn.refresh_traffic_keys().expect("TLS 1.3");
    stream.flush().expect("sent");
    eventually_or(LONG, || runtime.stats().buffered_bytes > 20, || runtime.stats());
    ask(&mut stream, b"with new keys");
    eventually_or(LONG, || runtime.stats().buffered_bytes == 0, || runtime.stats());
}

/// A handler waits for its peer in the middle of a request. Records end that wait, in pieces as well as
/// many at once, and so does the end of the stream.
#[test]
fn a_handler_waits_for_the_next_record() {
    const SIZE: usize = 300_000;
    let (runtime, identity) = (start(config()), Identity::new());
    let converse = |conn: &Connection, input: &mut Input<'_>| {
        let mut wait_for = |count: usize, question: &str| -> Result<Vec<u8>, Close> {
            conn.send(question);
            while input.len() < count {
                input.read_more(Instant::now() + LONG)?;
            }
            Ok(input.take(count).to_vec())
        };
        wait_for(1, "")?;
        let short = wait_for(5, "short?")?;
        let long = wait_for(SIZE, "long?")?;
        conn.send([&short[..], &long].concat());
        let end = wait_for(1, "");
        Err(end.err().unwrap_or_else(|| "more came".into()))
    };
    let listener = listen(&runtime, &TlsServer::new(identity.server()), Bytes::new(converse));
    for version in [&TLS12, &TLS13] {
        let mut stream = foreign(listener.local_addr(), &identity.client(&[version]));
        let hears = |stream: &mut Foreign, expected: &[u8]| {
            let mut heard = vec![0; expected.len()];
            stream.read_exact(&mut heard).expect("told");
            assert!(heard == expected, "{version:?}: the bytes differ");
        };
        stream.write_all(b"?").expect("sent");
        hears(&mut stream, b"short?");
        for byte in b"hello" {
            stream.write_all(&[*byte]).expect("sent");
        }
        hears(&mut stream, b"long?");
        let long = pattern(SIZE);
        stream.write_all(&long).expect("sent");
        hears(&mut stream, &[b"hello", &long[..]].concat());
        stream.conn.send_close_notify();
        stream.flush().expect("sent");
        assert_eq!(stream.read_to_end(&mut Vec::new()).expect("the end"), 0);
    }
    eventually_or(LONG, || runtime.stats().buffered_bytes == 0, || runtime.stats());
}

#[test]
fn a_reload_changes_the_certificate_of_new_connections_alone() {
    let (runtime, old, new) = (start(config()), Identity::new(), Identity::new());
    let tls = TlsServer::new(old.server());
    let (protocol, _told) = Echo::new();
    let listener = listen(&runtime, &tls, protocol);
    let mut before = foreign(listener.local_addr(), &old.client(&[&TLS13]));
    ask(&mut before, b"one");
    tls.reload(new.server());
    let mut after = foreign(listener.local_addr(), &new.client(&[&TLS13]));
    ask(&mut after, b"two");
    ask(&mut before, b"three");
    assert!(foreign(listener.local_addr(), &old.client(&[&TLS13])).write_all(b"x").is_err());
}

/// Plain lines, of which `STARTTLS` begins TLS.
struct Starts {
    tls: TlsServer,
    lines: mpsc::Sender<String>,
}

impl Protocol for Starts {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        while let Some(end) = input.bytes().iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(input.take(end + 1)).into_owned();
            if line == "STARTTLS\n" {
                conn.send(b"go on\n");
                conn.start_layer(input, self.tls.make(conn)?)?;
            } else {
                conn.send(&line);
            }
            let _ = self.lines.send(line);
        }
        Ok(())
    }

    fn notified(&self, conn: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        let info = conn.extension::<TlsInfo>().ok_or("no handshake")?;
        let _ = self.lines.send(info.server_name.clone().unwrap_or_default());
        Ok(())
    }
}

#[test]
fn tls_starts_in_mid_stream_and_plain_bytes_behind_it_are_refused() {
    let (runtime, identity) = (start(config()), Identity::new());
    let tls = TlsServer::new(identity.server());
    let (lines, told) = mpsc::channel();
    let starts = Starts { tls, lines };
    let listener = runtime.listen("127.0.0.1:0", starts).expect("a listener");
    let mut plain = connect(listener.local_addr());
    ask(&mut plain, b"plain\n");
    plain.write_all(b"STARTTLS\n").expect("sent");
    let mut answer = [0; 6];
    plain.read_exact(&mut answer).expect("answered");
    let tls = ClientConnection::new(identity.client(&[&TLS13]), name()).expect("a client");
    let mut stream = StreamOwned::new(tls, plain);
    ask(&mut stream, b"secret\n");
    let mut lines: Vec<_> = (0..4).map(|_| next(&told)).collect();
    lines[2..].sort();
    assert_eq!(lines, ["plain\n", "STARTTLS\n", NAME, "secret\n"]);

    let mut injects = connect(listener.local_addr());
    injects.write_all(b"STARTTLS\ninjected\n").expect("sent");
    wait_for(&runtime, Counter::ClosedByLayer, 1);
    assert_eq!(next(&told), "STARTTLS\n");
    assert!(told.try_recv().is_err(), "the protocol saw the injected line");
}

#[test]
fn a_stream_without_close_notify_is_truncated_and_plain_text_is_refused_at_once() {
    let (runtime, identity) = (start(config()), Identity::new());
    let (protocol, (_infos, ends)) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(identity.server()), protocol);
    let mut stream = foreign(listener.local_addr(), &identity.client(&[&TLS13]));
    ask(&mut stream, b"hello");
    drop(stream);
    assert_eq!(next(&ends), "the peer ended without close_notify");
    let mut plain = Peer::connect(listener.local_addr());
    plain.send(b"GET / HTTP/1.1\r\n\r\n");
    // An alert comes back.
    assert_eq!(plain.receive_all().0.first(), Some(&21));
    wait_for(&runtime, Counter::ClosedByLayer, 2);
}

/// First message of a client.
fn client_hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut tls = ClientConnection::new(Arc::clone(config), name()).expect("a client");
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("a vector takes all");
    hello
}

#[test]
fn a_thousand_clients_that_handshake_without_end_leave_their_neighbours_alone() {
    const ATTACKERS: usize = 1000;
    let short = Duration::from_secs(1);
    let runtime = start(config().handshake_timeout(short).max_handshakes(50));
    let identity = Identity::new();
    let tls = TlsServer::new(identity.server());
    let (protocol, _told) = Echo::new();
    let listener = listen(&runtime, &tls, protocol);
    let neighbours = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let mut neighbour = Peer::connect(neighbours.local_addr());
    let mut guest = foreign(listener.local_addr(), &identity.client(&[&TLS13]));
    ask(&mut guest, b"before");
    let hello = client_hello(&identity.client(&[&TLS13]));
    let mut attackers = Vec::new();
    for _ in 0..ATTACKERS {
        // Some are refused while they connect or send.
        if let Ok(mut attacker) = Peer::try_connect(listener.local_addr(), None) {
            let _ = attacker.write_all(&hello);
            attackers.push(attacker);
        }
        neighbour.echo(b"n");
        assert!(runtime.stats().handshakes <= 50, "{}", runtime.stats());
    }
    ask(&mut guest, b"during");
    wait_for(&runtime, Counter::ConnectionsRefusedHandshakes, 1);
    wait_for(&runtime, Counter::ClosedHandshakeTimeout, 1);
    eventually_or(LONG, || runtime.stats().handshakes == 0, || runtime.stats());
    drop(attackers);
    ask(&mut foreign(listener.local_addr(), &identity.client(&[&TLS13])), b"after");
    let count = |counter| runtime.stats().get(counter);
    assert_eq!(count(Counter::HandshakesCompleted), 2);
    // Each step has left the worker to others once.
    assert!(count(Counter::TurnsRequeued) >= count(Counter::ClosedHandshakeTimeout));
}

#[test]
fn a_client_that_stops_in_the_middle_of_its_hello_is_closed() {
    let runtime = start(config().handshake_timeout(Duration::from_millis(50)));
    let identity = Identity::new();
    let (protocol, (infos, _ends)) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(identity.server()), protocol);
    let hello = client_hello(&identity.client(&[&TLS13]));
    let mut halfway = Peer::connect(listener.local_addr());
    halfway.send(&hello[..hello.len() / 2]);
    assert_eq!(halfway.receive_all().0, b"");
    wait_for(&runtime, Counter::ClosedHandshakeTimeout, 1);
    eventually(LONG, || runtime.stats().buffered_bytes == 0);
    assert!(infos.try_recv().is_err(), "the protocol never saw it");
}

#[test]
fn a_foreign_server_is_asked() {
    let (runtime, identity) = (start(config()), Identity::new());
    let foreign = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at: Address = foreign.local_addr().expect("an address").into();
    let server = identity.server();
    let serves = thread::spawn(move || {
        let (stream, _) = foreign.accept().expect("a client");
        stream.set_read_timeout(Some(LONG)).expect("set");
        let tls = ServerConnection::new(server).expect("a server");
        let mut stream = StreamOwned::new(tls, stream);
        let mut request = [0; 7];
        stream.read_exact(&mut request).expect("a request");
        stream.write_all(&request).expect("sent");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("an end with close_notify");
        rest
    });
    let (told, answers) = mpsc::channel();
    let client = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        let _ = told.send(input.take_all().to_vec());
        conn.shutdown_write();
        Ok(())
    });
    let options =
        ConnectOptions::new().layer(TlsClient::new(identity.client(&[&TLS12, &TLS13]), name()));
    let conn = runtime.connect_with(&at, options, client).expect("begun");
    conn.send(b"request");
    assert_eq!(next(&answers), b"request");
    assert_eq!(serves.join().expect("no panic"), b"");
}

/// Returns true if OpenSSL is installed. Reports a skipped test otherwise.
fn has_openssl() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok();
    if !found {
        let text = format!("SKIPPED: {} needs openssl", child::test_name());
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    found
}

#[test]
fn a_client_of_openssl_is_served() {
    if !has_openssl() {
        return;
    }
    let (runtime, identity) = (start(config()), Identity::new());
    let (protocol, (infos, ends)) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(identity.server()), protocol);
    let at = listener.local_addr().to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-no_ign_eof", version, "-servername", NAME])
            .args(["-connect", &at])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let mut input = client.stdin.take().expect("piped");
        let mut output = BufReader::new(client.stdout.take().expect("piped"));
        for line in ["one\n", "two\n"] {
            input.write_all(line.as_bytes()).expect("sent");
            let mut answer = String::new();
            output.read_line(&mut answer).expect("answered");
            assert_eq!(answer, line);
        }
        drop(input);
        assert_eq!(next(&infos).server_name.as_deref(), Some(NAME));
        assert_eq!(next(&ends), "the peer finished");
        client.wait().expect("ended");
    }
}

#[test]
fn a_server_of_openssl_is_asked() {
    if !has_openssl() {
        return;
    }
    let (runtime, identity, dir) = (start(config()), Identity::new(), TempDir::new());
    let [certificate, key] = ["certificate", "key"].map(|name| dir.socket().with_file_name(name));
    fs::write(&certificate, identity.0.cert.pem()).expect("written");
    fs::write(&key, identity.0.signing_key.serialize_pem()).expect("written");
    let mut server = Command::new("openssl")
        .args(["s_server", "-rev", "-accept", "127.0.0.1:0", "-cert"])
        .arg(certificate)
        .arg("-key")
        .arg(key)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    // OpenSSL prints its port. The rest of its output is few lines, which fit into the pipe.
    let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines();
    let at: SocketAddr = lines
        .find_map(|line| line.expect("text").strip_prefix("ACCEPT ")?.parse().ok())
        .expect("a line that says where it listens");
    let (told, answers) = mpsc::channel();
    let client = Bytes::new(move |_: &Connection, input: &mut Input<'_>| {
        let _ = told.send(input.take_all().to_vec());
        Ok(())
    });
    let options = ConnectOptions::new()
        .layer(TlsClient::new(identity.client(&[&TLS12, &TLS13]), name()))
        .handshake_timeout(LONG);
    let conn = runtime.connect_with(Address::Tcp(at), options, client).expect("begun");
    conn.send(b"abc\n");
    let mut answer = Vec::new();
    while answer.len() < 4 {
        answer.extend(next(&answers));
    }
    assert_eq!(answer, b"cba\n");
    server.kill().expect("running");
    server.wait().expect("ended");
}

#[test]
fn early_data_is_refused_and_sent_again() {
    let (runtime, identity) = (start(config()), Identity::new());
    let mut server = ServerConfig::clone(&identity.server());
    server.max_early_data_size = 1024;
    let (protocol, _told) = Echo::new();
    let listener = listen(&runtime, &TlsServer::new(Arc::new(server)), protocol);
    let mut client = ClientConfig::clone(&identity.client(&[&TLS13]));
    client.enable_early_data = true;
    let client = Arc::new(client);
    ask(&mut foreign(listener.local_addr(), &client), b"the first time");
    let mut stream = foreign(listener.local_addr(), &client);
    let mut early = stream.conn.early_data().expect("the ticket allows it");
    early.write_all(b"early").expect("there is room");
    ask(&mut stream, b"again");
    assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Resumed));
    assert!(!stream.conn.is_early_data_accepted());
}
