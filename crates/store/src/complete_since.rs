//! The times from which on the store is complete, one for each class of inputs.
//!
//! Everything that the store received with a time at or after them can be read. Before them samples
//! may be missing: they are older than the store itself, or retention dropped the block that held
//! them, while a block with late samples of the same time may remain. A reader that joins the store
//! with an engine that keeps samples for longer needs this border. The oldest sample of a class is
//! not the border, because it may be a late one.
//!
//! The file `complete-since` has one line `MILLIS CLASS` for each class. It is replaced with a
//! rename, before the files of dropped blocks are removed. A store of an older version has no such
//! file: its border is then the oldest sample of each class. So is one in the future: the clock was
//! ahead when it was recorded.

use std::io;

use parking_lot::Mutex;
use pegel_metric::{Millis, Series};

use crate::block::Block;
use crate::context::{StoreContext, StoreState};
use crate::input_class::InputClass;
use crate::options::StoreOptions;
use crate::text_file::{read_text, replace_text, replace_text_unsynced};

const FILE: &str = "complete-since";
/// The largest file that is read: one line per class is far shorter.
const BYTES_MAX: u64 = 4 << 10;
/// How far the start of retention may move while a query runs.
const QUERY_TIME_MS: Millis = 60_000;

const CLASSES: usize = InputClass::WITH_SHARES.len();

/// One time for each class, in the order of [`InputClass::WITH_SHARES`].
type ClassTimes = [Millis; CLASSES];

/// The times from which on a store is complete, for the next minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompleteSince {
    /// The time of the store's clock.
    pub now: Millis,
    times: ClassTimes,
}

impl CompleteSince {
    /// Returns the time from which on all samples of the series of its class are in the store.
    pub fn of(&self, series: &Series) -> Millis {
        self.times[index(InputClass::of(series))]
    }

    /// Returns the time from which on all samples of all series are in the store.
    pub fn of_all(&self) -> Millis {
        self.times.iter().copied().max().unwrap_or(self.now)
    }
}

/// The times before which blocks were dropped, or before which the store did not exist.
#[derive(Debug, Default)]
pub(crate) struct CompletenessRecord {
    times: Mutex<ClassTimes>,
}

impl CompletenessRecord {
    /// Returns the times with the start of retention, which hides samples before it.
    pub(crate) fn complete_since(&self, shared: &StoreContext) -> CompleteSince {
        let shown_from = shared.retention_start().saturating_add(QUERY_TIME_MS);
        let now = shared.now();
        let mut times = *self.times.lock();
        if times.iter().any(|time| *time > now) {
            times = self.corrected(shared, now);
        }
        times
            .iter_mut()
            .for_each(|time| *time = shown_from.max(*time));
        CompleteSince { now, times }
    }

    /// Replaces times in the future, which would leave out all samples of the store. The file is
    /// not written: this may be the thread of a query, and a restart corrects them again.
    fn corrected(&self, shared: &StoreContext, now: Millis) -> ClassTimes {
        let oldest = oldest_times(&shared.read(), now);
        let mut times = self.times.lock();
        for (time, oldest) in times.iter_mut().zip(oldest) {
            if *time > now {
                *time = oldest.min(now);
            }
        }
        *times
    }

    /// Reads the file, or creates it for a store that has none.
    pub(crate) fn load(&self, shared: &StoreContext) {
        let path = shared.options.dir.join(FILE);
        let known = match read_text(&shared.options, FILE, BYTES_MAX) {
            // Empty after a power failure.
            Ok(text) if text.is_empty() => None,
            Ok(text) => {
                let times = parse(&text);
                if times.is_none() {
                    tracing::error!(path = %path.display(), "malformed file; assuming that each class is complete from its oldest sample on");
                }
                times
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot read the file; assuming that each class is complete from its oldest sample on");
                None
            }
        };
        if let Some(times) = known {
            *self.times.lock() = times;
            return;
        }
        let times = oldest_times(&shared.read(), shared.now());
        *self.times.lock() = times;
        // Not synced: a disk that hangs must not prevent the start of the agent.
        let written = replace_text_unsynced(&shared.options, FILE, &text(&times));
        report(&shared.options, written);
    }

    /// Adds the times of blocks that are about to be dropped.
    pub(crate) fn record_dropped<'a>(
        &self,
        shared: &StoreContext,
        dropped: impl Iterator<Item = &'a Block>,
    ) {
        {
            let now = shared.now();
            let mut times = self.times.lock();
            for block in dropped {
                // Samples of the future must not make those of today look incomplete.
                let until = block.max.saturating_add(1).min(now);
                // Blocks of older versions hold all classes.
                for (class, time) in InputClass::WITH_SHARES.iter().zip(times.iter_mut()) {
                    if block.class == *class || block.class == InputClass::Mixed {
                        *time = (*time).max(until);
                    }
                }
            }
        }
        let text = text(&self.times.lock());
        let written = replace_text(&shared.options, FILE, &text);
        report(&shared.options, written);
    }
}

/// Reports a failure. Writing is best effort: without the file, the border after a restart is the
/// oldest sample.
fn report(options: &StoreOptions, written: io::Result<()>) {
    if let Err(error) = written {
        let path = options.dir.join(FILE);
        tracing::warn!(path = %path.display(), %error, "cannot record from which time on the store is complete");
    }
}

fn index(class: InputClass) -> usize {
    let class = class.accounted_to();
    let found = { InputClass::WITH_SHARES.iter() }.position(|known| *known == class);
    found.unwrap_or_default()
}

/// Returns the time of the oldest sample of each class; `now` in an empty store.
fn oldest_times(state: &StoreState, now: Millis) -> ClassTimes {
    let frozen = state.frozen.iter().filter_map(|frozen| frozen.head.span);
    let in_memory = frozen.chain(state.head.span).map(|(min, _)| min).min();
    InputClass::WITH_SHARES.map(|class| {
        let blocks = state.blocks.iter();
        let its = blocks.filter(|block| block.class == class || block.class == InputClass::Mixed);
        let oldest = its.map(|block| block.min).filter(|min| *min != Millis::MIN);
        oldest.chain(in_memory).min().unwrap_or(now)
    })
}

/// Parses the file. Unknown classes of a later version are ignored.
fn parse(text: &str) -> Option<ClassTimes> {
    let mut times = [None; CLASSES];
    for line in text.lines() {
        let (time, name) = line.split_once(' ')?;
        let known = { InputClass::WITH_SHARES.iter() }.position(|class| class.as_str() == name);
        if let Some(at) = known {
            times[at] = Some(time.parse().ok()?);
        }
    }
    // An older version kept derived series with points.
    let [points, derived] = [InputClass::Points, InputClass::Derived].map(index);
    times[derived] = times[derived].or(times[points]);
    // Another class without a line was added by a later version: all of its samples are in the
    // store.
    let is_empty = times.iter().all(Option::is_none);
    (!is_empty).then(|| times.map(|time| time.unwrap_or(Millis::MIN)))
}

fn text(times: &ClassTimes) -> String {
    let lines = InputClass::WITH_SHARES.iter().zip(times);
    lines
        .map(|(class, time)| format!("{time} {}\n", class.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_back_and_malformed_files_are_refused() {
        assert_eq!(
            parse("1 node\n2 lanes\n3 statsd\n4 points\n5 remote_write\n7 x\n"),
            { Some([1, 2, 3, 4, 5, 4]) }
        );
        assert_eq!(parse("9 statsd\n").map(|times| times[2]), Some(9));
        for malformed in ["", "node 1\n", "1\n", "x node\n", "7 later\n"] {
            assert_eq!(parse(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn blocks_of_older_versions_belong_to_the_node() {
        assert_eq!(index(InputClass::Mixed), index(InputClass::Node));
        assert_eq!(index(InputClass::Derived), CLASSES - 1);
    }
}
