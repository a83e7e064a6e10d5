//! Files that are read as a whole.

use std::path::PathBuf;

use super::data_format::DataFormat;
use super::pull_context::{PullContext, SampleOptions};
use super::settings::FileSettings;
use super::{PullError, PullReader};

/// Reads a regular file at each interval.
#[derive(Debug)]
pub(crate) struct FileReader {
    path: PathBuf,
    format: DataFormat,
    prefix: String,
    bytes_max: u64,
}

impl FileReader {
    pub(crate) fn new(settings: &FileSettings) -> FileReader {
        FileReader {
            path: settings.path.clone().unwrap_or_default(),
            format: settings.format,
            prefix: settings.prefix.clone().unwrap_or_default(),
            bytes_max: settings.bytes_max.count(),
        }
    }
}

impl PullReader for FileReader {
    fn read(&mut self, context: &PullContext<'_>) -> Result<(), PullError> {
        let path = self.path.display();
        let bytes = pegel_plain_file::read_plain(&self.path, self.bytes_max.saturating_add(1));
        let bytes = bytes.map_err(|error| PullError::new(format!("{path}: {error}")))?;
        if bytes.len() as u64 > self.bytes_max {
            let message = format!("{path}: larger than {} bytes (bytes_max)", self.bytes_max);
            return Err(PullError::malformed(message));
        }
        let batch = self.format.parse(&bytes, &self.prefix)?;
        context.store(&batch, SampleOptions::default())
    }
}
