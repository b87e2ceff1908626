//! Processes that are made by `fork`, without std.

#![allow(unsafe_code, reason = "fork and exec are the system's own calls")]

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

/// Forks, runs a program and returns what it prints.
pub(crate) fn output(program: &[&CStr]) -> String {
    let (mut from, to) = io::pipe().expect("two descriptors");
    let mut arguments: Vec<_> = program.iter().map(|argument| argument.as_ptr()).collect();
    arguments.push(std::ptr::null());
    let null = File::open("/dev/null").expect("Linux");
    // SAFETY: the child only calls what a signal handler might: dup2, execv, _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for (fd, number) in [(null.as_raw_fd(), 0), (to.as_raw_fd(), 1)] {
            // SAFETY: plain numbers in, a number out.
            unsafe { libc::dup2(fd, number) };
        }
        // SAFETY: an array of C strings that ends in a null pointer.
        unsafe { libc::execv(arguments[0], arguments.as_ptr()) };
        // SAFETY: does not return.
        unsafe { libc::_exit(1) };
    }
    assert!(child > 0, "{}", io::Error::last_os_error());
    drop(to);
    let mut text = String::new();
    from.read_to_string(&mut text).expect("text");
    let mut status = 0;
    // SAFETY: `status` is live for the call, which writes to it.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "{text}");
    text
}

/// Process that shares all descriptors of this one and does nothing. Killed when this is dropped.
pub(crate) struct Idle(libc::pid_t);

impl Idle {
    pub(crate) fn fork() -> Self {
        // SAFETY: the child only calls what a signal handler might: pause.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: nothing is passed.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        Self(child)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: no status is asked for.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}
