//! Hidden ranges: all samples of one input before a given time.
//!
//! Queries skip them, and retention frees their space by age. The file `hidden` has one line
//! `MILLIS INPUT` for each input; it is replaced with a rename, so that it is never incomplete.
//! Older files name the help text of the input's families instead.

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use pegel_metric::{Input, Millis, Series};

use crate::options::StoreOptions;
use crate::series_codec::input_of_help;
use crate::text_file::{read_text, replace_text};

const FILE: &str = "hidden";
/// The most bytes read from the file: one line per input is far shorter.
const BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct HiddenRanges {
    /// Locked only to copy or to replace the `Arc`: every reader locks it.
    current: RwLock<Arc<Vec<HiddenRange>>>,
    /// Serializes writers of the file. Readers never take it, so that they do not wait for the
    /// disk.
    writing: Mutex<()>,
}

/// Hides the samples of an input before a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HiddenRange {
    input: Input,
    before: Millis,
}

impl HiddenRanges {
    /// Loads the hidden ranges. An unreadable or malformed file hides nothing and is logged.
    pub(crate) fn load(options: &StoreOptions) -> HiddenRanges {
        let path = options.dir.join(FILE);
        let ranges = match read_text(options, FILE, BYTES_MAX) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Vec::new()),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot read the hidden ranges");
                Some(Vec::new())
            }
        };
        let ranges = ranges.unwrap_or_else(|| {
            tracing::error!(path = %path.display(), "malformed list of hidden ranges; ignoring it");
            Vec::new()
        });
        HiddenRanges {
            current: RwLock::new(Arc::new(ranges)),
            writing: Mutex::new(()),
        }
    }

    pub(crate) fn ranges(&self) -> Arc<Vec<HiddenRange>> {
        self.current.read().clone()
    }

    /// Extends the hidden range of an input; never shrinks it. The change is durable when this
    /// returns.
    pub(crate) fn add(
        &self,
        options: &StoreOptions,
        input: Input,
        before: Millis,
    ) -> io::Result<()> {
        let _writing = self.writing.lock();
        let mut ranges = (*self.ranges()).clone();
        match ranges.iter_mut().find(|range| range.input == input) {
            Some(range) if range.before >= before => return Ok(()),
            Some(range) => range.before = before,
            None => ranges.push(HiddenRange { input, before }),
        }
        write(options, &ranges)?;
        *self.current.write() = Arc::new(ranges);
        Ok(())
    }
}

/// Returns the time before which the samples of an input are hidden.
pub(crate) fn hidden_before(ranges: &[HiddenRange], input: Input) -> Option<Millis> {
    ranges
        .iter()
        .find(|range| range.input == input)
        .map(|range| range.before)
}

pub(crate) fn is_hidden(ranges: &[HiddenRange], series: &Series, time: Millis) -> bool {
    hidden_before(ranges, series.family().input).is_some_and(|before| time < before)
}

fn write(options: &StoreOptions, ranges: &[HiddenRange]) -> io::Result<()> {
    let lines = ranges
        .iter()
        .map(|range| format!("{} {}\n", range.before, range.input.as_str()));
    replace_text(options, FILE, &lines.collect::<String>())
}

fn parse(text: &str) -> Option<Vec<HiddenRange>> {
    let range = |line: &str| {
        let (before, input) = line.split_once(' ')?;
        let named = Input::ALL.iter().find(|known| known.as_str() == input);
        Some(HiddenRange {
            input: named.copied().unwrap_or_else(|| input_of_help(input)),
            before: before.parse().ok()?,
        })
    };
    text.lines().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let options = StoreOptions::new(
            std::env::temp_dir().join(format!("pegel-hidden-{}", std::process::id())),
        );
        std::fs::create_dir_all(&options.dir).expect("made");
        let hidden = HiddenRanges::load(&options);
        assert!(hidden.ranges().is_empty());
        hidden.add(&options, Input::Http, 5).expect("written");
        hidden.add(&options, Input::Put, 7).expect("written");
        hidden.add(&options, Input::Http, 9).expect("written");
        hidden.add(&options, Input::Http, 8).expect("no less");
        assert_eq!(hidden_before(&hidden.ranges(), Input::Http), Some(9));
        let old = "9 Sent by a program to /api/metrics.\n7 put\n";
        assert_eq!(parse(old).as_ref(), Some(&*hidden.ranges()));
        assert_eq!(HiddenRanges::load(&options).ranges(), hidden.ranges());
        for broken in ["5", "x y\n", "\u{0}"] {
            std::fs::write(options.dir.join(FILE), broken).expect("written");
            assert!(
                HiddenRanges::load(&options).ranges().is_empty(),
                "{broken:?}"
            );
        }
        std::fs::remove_dir_all(&options.dir).expect("removed");
    }
}
