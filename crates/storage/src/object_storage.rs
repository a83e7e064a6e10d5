//! Records in blobs and objects. An [`ObjectClient`] implements the requests of one provider;
//! [`ObjectStorage`] ensures that a block arrives exactly once, in the same way for all of them:
//! every append carries the expected length of the part, and if the server refuses it, length and
//! content of the part show whether an earlier request succeeded.

use std::fmt::Debug;

use super::merge::PartMerge;
use super::{
    AppendOutcome, PartConflict, PartLimits, RecordStorage, SUMMARY_NAME, StorageProblem,
    StorageProblemKind, part_name,
};

/// The response to an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppendReply {
    Appended,
    /// The part does not have the expected length.
    Mismatch,
    Full,
}

/// The named objects of one folder.
pub(super) trait ObjectClient: Debug + Send {
    /// Returns the place, for messages.
    fn label(&self) -> &str;

    /// Returns the limits of a part. A part of one block cannot be appended to.
    fn part_limits(&self) -> PartLimits;

    /// Appends to an object whose length is `position`. Creates it at position 0.
    fn append(
        &mut self,
        name: &str,
        position: u64,
        block: &[u8],
    ) -> Result<AppendReply, StorageProblem>;

    /// Returns the length of an object, `None` if it does not exist.
    fn length(&mut self, name: &str) -> Result<Option<u64>, StorageProblem>;

    /// Reads `bytes` bytes of an object, which must not be 0.
    fn read_range(
        &mut self,
        name: &str,
        start: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem>;

    /// Reads an object of at most `bytes_max` bytes.
    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StorageProblem>;

    /// Creates or replaces an object.
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StorageProblem>;

    /// Creates an object unless there is one with this name. Returns whether it was created.
    fn put_new(&mut self, name: &str, bytes: &[u8]) -> Result<bool, StorageProblem> {
        match self.append(name, 0, bytes)? {
            AppendReply::Appended => Ok(true),
            AppendReply::Mismatch | AppendReply::Full => Ok(false),
        }
    }

    /// Deletes an object, which need not exist.
    fn delete(&mut self, name: &str) -> Result<(), StorageProblem>;

    /// Returns the names of the objects in the folder.
    fn list(&mut self) -> Result<Vec<String>, StorageProblem>;
}

/// The parts of one record as blobs or objects.
#[derive(Debug)]
pub(super) struct ObjectStorage {
    client: Box<dyn ObjectClient>,
    /// The progress of [`RecordStorage::finish`], so that a retry continues.
    merge: Option<PartMerge>,
}

impl ObjectStorage {
    pub(super) fn new(client: Box<dyn ObjectClient>) -> ObjectStorage {
        ObjectStorage {
            client,
            merge: None,
        }
    }

    /// Determines why a part does not have the expected length. Returns `None` if it has: the
    /// append that was refused may be sent again.
    fn conflict(
        &mut self,
        name: &str,
        position: u64,
        block: &[u8],
    ) -> Result<Option<PartConflict>, StorageProblem> {
        let Some(bytes) = self.client.length(name)? else {
            return Ok(None);
        };
        if bytes == position {
            return Ok(None);
        }
        let other = PartConflict::OtherContent { bytes };
        if bytes != position.saturating_add(block.len() as u64) {
            return Ok(Some(other));
        }
        let found = self.client.read_range(name, position, block.len() as u64)?;
        Ok(Some(match found.as_deref() == Some(block) {
            true => PartConflict::AlreadyStored,
            false => other,
        }))
    }
}

impl RecordStorage for ObjectStorage {
    fn part_limits(&self) -> PartLimits {
        self.client.part_limits()
    }

    fn append(
        &mut self,
        part: u32,
        position: u64,
        block: &[u8],
    ) -> Result<AppendOutcome, StorageProblem> {
        let name = part_name(part);
        // The second attempt is for a part that has the expected length after all: another request
        // of this node was still in progress, or the part was created just now.
        for _ in 0..2 {
            match self.client.append(&name, position, block)? {
                AppendReply::Appended => return Ok(AppendOutcome::Stored),
                AppendReply::Full => return Ok(AppendOutcome::PartFull),
                AppendReply::Mismatch => {}
            }
            if let Some(conflict) = self.conflict(&name, position, block)? {
                return Ok(AppendOutcome::Conflict(conflict));
            }
        }
        let label = self.client.label();
        let text = format!("{label}: {name} has the expected length but rejects appends");
        Err(StorageProblem::new(StorageProblemKind::Rejected, text))
    }

    fn finish(&mut self, last_part: u32, summary: &str) -> Result<(), StorageProblem> {
        if self.client.part_limits().blocks == 1 {
            let merge = self.merge.get_or_insert_with(|| PartMerge::new(last_part));
            merge.run(self.client.as_mut())?;
        }
        self.client.put(SUMMARY_NAME, summary.as_bytes())
    }
}

/// Returns the problem of a part that vanished while the record was written.
pub(super) fn removed_part(label: &str, name: &str) -> StorageProblem {
    let text = format!("{label}: {name} was removed");
    StorageProblem::new(StorageProblemKind::MissingContainer, text)
}

#[cfg(test)]
mod tests;
