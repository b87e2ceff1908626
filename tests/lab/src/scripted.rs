//! A server of one connection, which accepts every login and answers every request in the same way.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::frame::Decoder;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};
use epoll_group::codec::proto::session::{AuthenticateContinue, AuthenticateOk};

/// Starts the server and returns its address. `answer` writes the answer to statements and requests
/// for timestamps.
pub fn serve(answer: impl Fn(&mut Encoder<'_>) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accepted");
        // The client may go at any time.
        let _ = talk(stream, answer);
    });
    address
}

fn talk(mut stream: TcpStream, answer: impl Fn(&mut Encoder<'_>)) -> io::Result<()> {
    let (mut decoder, limits) = (Decoder::new(Limits::default()), Limits::default());
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            count => decoder.feed(&bytes[..count]),
        }
        let mut out = OutBuffer::default();
        while let Some(frame) = decoder.next_frame().expect("a good header") {
            let encoder = &mut Encoder::new(&mut out, frame.session());
            match frame.client_message(&limits).expect("a good message") {
                ClientMessage::AuthenticateStart(_) => {
                    let challenge = AuthenticateContinue { auth_data: vec![7; 20] };
                    put(encoder, &ServerMessage::AuthenticateContinue(challenge));
                }
                ClientMessage::AuthenticateContinue(_) => {
                    put(encoder, &ServerMessage::AuthenticateOk(AuthenticateOk::default()));
                }
                ClientMessage::SessionNew | ClientMessage::SessionClose => encoder.ok(None),
                ClientMessage::ExecSql(_) | ClientMessage::GetTso(_) => answer(encoder),
                _ => {}
            }
        }
        for slice in out.slices() {
            stream.write_all(slice)?;
        }
    }
}

pub fn put(encoder: &mut Encoder<'_>, message: &ServerMessage) {
    encoder.message(message).expect("it is short enough");
}
