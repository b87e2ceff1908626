//! Where and with what numbers were taken: a result without this is an anecdote.

use std::process::Command;
use std::{env, fs, thread};

use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Environment {
    command: String,
    date: String,
    commit: String,
    rustc: String,
    kernel: String,
    cpu: String,
    cpus: usize,
    governor: String,
}

const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

impl Environment {
    pub(crate) fn look() -> Self {
        let args: Vec<_> = env::args().skip(1).collect();
        Self {
            command: format!("cargo run --release -p txn_kv -- {}", args.join(" ")),
            date: output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            commit: output("git", &["describe", "--always", "--dirty", "--abbrev=10"]),
            rustc: output("rustc", &["--version"]),
            kernel: output("uname", &["-r"]),
            cpu: cpu_model(),
            cpus: thread::available_parallelism().map_or(0, usize::from),
            governor: fs::read_to_string(GOVERNOR)
                .map_or_else(|_| "not visible".to_owned(), |text| text.trim().to_owned()),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "command": self.command,
            "date": self.date,
            "commit": self.commit,
            "rustc": self.rustc,
            "kernel": self.kernel,
            "cpu": self.cpu,
            "cpus": self.cpus,
            "governor": self.governor,
        })
    }
}

impl std::fmt::Display for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "- command: `{}`", self.command)?;
        writeln!(f, "- date: {}, commit: {}", self.date, self.commit)?;
        writeln!(f, "- {}, Linux {}", self.rustc, self.kernel)?;
        let (cpu, cpus, governor) = (&self.cpu, self.cpus, &self.governor);
        writeln!(f, "- {cpus} x {cpu}, governor: {governor}")
    }
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or(env::consts::ARCH, |model| model.trim_start_matches([' ', '\t', ':'])).to_owned()
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
