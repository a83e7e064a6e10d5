//! Stores whole files, each once and under its own name, for the archive and for exports.
//!
//! A file appears complete or not at all, and never replaces another: object stores get a condition
//! with the request, directories a temporary file and a rename. If a request succeeded but its
//! answer was lost, the repeated request finds the file.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::file::{file_problem, replace_file};
use super::open::{OpenFolder, open_folder};
use super::{RecordPlace, StorageCredentials, StorageEndpoints, StorageProblem};

/// Readable by the group, so that users of the archive need not be the agent's user.
const FILE_MODE: u32 = 0o640;
const DIR_MODE: u32 = 0o750;

/// Readers of Parquet ignore names that begin with a dot.
const PROBE_NAME: &str = ".pegel-probe";

/// The result of storing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateOutcome {
    Created,
    /// A file with this name exists; it is unchanged.
    Exists,
}

/// An open place.
#[derive(Debug)]
pub struct FilePlace {
    folder: OpenFolder,
}

impl FilePlace {
    /// Opens a place. Sends no request.
    pub fn open(
        place: &RecordPlace,
        credentials: &StorageCredentials,
        endpoints: &StorageEndpoints,
    ) -> Result<FilePlace, StorageProblem> {
        let folder = open_folder(place, credentials, endpoints)?;
        Ok(FilePlace { folder })
    }

    /// Checks whether files can be stored: stores an empty file and removes it.
    pub fn probe(&mut self) -> Result<(), StorageProblem> {
        match &mut self.folder {
            OpenFolder::Objects(client) => {
                client.put_new(PROBE_NAME, b"")?;
                // Best effort: credentials may permit storing only.
                let _ = client.delete(PROBE_NAME);
                Ok(())
            }
            OpenFolder::Directory(dir) => {
                probe_directory(dir).map_err(|error| file_problem(dir, &error))
            }
        }
    }

    /// Stores a file unless there is one with this name, which may contain slashes.
    pub fn create(&mut self, name: &str, bytes: &[u8]) -> Result<CreateOutcome, StorageProblem> {
        let is_new = match &mut self.folder {
            OpenFolder::Objects(client) => client.put_new(name, bytes)?,
            OpenFolder::Directory(dir) => {
                let path = dir.join(name);
                create_file(dir, &path, bytes).map_err(|error| file_problem(&path, &error))?
            }
        };
        Ok(match is_new {
            true => CreateOutcome::Created,
            false => CreateOutcome::Exists,
        })
    }
}

fn probe_directory(dir: &Path) -> io::Result<()> {
    create_folders(dir, dir)?;
    replace_file(dir, PROBE_NAME, FILE_MODE, b"")?;
    match fs::remove_file(dir.join(PROBE_NAME)) {
        // Another agent that stores here removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Writes a file and the folders between it and `root`. Returns false if it exists.
fn create_file(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(dir), Some(name)) = (path.parent(), name) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    create_folders(root, dir)?;
    let is_new = !path.try_exists()?;
    if is_new {
        replace_file(dir, name, FILE_MODE, bytes)?;
    }
    // Makes the name durable before the caller records that the file is stored, also that of a file
    // whose writer was killed before it did.
    File::open(dir)?.sync_all()?;
    Ok(is_new)
}

/// Creates `root` and the folders from there to `dir`. Refuses symbolic links below the root: in a
/// shared directory, another user could lead files elsewhere. The root itself may be one.
fn create_folders(root: &Path, dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(DIR_MODE).recursive(true).create(root)?;
    let mut folders: Vec<&Path> = dir.ancestors().take_while(|dir| *dir != root).collect();
    folders.reverse();
    builder.recursive(false);
    for folder in folders {
        match builder.create(folder) {
            Ok(()) => {
                // A directory that can be written may not be readable.
                if let Ok(parent) = File::open(folder.parent().unwrap_or(root)) {
                    parent.sync_all()?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if fs::symlink_metadata(folder)?.is_symlink() {
            let text = format!("{} is a symbolic link", folder.display());
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_stored_once_and_never_replaced() {
        let dir = std::env::temp_dir().join(format!("pegel-file-place-{}", std::process::id()));
        let place = RecordPlace::Directory(dir.clone());
        let none = StorageCredentials::default();
        let mut place =
            FilePlace::open(&place, &none, &StorageEndpoints::default()).expect("a directory");
        let mut create = |bytes: &[u8]| place.create("a=1/b=2/file", bytes).expect("stored");
        assert_eq!(create(b"first"), CreateOutcome::Created);
        assert_eq!(create(b"second"), CreateOutcome::Exists);
        let content = fs::read(dir.join("a=1/b=2/file")).expect("read");
        assert_eq!(content, b"first");
        let count = fs::read_dir(dir.join("a=1/b=2")).expect("listed").count();
        assert_eq!(count, 1, "no temporary file remains");
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn links_below_the_place_are_refused_and_the_place_may_be_one() {
        let home = std::env::temp_dir().join(format!("pegel-file-place-l-{}", std::process::id()));
        let (target, elsewhere, link) = (home.join("a"), home.join("b"), home.join("link"));
        for dir in [&target, &elsewhere] {
            fs::create_dir_all(dir).expect("made");
        }
        symlink(&target, &link).expect("a link");
        symlink(&elsewhere, target.join("d=1")).expect("a link");
        let none = StorageCredentials::default();
        let place = RecordPlace::Directory(link);
        let mut place =
            FilePlace::open(&place, &none, &StorageEndpoints::default()).expect("a directory");
        let problem = place.create("d=1/n=2/file", b"x").expect_err("a link");
        assert!(problem.text.contains("d=1 is a symbolic link"), "{problem}");
        let count = fs::read_dir(&elsewhere).expect("listed").count();
        assert_eq!(count, 0, "nothing is written through the link");
        let created = place.create("d=2/n=2/file", b"x").expect("stored");
        assert_eq!(created, CreateOutcome::Created);
        assert!(target.join("d=2/n=2/file").is_file());
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn a_file_that_cannot_be_completed_leaves_nothing() {
        let dir = std::env::temp_dir().join(format!("pegel-file-place-t-{}", std::process::id()));
        // A directory that is not empty has the name.
        fs::create_dir_all(dir.join("file/x")).expect("made");
        replace_file(&dir, "file", FILE_MODE, b"x").expect_err("a directory");
        let count = fs::read_dir(&dir).expect("listed").count();
        assert_eq!(count, 1, "no temporary file remains");
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_place_is_probed_without_a_trace() {
        let dir = std::env::temp_dir().join(format!("pegel-file-place-p-{}", std::process::id()));
        let none = StorageCredentials::default();
        let open = |dir: &Path| {
            let place = RecordPlace::Directory(dir.to_owned());
            FilePlace::open(&place, &none, &StorageEndpoints::default()).expect("a directory")
        };
        open(&dir).probe().expect("can be written");
        assert_eq!(fs::read_dir(&dir).expect("made").count(), 0);
        let problem = open(Path::new("/proc/pegel-archive")).probe();
        let problem = problem.expect_err("not in /proc");
        assert!(problem.text.contains("/proc/pegel-archive"), "{problem}");
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_a_problem() {
        let file = std::env::temp_dir().join(format!("pegel-file-place-f-{}", std::process::id()));
        fs::write(&file, "x").expect("written");
        let place = RecordPlace::Directory(file.join("below"));
        let none = StorageCredentials::default();
        let mut place =
            FilePlace::open(&place, &none, &StorageEndpoints::default()).expect("a directory");
        let problem = place.create("x", b"").expect_err("not a directory");
        assert!(problem.text.contains("below"), "{problem}");
        fs::remove_file(&file).expect("removed");
    }
}
