//! Machine and software on which numbers were measured. A result without them cannot be compared.

use std::fs;
use std::process::Command;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Environment {
    pub command: String,
    pub date: String,
    pub commit: String,
    pub rustc: String,
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    pub governor: String,
}

impl Environment {
    /// Of a program that was started by this command, with the arguments of this process.
    pub fn of(started_by: &str) -> Self {
        let commit = output("git", &["describe", "--always", "--dirty", "--abbrev=10"]);
        let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        // That of `cargo bench` is not the caller's.
        let args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
        let mut command = vec![started_by.to_owned()];
        command.extend((!args.is_empty()).then(|| "--".to_owned()));
        command.extend(args);
        Self {
            command: command.join(" "),
            date: output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            commit,
            rustc: output("rustc", &["--version"]),
            kernel: output("uname", &["-r"]),
            cpu: cpu_model(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            governor: governor.map_or_else(|_| "not visible".to_owned(), |text| trimmed(&text)),
        }
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
    let mut lines = text.lines();
    let model = lines.find_map(|line| line.strip_prefix("model name"));
    let architecture = || std::env::consts::ARCH.to_owned();
    model.map_or_else(architecture, |model| trimmed(model.trim_start_matches([' ', '\t', ':'])))
}

/// Output of a command, or a text that it is not known. A missing tool must not fail a measurement.
fn output(program: &str, args: &[&str]) -> String {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => trimmed(&String::from_utf8_lossy(&output.stdout)),
        _ => unknown(),
    }
}

fn trimmed(text: &str) -> String {
    text.trim().to_owned()
}

fn unknown() -> String {
    "unknown".to_owned()
}
