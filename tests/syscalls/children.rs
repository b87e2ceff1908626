//! Processes that a handler starts inherit no descriptor of the server and keep none open.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use epoll_group::Runtime;
use epoll_group::net::{Address, Close, CloseReason, Connection, Input, Protocol};

use crate::shims::fork::{self, Idle};
use crate::world::World;
use lab::protocol::{Bytes, echo};
use lab::{LONG, Peer, TempDir, assert_clean, config, eventually};

/// Descriptors of a new process, which lists them itself, with their targets.
fn by_command() -> BTreeSet<String> {
    let output = Command::new("/bin/ls").args(["-l", "/proc/self/fd"]).output().expect("ls");
    numbers(&String::from_utf8(output.stdout).expect("text"))
}

fn by_fork() -> BTreeSet<String> {
    numbers(&fork::output(&[c"/bin/ls", c"-l", c"/proc/self/fd"]))
}

/// Descriptors in the output of `ls -l`, without the three standard ones and the folder it reads.
fn numbers(listing: &str) -> BTreeSet<String> {
    let links = listing.lines().filter_map(|line| {
        let (left, target) = line.split_once(" -> ")?;
        let number: u32 = left.rsplit(' ').next()?.parse().ok()?;
        (number > 2 && !target.starts_with("/proc/")).then(|| format!("{number} {target}"))
    });
    links.collect()
}

/// A protocol for a connection that is there only for its descriptor.
struct Quiet;

impl Protocol for Quiet {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        input.take_all();
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), _: &CloseReason) {}
}

/// Calls `code` in a handler for each request, while the server has a connection of each kind.
fn while_serving<T: Send + 'static>(at: &str, code: fn() -> T) -> (T, Address, Runtime) {
    let results = Arc::new(Mutex::new(Vec::new()));
    let results_2 = Arc::clone(&results);
    let handler = move |conn: &Connection, input: &mut Input<'_>| {
        results_2.lock().expect("no panic").push(code());
        conn.send(input.take_all());
        Ok(())
    };
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let listener = runtime.listen(at, Bytes::new(handler)).expect("a listener");
    let address = listener.local_addr().clone();
    let outgoing = runtime.connect(address.clone(), Quiet).expect("begun");
    let mut peer = Peer::connect(&address);
    peer.echo(b"start one");
    drop(outgoing);
    let result = results.lock().expect("no panic").pop().expect("one");
    (result, address, runtime)
}

#[test]
fn a_process_that_a_handler_starts_inherits_no_descriptor() {
    let world = World::enter();
    let here = [by_command(), by_fork()];
    let dir = TempDir::new();
    let path = format!("unix:{}", dir.socket().display());
    for at in ["127.0.0.1:0", &path] {
        for (code, here) in [by_command as fn() -> _, by_fork].into_iter().zip(&here) {
            let (seen, _, runtime) = while_serving(at, code);
            assert_eq!(&seen, here, "{at}: as without a server");
            assert_clean(&runtime.drain(LONG));
        }
    }
    world.is_as_before();
}

#[test]
fn a_process_that_outlives_the_server_does_not_keep_its_port() {
    fn sleeper() -> Child {
        Command::new("/bin/sleep").arg("60").stdout(Stdio::null()).spawn().expect("a process")
    }
    let world = World::enter();
    // An address of its own: other processes may take a port of the usual one at any time.
    let [.., a, b] = std::process::id().to_be_bytes();
    let (mut child, address, runtime) = while_serving(&format!("127.77.{a}.{b}:0"), sleeper);
    assert_clean(&runtime.drain(LONG));
    let Address::Tcp(address) = address else { unreachable!("TCP") };
    eventually(LONG, || TcpListener::bind(address).is_ok());
    assert!(child.try_wait().expect("a child of ours").is_none(), "it lives still");
    child.kill().expect("it lived");
    child.wait().expect("a child of ours");
    world.is_as_before();
}

#[test]
fn a_forked_process_that_goes_on_delays_the_end_of_no_connection() {
    let world = World::enter();
    let runtime = Runtime::builder().config(config()).start().expect("a runtime");
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.echo(b"the only question");
    let child = Idle::fork();
    peer.finish();
    assert!(peer.receive_to_finish().is_empty());
    drop((child, peer, listener));
    assert_clean(&runtime.drain(LONG));
    world.is_as_before();
}
