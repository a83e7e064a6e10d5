use std::fmt::Debug;
use std::path::PathBuf;

use pegel_metric::Group;

use crate::procfile::{ProcFile, Shape};
use crate::scan::Fault;
use crate::{CollectError, Collector, OpenError, Opened};

/// Makes readings of the text of one file.
pub(crate) trait Parser: Debug + Send {
    fn update(&mut self, text: &[u8], out: &mut Group) -> Result<(), Fault>;
}

/// A collector that is a few files of `/proc`, each with its parser.
#[derive(Debug)]
struct Files<P> {
    parts: Vec<(ProcFile, P)>,
}

/// Opens those files that are there; absent when none is.
pub(crate) fn open_files<P: Parser + 'static>(
    files: impl IntoIterator<Item = (PathBuf, Shape, P)>,
) -> Result<Opened, OpenError> {
    let (mut parts, mut first) = (Vec::new(), None);
    for (path, shape, parser) in files {
        if let Some(file) = ProcFile::open(path.clone(), shape)? {
            parts.push((file, parser));
        }
        first.get_or_insert(path);
    }
    if parts.is_empty() {
        let looked_for = first.unwrap_or_default();
        return Ok(Opened::Absent { looked_for });
    }
    Ok(Opened::Active(Box::new(Files { parts })))
}

impl<P: Parser> Collector for Files<P> {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        for (file, parser) in &mut self.parts {
            let updated = parser.update(file.read()?, out);
            updated.map_err(|fault| fault.at(file.path()))?;
        }
        Ok(())
    }
}
