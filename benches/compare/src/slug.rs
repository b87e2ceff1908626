//! What the folder of a report is called.

use crate::environment::Environment;

/// Day and machine: `2026-11-22-2x-amd-epyc`.
pub(crate) fn of(environment: &Environment) -> String {
    let day = environment.date.split('T').next().unwrap_or_default();
    format!("{day}-{}x-{}", environment.cpus, slug(&environment.cpu))
}

/// A model of CPU without what all of them are called: `intel-xeon-platinum-8481c`.
fn slug(model: &str) -> String {
    let model = model.to_lowercase().replace("(r)", "").replace("(tm)", "");
    let model = model.split('@').next().unwrap_or_default();
    let words = model.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let says_something = |word: &&str| {
        !word.is_empty() && !matches!(*word, "cpu" | "processor") && !word.ends_with("-core")
    };
    words.filter(says_something).collect::<Vec<_>>().join("-")
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
