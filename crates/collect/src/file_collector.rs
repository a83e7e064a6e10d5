//! Collectors that consist of a few files of `/proc`, each with its own parser.

use std::fmt::Debug;
use std::path::PathBuf;

use pegel_metric::{Family, Level, SampleGroup};

use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, Words, first_line, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectError, Collector, Context, OpenOutcome, OpenResult};

/// Parses the text of one file into values.
pub(crate) trait FileParser: Debug + Send {
    /// Returns the lowest level of its families; the file is not read below that level.
    fn level(&self) -> Level {
        0
    }

    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError>;
}

/// A file, how the kernel delivers it, and its parser.
pub(crate) type ParsedFile = (PathBuf, ReadMode, Box<dyn FileParser>);

/// Names a file, relative to the root of the machine, with its parser.
pub(crate) fn parsed_file(
    context: &Context,
    path: &str,
    read_mode: ReadMode,
    parser: impl FileParser + 'static,
) -> ParsedFile {
    (context.host.root.join(path), read_mode, Box::new(parser))
}

/// A collector over several files, each with its parser.
#[derive(Debug)]
struct FileCollector {
    files: Vec<(ProcFile, Box<dyn FileParser>)>,
}

/// Opens a single file, such as `proc/meminfo`, of which one read returns everything; absent if it
/// does not exist.
pub(crate) fn open_file(
    context: &Context,
    path: &str,
    parser: impl FileParser + 'static,
) -> OpenResult {
    open_files([parsed_file(context, path, ReadMode::SingleRead, parser)])
}

/// Like [`open_file`], for a list, such as `proc/net/dev`, of which one read returns about a page.
pub(crate) fn open_list(
    context: &Context,
    path: &str,
    parser: impl FileParser + 'static,
) -> OpenResult {
    open_files([parsed_file(context, path, ReadMode::UntilEof, parser)])
}

/// Opens the existing files; absent if none exists.
pub(crate) fn open_files(files: impl IntoIterator<Item = ParsedFile>) -> OpenResult {
    let (mut parts, mut first) = (Vec::new(), None);
    for (path, read_mode, parser) in files {
        if let Some(file) = ProcFile::open(path.clone(), read_mode)? {
            parts.push((file, parser));
        }
        first.get_or_insert(path);
    }
    if parts.is_empty() {
        return OpenOutcome::absent(first.unwrap_or_default());
    }
    OpenOutcome::active(FileCollector { files: parts })
}

impl Collector for FileCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        for (file, parser) in &mut self.files {
            if !out.keeps_level(parser.level()) {
                continue;
            }
            let updated = parser.update(file.read()?, out);
            updated.map_err(|fault| fault.at_path(file.path()))?;
        }
        Ok(())
    }
}

/// Publishes the first number of a file, as most files of `/proc/sys` need no more.
#[derive(Debug)]
pub(crate) struct FirstNumberParser(UnlabelledSeries);

impl FirstNumberParser {
    /// Returns a file, such as `proc/sys/kernel/pid_max`, as the source of `family`.
    pub(crate) fn file(context: &Context, path: &str, family: &Family) -> ParsedFile {
        let parser = FirstNumberParser(UnlabelledSeries::new(family));
        parsed_file(context, path, ReadMode::SingleRead, parser)
    }
}

impl FileParser for FirstNumberParser {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let number = Words(first_line(text)?).next().and_then(parse_u64);
        let malformed = ProcParseError::at_line(1, "expected a number");
        Ok(self.0.set(out, number.ok_or(malformed)? as f64)?)
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::MetricKind;

    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn the_first_number_counts() {
        let family = Family::new("x", MetricKind::Gauge, "", 0, "X.");
        let parser = || FirstNumberParser(UnlabelledSeries::new(&family));
        let mut group = SampleGroup::new("x", 3, 1000);
        let text = b"674\t0\t2465780\n";
        parser().update(text, &mut group).expect("valid");
        assert_eq!(present_series(&mut group), ["x 674"]);
        update_fails(
            |text| parser().update(text, &mut SampleGroup::new("x", 3, 1000)),
            &[
                ("", 0, "empty file"),
                ("674", 1, "the last line is cut off"),
                ("x\n", 1, "expected a number"),
                ("\n", 1, "expected a number"),
            ],
        );
    }
}
