//! Chooses the seeds of a fuzz target:
//!
//! ```text
//! cargo run -p fuzz_targets --example minimise PROGRAM CORPUS [FOLDER...]
//! ```
//!
//! PROGRAM is the target as `cargo fuzz build` leaves it. The files of CORPUS and of each FOLDER are the
//! candidates, and the chosen seeds replace the files of CORPUS. `fuzz/README.md` tells the method.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use fuzz_targets::{join, parts};

/// Seeds of one part. Few parts together show the lowest execution counts, and mutate best.
const SINGLE_SEEDS: usize = 30;
/// Seeds that share the other parts.
const SHARED_SEEDS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(program), Some(corpus)) = (arguments.next(), arguments.next()) else {
        return Err("usage: minimise PROGRAM CORPUS [FOLDER...]".into());
    };
    let mut candidates = BTreeSet::new();
    for folder in [corpus.clone()].into_iter().chain(arguments) {
        for file in files(&folder)? {
            candidates.extend(parts(&fs::read(file)?).map(<[u8]>::to_vec));
        }
    }
    let mut candidates: Vec<_> = candidates.into_iter().collect();
    candidates.sort_by_key(Vec::len);

    let features = features(&program, &candidates)?;
    let order = pick(&candidates, features);
    for file in files(&corpus)? {
        fs::remove_file(file)?;
    }
    let order: Vec<_> = order.iter().map(|&part| &candidates[part][..]).collect();
    let seeds = share(&order);
    for (number, seed) in (1..).zip(&seeds) {
        fs::write(corpus.join(format!("{number:02}")), seed)?;
    }
    println!("{}: {} seeds of {} parts", corpus.display(), seeds.len(), order.len());
    Ok(())
}

/// Runs each part alone and returns the features that libFuzzer sees: an edge together with the
/// magnitude of its execution count.
fn features(program: &Path, parts: &[Vec<u8>]) -> Result<Vec<HashSet<u32>>, Box<dyn Error>> {
    let scratch = std::env::temp_dir().join(format!("minimise-{}", std::process::id()));
    let (inputs, merged) = (scratch.join("inputs"), scratch.join("merged"));
    let control = scratch.join("control");
    fs::create_dir_all(&inputs)?;
    fs::create_dir_all(&merged)?;
    for (number, part) in parts.iter().enumerate() {
        fs::write(inputs.join(number.to_string()), part)?;
    }
    let output = Command::new(program)
        .arg("-set_cover_merge=1")
        .arg(format!("-merge_control_file={}", control.display()))
        .args([merged, inputs])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let found = read_control(&fs::read_to_string(control)?, parts.len());
    fs::remove_dir_all(scratch)?;
    found.ok_or_else(|| "the control file has another form".into())
}

/// The file has the number of files, a number that is no matter here, the path of each file, and among
/// other lines `FT`, the number of a file in that list, and its features.
fn read_control(text: &str, parts: usize) -> Option<Vec<HashSet<u32>>> {
    let mut lines = text.lines();
    let files: usize = lines.next()?.parse().ok()?;
    lines.next()?;
    let number = |path: &str| Path::new(path).file_name()?.to_str()?.parse::<usize>().ok();
    let numbers: Vec<_> = lines.by_ref().take(files).map(number).collect::<Option<_>>()?;
    let mut features = vec![HashSet::new(); parts];
    for line in lines.filter_map(|line| line.strip_prefix("FT ")) {
        let mut words = line.split_whitespace();
        let part = *numbers.get(words.next()?.parse::<usize>().ok()?)?;
        *features.get_mut(part)? = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    }
    Some(features)
}

/// Parts that together have all features: the shortest one, then each time the part with the most
/// new features, and of these the shortest.
fn pick(parts: &[Vec<u8>], mut features: Vec<HashSet<u32>>) -> Vec<usize> {
    let mut order = Vec::new();
    let mut next = (!parts.is_empty()).then_some(0);
    while let Some(part) = next {
        order.push(part);
        let seen = std::mem::take(&mut features[part]);
        for new in &mut features {
            new.retain(|feature| !seen.contains(feature));
        }
        let best = (0..parts.len()).max_by_key(|&part| (features[part].len(), Reverse(part)));
        next = best.filter(|&part| !features[part].is_empty());
    }
    order
}

/// The first parts are seeds. Each further part goes to the shortest of the shared seeds.
fn share(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    let (single, rest) = parts.split_at(parts.len().min(SINGLE_SEEDS));
    let mut shared: Vec<Vec<&[u8]>> = vec![Vec::new(); SHARED_SEEDS];
    for part in rest {
        let bytes = |seed: &&mut Vec<&[u8]>| seed.iter().map(|part| part.len()).sum::<usize>();
        let shortest = shared.iter_mut().min_by_key(bytes);
        shortest.expect("there are some").push(part);
    }
    shared.retain(|seed| !seed.is_empty());
    let single = single.iter().map(|part| part.to_vec());
    single.chain(shared.iter().map(|seed| join(seed))).collect()
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}
