//! The file of the database, and how it is made.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;

use super::{DiskOptions, Open};
use crate::engine::EngineError;

/// Returns the path of the file in this folder. If there is none, it is made under another name and
/// renamed when it is a whole database: a database that is made by half could not be opened.
pub(super) fn make(folder: &Path, options: DiskOptions) -> Result<PathBuf, EngineError> {
    let failed = |error| EngineError::new("make the database", error);
    let path = folder.join(NAME);
    if path.try_exists().map_err(failed)? {
        return Ok(path);
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let new = folder.join(format!("{NAME}.{}", std::process::id()));
    let made = Open::new(open_or_make(&new).map(|file| Box::new(file) as _), options);
    let named = made.and_then(|_| name(&new, &path).map_err(failed));
    // The database has its final name as well by now. If not, the file is of no use.
    let _ = fs::remove_file(&new);
    named?;
    Ok(path)
}

/// Opens the file, which has been made.
pub(super) fn open(path: &Path) -> io::Result<FileBackend> {
    let file = File::options().read(true).write(true).open(path)?;
    FileBackend::new(file).map_err(io::Error::other)
}

fn open_or_make(path: &Path) -> io::Result<FileBackend> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    open(path)
}

/// Gives the new file its final name, which outlives a crash.
fn name(new: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(new, path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        linked => linked?,
    }
    // The first folder holds the name of the file, the second the name of the folder.
    for folder in path.ancestors().skip(1).take(2) {
        let here = folder.as_os_str().is_empty();
        File::open(if here { Path::new(".") } else { folder })?.sync_all()?;
    }
    Ok(())
}

const NAME: &str = "records.redb";
