//! A simulated disk in memory that records every operation, so that a test can reconstruct the
//! state after a crash at any moment. A killed process leaves everything written up to then; a
//! power cut may lose any combination of operations that were not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use pegel_store::{FileHandle, Files};

use crate::Rng;

type Inode = usize;

/// A recorded operation and its time.
#[derive(Debug, Clone)]
pub struct SimRecord {
    pub at: Instant,
    operation: SimOperation,
}

#[derive(Debug, Clone)]
enum SimOperation {
    Create(PathBuf, Inode),
    Write(Inode, u64, Vec<u8>),
    Sync(Inode),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncDir(PathBuf),
}

/// The simulated disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SimFiles {
    state: Arc<Mutex<SimDisk>>,
}

#[derive(Debug, Default)]
struct SimDisk {
    names: BTreeMap<PathBuf, Inode>,
    contents: Vec<Vec<u8>>,
    dirs: BTreeSet<PathBuf>,
    history: Vec<SimRecord>,
}

#[derive(Debug)]
struct SimFile {
    state: Arc<Mutex<SimDisk>>,
    inode: Inode,
}

impl SimFiles {
    pub fn new() -> SimFiles {
        SimFiles::default()
    }

    /// Returns all operations so far, in order.
    pub fn history(&self) -> Vec<SimRecord> {
        self.lock().history.clone()
    }

    /// Returns the disk that a process leaves if it is killed after `count` operations.
    pub fn image_after_kill(&self, count: usize) -> SimFiles {
        let state = self.lock();
        let mut image = SimDisk {
            dirs: state.dirs.clone(),
            ..SimDisk::default()
        };
        state.history[..count]
            .iter()
            .for_each(|done| image.apply(&done.operation));
        image.into()
    }

    /// Returns the disk after a power cut that follows `count` operations. Each write and each
    /// change of a name that was not synced is present or lost at random; a write may also be
    /// partial.
    pub fn image_after_power_cut(&self, count: usize, rng: &mut Rng) -> SimFiles {
        let state = self.lock();
        let history = &state.history[..count];
        let mut image = SimDisk {
            dirs: state.dirs.clone(),
            ..SimDisk::default()
        };
        for (at, done) in history.iter().enumerate() {
            let later = &history[at + 1..];
            let is_safe = match &done.operation {
                // The inode exists in any case; whether it has a name is decided below.
                SimOperation::Create(path, _) => is_dir_synced(later, path),
                SimOperation::Write(inode, ..) => later.iter().any(
                    |done| matches!(&done.operation, SimOperation::Sync(synced) if synced == inode),
                ),
                SimOperation::Rename(_, to) => is_dir_synced(later, to),
                SimOperation::Remove(path) => is_dir_synced(later, path),
                SimOperation::Sync(_) | SimOperation::SyncDir(_) => true,
            };
            if is_safe || rng.below(2) == 0 {
                image.apply(&done.operation);
                continue;
            }
            match &done.operation {
                SimOperation::Write(inode, at, bytes) if rng.below(2) == 0 => {
                    let cut = rng.below(bytes.len() as u64 + 1) as usize;
                    image.apply(&SimOperation::Write(*inode, *at, bytes[..cut].to_vec()));
                }
                SimOperation::Create(_, inode) => image.ensure(*inode),
                _ => {}
            }
        }
        image.into()
    }

    fn lock(&self) -> MutexGuard<'_, SimDisk> {
        self.state.lock()
    }
}

impl From<SimDisk> for SimFiles {
    fn from(state: SimDisk) -> SimFiles {
        SimFiles {
            state: Arc::new(Mutex::new(state)),
        }
    }
}

fn is_dir_synced(later: &[SimRecord], path: &Path) -> bool {
    later.iter().any(
        |done| matches!(&done.operation, SimOperation::SyncDir(dir) if path.parent() == Some(dir)),
    )
}

impl SimDisk {
    fn record(&mut self, operation: SimOperation) {
        self.apply(&operation);
        self.history.push(SimRecord {
            at: Instant::now(),
            operation,
        });
    }

    fn ensure(&mut self, inode: Inode) {
        if self.contents.len() <= inode {
            self.contents.resize(inode + 1, Vec::new());
        }
    }

    fn apply(&mut self, operation: &SimOperation) {
        match operation {
            SimOperation::Create(path, inode) => {
                self.ensure(*inode);
                self.names.insert(path.clone(), *inode);
            }
            SimOperation::Write(inode, at, bytes) => {
                self.ensure(*inode);
                let (content, at) = (&mut self.contents[*inode], *at as usize);
                // A hole reads as zeros, as on a real disk.
                content.resize(content.len().max(at + bytes.len()), 0);
                content[at..at + bytes.len()].copy_from_slice(bytes);
            }
            SimOperation::Rename(from, to) => {
                // After a power cut the old name may be missing.
                if let Some(inode) = self.names.remove(from) {
                    self.names.insert(to.clone(), inode);
                }
            }
            SimOperation::Remove(path) => {
                self.names.remove(path);
            }
            SimOperation::Sync(_) | SimOperation::SyncDir(_) => {}
        }
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("{} does not exist", path.display()),
    )
}

impl Files for SimFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        let mut state = self.lock();
        let inode = state.contents.len();
        state.record(SimOperation::Create(path.to_owned(), inode));
        Ok(Arc::new(SimFile {
            state: self.state.clone(),
            inode,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        let state = self.lock();
        let inode = *state.names.get(path).ok_or_else(|| not_found(path))?;
        Ok(Arc::new(SimFile {
            state: self.state.clone(),
            inode,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        if !state.names.contains_key(from) {
            return Err(not_found(from));
        }
        state.record(SimOperation::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        if !state.names.contains_key(path) {
            return Err(not_found(path));
        }
        state.record(SimOperation::Remove(path.to_owned()));
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.lock().dirs.insert(path.to_owned());
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.lock().record(SimOperation::SyncDir(path.to_owned()));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.lock();
        let names = state
            .names
            .keys()
            .filter(|name| name.parent() == Some(path));
        Ok(names
            .filter_map(|name| Some(name.file_name()?.to_str()?.to_owned()))
            .collect())
    }
}

impl SimFile {
    fn lock(&self) -> MutexGuard<'_, SimDisk> {
        self.state.lock()
    }
}

impl FileHandle for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.lock().contents[self.inode].len() as u64)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.lock()
            .record(SimOperation::Write(self.inode, at, bytes.to_vec()));
        Ok(bytes.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.lock();
        let content = state.contents[self.inode].get(at as usize..).unwrap_or(&[]);
        let count = content.len().min(buffer.len());
        buffer[..count].copy_from_slice(&content[..count]);
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        self.lock().record(SimOperation::Sync(self.inode));
        Ok(())
    }

    fn is_at(&self, path: &Path) -> bool {
        self.lock().names.get(path) == Some(&self.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_may_not() {
        let disk = SimFiles::new();
        let (dir, path) = (Path::new("/d"), Path::new("/d/a"));
        let file = disk.create(path).expect("made");
        file.write_at(b"one", 0).expect("written");
        file.sync().expect("synced");
        disk.sync_dir(dir).expect("synced");
        file.write_at(b"two", 3).expect("written");
        let count = disk.history().len();
        let read = |disk: &SimFiles| {
            let file = disk.open(path).expect("there");
            let mut buffer = vec![0; file.size().expect("a size") as usize];
            file.read_at(&mut buffer, 0).expect("read");
            String::from_utf8(buffer).expect("text")
        };
        assert_eq!(read(&disk.image_after_kill(count)), "onetwo");
        let mut rng = Rng::new(1);
        let seen: BTreeSet<String> = (0..64)
            .map(|_| read(&disk.image_after_power_cut(count, &mut rng)))
            .collect();
        assert_eq!(
            seen.iter().map(String::as_str).collect::<Vec<_>>(),
            ["one", "onet", "onetw", "onetwo"]
        );
        assert!(disk.image_after_kill(0).open(path).is_err());
    }
}
