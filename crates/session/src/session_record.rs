//! Makes the blocks of a session's record and spools them.

use std::path::Path;

use pegel_metric::Millis;
use pegel_record::{RecordBlock, RecordSamples, RecordWriter};

use crate::spool::{RecordSpool, SharedSpool, SpoolError};

/// The reason why samples or text cannot be added to the record.
#[derive(Debug, thiserror::Error)]
pub enum SessionRecordError {
    #[error("cannot spool a block of the record")]
    Spool(#[from] SpoolError),
    #[error("the record has ended")]
    Ended,
}

/// The record of a running session. Every method returns after its block is on the disk. After an
/// error the call may be repeated, with more samples; of samples that need several blocks, the
/// first blocks may be in the record then.
#[derive(Debug)]
pub struct SessionRecord {
    writer: RecordWriter,
    spool: SharedSpool,
    has_ended: bool,
    /// Whether the last block is spooled: only the summary may be missing.
    has_end_block: bool,
}

impl SessionRecord {
    /// Starts a record in the spool `dir`, or continues it after a restart.
    pub fn open(dir: &Path, spool_bytes_max: u64) -> Result<SessionRecord, SessionRecordError> {
        let spool = RecordSpool::open(dir, spool_bytes_max)?;
        let mut writer = RecordWriter::default();
        writer.continue_at(spool.next_sequence());
        Ok(SessionRecord {
            has_ended: spool.summary()?.is_some(),
            has_end_block: false,
            writer,
            spool: spool.into_shared(),
        })
    }

    /// Returns the spool, for the uploader.
    pub fn spool(&self) -> SharedSpool {
        self.spool.clone()
    }

    /// Whether the record has no block yet: the first is the snapshot.
    pub fn is_empty(&self) -> bool {
        self.writer.next_sequence() == 0
    }

    /// Returns the time of the newest sample in the record; `None` if it has none.
    pub fn samples_end(&self) -> Option<Millis> {
        self.spool.lock().samples_end()
    }

    /// Whether the record has ended; only its upload remains.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Writes a document as JSON: the snapshot, the configuration.
    pub fn write_document(&mut self, time: Millis, text: &str) -> Result<(), SessionRecordError> {
        self.write(|writer| vec![writer.document(time, text)])
    }

    /// Writes samples: one block, or several if one cannot contain them.
    pub fn write_samples(&mut self, samples: &[RecordSamples]) -> Result<(), SessionRecordError> {
        match self.write(|writer| writer.samples(samples)) {
            // The rest of the spool is what these samples depend on: a key block depends on none,
            // so that the spool can drop it all.
            Err(SessionRecordError::Spool(SpoolError::Full(_))) => {
                self.write(|writer| writer.samples(samples))
            }
            written => written,
        }
    }

    /// Writes the state of a task that was killed or failed, as JSON.
    pub fn write_autopsy(&mut self, time: Millis, text: &str) -> Result<(), SessionRecordError> {
        self.write(|writer| vec![writer.autopsy(time, text)])
    }

    /// Ends the record. `summary` is JSON: the content of the last block and of `summary.json`.
    pub fn end(&mut self, time: Millis, summary: &str) -> Result<(), SessionRecordError> {
        if self.has_ended {
            return Err(SessionRecordError::Ended);
        }
        if !self.has_end_block {
            self.write(|writer| vec![writer.end(time, summary)])?;
            self.has_end_block = true;
        }
        self.spool.lock().set_summary(summary)?;
        self.has_ended = true;
        Ok(())
    }

    fn write(
        &mut self,
        blocks: impl FnOnce(&mut RecordWriter) -> Vec<RecordBlock>,
    ) -> Result<(), SessionRecordError> {
        if self.has_ended {
            return Err(SessionRecordError::Ended);
        }
        for block in blocks(&mut self.writer) {
            let pushed = self.spool.lock().push(&block);
            if let Err(error) = pushed {
                // Later blocks must not depend on this one: the next is a key block.
                self.writer.continue_at(block.header.sequence);
                return Err(error.into());
            }
        }
        Ok(())
    }
}
