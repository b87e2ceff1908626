//! Stands between a client and a server, and cuts connections in mid-stream.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Forwarder {
    addr: SocketAddr,
    live: Arc<Mutex<Vec<TcpStream>>>,
}

impl Forwarder {
    /// Its threads end with its connections, or with the process.
    pub(crate) fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let live = Arc::<Mutex<Vec<TcpStream>>>::default();
        let accepted = Arc::clone(&live);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(to) else { continue };
                for socket in [&client, &server] {
                    socket.set_nodelay(true).expect("an option that every socket has");
                }
                accepted.lock().expect("no panic").push(other(&client));
                let (from, to) = (other(&client), other(&server));
                thread::spawn(move || pass(from, to));
                thread::spawn(move || pass(server, client));
            }
        });
        Self { addr, live }
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Cuts one connection; `which` chooses.
    pub(crate) fn cut(&self, which: u64) {
        let mut live = self.live.lock().expect("no panic");
        if !live.is_empty() {
            let index = which as usize % live.len();
            let _ = live.swap_remove(index).shutdown(Shutdown::Both);
        }
    }
}

fn other(socket: &TcpStream) -> TcpStream {
    socket.try_clone().expect("a second handle")
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for socket in [from, to] {
        let _ = socket.shutdown(Shutdown::Both);
    }
}
