//! The decisions, one row a call.

use libc::{
    EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, EPERM, EPIPE,
    ETIMEDOUT,
};

use super::Outcome::{Degrades, Ends, Fails, Pauses, Unseen};
use super::{Row, When};
use crate::syscalls::Call;

/// No descriptors, or no memory for what they stand for; or a sandbox says no.
const NO_DESCRIPTOR: &[i32] = &[EMFILE, ENFILE, ENOMEM, EPERM];
const NO_SOCKET: &[i32] = &[EMFILE, ENFILE, ENOMEM, ENOBUFS, EPERM];
const NO_WATCH: &[i32] = &[ENOMEM, ENOSPC, EPERM];
const NO_MEMORY: &[i32] = &[ENOMEM, ENOBUFS, EPERM];
/// What a connection may end with.
const LOST: &[i32] = &[ENOMEM, ENOBUFS, ECONNABORTED, ECONNRESET, EPIPE, EPERM, ETIMEDOUT];

const MAKES: &str = "does not wait and knows no peer";
const SETS: &str = "needs no descriptor, does not wait, knows no peer";
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

const GROUP: &str = "descriptors of a group: ";
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
    row(When::Start, Call::EpollCreate1, "a group", &[(NO_DESCRIPTOR, Fails(GROUP))], MAKES),
    row(When::Start, Call::Eventfd, "its wake-up", &[(NO_DESCRIPTOR, Fails(GROUP))], MAKES),
    row(When::Start, Call::TimerfdCreate, "its timer", &[(NO_DESCRIPTOR, Fails(GROUP))], MAKES),
    row(When::Start, Call::EpollAdd, "both are watched", &[(NO_WATCH, Fails(GROUP))], SETS),
    row(
        When::Start,
        Call::PthreadCreate,
        "a thread",
        &[(&[EAGAIN, EPERM], Fails(THREAD))],
        "the C library says EAGAIN when memory or threads are short",
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
        Call::SchedSetattr,
        "its time slice",
        &[(&[EPERM], Degrades("slices stay as they are"))],
        SETS,
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
    row(When::ListenUnix, Call::Bind, "its path", &[(&[ENOMEM, ENOSPC, EPERM], Fails(BIND))], SETS),
    row(When::ListenUnix, Call::Listen, "it listens", &[(&[ENOMEM, EPERM], Fails(BIND))], SETS),
    row(When::ListenUnix, Call::Getsockname, "its path", &[(NO_MEMORY, Fails(WATCH))], SETS),
    row(When::ListenUnix, Call::EpollAdd, "it is watched", &[(NO_WATCH, Fails(WATCH))], SETS),
    row(When::Adopt, Call::Fcntl, "made non-blocking", &[(&[EPERM], Fails(WATCH))], SETS),
    row(When::Adopt, Call::Getsockopt, "whether it listens", &[(NO_MEMORY, Fails(WATCH))], SETS),
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
        Call::EpollMod,
        "room in a Unix socket",
        &[],
        "changes what is there, without memory",
    ),
    row(When::Serve, Call::ClockGettime, "the time", &[], OURS),
    row(When::Login, Call::Getrandom, "a challenge", &[(&[EPERM], Ends), (&[EINTR], Unseen)], SETS),
    row(
        When::Grow,
        Call::PthreadCreate,
        "a worker more",
        &[(&[EAGAIN, EPERM], Degrades("fewer threads; `thread_start_failed`, tried again"))],
        "the C library says EAGAIN when memory or threads are short",
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
    row(When::Connect, Call::Recv, "an answer", &[(LOST, Ends), (&[EINTR], Unseen)], "as above"),
    row(When::Connect, Call::Send, "a request", &[(LOST, Ends), (&[EINTR], Unseen)], "as above"),
    row(When::Client, Call::Socket, "a connection", &[(NO_SOCKET, Fails("connect"))], MAKES),
    row(When::Client, Call::Connect, "the same", &[(NO_MEMORY, Fails("connect"))], "as above"),
    row(When::Client, Call::EpollAdd, "the same", &[(NO_WATCH, Fails("connect"))], SETS),
    row(When::Client, Call::Getsockopt, "the same", &[(NO_MEMORY, Fails("connect"))], "as above"),
    row(When::Client, Call::Recv, "an answer", &[(LOST, Ends), (&[EINTR], Unseen)], "as above"),
    row(When::Client, Call::Send, "a request", &[(LOST, Ends), (&[EINTR], Unseen)], "as above"),
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
        "as above",
    ),
    row(
        When::Drain,
        Call::Send,
        "the last answer",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        "as above",
    ),
    row(
        When::Drain,
        Call::Recv,
        "what the peer still sends",
        &[(LOST, Ends), (&[EINTR], Unseen)],
        "as above",
    ),
    row(When::Drain, Call::Write, "workers are woken to leave", &[(&[EINTR], Unseen)], "as above"),
    row(When::Drain, Call::EpollWait, "they hear of it", &[(&[EINTR], Unseen)], OURS),
    row(When::Drain, Call::Close, "all is closed", &[(&[EINTR, ENOSPC], Unseen)], "as above"),
];
