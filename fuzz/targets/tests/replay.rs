//! Every stored seed, replayed by stable Rust. `cargo fuzz` looks for new inputs.

use std::ffi::OsStr;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Defines a test for each target, and a test that this list has every target.
macro_rules! targets {
    ($($target:ident)*) => {
        mod no_seed_panics {
            $(
                #[test]
                fn $target() {
                    super::replay(stringify!($target), fuzz_targets::$target);
                }
            )*
        }

        #[test]
        fn all_fuzz_targets_are_replayed() {
            let names = files("fuzz_targets");
            let names: Vec<_> = names.iter().filter_map(|path| path.file_stem()).collect();
            assert_eq!(names, [$(OsStr::new(stringify!($target))),*]);
        }
    };
}

targets! { auth chunk client frames message plan pool_ops proxy_header row server status tls }

/// Bound on the seeds of a target: `fuzz/README.md` tells how to choose them.
const MAX_SEEDS: usize = 50;

fn replay(target: &str, run: fn(&[u8])) {
    let seeds = files(&format!("corpus/{target}"));
    assert!((1..=MAX_SEEDS).contains(&seeds.len()), "{} seeds", seeds.len());
    for seed in seeds {
        let input = fs::read(&seed).expect("the seed can be read");
        assert!(catch_unwind(|| run(&input)).is_ok(), "{target} panicked on {}", seed.display());
    }
}

/// Files of a folder of `fuzz/`, by name.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it is listed").path()).collect();
    files.sort();
    files
}
