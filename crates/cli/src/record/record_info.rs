//! The properties of a record, collected in one pass.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use pegel_metric::Millis;
use pegel_record::{
    BlockContent, RecordBlockHeader, RecordBlockKind, RecordEvent, RecordReader, RecordSamples,
};
use pegel_session::SessionIdentity;
use serde_json::Value;

use super::check::BlockProblem;
use super::source::LoadedRecord;

/// The most series that are counted exactly.
pub(super) const SERIES_COUNTED_MAX: usize = 1 << 20;
/// The most gaps that are listed; more are counted.
const GAPS_MAX: usize = 1000;
/// The most autopsies that are kept: a task has one per process that was killed.
const AUTOPSIES_MAX: usize = 100;

/// Blocks that are missing or cannot be read, and the times of the samples around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordGap {
    pub first: u64,
    pub last: u64,
    pub from: Option<Millis>,
    pub to: Option<Millis>,
}

/// The properties of a record.
#[derive(Debug, Default)]
pub(super) struct RecordInfo {
    pub identity: Option<SessionIdentity>,
    pub node: Option<String>,
    /// The times of the first and the last sample.
    pub range: Option<(Millis, Millis)>,
    /// The number and the bytes of the blocks of each kind, in the order of the format.
    pub blocks: [(u64, u64); 5],
    pub series: usize,
    pub samples: u64,
    pub gaps: Vec<RecordGap>,
    pub gap_count: u64,
    pub damages: u64,
    pub repeated: u64,
    /// The content of each autopsy.
    pub autopsies: Vec<Value>,
    /// The content of the end block; without one, that of `summary.json`.
    pub summary: Option<Value>,
    /// Whether the record has an end block.
    pub has_ended: bool,
}

/// The kinds of blocks in the order of [`RecordInfo::blocks`].
pub(super) const BLOCK_KINDS: [RecordBlockKind; 5] = [
    RecordBlockKind::Document,
    RecordBlockKind::Key,
    RecordBlockKind::Samples,
    RecordBlockKind::Autopsy,
    RecordBlockKind::End,
];

impl RecordInfo {
    /// Reads the whole record.
    pub(super) fn read(record: &LoadedRecord) -> RecordInfo {
        let mut pass = InfoPass::default();
        for event in RecordReader::new(&record.bytes) {
            if !record.is_expected_start(&event) {
                pass.add(&event, record);
            }
        }
        let mut info = pass.info;
        info.series = pass.series.len();
        if info.summary.is_none() {
            let summary = record.summary.as_deref();
            info.summary = summary.and_then(|text| serde_json::from_str(text).ok());
        }
        if let Some(summary) = &info.summary {
            info.node = text_of(summary, "node").or(info.node);
            info.identity = identity_in(summary).or(info.identity);
        }
        if info.identity.is_none() {
            info.identity = record.folder.as_deref().and_then(identity_of_folder);
        }
        info
    }
}

#[derive(Default)]
struct InfoPass {
    info: RecordInfo,
    /// Hashes of the series: their texts could exceed the memory.
    series: HashSet<u64>,
    hasher: RandomState,
    /// Whether the last gap has no later block yet.
    is_gap_open: bool,
}

impl InfoPass {
    fn add(&mut self, event: &RecordEvent, record: &LoadedRecord) {
        if BlockProblem::of(event, record).is_some_and(|problem| problem.is_damage) {
            self.info.damages += 1;
        }
        match event {
            RecordEvent::Block {
                header, content, ..
            } => {
                self.count(header);
                match content {
                    BlockContent::Samples(samples) => self.add_samples(header, samples),
                    BlockContent::Text(text) => self.add_text(header.kind, text),
                    BlockContent::Undecodable => self.add_gap(header.sequence, header.sequence),
                }
            }
            RecordEvent::Repeated { .. } => self.info.repeated += 1,
            RecordEvent::Missing { first, last } => self.add_gap(*first, *last),
            RecordEvent::Damaged {
                sequence: Some(sequence),
                ..
            } => self.add_gap(*sequence, *sequence),
            RecordEvent::Damaged { .. } => {}
            RecordEvent::Malformed { header, .. } => {
                self.count(header);
                self.add_gap(header.sequence, header.sequence);
            }
        }
    }

    fn count(&mut self, header: &RecordBlockHeader) {
        let kind = BLOCK_KINDS.iter().position(|kind| *kind == header.kind);
        let (blocks, bytes) = &mut self.info.blocks[kind.unwrap_or_default()];
        *blocks += 1;
        *bytes += header.block_bytes() as u64;
    }

    fn add_samples(&mut self, header: &RecordBlockHeader, samples: &[RecordSamples]) {
        let (start, end) = self.info.range.unwrap_or((Millis::MAX, Millis::MIN));
        self.info.range = Some((start.min(header.start), end.max(header.end)));
        if std::mem::take(&mut self.is_gap_open)
            && let Some(gap) = self.info.gaps.last_mut()
        {
            gap.to = Some(header.start);
        }
        for one in samples {
            self.info.samples += one.values.len() as u64;
            if self.series.len() < SERIES_COUNTED_MAX {
                self.series.insert(self.hasher.hash_one(&*one.series));
            }
        }
    }

    fn add_text(&mut self, kind: RecordBlockKind, text: &str) {
        let document: Value = serde_json::from_str(text).unwrap_or_default();
        match kind {
            RecordBlockKind::End => {
                self.info.has_ended = true;
                self.info.summary = Some(document);
            }
            RecordBlockKind::Autopsy if self.info.autopsies.len() < AUTOPSIES_MAX => {
                self.info.autopsies.push(document);
            }
            RecordBlockKind::Autopsy => {}
            _ => {
                let info = &mut self.info;
                info.node = info.node.take().or_else(|| text_of(&document, "node"));
                info.identity = info.identity.take().or_else(|| identity_in(&document));
            }
        }
    }

    /// Adds a gap, or extends the one before it.
    fn add_gap(&mut self, first: u64, last: u64) {
        if let Some(gap) = self.info.gaps.last_mut()
            && self.is_gap_open
            && gap.last.saturating_add(1) == first
        {
            gap.last = last;
            return;
        }
        self.info.gap_count += 1;
        if self.info.gaps.len() < GAPS_MAX {
            self.is_gap_open = true;
            self.info.gaps.push(RecordGap {
                first,
                last,
                from: self.info.range.map(|(_, end)| end),
                to: None,
            });
        }
    }
}

fn text_of(document: &Value, key: &str) -> Option<String> {
    match document.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the identity in a document: its own keys, or those of its section `session`.
fn identity_in(document: &Value) -> Option<SessionIdentity> {
    let of = |value: &Value| {
        Some(SessionIdentity {
            workflow: text_of(value, "workflow")?,
            task: text_of(value, "task")?,
            attempt: text_of(value, "attempt")?,
        })
    };
    of(document)
        .or_else(|| of(document.get("session")?))
        .or_else(|| of(document.get("identity")?))
}

/// Returns the identity that the names of folders give: `…/WORKFLOW/TASK/ATTEMPT`.
fn identity_of_folder(folder: &Path) -> Option<SessionIdentity> {
    let mut names = folder.iter().rev().map(|name| name.to_str());
    let mut next = || Some(names.next()??.to_owned());
    let (attempt, task, workflow) = (next()?, next()?, next()?);
    // Another layout would be taken for names otherwise; attempts are numbers.
    let is_number = attempt.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && workflow != "/").then_some(SessionIdentity {
        workflow,
        task,
        attempt,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_in_a_document_or_in_the_names_of_folders() {
        let expected = Some(SessionIdentity {
            workflow: "wf-7".into(),
            task: "align".into(),
            attempt: "1".into(),
        });
        for text in [
            r#"{"workflow":"wf-7","task":"align","attempt":1}"#,
            r#"{"session":{"workflow":"wf-7","task":"align","attempt":"1"}}"#,
        ] {
            let document = serde_json::from_str(text).expect("JSON");
            assert_eq!(identity_in(&document), expected);
        }
        assert_eq!(identity_of_folder(Path::new("/r/wf-7/align/1")), expected);
        for path in ["/align/1", "/r/wf-7/align/x", "1", ""] {
            assert_eq!(identity_of_folder(Path::new(path)), None, "{path}");
        }
    }
}
