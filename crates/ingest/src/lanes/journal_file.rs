//! The file of the lane journal; used only by the writer's thread.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use pegel_store::{FileHandle, Files, write_all_at};

use super::journal_writer::JournalTask;

#[derive(Debug)]
pub(super) struct JournalFile {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// `None` until the first write: the file of an earlier agent is replaced, not continued.
    file: Option<Arc<dyn FileHandle>>,
    bytes: u64,
}

impl JournalFile {
    pub(super) fn new(files: Arc<dyn Files>, path: PathBuf) -> JournalFile {
        JournalFile {
            files,
            path,
            file: None,
            bytes: 0,
        }
    }

    /// Writes a task. A failed task must be retried with the same bytes, possibly followed by more:
    /// they overwrite what the failed write left.
    pub(super) fn write(&mut self, task: &JournalTask) -> io::Result<()> {
        match &self.file {
            Some(file) if !task.replaces_file => write_all_at(&**file, &task.bytes, self.bytes)?,
            _ => {
                self.file = Some(self.replace(&task.bytes)?);
                self.bytes = 0;
            }
        }
        self.bytes += task.bytes.len() as u64;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.sync())
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<Arc<dyn FileHandle>> {
        let new = self.path.with_extension("new");
        let file = self.files.create(&new)?;
        let written = write_all_at(&*file, bytes, 0).and_then(|()| file.sync());
        if let Err(error) = written {
            // Best effort: on a full disk the file would take space.
            let _ = self.files.remove(&new);
            return Err(error);
        }
        self.files.rename(&new, &self.path)?;
        if let Some(directory) = self.path.parent() {
            self.files.sync_dir(directory)?;
        }
        Ok(file)
    }
}
