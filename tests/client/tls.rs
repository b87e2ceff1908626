//! Sessions over TLS.

use std::sync::Arc;

use epoll_group::client::Client;
use epoll_group::net::{ListenOptions, TlsClient, TlsServer};
use epoll_group::stats::Counter;
use epoll_group::{Runtime, session};
use lab::both::{one, options};
use lab::engine::{Engine, config};
use lab::{LONG, assert_clean};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

#[test]
fn sessions_and_long_answers_pass_through_tls() {
    let made = rcgen::generate_simple_self_signed(["db".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a good key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let trusting = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();

    let runtime = Runtime::builder().config(config()).start().expect("started");
    let layered = ListenOptions::new().layer(TlsServer::new(Arc::new(server)));
    let protocol = session::Server::shared(Arc::new(Engine::new()));
    let listener = runtime.listen_with("127.0.0.1:0", layered, protocol).expect("a listener");
    let tls = TlsClient::new(Arc::new(trusting), "db".try_into().expect("a name"));
    let options = options(listener.local_addr()).connections(2).layer(tls);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    let mut sessions: Vec<_> = (0..4).map(|_| client.session().expect("a session")).collect();
    for session in &mut sessions {
        assert_eq!(one(session.execute("echo over TLS")), "over TLS");
        let mut answer = session.execute("rows 5000 1000").expect("an answer");
        let mut rows = 0;
        while answer.next_row().expect("a row").is_some() {
            rows += 1;
        }
        assert_eq!(rows, 5000);
    }
    let handshakes = runtime.stats().get(Counter::HandshakesCompleted);
    assert!((2..=4).contains(&handshakes), "{handshakes} on both sides");
    drop(sessions);
    drop(client);
    assert_clean(&runtime.drain(LONG));
}
