//! [`TemporaryFolder`]: where a database is that nobody keeps.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

/// Tells those of one process apart.
static MADE: AtomicU32 = AtomicU32::new(0);

impl TemporaryFolder {
    pub fn new() -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let program = env!("CARGO_CRATE_NAME");
        let name = format!("{program}-{}-{}-{made}", std::process::id(), now.as_nanos());
        let path = env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = fs::remove_dir_all(&self.0);
    }
}
