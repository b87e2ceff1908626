//! [`Part`]: subject of a sample, by the names of its functions.

use crate::perf::Sample;

/// Use of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The engine, which answers the statement.
    Handler,
    /// Frames to messages and answers to frames.
    Codec,
    /// Routing of requests, their order, and the way of answers.
    Session,
    /// Queues, locks, wake-ups, timers, the loops around sockets.
    Runtime,
    Allocator,
    /// Copying memory, hashing, reading the clock, and functions without a name.
    Other,
    /// Wake-ups of threads and waits for them: futex, eventfd.
    KernelHandOver,
    /// Everything else in the kernel: sockets, epoll, interrupts.
    Kernel,
}

/// Parts of function names. The leftmost match decides.
const NAMES: [(&str, Part); 19] = [
    ("compare::engine", Part::Handler),
    ("compare::server", Part::Session),
    ("rusqlite", Part::Handler),
    ("epoll_group::codec", Part::Codec),
    ("prost::", Part::Codec),
    ("epoll_group::session", Part::Session),
    ("baselines::statements", Part::Session),
    ("baselines::thread_per_", Part::Session),
    // The body of a thread, with everything that is inlined into it.
    ("__rust_begin_short_backtrace", Part::Session),
    ("epoll_group::", Part::Runtime),
    ("baselines::threads", Part::Runtime),
    ("crossbeam", Part::Runtime),
    ("std::sync", Part::Runtime),
    ("std::sys::sync", Part::Runtime),
    ("std::io", Part::Runtime),
    ("std::net", Part::Runtime),
    ("std::sys::net", Part::Runtime),
    ("alloc::alloc", Part::Allocator),
    ("alloc::raw_vec", Part::Allocator),
];

const ALLOCATOR: [&str; 13] = [
    "malloc",
    "free",
    "realloc",
    "calloc",
    "memalign",
    "_int_free",
    "unlink_chunk",
    "tcache",
    "sysmalloc",
    "systrim",
    "arena_get",
    "__rust_",
    "__rdl_",
];

/// Functions of the C library for threads and sockets.
const RUNTIME: [&str; 12] = [
    "pthread", "lll_", "futex", "syscall", "epoll", "send", "recv", "read", "write", "eventfd",
    "cancel", "clone",
];

const HAND_OVER: [&str; 4] = ["futex", "eventfd_write", "eventfd_read", "sched_yield"];

impl Part {
    pub const ALL: [Self; 8] = [
        Self::Handler,
        Self::Codec,
        Self::Session,
        Self::Runtime,
        Self::Allocator,
        Self::Other,
        Self::KernelHandOver,
        Self::Kernel,
    ];

    pub fn of(sample: &Sample) -> Self {
        let Some(frame) = sample.frames.first() else { return Self::Other };
        if is_kernel(&frame.object) {
            let kernel = sample.frames.iter().take_while(|frame| is_kernel(&frame.object));
            let mut names = kernel.map(|frame| frame.symbol.as_str());
            let wakes = names.any(|name| contains_any(name, &HAND_OVER));
            return if wakes { Self::KernelHandOver } else { Self::Kernel };
        }
        Self::of_program(&frame.symbol, &frame.object)
    }

    /// True if the sample is the engine's: by the innermost function that is not the kernel's, the
    /// C library's or the allocator's. So pages that the engine reads count, and the answer that it
    /// has encoded does not.
    pub fn is_of_engine(sample: &Sample) -> bool {
        let serves_all = |object: &str| is_kernel(object) || object.contains("/libc");
        let mut parts = sample
            .frames
            .iter()
            .filter(|frame| !serves_all(&frame.object))
            .map(|frame| Self::of_program(&frame.symbol, &frame.object));
        let tells = |part: &Self| !matches!(part, Self::Allocator | Self::Other);
        parts.find(tells) == Some(Self::Handler)
    }

    /// Returns the part to which a function outside of the kernel belongs.
    fn of_program(symbol: &str, object: &str) -> Self {
        let places = NAMES.iter().filter_map(|(name, part)| Some((symbol.find(name)?, *part)));
        if let Some((_, part)) = places.min_by_key(|(place, _)| *place) {
            return part;
        }
        let is_rust = symbol.contains("::");
        if !is_rust && contains_any(symbol, &ALLOCATOR) && !symbol.starts_with("sqlite3") {
            return Self::Allocator;
        }
        match object {
            _ if is_rust || object.starts_with('[') || symbol == "[unknown]" => Self::Other,
            _ if object.contains("/libc") && contains_any(symbol, &RUNTIME) => Self::Runtime,
            _ if object.contains(".so") || symbol.starts_with("mem") => Self::Other,
            // The only C in the program is SQLite.
            _ => Self::Handler,
        }
    }

    pub fn is_kernel(self) -> bool {
        matches!(self, Self::KernelHandOver | Self::Kernel)
    }

    /// True for the cost of passing requests between threads, or of being able to: queues, locks,
    /// wake-ups.
    pub fn is_hand_over(self) -> bool {
        matches!(self, Self::Runtime | Self::KernelHandOver)
    }

    /// Name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Handler => "handler: engine, SQLite",
            Self::Codec => "codec",
            Self::Session => "sessions: login, routing, order",
            Self::Runtime => "queues, locks, wake-ups, runtime",
            Self::Allocator => "allocator",
            Self::Other => "other",
            Self::KernelHandOver => "kernel: waking and waiting for threads",
            Self::Kernel => "kernel: sockets and the rest",
        }
    }
}

/// The vDSO does not count as kernel, because it is called like any function.
fn is_kernel(object: &str) -> bool {
    (object.starts_with('[') && object != "[vdso]" && object != "[unknown]")
        || object.ends_with(".ko")
}

fn contains_any(symbol: &str, names: &[&str]) -> bool {
    names.iter().any(|name| symbol.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{Frame, Sample};

    fn sample(frames: &[(&str, &str)]) -> Sample {
        let frame = |(symbol, object): &(&str, &str)| Frame {
            symbol: (*symbol).to_owned(),
            object: (*object).to_owned(),
        };
        Sample { frames: frames.iter().map(frame).collect() }
    }

    #[test]
    fn what_the_engine_has_done_is_of_the_engine() {
        let program = "/tmp/compare";
        let copy = ("__memmove_avx512_unaligned_erms", "/usr/lib/libc.so.6");
        let step = ("sqlite3VdbeExec", program);
        let engine = ("compare::engine::run", program);
        let encoder = ("epoll_group::codec::encoder::Encoder::row", program);
        let session = ("epoll_group::session::run::Session::run", program);
        let read = ("__libc_pread", "/usr/lib/libc.so.6");
        let call = ("do_syscall_64", "[kernel.kallsyms]");
        let fault = ("asm_exc_page_fault", "[kernel.kallsyms]");
        for (frames, is_of_engine) in [
            (&[copy, step, engine, session][..], true),
            (&[fault, step], true),
            (&[call, read, step], true),
            (&[call, read, session], false),
            (&[copy, encoder, engine], false),
            (&[session], false),
            (&[fault], false),
            (&[copy], false),
        ] {
            assert_eq!(Part::is_of_engine(&sample(frames)), is_of_engine, "{frames:?}");
        }
    }

    #[test]
    fn functions_belong_to_the_part_of_their_name() {
        let program = "/tmp/compare";
        let libc = "/usr/lib/libc.so.6";
        for (symbol, object, part) in [
            ("<epoll_group::session::A<S> as epoll_group::net::B>::c", program, Part::Session),
            ("epoll_group::codec::encoder::Encoder::fetch_done", program, Part::Codec),
            ("<compare::engine::Constant as baselines::statements::E>::e", program, Part::Handler),
            ("<compare::server::Database<E> as S>::execute", program, Part::Session),
            ("baselines::statements::Statement::run", program, Part::Session),
            ("epoll_group::net::receive::run", program, Part::Runtime),
            ("<baselines::threads::Mailbox<T>>::add", program, Part::Runtime),
            ("<std::sync::nonpoison::condvar::Condvar>::notify_one", program, Part::Runtime),
            ("core::hash::BuildHasher::hash_one", program, Part::Other),
            ("sqlite3VdbeExec", program, Part::Handler),
            ("sqlite3_free", program, Part::Handler),
            ("btreeParseCellPtr", program, Part::Handler),
            ("_int_malloc", libc, Part::Allocator),
            ("cfree@GLIBC_2.2.5", libc, Part::Allocator),
            ("__send", libc, Part::Runtime),
            ("__memmove_avx512_unaligned_erms", libc, Part::Other),
            ("__vdso_clock_gettime", "[vdso]", Part::Other),
            ("[unknown]", "[unknown]", Part::Other),
        ] {
            assert_eq!(Part::of(&sample(&[(symbol, object)])), part, "{symbol}");
        }
    }

    #[test]
    fn the_kernel_is_told_apart_by_the_calls_that_it_was_entered_by() {
        let kernel = "[kernel.kallsyms]";
        let waking = [("_raw_spin_unlock", kernel), ("futex_wake", kernel), ("syscall", "libc")];
        assert_eq!(Part::of(&sample(&waking)), Part::KernelHandOver);
        let sending = [("tcp_ack", kernel), ("__x64_sys_sendto", kernel), ("futex", "libc")];
        assert_eq!(Part::of(&sample(&sending)), Part::Kernel);
    }
}
