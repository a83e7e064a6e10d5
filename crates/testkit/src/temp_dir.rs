//! Temporary directories.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A private directory, removed with its contents on drop.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // Short, because the path of a UNIX socket has at most 107 bytes.
            let path = std::env::temp_dir().join(format!("pegel-test-{}-{number}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return TempDir { path },
                // Left behind by a killed process with the same process ID.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create {}: {error}", path.display()),
            }
        }
    }

    /// Creates a directory with a copy of everything below `from`; symlinks are copied as symlinks.
    pub fn copy_of(from: impl AsRef<Path>) -> TempDir {
        let dir = TempDir::new();
        let from = from.as_ref();
        copy(from, &dir.path)
            .unwrap_or_else(|error| panic!("cannot copy {}: {error}", from.display()));
        dir
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// Sets the permissions of a file or directory.
pub fn set_mode(path: impl AsRef<Path>, mode: u32) {
    let path = path.as_ref();
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("cannot set the mode of {}: {error}", path.display()));
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&from, &to)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

impl Default for TempDir {
    fn default() -> TempDir {
        TempDir::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Best effort: a leftover directory does not fail the test.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_away_with_its_contents() {
        let dir = TempDir::new();
        let path = dir.path().to_owned();
        fs::create_dir(dir.join("a")).expect("a directory");
        fs::write(dir.join("a/b"), "c").expect("a file");
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn a_copy_has_files_directories_and_links() {
        let from = TempDir::new();
        fs::create_dir(from.join("a")).expect("a directory");
        fs::write(from.join("a/b"), "c").expect("a file");
        symlink("a", from.join("link")).expect("a link");
        let copy = TempDir::copy_of(from.path());
        assert_eq!(fs::read(copy.join("link/b")).expect("read"), b"c");
        let link = fs::read_link(copy.join("link")).expect("still a link");
        assert_eq!(link, Path::new("a"));
    }
}
