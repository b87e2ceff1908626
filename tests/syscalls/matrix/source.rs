//! The calls of the source into the system. Each has rows or a reason to have none, so that a new call
//! fails a test until its outcomes are decided.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::rows::ROWS;
use crate::shims::Call;
use crate::world::World;

/// Functions of the source, each with the system calls that it makes.
const DOORS: &[(&str, &[Call])] = &[
    ("File::open", &[Call::Open]),
    ("Instant::now", &[Call::ClockGettime]),
    ("OwnedFd::from_raw_fd", &[Call::Close]),
    ("Socket::new", &[Call::Socket]),
    ("fs::remove_file", &[Call::Unlink]),
    ("fs::symlink_metadata", &[Call::Statx]),
    ("getrandom::fill", &[Call::Getrandom]),
    ("libc::SYS_sched_getattr", &[Call::SchedGetattr]),
    ("libc::SYS_sched_setattr", &[Call::SchedSetattr]),
    ("libc::accept4", &[Call::Accept4]),
    ("libc::connect", &[Call::Connect]),
    ("libc::clock_gettime", &[Call::ClockGettime]),
    ("libc::dup3", &[Call::Dup3]),
    ("libc::epoll_create1", &[Call::EpollCreate1]),
    ("libc::epoll_ctl", &[Call::EpollAdd, Call::EpollDel, Call::EpollMod]),
    ("libc::epoll_wait", &[Call::EpollWait]),
    ("libc::eventfd", &[Call::Eventfd]),
    ("libc::getrusage", &[Call::Getrusage]),
    ("libc::getsockopt", &[Call::Getsockopt]),
    ("libc::poll", &[Call::Poll]),
    ("libc::recv", &[Call::Recv]),
    ("libc::recvmsg", &[Call::Recvmsg]),
    ("libc::sched_getaffinity", &[Call::SchedGetaffinity]),
    ("libc::sched_setaffinity", &[Call::SchedSetaffinity]),
    ("libc::send", &[Call::Send]),
    ("libc::timerfd_create", &[Call::TimerfdCreate]),
    ("libc::timerfd_settime", &[Call::TimerfdSettime]),
    ("libc::write", &[Call::Write]),
    ("thread::Builder::new", &[Call::PthreadCreate]),
    ("thread::available_parallelism", &[Call::SchedGetaffinity, Call::Open, Call::Read]),
    (".read_to_string", &[Call::Read]),
    (".to_socket_addrs", &[Call::Getaddrinfo]),
    (".bind", &[Call::Bind]),
    (".connect", &[Call::Connect]),
    (".is_listener", &[Call::Getsockopt]),
    (".listen", &[Call::Listen]),
    (".local_addr", &[Call::Getsockname]),
    (".peek", &[Call::Recv]),
    (".peer_addr", &[Call::Getpeername]),
    (".send_vectored_with_flags", &[Call::Sendmsg]),
    (".set_nonblocking", &[Call::Fcntl]),
    (".set_recv_buffer_size", &[Call::Setsockopt]),
    (".set_reuse_address", &[Call::Setsockopt]),
    (".set_reuse_port", &[Call::Setsockopt]),
    (".set_send_buffer_size", &[Call::Setsockopt]),
    (".set_tcp_keepalive", &[Call::Setsockopt]),
    (".set_tcp_nodelay", &[Call::Setsockopt]),
    (".set_tcp_notsent_lowat", &[Call::Setsockopt]),
    (".shutdown", &[Call::Shutdown]),
    (".take_error", &[Call::Getsockopt]),
    (".try_clone_to_owned", &[Call::Fcntl]),
];

/// Functions of the source that cannot fail, each with the reason.
const SAFE: &[(&str, &str)] = &[
    ("Instant::from_nanos", "a number"),
    ("SockRef::from", "borrows a descriptor"),
    ("libc::ioctl", "FIONREAD of a connected socket"),
    ("libc::syscall", "the number says what it is"),
    ("process::id", "known to the process, and nothing is asked that could fail"),
    ("thread::current", "known to the thread"),
    ("thread::panicking", "known to the thread"),
    ("thread::park_timeout", "a futex: returns early at worst, which it may at any time"),
];

/// First parts of the paths that lead to the system.
const ROOTS: &[&str] = &[
    "Command",
    "File",
    "Instant",
    "OpenOptions",
    "OwnedFd",
    "SockRef",
    "Socket",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
    "env",
    "fs",
    "getrandom",
    "libc",
    "process",
    "rustix",
    "socket2",
    "thread",
];

/// File in which the test looks at each method, because most of them are of sockets.
const SOCKETS: &str = "sys/socket.rs";

/// Methods in that file that do not lead to the system.
const PLAIN: &[&str] = &[
    ".adopt",
    ".apply",
    ".as_fd",
    ".as_mut_ptr",
    ".as_pathname",
    ".as_ptr",
    ".as_raw_fd",
    ".as_ref",
    ".as_socket",
    ".cast",
    ".cast_signed",
    ".collect",
    ".domain",
    ".into",
    ".into_iter",
    ".is_empty",
    ".is_ok_and",
    ".is_some",
    ".kind",
    ".len",
    ".map",
    ".map_or",
    ".nonblocking",
    ".port",
    ".push",
    ".raw_os_error",
    ".set_len",
    ".spare_capacity_mut",
    ".then_some",
    ".unwrap_or",
    ".with_time",
    ".write_str",
];

/// Methods that the test looks at in every file.
const ANYWHERE: &[&str] = &[".read_to_string", ".to_socket_addrs"];

#[test]
fn every_call_of_the_source_has_rows_or_a_reason_to_have_none() {
    // `World` counts the open files of the process, so this test must not run beside the others.
    let _world = World::enter();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    collect(&root, &root, &mut found);
    let doors = DOORS.iter().map(|(name, _)| *name);
    let known: BTreeSet<_> = doors.chain(SAFE.iter().map(|(name, _)| *name)).collect();
    let found: BTreeSet<_> = found.iter().map(String::as_str).collect();
    let [new, gone] = [&found - &known, &known - &found];
    assert!(new.is_empty(), "to be decided: {new:?}");
    assert!(gone.is_empty(), "not called any more: {gone:?}");
}

#[test]
fn every_call_of_the_crate_is_in_a_row_and_none_else() {
    let called: BTreeSet<_> = DOORS.iter().flat_map(|(_, calls)| *calls).collect();
    let shown: BTreeSet<_> = ROWS.iter().map(|row| &row.call).collect();
    assert_eq!(called, shown);
}

/// Collects the calls of all files below a folder, without those of tests.
fn collect(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.strip_prefix(root).expect("below the root").to_str().expect("text");
        let of_tests = ["tests.rs", "model", "model.rs", "stand_in.rs", "mutant.rs", "internal"]
            .iter()
            .any(|end| name.ends_with(end));
        if of_tests {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("source is readable text");
            found.extend(calls(&text, name == SOCKETS));
        }
    }
}

/// Calls in `text` that lead, or may lead, to the system.
fn calls(text: &str, methods: bool) -> BTreeSet<String> {
    let tests = ["\nmod tests", "\nmod model"].iter().filter_map(|begin| text.find(begin)).min();
    let text = &text[..tests.unwrap_or(text.len())];
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    code.flat_map(|line| calls_of_line(line, methods)).collect()
}

fn calls_of_line(line: &str, methods: bool) -> Vec<String> {
    let of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut all = Vec::new();
    let mut before = None;
    for piece in line.split_inclusive(|c| !of_path(c)) {
        let path = piece.trim_end_matches(|c| !of_path(c));
        let path = path.strip_prefix("std::").unwrap_or(path);
        let called = piece.ends_with('(');
        let method = format!(".{path}");
        if called && before == Some('.') {
            let name = method.as_str();
            if ANYWHERE.contains(&name) || methods && !PLAIN.contains(&name) {
                all.push(method);
            }
        } else if called && leads_out(path) || path.starts_with("libc::SYS_") {
            all.push(path.to_owned());
        }
        before = piece.chars().last();
    }
    all
}

fn leads_out(path: &str) -> bool {
    let mut parts = path.split("::");
    let root = parts.next().unwrap_or(path);
    let of_a_type = root == "libc" && parts.count() > 1;
    path.contains("::") && ROOTS.contains(&root) && !of_a_type
}

#[test]
fn calls_are_found_and_names_are_not() {
    let found = |line| calls_of_line(line, true);
    assert_eq!(found("check(unsafe { libc::dup(fd.as_raw_fd()) })?;"), ["libc::dup"]);
    assert_eq!(found("let _ = std::fs::rename(from, to);"), ["fs::rename"]);
    assert_eq!(found("socket.set_mark(1)?;"), [".set_mark"]);
    assert!(calls_of_line("socket.set_mark(1)?;", false).is_empty());
    assert!(found("libc::c_int::try_from(libc::EAGAIN), sys::fs::own(a), libc(b)").is_empty());
    assert!(calls("// libc::dup(1)\n\nmod tests {\n    libc::dup(1)", true).is_empty());
}
