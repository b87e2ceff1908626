//! Ends of connections: how a client notices them and reacts.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use epoll_group::client::{Client, ErrorKind, Fate};
use lab::LONG;
use lab::both::{Both, one, options};

/// Passes bytes between client and server, up to a request that contains `text`. Then it ends the
/// stream to the client in order, like a server that is killed when it has sent everything.
fn pass_until(text: &'static [u8], server: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("it has one");
    let pass = move || {
        let (mut client, _) = listener.accept().expect("accepted");
        let mut server = TcpStream::connect(server).expect("connected");
        let mut answers = server.try_clone().expect("cloned");
        let mut back = client.try_clone().expect("cloned");
        let answers = thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let mut bytes = [0; 4096];
        loop {
            let count = client.read(&mut bytes).expect("the client is there");
            if bytes[..count].windows(text.len()).any(|part| part == text) {
                break;
            }
            server.write_all(&bytes[..count]).expect("the server is there");
        }
        client.shutdown(Shutdown::Write).expect("it was open");
        server.shutdown(Shutdown::Both).expect("it was open");
        let _ = answers.join().expect("no panic");
        // Waits until the client closes its side.
        assert!(client.set_read_timeout(Some(LONG)).is_ok());
        while client.read(&mut bytes).is_ok_and(|count| count > 0) {}
    };
    (address, thread::spawn(pass))
}

#[test]
fn an_orderly_end_in_the_middle_of_a_request_is_noticed_at_once() {
    let both = Both::start();
    let server: SocketAddr = both.server.addr().to_string().parse().expect("TCP");
    let (address, passing) = pass_until(b"echo last", server);
    // With these times neither the deadline nor a probe finds the end.
    let hour = Duration::from_secs(3600);
    let options = options(address).connections(1).request_timeout(hour).probe_interval(hour);
    let client = Client::new(&both.runtime.handle(), options).expect("good options");
    let mut session = client.session().expect("a session");
    assert_eq!(one(session.execute("echo first")), "first");
    let (give, given) = std::sync::mpsc::channel();
    session.execute_then("echo last", move |answer| give.send(answer).expect("the test listens"));
    let error = given.recv_timeout(LONG).expect("it is told").expect_err("no answer comes");
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
    assert_eq!(error.fate(), Fate::Unknown);
    assert!(!session.is_alive());
    passing.join().expect("the client closed its side");
}
