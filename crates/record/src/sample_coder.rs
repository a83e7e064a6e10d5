//! The body of a block of samples: the series that are new since the key block, then all samples.
//!
//! ```text
//! u32 length of the list of new series │ that list, deflated │ range-coded:
//!   number of time lists, each: number of times, times
//!   for each series since the key block: is it in this block? which time list? values
//! ```
//!
//! Series that are sampled together share a time list. Encoder and decoder keep the same
//! [`SampleCoder`] from a key block to the next: what one block teaches the models makes the next
//! one smaller.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{MetricKind, Millis};

use crate::number_coder::NumberCoder;
use crate::range_coder::{BitCoder, BitModel, RangeDecoder, RangeEncoder};
use crate::text::{deflate, inflate};
use crate::value_coder::ValueCoder;

/// The most series between two key blocks. Each takes up to 3 KB in encoder and decoder.
pub(crate) const SERIES_MAX: usize = 1 << 17;
/// The most values of a block.
pub(crate) const SAMPLES_MAX: usize = 1 << 21;

/// The samples of one series in one block.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordSamples {
    /// The text of the series, `name{k="v",…}`.
    pub series: Arc<str>,
    pub kind: MetricKind,
    /// In ascending order. Series that are sampled together share them.
    pub times: Arc<[Millis]>,
    /// One value for each time.
    pub values: Vec<f64>,
}

/// Why the body of a block cannot be decoded although its checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed block: {0}")]
pub struct MalformedBlock(pub(crate) &'static str);

/// The models of all series since the last key block.
#[derive(Debug, Default)]
pub(crate) struct SampleCoder {
    series: Vec<SeriesCoder>,
    /// Positions in `series`. Only an encoder fills it.
    positions: HashMap<(Arc<str>, MetricKind), usize>,
    times: NumberCoder,
    counts: NumberCoder,
    list_numbers: NumberCoder,
}

#[derive(Debug)]
struct SeriesCoder {
    text: Arc<str>,
    kind: MetricKind,
    is_present: BitModel,
    /// Whether its time list is that of the series before it.
    has_same_list: BitModel,
    values: ValueCoder,
}

impl SampleCoder {
    pub(crate) fn series_count(&self) -> usize {
        self.series.len()
    }

    /// Returns the body of a block. Each series occurs once and has samples; the limits of a block
    /// are observed (see `split_samples`).
    pub(crate) fn encode(&mut self, samples: &[&RecordSamples]) -> Vec<u8> {
        let (new_series, by_position) = self.add_series(samples);
        let mut lists: Vec<&[Millis]> = Vec::new();
        let mut numbers: HashMap<&[Millis], usize> = HashMap::new();
        for one in by_position.iter().flatten() {
            numbers.entry(&one.times).or_insert_with(|| {
                lists.push(&one.times);
                lists.len() - 1
            });
        }
        let mut coder = RangeEncoder::new();
        self.counts.code(&mut coder, lists.len() as i64);
        for list in &lists {
            self.counts.code(&mut coder, list.len() as i64);
            for time in *list {
                self.times.code(&mut coder, *time);
            }
        }
        let mut last_list = 0;
        for (series, one) in self.series.iter_mut().zip(&by_position) {
            coder.code(&mut series.is_present, one.is_some());
            let Some(one) = one else { continue };
            let list = numbers[&*one.times];
            if !coder.code(&mut series.has_same_list, list == last_list) {
                self.list_numbers.code(&mut coder, list as i64);
            }
            last_list = list;
            series.values.code(&mut coder, &mut one.values.clone());
        }
        let names = deflate(&new_series);
        let mut body = (names.len() as u32).to_le_bytes().to_vec();
        body.extend_from_slice(&names);
        body.extend_from_slice(&coder.finish());
        body
    }

    /// Adds the series that are new. Returns their list, and the samples by position in `series`.
    fn add_series<'a>(
        &mut self,
        samples: &[&'a RecordSamples],
    ) -> (String, Vec<Option<&'a RecordSamples>>) {
        let mut new_series = String::new();
        let mut by_position = vec![None; self.series.len()];
        for &one in samples {
            assert_eq!(one.times.len(), one.values.len(), "one value for each time");
            let key = (one.series.clone(), one.kind);
            let position = *self.positions.entry(key).or_insert_with(|| {
                new_series.push(kind_letter(one.kind));
                new_series.push_str(&one.series);
                new_series.push('\0');
                self.series
                    .push(SeriesCoder::new(one.series.clone(), one.kind));
                by_position.push(None);
                self.series.len() - 1
            });
            by_position[position] = Some(one);
        }
        (new_series, by_position)
    }

    /// Returns the samples of a block.
    pub(crate) fn decode(&mut self, body: &[u8]) -> Result<Vec<RecordSamples>, MalformedBlock> {
        let (length, rest) = body.split_first_chunk().ok_or(TOO_SHORT)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (names, coded) = rest.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.parse_new_series(&inflate(names)?)?;
        let mut coder = RangeDecoder::new(coded);
        let mut samples_left = SAMPLES_MAX;
        let lists = self.decode_times(&mut coder, &mut samples_left)?;
        let mut last_list = 0;
        let mut samples = Vec::new();
        for series in &mut self.series {
            if !coder.code(&mut series.is_present, false) {
                continue;
            }
            if !coder.code(&mut series.has_same_list, false) {
                let list = self.list_numbers.code(&mut coder, 0);
                last_list = usize::try_from(list).unwrap_or(usize::MAX);
            }
            let times = lists
                .get(last_list)
                .ok_or(MalformedBlock("no such times"))?;
            let mut values = vec![0.0; take(&mut samples_left, times.len() as i64)?];
            series.values.code(&mut coder, &mut values);
            if coder.is_exhausted() {
                return Err(TOO_SHORT);
            }
            samples.push(RecordSamples {
                series: series.text.clone(),
                kind: series.kind,
                times: times.clone(),
                values,
            });
        }
        Ok(samples)
    }

    fn parse_new_series(&mut self, list: &str) -> Result<(), MalformedBlock> {
        for entry in list.split_terminator('\0') {
            let mut characters = entry.chars();
            let kind = characters.next().and_then(kind_of_letter);
            let kind = kind.ok_or(MalformedBlock("series of an unknown kind"))?;
            let text = characters.as_str();
            if self.series.len() == SERIES_MAX {
                return Err(MalformedBlock("too many series"));
            }
            self.series.push(SeriesCoder::new(text.into(), kind));
        }
        Ok(())
    }

    fn decode_times(
        &mut self,
        coder: &mut RangeDecoder<'_>,
        samples_left: &mut usize,
    ) -> Result<Vec<Arc<[Millis]>>, MalformedBlock> {
        let mut lists = Vec::new();
        for _ in 0..take(samples_left, self.counts.code(coder, 0))? {
            let mut times = vec![0; take(samples_left, self.counts.code(coder, 0))?];
            for time in &mut times {
                *time = self.times.code(coder, 0);
            }
            if coder.is_exhausted() {
                return Err(TOO_SHORT);
            }
            lists.push(times.into());
        }
        Ok(lists)
    }
}

const TOO_SHORT: MalformedBlock = MalformedBlock("the body is too short");

/// Takes `count` from what a block may still contain.
fn take(left: &mut usize, count: i64) -> Result<usize, MalformedBlock> {
    let count = usize::try_from(count).ok().filter(|count| *count <= *left);
    let count = count.ok_or(MalformedBlock("too many samples"))?;
    *left -= count;
    Ok(count)
}

fn kind_letter(kind: MetricKind) -> char {
    match kind {
        MetricKind::Counter => 'c',
        MetricKind::Gauge => 'g',
        MetricKind::Unknown => 'u',
    }
}

fn kind_of_letter(letter: char) -> Option<MetricKind> {
    let mut kinds = MetricKind::ALL.into_iter();
    kinds.find(|kind| kind_letter(*kind) == letter)
}

impl SeriesCoder {
    fn new(text: Arc<str>, kind: MetricKind) -> SeriesCoder {
        SeriesCoder {
            text,
            kind,
            is_present: BitModel::default(),
            has_same_list: BitModel::default(),
            values: ValueCoder::default(),
        }
    }
}
