//! Collectors that consist of a few files of `/proc`, each with its own parser.

use std::fmt::Debug;
use std::path::PathBuf;

use pegel_metric::SampleGroup;

use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::ProcParseError;
use crate::{CollectError, Collector, CollectorOpenError, OpenOutcome};

/// Parses the text of one file into values.
pub(crate) trait FileParser: Debug + Send {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError>;
}

/// A collector over several files, each with its parser.
#[derive(Debug)]
struct FileCollector<P> {
    files: Vec<(ProcFile, P)>,
}

/// Opens the existing files; absent if none exists.
pub(crate) fn open_files<P: FileParser + 'static>(
    files: impl IntoIterator<Item = (PathBuf, ReadMode, P)>,
) -> Result<OpenOutcome, CollectorOpenError> {
    let (mut parts, mut first) = (Vec::new(), None);
    for (path, read_mode, parser) in files {
        if let Some(file) = ProcFile::open(path.clone(), read_mode)? {
            parts.push((file, parser));
        }
        first.get_or_insert(path);
    }
    if parts.is_empty() {
        let looked_for = first.unwrap_or_default();
        return Ok(OpenOutcome::Absent { looked_for });
    }
    Ok(OpenOutcome::Active(Box::new(FileCollector {
        files: parts,
    })))
}

impl<P: FileParser> Collector for FileCollector<P> {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        for (file, parser) in &mut self.files {
            let updated = parser.update(file.read()?, out);
            updated.map_err(|fault| fault.at_path(file.path()))?;
        }
        Ok(())
    }
}
