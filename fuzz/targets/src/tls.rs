//! A stream of TLS in pieces. The server gets what a client of `rustls` has sent, and no other
//! bytes. If one byte of the stream was changed, the server may get fewer of these bytes, but no
//! others.

use std::sync::{Arc, LazyLock};

use epoll_group::internal::TlsPieces;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

/// Configurations that trust each other.
static CONFIGS: LazyLock<(Arc<ServerConfig>, Arc<ClientConfig>)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["fuzz".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a good key");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
});

/// Bytes that the client sends. More than one record, and less than a layer decodes in one call.
const SENT: usize = 40_000;

pub(crate) fn check(input: &[u8]) {
    let Some((&place, rest)) = input.split_first_chunk::<2>() else { return };
    let Some((&change, sizes)) = rest.split_first() else { return };
    let place = usize::from(u16::from_le_bytes(place));
    let mut sizes = sizes.iter().map(|&size| usize::from(size).max(1)).cycle();

    let name = ServerName::try_from("fuzz").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(&CONFIGS.1), name).expect("a client");
    client.set_buffer_limit(None);
    let mut server = TlsPieces::new(Arc::clone(&CONFIGS.0)).expect("a server");
    let sent: Vec<u8> = (0..SENT).map(|at| (at % 251) as u8).collect();
    let (mut decoded, mut passed, mut told) = (Vec::new(), 0, false);
    let mut outcome = Ok(false);
    while outcome == Ok(false) {
        if !client.is_handshaking() && !told {
            told = true;
            std::io::Write::write_all(&mut client.writer(), &sent).expect("no limit");
            client.send_close_notify();
        }
        let mut stream = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut stream).expect("a vector takes all");
        }
        if let Some(byte) = place.checked_sub(passed).and_then(|at| stream.get_mut(at)) {
            *byte ^= change;
        }
        passed += stream.len();
        let mut answer = Vec::new();
        let mut rest = &*stream;
        while !rest.is_empty() && outcome == Ok(false) {
            let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
            let (piece, after) = rest.split_at(size);
            rest = after;
            outcome = server.receive(piece, &mut decoded, &mut answer);
        }
        let mut answer = &*answer;
        while !answer.is_empty() {
            client.read_tls(&mut answer).expect("a slice");
            if client.process_new_packets().is_err() {
                assert!(change > 0, "the client refuses an answer");
                return;
            }
        }
        if stream.is_empty() && !client.wants_write() {
            // The server waits for the rest of a record whose length was changed.
            break;
        }
    }
    assert!(sent.starts_with(&decoded), "other bytes than the client's");
    if change == 0 {
        assert_eq!((outcome, decoded.len()), (Ok(true), SENT), "however the stream is cut");
    }
}
