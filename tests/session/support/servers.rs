//! Servers for one connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};

use lab::xrpc::DEADLINE;
use lab::xrpc::conversation::{Act, Line};

/// Frames of the server and their sessions.
pub(crate) type Frames = Vec<(u64, ServerMessage)>;

/// Runs `test` against a server that answers each frame with what `answer` says; `None` closes.
pub(crate) fn with_toy(
    dialect: Dialect,
    mut answer: impl FnMut(u64, ClientMessage) -> Option<Frames> + Send,
    test: impl FnOnce(SocketAddr),
) {
    serve(test, |mut stream| {
        let mut decoder = Decoder::with_dialect(Limits::default(), dialect);
        while let Some((session, message, _)) = request(&mut stream, &mut decoder) {
            let Some(frames) = answer(session, message) else { return };
            let mut out = Vec::new();
            for (session, message) in frames {
                message.encode(dialect, session, &mut out).expect("it is small");
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    });
}

/// Runs `test` against a server that sends the recorded frames. Fails unless the client sends its
/// recorded frames; only its proof may differ.
pub(crate) fn with_recording(lines: &[Line], test: impl FnOnce(SocketAddr)) {
    serve(test, |mut stream| {
        let mut decoder = Decoder::new(Limits::default());
        for line in lines {
            match line.act {
                Act::Server => stream.write_all(&line.bytes).expect("the client reads"),
                Act::Client => {
                    let (_, message, bytes) =
                        request(&mut stream, &mut decoder).expect("the client goes on");
                    let proof = matches!(message, ClientMessage::AuthenticateContinue(_));
                    assert!(proof || bytes == line.bytes, "{message:?}");
                }
                Act::Close => {
                    assert!(request(&mut stream, &mut decoder).is_none(), "the client ends");
                }
            }
        }
    });
}

fn serve(test: impl FnOnce(SocketAddr), server: impl FnOnce(TcpStream) + Send) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("it is bound");
    thread::scope(|scope| {
        scope.spawn(move || {
            let stream = listener.accept().expect("a client").0;
            stream.set_nodelay(true).expect("an option that every socket has");
            stream.set_read_timeout(Some(DEADLINE)).expect("a time above 0");
            server(stream);
        });
        test(addr);
    });
}

/// Returns the next frame of the client, `None` at the end.
fn request(stream: &mut TcpStream, decoder: &mut Decoder) -> Option<(u64, ClientMessage, Vec<u8>)> {
    let mut piece = [0; 4096];
    loop {
        if let Some(frame) = decoder.next_frame().expect("a good header") {
            let message = frame.client_message(&Limits::default()).expect("a good body");
            return Some((frame.session(), message, frame.bytes().to_vec()));
        }
        // A client that fails resets its connection. Then the test reports the failure.
        match stream.read(&mut piece) {
            Ok(count @ 1..) => decoder.feed(&piece[..count]),
            _ => return None,
        }
    }
}
