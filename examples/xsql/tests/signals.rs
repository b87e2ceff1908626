//! The program and SIGINT: what it still runs, and how it exits.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

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

fn is_running(child: &mut Child) -> bool {
    child.try_wait().expect("a child").is_none()
}
