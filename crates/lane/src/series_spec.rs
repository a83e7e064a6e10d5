//! The specification of a series that a program creates, and its encoding in the lane.

use std::fmt;

use crate::layout::{
    Aggregation, LABELS_MAX, LINE_BYTES, LaneKind, STRIPES_MAX, TEXT_BYTES_MAX, put_bytes,
    round_up_to_line, spec_offset,
};

/// A series that a program creates.
#[derive(Debug, Clone, Copy)]
pub struct LaneSeriesSpec<'a> {
    pub kind: LaneKind,
    pub name: &'a str,
    pub help: &'a str,
    /// In any order.
    pub labels: &'a [(&'a str, &'a str)],
    /// For gauges.
    pub aggregation: Aggregation,
    /// The number of cache lines that share the updates of many threads; 1 for all but busy
    /// counters.
    pub stripes: u8,
    /// The level of detail: an agent at level N keeps metrics of level N and below.
    pub level: u8,
    /// Whether processes are distinguished by the label `pid`.
    pub with_pid: bool,
    /// Whether the ranks of a job are distinguished by the label `rank`.
    pub with_rank: bool,
}

impl<'a> LaneSeriesSpec<'a> {
    pub fn new(kind: LaneKind, name: &'a str) -> LaneSeriesSpec<'a> {
        LaneSeriesSpec {
            kind,
            name,
            help: "",
            labels: &[],
            aggregation: Aggregation::Last,
            stripes: 1,
            level: 1,
            with_pid: false,
            with_rank: false,
        }
    }
}

/// The reason why a series cannot be created. The program continues with a handle that does
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateError {
    NameEmpty,
    /// A brace, a quote or a control character in the name.
    NameCharacter,
    /// An empty label key, or one with a character that is not accepted.
    LabelKey,
    DuplicateLabel,
    /// `pid` must be requested, not given; likewise `rank`, unless the program sets it alone.
    LabelReserved,
    TooManyLabels,
    TextTooLong,
    /// Stripes for a kind without stripes, none, or too many.
    Stripes,
    /// All lanes that a process may have are full.
    Full,
    /// There is no memory for another lane.
    Memory,
    /// `PEGEL_DISABLE` is set.
    Disabled,
}

impl CreateError {
    pub const fn text(self) -> &'static str {
        match self {
            CreateError::NameEmpty => "the metric name is empty",
            CreateError::NameCharacter => {
                "the metric name contains a brace, a quote or a control character"
            }
            CreateError::LabelKey => {
                "a label key is empty or contains one of { } \" = , ! ~ or a control character"
            }
            CreateError::DuplicateLabel => "duplicate label",
            CreateError::LabelReserved => {
                "the label pid, and rank if it is requested, are set by the agent: give them no value"
            }
            CreateError::TooManyLabels => "more than 32 labels",
            CreateError::TextTooLong => "name, help and labels together exceed 4096 bytes",
            CreateError::Stripes => "only counters have stripes, from 1 to 64",
            CreateError::Full => "all lanes of this process are full",
            CreateError::Memory => "not enough memory for another lane",
            CreateError::Disabled => "PEGEL_DISABLE is set",
        }
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for CreateError {}

/// The description of a series as stored in the lane, without the slot that follows it.
#[derive(Debug)]
pub(crate) struct EncodedSeriesSpec {
    bytes: [u8; DESCRIPTION_BYTES_MAX],
    length: usize,
    /// Including the slot, in whole cache lines.
    pub entry_bytes: usize,
}

const DESCRIPTION_BYTES_MAX: usize =
    round_up_to_line(spec_offset::TEXT + TEXT_BYTES_MAX + 4 * LABELS_MAX);

impl EncodedSeriesSpec {
    pub(crate) fn new(spec: &LaneSeriesSpec<'_>) -> Result<EncodedSeriesSpec, CreateError> {
        validate_spec(spec)?;
        let mut description = EncodedSeriesSpec {
            bytes: [0; DESCRIPTION_BYTES_MAX],
            length: spec_offset::TEXT,
            entry_bytes: 0,
        };
        description.push(spec.name.as_bytes());
        description.push(spec.help.as_bytes());
        let labels_from = description.length;
        description.push_labels(spec)?;
        let label_bytes = description.length - labels_from;
        let slot = round_up_to_line(description.length);
        description.entry_bytes = slot + spec.kind.slot_bytes() * usize::from(spec.stripes);
        description.put_numbers(spec, slot, label_bytes);
        Ok(description)
    }

    fn put_numbers(&mut self, spec: &LaneSeriesSpec<'_>, slot: usize, label_bytes: usize) {
        let mut flags = 0;
        if spec.with_pid {
            flags |= spec_offset::FLAG_PID;
        }
        if spec.with_rank {
            flags |= spec_offset::FLAG_RANK;
        }
        let bytes = &mut self.bytes;
        put_bytes(
            bytes,
            spec_offset::BYTES,
            &(self.entry_bytes as u32).to_le_bytes(),
        );
        put_bytes(bytes, spec_offset::KIND, &[spec.kind as u8]);
        put_bytes(bytes, spec_offset::AGGREGATION, &[spec.aggregation as u8]);
        put_bytes(bytes, spec_offset::STRIPES, &[spec.stripes]);
        put_bytes(bytes, spec_offset::FLAGS, &[flags]);
        put_bytes(bytes, spec_offset::SLOT, &(slot as u32).to_le_bytes());
        put_bytes(
            bytes,
            spec_offset::NAME_BYTES,
            &(spec.name.len() as u16).to_le_bytes(),
        );
        put_bytes(
            bytes,
            spec_offset::HELP_BYTES,
            &(spec.help.len() as u16).to_le_bytes(),
        );
        put_bytes(
            bytes,
            spec_offset::LABEL_BYTES,
            &(label_bytes as u16).to_le_bytes(),
        );
        put_bytes(bytes, spec_offset::LABEL_COUNT, &[spec.labels.len() as u8]);
        put_bytes(bytes, spec_offset::LEVEL, &[spec.level]);
        let hash = self.hash();
        put_bytes(&mut self.bytes, spec_offset::HASH, &hash.to_le_bytes());
    }

    /// Appends the labels sorted by key, so that their order in the program does not matter.
    fn push_labels(&mut self, spec: &LaneSeriesSpec<'_>) -> Result<(), CreateError> {
        let mut last: Option<&str> = None;
        for _ in 0..spec.labels.len() {
            let rest = spec
                .labels
                .iter()
                .filter(|(key, _)| last.is_none_or(|last| *key > last));
            // Fewer keys than labels: one is a duplicate.
            let (key, value) = rest
                .min_by_key(|(key, _)| *key)
                .ok_or(CreateError::DuplicateLabel)?;
            self.push(&(key.len() as u16).to_le_bytes());
            self.push(&(value.len() as u16).to_le_bytes());
            self.push(key.as_bytes());
            self.push(value.as_bytes());
            last = Some(key);
        }
        Ok(())
    }

    fn push(&mut self, more: &[u8]) {
        put_bytes(&mut self.bytes, self.length, more);
        self.length += more.len();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes
            .get(..round_up_to_line(self.length))
            .unwrap_or_default()
    }

    pub(crate) fn slot(&self) -> usize {
        round_up_to_line(self.length)
    }

    /// Hashes everything except the help text and the offset in the lane (FNV-1a).
    fn hash(&self) -> u64 {
        self.identity()
            .flatten()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            })
    }

    fn identity(&self) -> impl Iterator<Item = &[u8]> {
        identity(&self.bytes)
    }

    /// Returns whether `found`, a description in the lane, describes the same series.
    pub(crate) fn is_same(&self, found: &[u8]) -> bool {
        let hash = spec_offset::HASH..spec_offset::HASH + 8;
        found.get(hash.clone()) == self.bytes.get(hash) && self.identity().eq(identity(found))
    }
}

/// Returns the parts of a description that identify a series: kind to flags, name, labels.
fn identity(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let length = |at| usize::from(crate::layout::u16_at(bytes, at).unwrap_or(0));
    let help = spec_offset::TEXT + length(spec_offset::NAME_BYTES);
    let labels = help + length(spec_offset::HELP_BYTES);
    let end = labels + length(spec_offset::LABEL_BYTES);
    [
        spec_offset::KIND..spec_offset::SLOT,
        spec_offset::TEXT..help,
        labels..end,
    ]
    .into_iter()
    .map(|range| bytes.get(range).unwrap_or_default())
}

fn validate_spec(spec: &LaneSeriesSpec<'_>) -> Result<(), CreateError> {
    if spec.name.is_empty() {
        return Err(CreateError::NameEmpty);
    }
    if has_invalid_char(spec.name, "{}\"") {
        return Err(CreateError::NameCharacter);
    }
    if spec.labels.len() > LABELS_MAX {
        return Err(CreateError::TooManyLabels);
    }
    let mut bytes = spec.name.len() + spec.help.len();
    for (key, value) in spec.labels {
        if key.is_empty() || has_invalid_char(key, "{}\"=,!~") {
            return Err(CreateError::LabelKey);
        }
        if *key == "pid" || (*key == "rank" && spec.with_rank) {
            return Err(CreateError::LabelReserved);
        }
        bytes = bytes.saturating_add(key.len() + value.len());
    }
    if bytes > TEXT_BYTES_MAX {
        return Err(CreateError::TextTooLong);
    }
    let stripes = usize::from(spec.stripes);
    if stripes == 0 || stripes > STRIPES_MAX || (stripes > 1 && !spec.kind.can_stripe()) {
        return Err(CreateError::Stripes);
    }
    Ok(())
}

fn has_invalid_char(text: &str, refused: &str) -> bool {
    text.chars().any(|c| c.is_control() || refused.contains(c))
}

const _: () = assert!(DESCRIPTION_BYTES_MAX.is_multiple_of(LINE_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut LaneSeriesSpec<'_>)) -> Option<CreateError> {
        let mut spec = LaneSeriesSpec::new(LaneKind::Counter, "a_total");
        change(&mut spec);
        EncodedSeriesSpec::new(&spec).err()
    }

    #[test]
    fn what_no_series_can_be_called_is_refused() {
        use CreateError::*;
        let long = "x".repeat(TEXT_BYTES_MAX);
        let many = vec![("k", "v"); LABELS_MAX + 1];
        assert_eq!(error(|_| {}), None);
        assert_eq!(error(|spec| spec.name = ""), Some(NameEmpty));
        assert_eq!(error(|spec| spec.name = "a{"), Some(NameCharacter));
        assert_eq!(error(|spec| spec.name = "a\n"), Some(NameCharacter));
        assert_eq!(error(|spec| spec.labels = &[("", "1")]), Some(LabelKey));
        assert_eq!(error(|spec| spec.labels = &[("a=", "1")]), Some(LabelKey));
        assert_eq!(
            error(|spec| spec.labels = &[("pid", "1")]),
            Some(LabelReserved)
        );
        // Workers of a pool have ranks of their own.
        assert_eq!(error(|spec| spec.labels = &[("rank", "1")]), None);
        let both = |spec: &mut LaneSeriesSpec<'_>| {
            spec.labels = &[("rank", "1")];
            spec.with_rank = true;
        };
        assert_eq!(error(both), Some(LabelReserved));
        assert_eq!(
            error(|spec| spec.labels = &[("a", "1"), ("b", "2"), ("a", "3")]),
            Some(DuplicateLabel)
        );
        assert_eq!(error(|spec| spec.stripes = 0), Some(Stripes));
        assert_eq!(error(|spec| spec.stripes = 65), Some(Stripes));
        let mut spec = LaneSeriesSpec::new(LaneKind::Gauge, "g");
        spec.stripes = 2;
        assert_eq!(EncodedSeriesSpec::new(&spec).err(), Some(Stripes));
        let mut spec = LaneSeriesSpec::new(LaneKind::Gauge, "g");
        spec.labels = &many;
        assert_eq!(EncodedSeriesSpec::new(&spec).err(), Some(TooManyLabels));
        let spec = LaneSeriesSpec::new(LaneKind::Gauge, &long);
        assert!(EncodedSeriesSpec::new(&spec).is_ok());
        let longer = "x".repeat(TEXT_BYTES_MAX + 1);
        let spec = LaneSeriesSpec::new(LaneKind::Gauge, &longer);
        assert_eq!(EncodedSeriesSpec::new(&spec).err(), Some(TextTooLong));
    }

    #[test]
    fn the_order_of_labels_and_the_help_do_not_make_another_series() {
        let describe = |help, labels| {
            let mut spec = LaneSeriesSpec::new(LaneKind::Counter, "a_total");
            spec.help = help;
            spec.labels = labels;
            EncodedSeriesSpec::new(&spec).expect("valid")
        };
        let one = describe("Help", &[("b", "2"), ("a", "1")]);
        assert!(one.is_same(describe("", &[("a", "1"), ("b", "2")]).bytes()));
        assert!(!one.is_same(describe("Help", &[("a", "1")]).bytes()));
        assert!(!one.is_same(describe("Help", &[("a", "12"), ("b", "")]).bytes()));
        assert!(!one.is_same(&[]));
    }
}
