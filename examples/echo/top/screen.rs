//! The terminal: its size, its keys, and its state, which is put back at the end.

#![expect(unsafe_code, reason = "std has no door to the settings of a terminal")]

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::time::Duration;

use super::line::Size;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Reset,
    Histograms,
}

/// A terminal that shows nothing else. Dropping this puts everything back.
pub(super) struct Screen {
    /// As standard input was; `None` when it is no terminal, so that there are no keys.
    before: Option<libc::termios>,
}

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        let before = settings();
        let screen = Self { before };
        if let Some(before) = before {
            let mut raw = before;
            // Keys at once, unseen, and Ctrl-C among them.
            raw.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
            set(&raw)?;
        }
        // Another screen, without cursor; long lines are cut, not wrapped.
        write_now("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(screen)
    }

    pub(super) fn size(&self) -> Size {
        size_of_stdout().unwrap_or_default()
    }

    /// Shows a frame in place of the last one.
    pub(super) fn show(&self, frame: &str) -> io::Result<()> {
        let frame = frame.trim_end_matches('\n').replace('\n', "\x1b[K\n");
        write_now(&format!("\x1b[H{frame}\x1b[K\x1b[J"))
    }

    /// Waits for a key that means something, but not longer than `limit`.
    pub(super) fn key(&self, limit: Duration) -> io::Result<Option<Key>> {
        if self.before.is_none() {
            std::thread::sleep(limit);
            return Ok(None);
        }
        let mut input = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        // Rounded up, so that the last wait does not become many of no length.
        let millis = limit.as_micros().div_ceil(1000) as libc::c_int;
        // SAFETY: one `pollfd`, which is ours, for the length of the call.
        let ready = unsafe { libc::poll(&raw mut input, 1, millis) };
        if ready <= 0 {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return if ready == 0 || interrupted { Ok(None) } else { Err(error) };
        }
        let mut key = 0_u8;
        // SAFETY: room for one byte, which is ours, for the length of the call.
        let count = unsafe { libc::read(libc::STDIN_FILENO, (&raw mut key).cast(), 1) };
        Ok(match (count, key) {
            // The terminal is gone.
            (..=0, _) => Some(Key::Quit),
            (_, b'q' | b'Q' | CTRL_C | CTRL_D) => Some(Key::Quit),
            (_, b'r') => Some(Key::Reset),
            (_, b'h') => Some(Key::Histograms),
            _ => None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that does not listen any more.
        let _ = write_now("\x1b[?7h\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.before {
            let _ = set(before);
        }
    }
}

/// `None` when standard output is no terminal, or one that does not know its size.
pub(super) fn size_of_stdout() -> Option<Size> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one `winsize` to a place that is ours.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let known = result == 0 && size.ws_col > 0 && size.ws_row > 0;
    known.then(|| Size { columns: size.ws_col.into(), rows: size.ws_row.into() })
}

fn settings() -> Option<libc::termios> {
    let mut settings = MaybeUninit::uninit();
    // SAFETY: the kernel writes one `termios` to a place that is ours.
    let result = unsafe { libc::tcgetattr(libc::STDIN_FILENO, settings.as_mut_ptr()) };
    // SAFETY: the call has filled it.
    (result == 0).then(|| unsafe { settings.assume_init() })
}

fn set(settings: &libc::termios) -> io::Result<()> {
    // SAFETY: the settings are whole, and outlive the call.
    let result = unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSADRAIN, settings) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn write_now(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
