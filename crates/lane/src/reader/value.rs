//! Values of series in one copy of a lane.

use crate::cells::{MAX_UNSET, MIN_UNSET};
use crate::layout::{LINE_BYTES, LaneKind, u64_at, word};
use crate::reader::decoded_series::SeriesLocation;
use crate::{BUCKETS, bucket_bound};

/// The value of a series in one copy of a lane. Each number is whole; those of one series may be
/// slightly out of step, so that a call's hits can be one ahead of its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LaneValue<'a> {
    Counter(u64),
    FloatCounter(f64),
    Gauge {
        value: f64,
        /// When it was set, with the precision of the kernel's tick.
        set_ms: i64,
    },
    Calls {
        hits: u64,
        bytes: u64,
        nanos: u64,
    },
    /// Of a histogram or a timer.
    Distribution(LaneDistribution<'a>),
}

/// The distribution of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaneDistribution<'a> {
    pub sum: f64,
    /// Infinity if there is no value; likewise `max`.
    pub min: f64,
    pub max: f64,
    buckets: &'a [u8],
}

impl<'a> LaneValue<'a> {
    /// `slot` begins at the slot of `entry`.
    pub(crate) fn read(entry: SeriesLocation, slot: &'a [u8]) -> Option<LaneValue<'a>> {
        let word = |index: usize| u64_at(slot, 8 * index);
        let summed = |index: usize| -> Option<u64> {
            let mut sum = 0_u64;
            for stripe in 0..usize::from(entry.stripes) {
                sum = sum.wrapping_add(word(stripe * word::LINE + index)?);
            }
            Some(sum)
        };
        match entry.kind {
            LaneKind::Counter => Some(LaneValue::Counter(summed(word::VALUE)?)),
            LaneKind::FloatCounter => {
                let mut sum = 0.0;
                for stripe in 0..usize::from(entry.stripes) {
                    sum += f64::from_bits(word(stripe * word::LINE + word::VALUE)?);
                }
                Some(LaneValue::FloatCounter(sum))
            }
            LaneKind::Gauge => {
                let set_ms = word(word::GAUGE_SET_MS)? as i64;
                let value = f64::from_bits(word(word::VALUE)?);
                (set_ms != 0).then_some(LaneValue::Gauge { value, set_ms })
            }
            LaneKind::Calls => Some(LaneValue::Calls {
                hits: summed(word::CALL_HITS)?,
                bytes: summed(word::CALL_BYTES)?,
                nanos: summed(word::CALL_NANOS)?,
            }),
            LaneKind::Histogram | LaneKind::Timer => {
                Some(LaneValue::Distribution(LaneDistribution {
                    sum: f64::from_bits(word(word::SUM)?),
                    min: f64::from_bits(word(word::MIN)? ^ MIN_UNSET),
                    max: f64::from_bits(word(word::MAX)? ^ MAX_UNSET),
                    buckets: slot.get(LINE_BYTES..LINE_BYTES + 8 * BUCKETS)?,
                }))
            }
            LaneKind::Point => None,
        }
    }
}

impl<'a> LaneDistribution<'a> {
    /// Returns the number of values in each bucket, not cumulative; their upper bounds are
    /// [`bucket_bound`]s.
    pub fn buckets(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.buckets
            .as_chunks()
            .0
            .iter()
            .map(|chunk| u64::from_le_bytes(*chunk))
    }

    /// Returns the number of values: the sum of the buckets.
    pub fn count(&self) -> u64 {
        self.buckets().fold(0, u64::wrapping_add)
    }

    /// Iterates over the buckets that are not empty: upper bound and number of values.
    pub fn filled(&self) -> impl Iterator<Item = (f64, u64)> + use<'a> {
        self.buckets()
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (bucket_bound(bucket), count))
    }
}
