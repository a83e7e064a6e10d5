//! Values that are loaded from files and reloaded when the files change.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use pegel_metric::with_causes;

type LoadFn<T, E> = Box<dyn Fn() -> Result<T, E> + Send + Sync>;

/// The last good version of a value loaded from files. If a new version cannot be loaded, the error
/// is logged and the old one stays in force.
pub struct Reloadable<T, E> {
    /// The name of the value, for messages.
    description: &'static str,
    files: Vec<PathBuf>,
    load: LoadFn<T, E>,
    current: RwLock<Arc<T>>,
    /// The state of the files at the last check. Locked while they are read.
    stamps: Mutex<Vec<FileStamp>>,
    /// Why the last reading failed. Never locked while files are read: requests lock it.
    error: Mutex<Option<String>>,
}

/// Changes whenever the file is written, replaced, or changes its owner.
type FileStamp = Option<[i64; 7]>;

impl<T, E: std::error::Error + 'static> Reloadable<T, E> {
    /// Loads the value for the first time.
    pub fn new(
        description: &'static str,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Reloadable<T, E>, E> {
        // Taken before reading: a write during the load is noticed at the next check.
        let stamps = file_stamps(&files);
        let first = load()?;
        Ok(Reloadable {
            description,
            files,
            load: Box::new(load),
            current: RwLock::new(Arc::new(first)),
            stamps: Mutex::new(stamps),
            error: Mutex::new(None),
        })
    }

    /// Returns the last good version.
    pub fn get(&self) -> Arc<T> {
        self.current.read().clone()
    }

    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Why the current content of the files is not in force.
    pub fn reload_error(&self) -> Option<String> {
        self.error.lock().clone()
    }

    /// Reloads the files if they changed, or unconditionally if `asked`. May block.
    pub fn refresh(&self, asked: bool) {
        let mut known = self.stamps.lock();
        let stamps = file_stamps(&self.files);
        if !self.has_files() || (stamps == *known && !asked) {
            return;
        }
        *known = stamps;
        match (self.load)() {
            Ok(new) => {
                *self.current.write() = Arc::new(new);
                *self.error.lock() = None;
                tracing::info!("{} reloaded", self.description);
            }
            Err(error) => {
                let reason = with_causes(&error);
                tracing::warn!(
                    "cannot reload {}; keeping the previous one: {reason}",
                    self.description
                );
                *self.error.lock() = Some(reason);
            }
        }
    }
}

fn file_stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |path: &PathBuf| -> FileStamp {
        let found = fs::metadata(path).ok()?;
        Some([
            found.dev().cast_signed(),
            found.ino().cast_signed(),
            found.size().cast_signed(),
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ])
    };
    files.iter().map(stamp).collect()
}

impl<T, E> fmt::Debug for Reloadable<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloadable")
            .field("what", &self.description)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use pegel_testkit::TempDir;

    use super::*;

    fn number(path: &PathBuf) -> Result<u32, io::Error> {
        let text = fs::read_to_string(path)?;
        text.parse().map_err(io::Error::other)
    }

    #[test]
    fn changes_are_noticed_and_bad_ones_kept_out() {
        let dir = TempDir::new();
        let path = dir.join("number");
        let load = {
            let path = path.clone();
            move || number(&path)
        };
        assert!(Reloadable::new("the number", vec![path.clone()], load.clone()).is_err());
        fs::write(&path, "1").expect("written");
        let value = Reloadable::new("the number", vec![path.clone()], load).expect("a number");
        assert_eq!(*value.get(), 1);

        fs::write(dir.join("new"), "22").expect("written");
        fs::rename(dir.join("new"), &path).expect("replaced");
        value.refresh(false);
        assert_eq!((*value.get(), value.reload_error()), (22, None));

        fs::write(&path, "three").expect("written");
        value.refresh(false);
        assert_eq!(*value.get(), 22, "the good one stays");
        assert!(
            value
                .reload_error()
                .is_some_and(|reason| reason.contains("invalid digit"))
        );

        fs::remove_file(&path).expect("removed");
        value.refresh(false);
        assert_eq!(*value.get(), 22);
        assert!(
            value
                .reload_error()
                .is_some_and(|reason| reason.contains("No such file"))
        );

        fs::write(&path, "4").expect("written");
        value.refresh(false);
        assert_eq!((*value.get(), value.reload_error()), (4, None));
    }

    #[test]
    fn who_asks_gets_a_new_reading_in_any_case() {
        let reads = Arc::new(Mutex::new(0));
        let counted = reads.clone();
        let load = move || {
            let mut count = counted.lock();
            *count += 1;
            Ok::<_, io::Error>(*count)
        };
        let value =
            Reloadable::new("a count", vec![PathBuf::from("/nonexistent")], load).expect("read");
        value.refresh(false);
        assert_eq!(*value.get(), 1, "nothing changed");
        value.refresh(true);
        assert_eq!(*value.get(), 2);
    }

    #[test]
    fn readers_do_not_wait_while_the_files_are_read() {
        let (begin, begun) = mpsc::channel();
        let (resume, resumed) = mpsc::channel::<()>();
        let (begin, resumed) = (Mutex::new(begin), Mutex::new(resumed));
        let is_first = Mutex::new(true);
        let load = move || {
            if !std::mem::take(&mut *is_first.lock()) {
                // The test ends early if one of these fails.
                let _ = begin.lock().send(());
                let _ = resumed.lock().recv();
            }
            Ok::<_, io::Error>(1)
        };
        let value = Reloadable::new("a value", vec![PathBuf::from("/nonexistent")], load);
        let value = Arc::new(value.expect("read"));
        let refreshing = {
            let value = value.clone();
            thread::spawn(move || value.refresh(true))
        };
        begun.recv().expect("it is read again");
        let (read, answered) = mpsc::channel();
        let reader = {
            let value = value.clone();
            thread::spawn(move || {
                let _ = read.send((*value.get(), value.reload_error()));
            })
        };
        let seen = answered.recv_timeout(Duration::from_secs(20));
        drop(resume);
        refreshing.join().expect("no panic");
        reader.join().expect("no panic");
        assert_eq!(seen, Ok((1, None)), "a reader waited for the files");
    }
}
