//! Tests that need a process of their own, for its limits or to measure its memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Environment variable with the name of the test that a child process is to run.
const ROLE: &str = "EPOLL_GROUP_TEST_CHILD";

/// Path of the running test within its program: the harness gives it to the thread of the test.
pub fn test_name() -> String {
    thread::current().name().expect("a test has a thread of its name").to_owned()
}

/// True if this process was started to run the calling test.
pub fn is_child() -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == test_name())
}

/// Runs `code` in a process of its own: this test binary again, with the calling test alone.
#[track_caller]
pub fn in_child(code: impl FnOnce()) {
    if is_child() {
        code();
        return;
    }
    let output = command(None).output().expect("this binary runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
    // The harness hides the output of a test that passes, so skipped tests are reported here.
    for line in errors.lines().filter(|line| line.contains("SKIPPED")) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

fn command(descriptors: Option<u32>) -> Command {
    let test = test_name();
    let binary = std::env::current_exe().expect("the path of this test");
    let mut command = match descriptors {
        None => Command::new(binary),
        Some(limit) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")]).arg(binary);
            shell
        }
    };
    // The calling test may be marked as ignored.
    let args = [&*test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"];
    command.args(args).env(ROLE, &test);
    command
}

/// A child process that takes orders, one a line, and answers each with a line.
pub struct Puppet {
    child: Child,
    answers: BufReader<std::process::ChildStderr>,
}

impl Puppet {
    /// Starts this binary again with the calling test, with room for so many descriptors.
    pub fn start(descriptors: u32) -> Self {
        let mut command = command(Some(descriptors));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("this binary runs again");
        let answers = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, answers }
    }

    /// Gives an order and returns the answer.
    #[track_caller]
    pub fn ask(&mut self, order: &str) -> String {
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{order}").expect("the child listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("text");
        let answer = line.strip_prefix("> ").and_then(|line| line.strip_suffix('\n'));
        answer.map_or_else(|| panic!("{order}: {line}{}", self.rest()), str::to_owned)
    }

    /// Sends the child the signal of this name.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.expect("there is such a command").success(), "{name} was not sent");
    }

    /// User and system time of the child, in clock ticks of 10 ms.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("the child lives");
        let (_, fields) = stat.rsplit_once(") ").expect("the name of the process");
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks.map(|field| field.parse::<u64>().expect("a number")).sum()
    }

    fn rest(&mut self) -> String {
        let lines = self.answers.by_ref().lines().map_while(Result::ok);
        lines.take(20).collect::<Vec<_>>().join("\n")
    }

    /// Asks for a number.
    #[track_caller]
    pub fn number(&mut self, order: &str) -> u64 {
        self.ask(order).parse().expect("a number")
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other end of a [`Puppet`]: answers orders until there are no more.
pub fn obey(mut act: impl FnMut(&str) -> String) {
    for order in std::io::stdin().lines() {
        let answer = act(&order.expect("text"));
        writeln!(std::io::stderr(), "> {answer}").expect("somebody listens");
    }
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}
