//! Where and with what the numbers were taken: a result without this is an anecdote.

use std::fmt;
use std::fs;
use std::process::Command;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Environment {
    pub(crate) command: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) rustc: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
}

impl Environment {
    /// Of the bench with this name.
    pub(crate) fn of(bench: &str) -> Self {
        let mut command = vec![format!("cargo bench --bench {bench} --")];
        command.extend(std::env::args().skip(1).filter(|arg| arg != "--bench"));
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name"));
        Self {
            command: command.join(" "),
            date: output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            commit: output("git", &["describe", "--always", "--dirty", "--abbrev=10"]),
            rustc: output("rustc", &["--version"]),
            kernel: output("uname", &["-r"]),
            cpu: model.unwrap_or("unknown").trim_start_matches([' ', '\t', ':']).to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "- command: `{}`", self.command)?;
        writeln!(f, "- date: {}, commit: {}", self.date, self.commit)?;
        writeln!(f, "- {}, Linux {}, {} x {}", self.rustc, self.kernel, self.cpus, self.cpu)
    }
}

/// What a command prints, or that it is not known: no measurement fails for want of it.
fn output(program: &str, args: &[&str]) -> String {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}
