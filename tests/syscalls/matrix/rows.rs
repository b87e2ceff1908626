//! The decisions, one row a call.

use libc::{
    EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, EPERM, EPIPE,
    ETIMEDOUT,
};

use super::Outcome::{Degrades, Ends, Fails, Pauses, Unseen};
use super::{Row, When};
use crate::shims::Call;

/// No descriptors, or no memory for what they stand for; or a sandbox says no.
const NO_DESCRIPTOR: &[i32] = &[EMFILE, ENFILE, ENOMEM, EPERM];
const NO_SOCKET: &[i32] = &[EMFILE, ENFILE, ENOMEM, ENOBUFS, EPERM];
const NO_WATCH: &[i32] = &[ENOMEM, ENOSPC, EPERM];
const NO_MEMORY: &[i32] = &[ENOMEM, ENOBUFS, EPERM];
/// What a connection may end with.
const LOST: &[i32] = &[ENOMEM, ENOBUFS, ECONNABORTED, ECONNRESET, EPIPE, EPERM, ETIMEDOUT];

const MAKES: &str = "does not wait and knows no peer";
const SETS: &str = "needs no descriptor, does not wait, knows no peer";
const RESOLVES: &str = "the resolver says it in words of its own, which the error repeats";
const THREADS: &str = "the C library says EAGAIN when memory or threads are short";
const AS_ABOVE: &str = "as above";
const OURS: &str = "fails for a wrong argument only, and all of them are ours";

const fn row(
    when: When,
    call: Call,
    what: &'static str,
    cells: &'static [(&'static [i32], super::Outcome)],
    otherwise: &'static str,
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
        "the CPUs of the process",
        &[(&[EPERM, ENOMEM], Degrades("as on one CPU; threads run where the kernel puts them"))],
        SETS,
    ),
    row(
        When::Start,
        Call::Open,
        "the topology, from sysfs",
        &[
            (&[EMFILE, ENFILE, ENOMEM, EPERM], Degrades("all CPUs are taken for equal")),
            (&[EINTR], Unseen),
        ],
        MAKES,
    ),
    row(
        When::Start,
        Call::Read,
        "the same",
        &[(&[ENOMEM, EPERM], Degrades("all CPUs are taken for equal")), (&[EINTR], Unseen)],
        MAKES,
    ),
    row(
        When::Start,
        Call::EpollCreate1,
        "a group",
        &[(NO_DESCRIPTOR, Fails("descriptors of a group: epoll_create1: "))],
        MAKES,
    ),
    row(
        When::Start,
        Call::Eventfd,
        "its wake-up",
        &[(NO_DESCRIPTOR, Fails("descriptors of a group: eventfd: "))],
        MAKES,
    ),
    row(
        When::Start,
        Call::TimerfdCreate,
        "its timer",
        &[(NO_DESCRIPTOR, Fails("descriptors of a group: timerfd_create: "))],
        MAKES,
    ),
    row(
        When::Start,
        Call::EpollAdd,
        "both are watched",
        &[(NO_WATCH, Fails("descriptors of a group: epoll_ctl: "))],
        SETS,
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
        "the thread is bound",
        &[(&[EPERM, ENOMEM], Degrades("it runs where the kernel puts it; `affinity_failed`"))],
        SETS,
    ),
    row(
        When::Start,
        Call::SchedGetattr,
        "its time slice",
        &[(&[EPERM], Degrades("slices stay as they are"))],
        SETS,
    ),
    row(
        When::Start,
        Call::SchedSetattr,
        "a shorter one, for what takes long",
        &[(&[EPERM], Degrades("slices stay as they are"))],
        SETS,
    ),
    row(
        When::Start,
        Call::Getrusage,
        "whether that has waited",
        &[(&[EPERM], Degrades("what a run costs is the time that passes"))],
        SETS,
    ),
    row(
        When::Listen,
        Call::Getaddrinfo,
        "the address of a name",
        &[(NO_SOCKET, Fails("listen address: "))],
        RESOLVES,
    ),
    row(When::Listen, Call::Socket, "the listener", &[(NO_SOCKET, Fails(BIND))], MAKES),
    row(When::Listen, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails(BIND))], SETS),
    row(When::Listen, Call::Bind, "its address", &[(&[ENOMEM, EPERM], Fails(BIND))], SETS),
    row(When::Listen, Call::Listen, "it listens", &[(&[ENOMEM, EPERM], Fails(BIND))], SETS),
    row(When::Listen, Call::Getsockname, "the port it got", &[(NO_MEMORY, Fails(BIND))], SETS),
    row(
        When::Listen,
        Call::Open,
        "the reserve descriptor",
        &[(NO_DESCRIPTOR, Fails(WATCH))],
        MAKES,
    ),
    row(When::Listen, Call::EpollAdd, "it is watched", &[(NO_WATCH, Fails(WATCH))], SETS),
    row(When::ListenUnix, Call::Socket, "the listener", &[(NO_SOCKET, Fails(BIND))], MAKES),
    row(When::ListenUnix, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails(BIND))], SETS),
    row(When::ListenUnix, Call::Bind, "its path", &[(&[ENOMEM, ENOSPC, EPERM], Fails(BIND))], SETS),
    row(When::ListenUnix, Call::Listen, "it listens", &[(&[ENOMEM, EPERM], Fails(BIND))], SETS),
    row(When::ListenUnix, Call::Getsockname, "its path", &[(NO_MEMORY, Fails(WATCH))], SETS),
    row(
        When::ListenUnix,
        Call::Statx,
        "whose file it is",
        &[(&[ENOMEM, EPERM], Degrades("the file stays at the end, which is logged"))],
        SETS,
    ),
    row(
        When::ListenUnix,
        Call::Open,
        "the reserve descriptor",
        &[(NO_DESCRIPTOR, Fails(WATCH))],
        MAKES,
    ),
    row(When::ListenUnix, Call::EpollAdd, "it is watched", &[(NO_WATCH, Fails(WATCH))], SETS),
    row(
        When::ListenUnix,
        Call::Unlink,
        "its file, at the end",
        &[(&[ENOMEM, ENOSPC, EPERM], Degrades("the file stays, which is logged"))],
        SETS,
    ),
    row(When::Adopt, Call::Fcntl, "made non-blocking", &[(&[EPERM], Fails(WATCH))], SETS),
    row(When::Adopt, Call::Getsockopt, "whether it listens", &[(NO_MEMORY, Fails(WATCH))], SETS),
    row(When::Adopt, Call::Getsockname, "its address", &[(NO_MEMORY, Fails(WATCH))], SETS),
    row(When::Adopt, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails(WATCH))], SETS),
    row(When::Adopt, Call::Open, "the reserve descriptor", &[(NO_DESCRIPTOR, Fails(WATCH))], MAKES),
    row(When::Adopt, Call::EpollAdd, "it is watched", &[(NO_WATCH, Fails(WATCH))], SETS),
    row(
        When::Accept,
        Call::Accept4,
        "the next connection",
        &[
            (&[EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, ECONNRESET, EPIPE], Pauses),
            (&[EINTR, ECONNABORTED, EPERM, ETIMEDOUT], Unseen),
        ],
        "EAGAIN says that nobody waits; the next one makes an edge",
    ),
    row(When::Accept, Call::EpollAdd, "it is watched", &[(NO_WATCH, Ends)], SETS),
    row(When::Serve, Call::EpollWait, "a worker at rest", &[(&[EINTR], Unseen)], OURS),
    row(
        When::Serve,
        Call::Recv,
        "a request",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        "EAGAIN says that nothing is there; what comes makes an edge",
    ),
    row(
        When::Serve,
        Call::Send,
        "an answer",
        &[
            (LOST, Ends),
            (&[EINTR], Unseen),
            (&[EAGAIN], Degrades("it leaves with the next edge, or in `net_write_timeout`")),
        ],
        "needs no descriptor",
    ),
    row(
        When::Serve,
        Call::Sendmsg,
        "an answer in pieces",
        &[
            (LOST, Ends),
            (&[EINTR], Unseen),
            (&[EAGAIN], Degrades("it leaves with the next edge, or in `net_write_timeout`")),
        ],
        "needs no descriptor",
    ),
    row(
        When::Serve,
        Call::Write,
        "a worker is woken",
        &[(&[EINTR], Unseen)],
        "EAGAIN would need 2^64 wake-ups that nobody heard of",
    ),
    row(
        When::Serve,
        Call::Shutdown,
        "the last word",
        &[(&[ENOMEM, ENOBUFS, EPERM], Unseen)],
        "says only that the peer is gone, or that an argument is wrong",
    ),
    row(
        When::Serve,
        Call::EpollDel,
        "a connection is forgotten",
        &[(&[ENOMEM, EPERM], Unseen)],
        OURS,
    ),
    row(
        When::Serve,
        Call::Close,
        "and closed",
        &[(&[EINTR, ENOSPC], Unseen)],
        "Linux takes the descriptor back whatever it says",
    ),
    row(When::Serve, Call::TimerfdSettime, "the next deadline", &[], OURS),
    row(
        When::Serve,
        Call::Getsockopt,
        "whether the peer has reset",
        &[(NO_MEMORY, Degrades("it is heard of when the answer is sent"))],
        SETS,
    ),
    row(When::Serve, Call::ClockGettime, "the time", &[], OURS),
    row(
        When::ServeUnix,
        Call::Recvmsg,
        "a request",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        "EAGAIN says that nothing is there; what comes makes an edge",
    ),
    row(
        When::ServeUnix,
        Call::Send,
        "an answer",
        &[(LOST, Ends), (&[EINTR], Unseen), (&[EAGAIN], Degrades("it leaves with the next edge"))],
        "needs no descriptor",
    ),
    row(
        When::ServeUnix,
        Call::Sendmsg,
        "an answer in pieces",
        &[(LOST, Ends), (&[EINTR], Unseen), (&[EAGAIN], Degrades("it leaves with the next edge"))],
        "needs no descriptor",
    ),
    row(
        When::ServeUnix,
        Call::EpollMod,
        "whether there is room",
        &[(&[EPERM], Degrades("the answer leaves in `net_write_timeout`"))],
        "changes what is there, without memory",
    ),
    row(
        When::ServeUnix,
        Call::Getsockopt,
        "who the peer is",
        &[(NO_MEMORY, Degrades("`Connection::credentials` are `None`"))],
        SETS,
    ),
    row(
        When::ServeUnix,
        Call::Shutdown,
        "the last word",
        &[(&[ENOMEM, ENOBUFS, EPERM], Unseen)],
        "says only that the peer is gone, or that an argument is wrong",
    ),
    row(When::Login, Call::Getrandom, "a challenge", &[(&[EPERM], Ends), (&[EINTR], Unseen)], SETS),
    row(
        When::Grow,
        Call::PthreadCreate,
        "a worker more",
        &[(&[EAGAIN, EPERM], Degrades("fewer threads; `thread_start_failed`, tried again"))],
        THREADS,
    ),
    row(
        When::Connect,
        Call::Getaddrinfo,
        "the address of a name",
        &[(NO_SOCKET, Fails("connect address: "))],
        RESOLVES,
    ),
    row(
        When::Connect,
        Call::Socket,
        "to another server",
        &[(NO_SOCKET, Fails("connect: "))],
        MAKES,
    ),
    row(When::Connect, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails("connect: "))], SETS),
    row(
        When::Connect,
        Call::Connect,
        "begun",
        &[(
            &[ENOMEM, ENOBUFS, EAGAIN, ECONNABORTED, ECONNRESET, EPERM, ETIMEDOUT],
            Fails("connect: "),
        )],
        "does not wait, needs no descriptor",
    ),
    row(When::Connect, Call::EpollAdd, "it is watched", &[(NO_WATCH, Fails("connect: "))], SETS),
    row(
        When::Connect,
        Call::Getsockopt,
        "whether it succeeded",
        &[(NO_MEMORY, Fails("connect failed: "))],
        "what became of the connect comes as a value",
    ),
    row(
        When::Connect,
        Call::Getpeername,
        "the same",
        &[(NO_MEMORY, Fails("connect failed: "))],
        SETS,
    ),
    row(When::Connect, Call::Recv, "an answer", &[(LOST, Ends), (&[EINTR], Unseen)], AS_ABOVE),
    row(
        When::Connect,
        Call::Recvmsg,
        "an answer on a Unix socket",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        AS_ABOVE,
    ),
    row(When::Connect, Call::Send, "a request", &[(LOST, Ends), (&[EINTR], Unseen)], AS_ABOVE),
    row(When::Client, Call::Socket, "a connection", &[(NO_SOCKET, Fails("connect"))], MAKES),
    row(When::Client, Call::Setsockopt, "its options", &[(NO_MEMORY, Fails("connect"))], SETS),
    row(When::Client, Call::Connect, "the same", &[(NO_MEMORY, Fails("connect"))], AS_ABOVE),
    row(When::Client, Call::EpollAdd, "the same", &[(NO_WATCH, Fails("connect"))], SETS),
    row(When::Client, Call::Getsockopt, "the same", &[(NO_MEMORY, Fails("connect"))], AS_ABOVE),
    row(When::Client, Call::Getpeername, "the same", &[(NO_MEMORY, Fails("connect"))], SETS),
    row(When::Client, Call::Recv, "an answer", &[(LOST, Ends), (&[EINTR], Unseen)], AS_ABOVE),
    row(When::Client, Call::Send, "a request", &[(LOST, Ends), (&[EINTR], Unseen)], AS_ABOVE),
    row(
        When::Drain,
        Call::Accept4,
        "who waits still",
        &[
            (
                &[EMFILE, ENFILE, ENOMEM, ENOBUFS],
                Degrades("refused; the drain ends at its deadline"),
            ),
            (&[EINTR, ECONNABORTED, EPERM, ETIMEDOUT], Unseen),
        ],
        AS_ABOVE,
    ),
    row(When::Drain, Call::Send, "the last answer", &[(LOST, Ends), (&[EINTR], Unseen)], AS_ABOVE),
    row(
        When::Drain,
        Call::Recv,
        "what the peer still sends",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        AS_ABOVE,
    ),
    row(
        When::Drain,
        Call::Recvmsg,
        "the same on a Unix socket",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        AS_ABOVE,
    ),
    row(When::Drain, Call::Write, "workers are woken to leave", &[(&[EINTR], Unseen)], AS_ABOVE),
    row(When::Drain, Call::EpollWait, "they hear of it", &[(&[EINTR], Unseen)], OURS),
    row(When::Drain, Call::Close, "all is closed", &[(&[EINTR, ENOSPC], Unseen)], AS_ABOVE),
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
        "a connect for who does not wait",
        &[(&[EAGAIN, EPERM], Degrades("that connect counts as failed, the next one follows"))],
        THREADS,
    ),
];
