use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A private directory that is removed with everything in it when the value goes out of scope.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // Short on purpose: the path of a UNIX socket has at most 107 bytes.
            let path = std::env::temp_dir().join(format!("pegel-test-{}-{number}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return TempDir { path },
                // Left behind by a killed process that had the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make {}: {error}", path.display()),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Default for TempDir {
    fn default() -> TempDir {
        TempDir::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A directory that cannot be removed is litter, not a failure of the test.
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
}
