//! The program and signals: what it still runs, how it exits, and what it leaves behind.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// Against hanging.
const LONG: Duration = Duration::from_secs(30);
/// Time until a signal is taken for lost.
const AGAIN: Duration = Duration::from_secs(3);

#[test]
fn a_sigint_stops_a_script_with_status_130() {
    let script = "select 1 as first; select sleep(100); select 7 as behind;";
    let mut command = Command::new(env!("CARGO_BIN_EXE_xsql"));
    command.args(["-e", script]).stdout(Stdio::piped());
    let mut xsql = command.spawn().expect("it starts");
    let mut output = BufReader::new(xsql.stdout.take().expect("piped"));
    let mut printed = String::new();
    while !printed.contains("(1 row") {
        assert!(output.read_line(&mut printed).expect("text") > 0, "{printed}");
    }
    // The second statement runs now, or is about to begin. If it was not sent yet, the signal is lost, and
    // another one follows. An early second signal would hide a script that goes on behind the first.
    let deadline = Instant::now() + LONG;
    while is_running(&mut xsql) && Instant::now() < deadline {
        kill_process(Pid::from_child(&xsql), Signal::INT).expect("a child");
        let again = Instant::now() + AGAIN;
        while is_running(&mut xsql) && Instant::now() < again {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
    let _ = xsql.kill();
    let status = xsql.wait().expect("a child");
    output.read_to_string(&mut printed).expect("text");
    assert!(printed.contains("first") && !printed.contains("behind"), "{printed}");
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_sigterm_at_the_prompt_leaves_the_terminal_as_it_was_and_a_history() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = folder.path().join("history");
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let mut terminal = File::from(openpt(flags).expect("a terminal"));
    unlockpt(&terminal).expect("a terminal");
    let modes = |terminal: &File| tcgetattr(terminal).expect("a terminal").local_modes;
    let before = modes(&terminal);
    let other_end = || Stdio::from(ioctl_tiocgptpeer(&terminal, flags).expect("a terminal"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_xsql"));
    command.arg("--history").arg(&history).env("TERM", "xterm");
    let mut xsql = command.stdin(other_end()).stdout(other_end()).spawn().expect("it starts");
    // The ends of the command would keep the terminal open.
    drop(command);
    let mut printed = Vec::new();
    for (input, signs) in [("", ["\\help", "xsql> "]), ("select 1;\r", ["(1 row", "xsql> "])] {
        terminal.write_all(input.as_bytes()).expect("a terminal");
        for sign in signs {
            printed.clear();
            while !String::from_utf8_lossy(&printed).contains(sign) {
                let mut byte = [0];
                terminal.read_exact(&mut byte).expect("it lives");
                printed.extend(byte);
            }
        }
    }
    assert!(!modes(&terminal).contains(LocalModes::ICANON), "the prompt edits lines");
    kill_process(Pid::from_child(&xsql), Signal::TERM).expect("a child");
    assert_eq!(xsql.wait().expect("a child").code(), Some(128 + 15));
    assert_eq!(modes(&terminal), before);
    assert!(fs::read_to_string(history).expect("a file").ends_with("select 1;\n"));
}

fn is_running(child: &mut Child) -> bool {
    child.try_wait().expect("a child").is_none()
}
