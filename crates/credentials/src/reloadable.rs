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
    last_check: Mutex<LastCheck>,
}

/// The state of the files at the last check.
struct LastCheck {
    stamps: Vec<FileStamp>,
    error: Option<String>,
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
            last_check: Mutex::new(LastCheck {
                stamps,
                error: None,
            }),
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
        let check = self.last_check.lock();
        check.error.clone()
    }

    /// Reloads the files if they changed, or unconditionally if `asked`. May block.
    pub fn refresh(&self, asked: bool) {
        let mut check = self.last_check.lock();
        let stamps = file_stamps(&self.files);
        if !self.has_files() || (stamps == check.stamps && !asked) {
            return;
        }
        check.stamps = stamps;
        match (self.load)() {
            Ok(new) => {
                *self.current.write() = Arc::new(new);
                check.error = None;
                tracing::info!("{} reloaded", self.description);
            }
            Err(error) => {
                let reason = with_causes(&error);
                tracing::warn!(
                    "cannot reload {}; keeping the previous one: {reason}",
                    self.description
                );
                check.error = Some(reason);
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
}
