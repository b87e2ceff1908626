//! The functions of the C library that make system calls, as the crate, socket2 and std call them.
//!
//! Each function is defined here under its own name, so that the linker prefers it to that of the C
//! library. A call that no fault hits is passed on by its number.

#![allow(unsafe_code, reason = "functions of the C library, called by its contract")]
#![allow(clippy::missing_safety_doc, reason = "the contract is that of the manual")]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use libc::{
    addrinfo, clockid_t, cpu_set_t, epoll_event, itimerspec, mode_t, msghdr, nfds_t, pid_t, pollfd,
    pthread_attr_t, pthread_t, rusage, size_t, sockaddr, sockaddr_storage, socklen_t, ssize_t,
    statx as Statx, timespec,
};

use super::{Call, Effect, accepting, effect_on};

type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;
type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type PthreadCreate =
    unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
type Getaddrinfo = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const addrinfo,
    *mut *mut addrinfo,
) -> c_int;

/// The address of the C library's own function.
fn next(name: &'static CStr, known: &AtomicUsize) -> usize {
    match known.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: the name ends in a zero byte.
            let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr();
            known.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    }
}

fn real_syscall() -> Syscall {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let address = next(c"syscall", &REAL);
    // SAFETY: the C library has a function of this name and type.
    unsafe { mem::transmute::<*const c_void, Syscall>(std::ptr::with_exposed_provenance(address)) }
}

/// Sets errno and returns -1, as a failed call does.
fn fail(errno: c_int) -> c_int {
    // SAFETY: nothing is passed.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it points to the errno of this thread.
    unsafe { place.write(errno) };
    -1
}

/// Passes a call on by number, with the arguments that are left.
macro_rules! pass {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the caller passes these arguments and keeps the contract of the call.
        unsafe { real_syscall()(libc::$number $(, $argument)*) }
    };
}

/// Defines a function that fails or is passed on. Faults for one peer need the descriptor.
macro_rules! shim {
    ($call:ident, fn $name:ident($($argument:ident: $type:ty),*), $number:ident $(, by $fd:ident)?) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let fd: Option<RawFd> = None$(.or(Some($fd)))?;
            match effect_on(Call::$call, fd) {
                Some(Effect::Fails(errno)) => fail(errno),
                _ => pass!($number $(, $argument)*) as c_int,
            }
        }
    };
}

shim!(Bind, fn bind(fd: c_int, address: *const sockaddr, len: socklen_t), SYS_bind);
shim!(Connect, fn connect(fd: c_int, address: *const sockaddr, len: socklen_t), SYS_connect);
shim!(Dup3, fn dup3(from: c_int, to: c_int, flags: c_int), SYS_dup3);
shim!(EpollCreate1, fn epoll_create1(flags: c_int), SYS_epoll_create1);
shim!(Eventfd, fn eventfd(start: c_uint, flags: c_int), SYS_eventfd2);
shim!(Fcntl, fn fcntl(fd: c_int, command: c_int, argument: c_long), SYS_fcntl);
shim!(
    Getpeername,
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t),
    SYS_getpeername
);
shim!(
    Getsockname,
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t),
    SYS_getsockname
);
shim!(
    Getsockopt,
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t),
    SYS_getsockopt,
    by fd
);
shim!(Getrusage, fn getrusage(who: c_int, usage: *mut rusage), SYS_getrusage);
shim!(Listen, fn listen(fd: c_int, backlog: c_int), SYS_listen);
shim!(Poll, fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int), SYS_poll);
shim!(
    SchedSetaffinity,
    fn sched_setaffinity(pid: pid_t, bytes: size_t, mask: *const cpu_set_t),
    SYS_sched_setaffinity
);
shim!(
    Setsockopt,
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t),
    SYS_setsockopt
);
shim!(Shutdown, fn shutdown(fd: c_int, how: c_int), SYS_shutdown, by fd);
shim!(Socket, fn socket(domain: c_int, kind: c_int, protocol: c_int), SYS_socket);
shim!(
    Statx,
    fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut Statx),
    SYS_statx
);
shim!(TimerfdCreate, fn timerfd_create(clock: c_int, flags: c_int), SYS_timerfd_create);
shim!(
    TimerfdSettime,
    fn timerfd_settime(fd: c_int, flags: c_int, to: *const itimerspec, was: *mut itimerspec),
    SYS_timerfd_settime
);
shim!(Unlink, fn unlink(path: *const c_char), SYS_unlink);

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    match effect_on(Call::Open, None) {
        Some(Effect::Fails(errno)) => fail(errno),
        _ => pass!(SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int,
    }
}

/// Returns 0 as the C library does, and not the number of bytes that the kernel wrote.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(pid: pid_t, bytes: size_t, mask: *mut cpu_set_t) -> c_int {
    if let Some(Effect::Fails(errno)) = effect_on(Call::SchedGetaffinity, None) {
        return fail(errno);
    }
    // SAFETY: the caller passes the size of `mask`.
    unsafe { std::ptr::write_bytes(mask.cast::<u8>(), 0, bytes) };
    let written = pass!(SYS_sched_getaffinity, pid, bytes, mask);
    if written < 0 { -1 } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let _accepting = accepting();
    match effect_on(Call::Accept4, None) {
        Some(Effect::Fails(errno)) => fail(errno),
        _ => pass!(SYS_accept4, fd, address, len, flags) as c_int,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let call = match operation {
        libc::EPOLL_CTL_ADD => Call::EpollAdd,
        libc::EPOLL_CTL_MOD => Call::EpollMod,
        _ => Call::EpollDel,
    };
    match effect_on(call, Some(fd)) {
        Some(Effect::Fails(errno)) => fail(errno),
        _ => pass!(SYS_epoll_ctl, epoll, operation, fd, event) as c_int,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let effect = effect_on(Call::EpollWait, None);
    if let Some(Effect::Fails(errno)) = effect {
        return fail(errno);
    }
    let no_mask: *const libc::sigset_t = std::ptr::null();
    let count = pass!(SYS_epoll_pwait, epoll, events, most, timeout, no_mask, 8) as c_int;
    if matches!(effect, Some(Effect::Echoes)) && count > 0 {
        // SAFETY: the kernel wrote `count` of the `most` events.
        return unsafe { echoes::with_older(events, count, most) };
    }
    count
}

/// Events that were reported before, to be reported again.
mod echoes {
    use std::cell::Cell;
    use std::ffi::c_int;

    use libc::epoll_event;

    thread_local! {
        static LAST: Cell<epoll_event> = const { Cell::new(epoll_event { events: 0, u64: 0 }) };
    }

    /// Adds the first event of the call before, as readable, writable and urgent, if there is room.
    ///
    /// # Safety
    ///
    /// `events` has room for `most`, of which `count` are written, at least one.
    pub(super) unsafe fn with_older(events: *mut epoll_event, count: c_int, most: c_int) -> c_int {
        // SAFETY: the first of them is written.
        let first = unsafe { *events };
        let before = LAST.replace(first);
        if before.events == 0 || count >= most {
            return count;
        }
        let all = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI).cast_unsigned();
        // SAFETY: there is room for one more.
        let free = unsafe { events.offset(count as isize) };
        // SAFETY: as above.
        unsafe { free.write(epoll_event { events: all, u64: before.u64 }) };
        count + 1
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    let effect = effect_on(Call::Close, Some(fd));
    // Linux gives the descriptor back whatever it returns.
    let closed = pass!(SYS_close, fd) as c_int;
    match effect {
        Some(Effect::Fails(errno)) => fail(errno),
        _ => closed,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t {
    match effect_on(Call::Read, None) {
        Some(Effect::Fails(errno)) => fail(errno) as ssize_t,
        _ => pass!(SYS_read, fd, to, bytes) as ssize_t,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    match effect_on(Call::Write, None) {
        Some(Effect::Fails(errno)) => return fail(errno) as ssize_t,
        Some(Effect::Twice) => {
            let _ = pass!(SYS_write, fd, from, bytes);
        }
        _ => {}
    }
    pass!(SYS_write, fd, from, bytes) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    let no_address: *mut sockaddr = std::ptr::null_mut();
    let no_len: *mut socklen_t = std::ptr::null_mut();
    let bytes = match effect_on(Call::Recv, Some(fd)) {
        Some(Effect::Fails(errno)) => return fail(errno) as ssize_t,
        Some(Effect::AtMost(most)) => bytes.min(most),
        _ => bytes,
    };
    pass!(SYS_recvfrom, fd, to, bytes, flags, no_address, no_len) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    match effect_on(Call::Recvmsg, Some(fd)) {
        Some(Effect::Fails(errno)) => fail(errno) as ssize_t,
        _ => pass!(SYS_recvmsg, fd, message, flags) as ssize_t,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
    let no_address: *const sockaddr = std::ptr::null();
    let bytes = match effect_on(Call::Send, Some(fd)) {
        Some(Effect::Fails(errno)) => return fail(errno) as ssize_t,
        Some(Effect::AtMost(most)) => bytes.min(most),
        _ => bytes,
    };
    pass!(SYS_sendto, fd, from, bytes, flags, no_address, 0) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    match effect_on(Call::Sendmsg, Some(fd)) {
        Some(Effect::Fails(errno)) => return fail(errno) as ssize_t,
        Some(Effect::AtMost(most)) => {
            // SAFETY: the caller's message is live.
            let mut short = unsafe { *message };
            // SAFETY: it has a piece when it is sent.
            let mut first = unsafe { *short.msg_iov };
            first.iov_len = first.iov_len.min(most);
            (short.msg_iov, short.msg_iovlen) = (&raw mut first, 1);
            return pass!(SYS_sendmsg, fd, &raw const short, flags) as ssize_t;
        }
        _ => {}
    }
    pass!(SYS_sendmsg, fd, message, flags) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(to: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t {
    match effect_on(Call::Getrandom, None) {
        Some(Effect::Fails(errno)) => fail(errno) as ssize_t,
        _ => pass!(SYS_getrandom, to, bytes, flags) as ssize_t,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let result = pass!(SYS_clock_gettime, clock, time) as c_int;
    if clock == libc::CLOCK_REALTIME
        && result == 0
        && let Some(Effect::Off(seconds)) = effect_on(Call::ClockGettime, None)
    {
        // SAFETY: the kernel has written to it.
        unsafe { (*time).tv_sec += seconds };
    }
    result
}

/// Calls by number. Only those about the time slices of threads can be made to fail.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let call = match number {
        libc::SYS_sched_getattr => Some(Call::SchedGetattr),
        libc::SYS_sched_setattr => Some(Call::SchedSetattr),
        _ => None,
    };
    if let Some(Effect::Fails(errno)) = call.and_then(|call| effect_on(call, None)) {
        return fail(errno).into();
    }
    // SAFETY: the caller passes these arguments and keeps the contract of the call.
    unsafe { real_syscall()(number, a, b, c, d, e, f) }
}

/// Returns its errno instead of setting it.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    if let Some(Effect::Fails(errno)) = effect_on(Call::PthreadCreate, None) {
        return errno;
    }
    let address: *const c_void = std::ptr::with_exposed_provenance(next(c"pthread_create", &REAL));
    // SAFETY: the C library has a function of this name and type.
    let real = unsafe { mem::transmute::<*const c_void, PthreadCreate>(address) };
    // SAFETY: the caller passes these arguments and keeps the contract of the call.
    unsafe { real(thread, attributes, start, argument) }
}

/// Returns a code of its own. One of the codes refers to errno.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    if let Some(Effect::Fails(errno)) = effect_on(Call::Getaddrinfo, None) {
        fail(errno);
        return libc::EAI_SYSTEM;
    }
    let address: *const c_void = std::ptr::with_exposed_provenance(next(c"getaddrinfo", &REAL));
    // SAFETY: the C library has a function of this name and type.
    let real = unsafe { mem::transmute::<*const c_void, Getaddrinfo>(address) };
    // SAFETY: the caller passes these arguments and keeps the contract of the call.
    unsafe { real(node, service, hints, found) }
}

/// Returns the port at the other end of a socket, or the number in which its path ends.
pub(super) fn peer_number(fd: RawFd) -> Option<u16> {
    let mut address = mem::MaybeUninit::<sockaddr_storage>::zeroed();
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    let (to, size) = (address.as_mut_ptr(), &raw mut len);
    let result = pass!(SYS_getpeername, fd, to, size);
    // SAFETY: all zero is a valid value, and the kernel wrote over it.
    let address = unsafe { address.assume_init() };
    match c_int::from(address.ss_family) {
        _ if result != 0 => None,
        libc::AF_INET => {
            let ipv4 = (&raw const address).cast::<libc::sockaddr_in>();
            // SAFETY: the family says that it is one of these.
            Some(u16::from_be(unsafe { (*ipv4).sin_port }))
        }
        libc::AF_UNIX => {
            let unix = (&raw const address).cast::<libc::sockaddr_un>();
            // SAFETY: as above.
            let path = unsafe { &raw const (*unix).sun_path };
            // SAFETY: behind what the kernel wrote there are zeros, as the address is longer than a
            // path.
            let path = unsafe { CStr::from_ptr(path.cast()) }.to_str().ok()?;
            path.rsplit('/').next()?.parse().ok()
        }
        _ => None,
    }
}

/// The machine's time of day.
pub(super) fn real_time() -> io::Result<SystemTime> {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    if pass!(SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut time) != 0 {
        return Err(io::Error::last_os_error());
    }
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec as u32);
    Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos))
}
