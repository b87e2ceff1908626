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
    /// Environment of a program that this command starts, with the arguments of this process.
    pub fn of(started_by: &str) -> Self {
        let commit = output("git", &["describe", "--always", "--dirty", "--abbrev=10"]);
        let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        // `cargo bench` adds this one.
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

    /// Name of a folder for results: day and machine, such as `2026-11-29-2x-amd-epyc`.
    pub fn slug(&self) -> String {
        let day = self.date.split('T').next().unwrap_or_default();
        format!("{day}-{}x-{}", self.cpus, slug(&self.cpu))
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

/// A model of CPU without the words that most of them have: `intel-xeon-platinum-8481c`.
fn slug(model: &str) -> String {
    let model = model.to_lowercase().replace("(r)", "").replace("(tm)", "");
    let model = model.split('@').next().unwrap_or_default();
    let words = model.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let is_special = |word: &&str| {
        !word.is_empty() && !matches!(*word, "cpu" | "processor") && !word.ends_with("-core")
    };
    words.filter(is_special).collect::<Vec<_>>().join("-")
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = text.lines();
    let model = lines.find_map(|line| line.strip_prefix("model name"));
    let architecture = || std::env::consts::ARCH.to_owned();
    model.map_or_else(architecture, |model| trimmed(model.trim_start_matches([' ', '\t', ':'])))
}

/// Output of a command, or `unknown` if the command fails: a measurement is good without the text.
fn output(program: &str, args: &[&str]) -> String {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => trimmed(&String::from_utf8_lossy(&output.stdout)),
        _ => "unknown".to_owned(),
    }
}

fn trimmed(text: &str) -> String {
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_by_their_cpu() {
        assert_eq!(slug("AMD EPYC"), "amd-epyc");
        assert_eq!(slug("AMD EPYC 9B14 96-Core Processor"), "amd-epyc-9b14");
        let intel = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz";
        assert_eq!(slug(intel), "intel-xeon-platinum-8481c");
        assert_eq!(slug("aarch64"), "aarch64");
    }
}
