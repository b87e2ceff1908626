//! The decided outcomes, one row for each call and occasion.

use libc::{
    EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, EPERM, EPIPE,
    ETIMEDOUT,
};

use super::Outcome::{Degrades, Ends, Fails, Pauses, Unseen};
use super::{Row, When};
use crate::shims::Call;

/// Errors of a call that makes a descriptor. EPERM comes from a sandbox.
const NO_DESCRIPTOR: &[i32] = &[EMFILE, ENFILE, ENOMEM, EPERM];
const NO_SOCKET: &[i32] = &[EMFILE, ENFILE, ENOMEM, ENOBUFS, EPERM];
const NO_WATCH: &[i32] = &[ENOMEM, ENOSPC, EPERM];
const NO_MEMORY: &[i32] = &[ENOMEM, ENOBUFS, EPERM];
/// Errors that end a connection, which the page calls connection errors.
pub(super) const LOST: &[i32] =
    &[ENOMEM, ENOBUFS, ECONNABORTED, ECONNRESET, EPIPE, EPERM, ETIMEDOUT];

/// The reason that the page gives once, or that an earlier row gives for the same call.
const USUAL: Option<&str> = None;
const RESOLVES: Option<&str> = Some("the error repeats the resolver's own text");
const THREADS: Option<&str> = Some("the C library says EAGAIN if memory or threads are short");
const OURS: Option<&str> = Some("only wrong arguments of ours fail");

const fn row(
    when: When,
    call: Call,
    what: &'static str,
    cells: &'static [(&'static [i32], super::Outcome)],
    otherwise: Option<&'static str>,
) -> Row {
    Row { when, call, what, cells, otherwise }
}

const THREAD: &str = "thread srv-";
const BIND: &str = "listen on ";
const WATCH: &str = "listener: ";

pub(crate) const ROWS: &[Row] = &[
    row(
        When::Start,
        Call::SchedGetaffinity,
        "CPUs of the process",
        &[(&[EPERM, ENOMEM], Degrades("as on one CPU"))],
        USUAL,
    ),
    row(
        When::Start,
        Call::Open,
        "topology in sysfs",
        &[
            (&[EMFILE, ENFILE, ENOMEM, EPERM], Degrades("all CPUs count as equal")),
            (&[EINTR], Unseen),
        ],
        USUAL,
    ),
    row(
        When::Start,
        Call::Read,
        "topology in sysfs",
        &[(&[ENOMEM, EPERM], Degrades("all CPUs count as equal")), (&[EINTR], Unseen)],
        USUAL,
    ),
    row(
        When::Start,
        Call::EpollCreate1,
        "a group",
        &[(NO_DESCRIPTOR, Fails("descriptors of a group: epoll_create1: "))],
        USUAL,
    ),
    row(
        When::Start,
        Call::Eventfd,
        "its wake-up",
        &[(NO_DESCRIPTOR, Fails("descriptors of a group: eventfd: "))],
        USUAL,
    ),
    row(
        When::Start,
        Call::TimerfdCreate,
        "its timer",
        &[(NO_DESCRIPTOR, Fails("descriptors of a group: timerfd_create: "))],
        USUAL,
    ),
    row(
        When::Start,
        Call::EpollAdd,
        "watching both",
        &[(NO_WATCH, Fails("descriptors of a group: epoll_ctl: "))],
        USUAL,
    ),
    row(
        When::Start,
        Call::PthreadCreate,
        "a thread",
        &[(&[EAGAIN, EPERM], Fails(THREAD))],
        THREADS,
    ),
    row(
        When::Start,
        Call::SchedSetaffinity,
        "binding a thread",
        &[(&[EPERM, ENOMEM], Degrades("the kernel places it: `affinity_failed`"))],
        USUAL,
    ),
    row(
        When::Start,
        Call::SchedGetattr,
        "its time slice",
        &[(&[EPERM], Degrades("with slices as they are"))],
        USUAL,
    ),
    row(
        When::Start,
        Call::SchedSetattr,
        "a shorter slice for long work",
        &[(&[EPERM], Degrades("with slices as they are"))],
        USUAL,
    ),
    row(
        When::Start,
        Call::Getrusage,
        "whether that work waited",
        &[(&[EPERM], Degrades("with elapsed time as its cost"))],
        USUAL,
    ),
    row(
        When::Listen,
        Call::Getaddrinfo,
        "address of a name",
        &[(NO_SOCKET, Fails("listen address: "))],
        RESOLVES,
    ),
    row(When::Listen, Call::Socket, "the listener", &[(NO_SOCKET, Fails(BIND))], USUAL),
    row(When::Listen, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails(BIND))], USUAL),
    row(When::Listen, Call::Bind, "its address", &[(&[ENOMEM, EPERM], Fails(BIND))], USUAL),
    row(When::Listen, Call::Listen, "listening", &[(&[ENOMEM, EPERM], Fails(BIND))], USUAL),
    row(When::Listen, Call::Getsockname, "its address", &[(NO_MEMORY, Fails(BIND))], USUAL),
    row(When::Listen, Call::Eventfd, "reserve descriptor", &[(NO_DESCRIPTOR, Fails(WATCH))], USUAL),
    row(When::Listen, Call::EpollAdd, "watching it", &[(NO_WATCH, Fails(WATCH))], USUAL),
    row(When::ListenUnix, Call::Socket, "the listener", &[(NO_SOCKET, Fails(BIND))], USUAL),
    row(When::ListenUnix, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails(BIND))], USUAL),
    row(
        When::ListenUnix,
        Call::Bind,
        "its path",
        &[(&[ENOMEM, ENOSPC, EPERM], Fails(BIND))],
        USUAL,
    ),
    row(When::ListenUnix, Call::Listen, "listening", &[(&[ENOMEM, EPERM], Fails(BIND))], USUAL),
    row(When::ListenUnix, Call::Getsockname, "its address", &[(NO_MEMORY, Fails(WATCH))], USUAL),
    row(
        When::ListenUnix,
        Call::Statx,
        "identity of its file",
        &[(&[ENOMEM, EPERM], Degrades("the file stays at the end, logged"))],
        USUAL,
    ),
    row(
        When::ListenUnix,
        Call::Eventfd,
        "reserve descriptor",
        &[(NO_DESCRIPTOR, Fails(WATCH))],
        USUAL,
    ),
    row(When::ListenUnix, Call::EpollAdd, "watching it", &[(NO_WATCH, Fails(WATCH))], USUAL),
    row(
        When::ListenUnix,
        Call::Unlink,
        "removing its file",
        &[(&[ENOMEM, ENOSPC, EPERM], Degrades("the file stays, logged"))],
        USUAL,
    ),
    row(When::Adopt, Call::Fcntl, "making it non-blocking", &[(&[EPERM], Fails(WATCH))], USUAL),
    row(When::Adopt, Call::Getsockopt, "whether it listens", &[(NO_MEMORY, Fails(WATCH))], USUAL),
    row(When::Adopt, Call::Getsockname, "its address", &[(NO_MEMORY, Fails(WATCH))], USUAL),
    row(When::Adopt, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails(WATCH))], USUAL),
    row(When::Adopt, Call::Eventfd, "reserve descriptor", &[(NO_DESCRIPTOR, Fails(WATCH))], USUAL),
    row(When::Adopt, Call::EpollAdd, "watching it", &[(NO_WATCH, Fails(WATCH))], USUAL),
    row(
        When::Accept,
        Call::Accept4,
        "next connection",
        &[
            (&[EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, ECONNRESET, EPIPE], Pauses),
            (&[EINTR, ECONNABORTED, EPERM, ETIMEDOUT], Unseen),
        ],
        Some("EAGAIN means that none waits"),
    ),
    row(When::Accept, Call::EpollAdd, "watching it", &[(NO_WATCH, Ends)], USUAL),
    row(When::Serve, Call::EpollWait, "idle worker", &[(&[EINTR], Unseen)], OURS),
    row(
        When::Serve,
        Call::Recv,
        "a request",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        Some("EAGAIN means no input"),
    ),
    row(
        When::Serve,
        Call::Send,
        "an answer",
        &[(LOST, Ends), (&[EINTR], Unseen), (&[EAGAIN], Degrades("sent at the next edge"))],
        USUAL,
    ),
    row(
        When::Serve,
        Call::Sendmsg,
        "an answer in pieces",
        &[(LOST, Ends), (&[EINTR], Unseen), (&[EAGAIN], Degrades("sent at the next edge"))],
        USUAL,
    ),
    row(
        When::Serve,
        Call::Write,
        "waking a worker",
        &[(&[EINTR], Unseen)],
        Some("EAGAIN takes 2^64 unread wake-ups"),
    ),
    row(
        When::Serve,
        Call::Shutdown,
        "end of sending",
        &[(&[ENOMEM, ENOBUFS, EPERM], Unseen)],
        Some("only a lost peer or a wrong argument fails"),
    ),
    row(When::Serve, Call::EpollDel, "removing a connection", &[(&[ENOMEM, EPERM], Unseen)], OURS),
    row(
        When::Serve,
        Call::Close,
        "closing it",
        &[(&[EINTR, ENOSPC], Unseen)],
        Some("Linux always takes the descriptor back"),
    ),
    row(When::Serve, Call::TimerfdSettime, "the next deadline", &[], OURS),
    row(
        When::Serve,
        Call::Getsockopt,
        "whether the peer has reset",
        &[(NO_MEMORY, Degrades("noticed when the answer is sent"))],
        USUAL,
    ),
    row(
        When::Serve,
        Call::Poll,
        "whether the peer has gone",
        &[
            (&[ENOMEM, EPERM], Degrades("`Connection::peer_state` is `Connected`")),
            (&[EINTR], Unseen),
        ],
        OURS,
    ),
    row(When::Serve, Call::ClockGettime, "the time", &[], OURS),
    row(
        When::ServeUnix,
        Call::Recvmsg,
        "a request",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        Some("EAGAIN means no input"),
    ),
    row(
        When::ServeUnix,
        Call::Send,
        "an answer",
        &[(LOST, Ends), (&[EINTR], Unseen), (&[EAGAIN], Degrades("sent at the next edge"))],
        USUAL,
    ),
    row(
        When::ServeUnix,
        Call::Sendmsg,
        "an answer in pieces",
        &[(LOST, Ends), (&[EINTR], Unseen), (&[EAGAIN], Degrades("sent at the next edge"))],
        USUAL,
    ),
    row(
        When::ServeUnix,
        Call::EpollMod,
        "room to send",
        &[(&[EPERM], Degrades("the answer leaves within `net_write_timeout`"))],
        Some("changes an entry without memory"),
    ),
    row(
        When::ServeUnix,
        Call::Getsockopt,
        "credentials of the peer",
        &[(NO_MEMORY, Degrades("`Connection::credentials` are `None`"))],
        USUAL,
    ),
    row(
        When::ServeUnix,
        Call::Shutdown,
        "end of sending",
        &[(&[ENOMEM, ENOBUFS, EPERM], Unseen)],
        Some("only a lost peer or a wrong argument fails"),
    ),
    row(
        When::Login,
        Call::Getrandom,
        "a challenge",
        &[(&[EPERM], Ends), (&[EINTR], Unseen)],
        USUAL,
    ),
    row(
        When::Grow,
        Call::PthreadCreate,
        "another worker",
        &[(&[EAGAIN, EPERM], Degrades("with fewer threads, tried again: `thread_start_failed`"))],
        THREADS,
    ),
    row(
        When::Connect,
        Call::Getaddrinfo,
        "address of a name",
        &[(NO_SOCKET, Fails("connect address: "))],
        RESOLVES,
    ),
    row(
        When::Connect,
        Call::Socket,
        "to another server",
        &[(NO_SOCKET, Fails("connect: "))],
        USUAL,
    ),
    row(When::Connect, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails("connect: "))], USUAL),
    row(
        When::Connect,
        Call::Connect,
        "beginning",
        &[(
            &[ENOMEM, ENOBUFS, EAGAIN, ECONNABORTED, ECONNRESET, EPERM, ETIMEDOUT],
            Fails("connect: "),
        )],
        USUAL,
    ),
    row(
        When::Connect,
        Call::Dup3,
        "the next address of a name",
        &[(&[EPERM], Fails("connect failed: ")), (&[EINTR], Unseen)],
        OURS,
    ),
    row(When::Connect, Call::EpollAdd, "watching it", &[(NO_WATCH, Fails("connect: "))], USUAL),
    row(
        When::Connect,
        Call::Getsockopt,
        "result of the connect",
        &[(NO_MEMORY, Fails("connect failed: "))],
        Some("the result comes as a value"),
    ),
    row(
        When::Connect,
        Call::Getpeername,
        "its peer",
        &[(NO_MEMORY, Fails("connect failed: "))],
        USUAL,
    ),
    row(When::Connect, Call::Recv, "an answer", &[(LOST, Ends), (&[EINTR], Unseen)], USUAL),
    row(
        When::Connect,
        Call::Recvmsg,
        "an answer on a Unix socket",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        USUAL,
    ),
    row(When::Connect, Call::Send, "a request", &[(LOST, Ends), (&[EINTR], Unseen)], USUAL),
    row(When::Client, Call::Socket, "to another server", &[(NO_SOCKET, Fails("connect"))], USUAL),
    row(When::Client, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails("connect"))], USUAL),
    row(When::Client, Call::Connect, "by a client", &[(NO_MEMORY, Fails("connect"))], USUAL),
    row(When::Client, Call::EpollAdd, "watching it", &[(NO_WATCH, Fails("connect"))], USUAL),
    row(When::Client, Call::Getsockopt, "its result", &[(NO_MEMORY, Fails("connect"))], USUAL),
    row(When::Client, Call::Getpeername, "its peer", &[(NO_MEMORY, Fails("connect"))], USUAL),
    row(When::Client, Call::Recv, "an answer", &[(LOST, Ends), (&[EINTR], Unseen)], USUAL),
    row(When::Client, Call::Send, "a request", &[(LOST, Ends), (&[EINTR], Unseen)], USUAL),
    row(
        When::Drain,
        Call::Accept4,
        "connections still waiting",
        &[
            (&[EMFILE, ENFILE, ENOMEM, ENOBUFS], Degrades("refused")),
            (&[EINTR, ECONNABORTED, EPERM, ETIMEDOUT], Unseen),
        ],
        USUAL,
    ),
    row(When::Drain, Call::Send, "the last answer", &[(LOST, Ends), (&[EINTR], Unseen)], USUAL),
    row(
        When::Drain,
        Call::Recv,
        "the peer's last input",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        USUAL,
    ),
    row(
        When::Drain,
        Call::Recvmsg,
        "the same on a Unix socket",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        USUAL,
    ),
    row(When::Drain, Call::Write, "waking workers to leave", &[(&[EINTR], Unseen)], USUAL),
    row(When::Drain, Call::EpollWait, "last wait of a worker", &[(&[EINTR], Unseen)], OURS),
    row(When::Drain, Call::Close, "closing all", &[(&[EINTR, ENOSPC], Unseen)], USUAL),
    row(
        When::Pool,
        Call::PthreadCreate,
        "its thread",
        &[(&[EAGAIN, EPERM], Fails("thread of the pool: "))],
        THREADS,
    ),
    row(
        When::Pool,
        Call::PthreadCreate,
        "connect without a waiting caller",
        &[(&[EAGAIN, EPERM], Degrades("as a failed connect"))],
        THREADS,
    ),
];
