//! The file of the database, and how it is made.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;

use super::retry::Retry;
use super::{DiskOptions, Open};
use crate::engine::EngineError;

/// Returns the path of the file in this folder. If there is none, it is made under another name and
/// renamed when it is a whole database: a database that is made by half could not be opened.
///
/// Its name and those of its folders outlive a crash, also if a process was killed while it made them.
pub(super) fn make(folder: &Path, options: DiskOptions) -> Result<PathBuf, EngineError> {
    let failed = |error| EngineError::new("make the database", error);
    make_folders(folder, sync).map_err(failed)?;
    let path = folder.join(NAME);
    if !path.try_exists().map_err(failed)? {
        let (new, file) = make_new(folder).map_err(failed)?;
        let file = Retry::new(Box::new(file));
        let made = Open::new(file, options);
        let named = made.and_then(|_| name(&new, &path).map_err(failed));
        // The database has its final name as well by now. If not, the file is of no use.
        let _ = fs::remove_file(&new);
        named?;
    }
    sync(folder).map_err(failed)?;
    Ok(path)
}

/// Opens the file, which has been made.
pub(super) fn open(path: &Path) -> io::Result<FileBackend> {
    let file = File::options().read(true).write(true).open(path)?;
    if file.metadata()?.len() == 0 {
        // The database would take it for a new one.
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
    }
    FileBackend::new(file).map_err(io::Error::other)
}

/// Makes a file under a name of its own. A start that was killed may have left other names, also with
/// the id of this process. Their files stay: they may as well belong to a start that is going on.
fn make_new(folder: &Path) -> io::Result<(PathBuf, FileBackend)> {
    for number in 0.. {
        let path = folder.join(format!("{NAME}.{}.{number}", std::process::id()));
        match File::options().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, FileBackend::new(file).map_err(io::Error::other)?)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Gives the new file its final name.
fn name(new: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(new, path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// Makes the folders that are missing. The name of each folder is durable before the next is made.
/// So of the folders that exist, only the deepest may have a name that is not durable.
fn make_folders(folder: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for level in levels(folder, |level| here(level).exists()) {
        match fs::create_dir(here(level)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        level.parent().map_or(Ok(()), &mut sync)?;
    }
    Ok(())
}

/// Lists this folder and those above it, from the first that exists down.
fn levels(folder: &Path, exists: impl Fn(&Path) -> bool) -> Vec<&Path> {
    let mut levels = Vec::new();
    for level in folder.ancestors() {
        levels.push(level);
        if exists(level) {
            break;
        }
    }
    levels.reverse();
    levels
}

/// Makes the names in a folder durable. A folder that this process may not read was not made by it.
fn sync(folder: &Path) -> io::Result<()> {
    match File::open(here(folder)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        folder => folder?.sync_all(),
    }
}

/// The empty path above a relative one is the current folder.
fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

const NAME: &str = "records.redb";

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn levels_begin_with_the_first_folder_that_exists() {
        let listed = |folder: &'static str, there: &[&str]| {
            let there = |level: &Path| there.iter().any(|there| Path::new(there) == level);
            let levels = levels(Path::new(folder), there);
            levels.iter().map(|level| level.to_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(listed("/a/b/c", &["/", "/a"]), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(listed("/a/b", &["/", "/a", "/a/b"]), ["/a/b"]);
        assert_eq!(listed("a/b", &[""]), ["", "a", "a/b"]);
        assert_eq!(listed("", &[""]), [""]);
    }

    /// Starts that were killed have left two files: a part of a database, as an earlier version names
    /// it, and one with the name that this start would have.
    #[test]
    fn files_of_killed_starts_do_not_prevent_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let id = std::process::id();
        let left = [format!("{NAME}.{id}"), format!("{NAME}.{id}.0")];
        let left = left.map(|name| folder.path().join(name));
        for path in &left {
            fs::write(path, vec![0; 1 << 20]).unwrap();
        }
        drop(crate::engine::Disk::open(folder.path()).unwrap());
        assert!(left.iter().all(|path| fs::read(path).unwrap() == vec![0; 1 << 20]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// A sync makes the names durable that are in the folder by then. The process is killed at each
    /// sync in turn; in the first round it is not.
    #[test]
    fn the_names_of_all_folders_are_durable_also_after_a_kill() {
        for kill in 0..5 {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("a/b/c");
            let (durable, syncs) = (RefCell::new(BTreeSet::new()), RefCell::new(0));
            let sync = |folder: &Path| {
                *syncs.borrow_mut() += 1;
                if *syncs.borrow() == kill {
                    return Err(io::Error::other("killed"));
                }
                let names = fs::read_dir(folder)?.map(|name| name.unwrap().path());
                durable.borrow_mut().extend(names);
                Ok(())
            };
            let killed = make_folders(&folder, sync).is_err();
            assert_eq!(killed, kill > 0);
            make_folders(&folder, sync).unwrap();
            for name in folder.ancestors().take(4) {
                assert!(durable.borrow().contains(name), "{name:?}, killed at sync {kill}");
            }
        }
    }
}
