//! Splits samples so that each part observes the limits of a block.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::RecordSamples;
use crate::sample_coder::{SAMPLES_MAX, SERIES_MAX};
use crate::text::TEXT_BYTES_MAX;

/// A time list may belong to one series only, so that each value also needs a time, and a list of
/// its own: a block has room for this many values.
const VALUES_MAX: usize = SAMPLES_MAX / 3;

/// Returns the samples in parts, each for one block, in which each series occurs once. Series
/// without samples are left out.
pub(crate) fn split_samples(samples: &[RecordSamples]) -> Vec<Vec<Cow<'_, RecordSamples>>> {
    let pieces = samples.iter().flat_map(pieces_of);
    let mut parts = Vec::new();
    let mut part: Vec<Cow<'_, RecordSamples>> = Vec::new();
    let (mut values, mut text_bytes) = (0, 0);
    let mut names = HashSet::new();
    for piece in pieces {
        let piece_text_bytes = piece.series.len() + 2;
        let is_full = part.len() == SERIES_MAX
            || values + piece.values.len() > VALUES_MAX
            || text_bytes + piece_text_bytes > TEXT_BYTES_MAX;
        if !part.is_empty() && (is_full || names.contains(&(piece.series.clone(), piece.kind))) {
            parts.push(std::mem::take(&mut part));
            (values, text_bytes) = (0, 0);
            names.clear();
        }
        values += piece.values.len();
        text_bytes += piece_text_bytes;
        names.insert((piece.series.clone(), piece.kind));
        part.push(piece);
    }
    parts.extend((!part.is_empty()).then_some(part));
    parts
}

/// Returns the samples of one series in pieces of at most [`VALUES_MAX`].
fn pieces_of(samples: &RecordSamples) -> Vec<Cow<'_, RecordSamples>> {
    if samples.values.len() <= VALUES_MAX {
        let has_samples = !samples.values.is_empty();
        return has_samples
            .then_some(Cow::Borrowed(samples))
            .into_iter()
            .collect();
    }
    let times = samples.times.chunks(VALUES_MAX);
    let pieces = times.zip(samples.values.chunks(VALUES_MAX));
    let pieces = pieces.map(|(times, values)| RecordSamples {
        times: times.into(),
        values: values.to_vec(),
        ..samples.clone()
    });
    pieces.map(Cow::Owned).collect()
}
