//! A quantile sketch: counts of values in buckets whose bounds grow by 2 %, as in DDSketch (Masson,
//! Rim, Lee: "DDSketch: a fast and fully-mergeable quantile sketch", VLDB 2019).
//!
//! It is not the crate sketches-ddsketch because that does not expose its buckets, encodes them
//! only in the form of the Java library, and allocates an array of counters (1 KiB and more) for
//! the first value: too much for the partial result of a single value, of which a parent merges
//! 64 × 300 per second.
//!
//! New values are kept as they are until there are [`PENDING_MAX`] of them. That is only a delayed
//! computation of buckets: all results are those of the buckets, so they do not depend on the way
//! that values took through a tree.

use std::borrow::Cow;

/// The most buckets of a sketch. They cover 8 decades below the largest value even if every bucket
/// is used. Beyond that, the buckets of the smallest values are joined.
pub const BUCKETS_MAX: usize = 1024;
/// The most bytes of an encoded sketch.
pub const SKETCH_BYTES_MAX: usize = BUCKETS_MAX * (KEY_BYTES_MAX + COUNT_BYTES_MAX);

/// The most values that are kept as they are.
const PENDING_MAX: usize = 256;
const RELATIVE_ACCURACY: f64 = 0.01;
const GAMMA: f64 = (1.0 + RELATIVE_ACCURACY) / (1.0 - RELATIVE_ACCURACY);
/// The logarithm of `GAMMA`: 2 × atanh(0.01).
const LN_GAMMA: f64 = 0.020_000_666_706_669_435;
/// The key of the bucket that ends at 1. Logarithms of finite values span -37,222..=35,489 buckets,
/// so keys of positive values are positive. 0 is the key of 0; negative values have negative keys.
const KEY_OF_ONE: i32 = 40_000;
const KEY_OF_INFINITY: i32 = 80_000;
/// A key, or the distance of two, with one more bit: 19 bits.
const KEY_BYTES_MAX: usize = 3;
const COUNT_BYTES_MAX: usize = 10;

/// A bucket: its key, and the number of values in it (never 0). Keys have the order of the values.
type SketchBucket = (i32, u64);

/// Estimates quantiles with a relative error of at most 1 %, in bounded memory (18 KiB).
///
/// NaN is ignored. Infinite values have buckets of their own.
#[derive(Debug, Clone)]
pub struct QuantileSketch {
    /// Sorted by key.
    buckets: Vec<SketchBucket>,
    /// The first value, so that a sketch of equal values allocates nothing: most nodes have the
    /// same value of most series. NaN: none.
    first: f64,
    /// How often the first value occurred.
    first_count: u64,
    /// Further values that are not in `buckets`.
    pending: Vec<f64>,
}

/// Why bytes are not a sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SketchError {
    #[error("sketch is truncated")]
    Truncated,
    #[error("sketch has a malformed number")]
    Number,
    #[error("sketch has a bucket outside the range of numbers")]
    Key,
    #[error("sketch has a malformed count")]
    Count,
    #[error("sketch has more than {BUCKETS_MAX} buckets")]
    Buckets,
}

impl Default for QuantileSketch {
    fn default() -> QuantileSketch {
        QuantileSketch::new()
    }
}

/// Two sketches are equal if their buckets are.
impl PartialEq for QuantileSketch {
    fn eq(&self, other: &QuantileSketch) -> bool {
        self.all_buckets() == other.all_buckets()
    }
}

impl QuantileSketch {
    pub const fn new() -> QuantileSketch {
        QuantileSketch {
            buckets: Vec::new(),
            first: f64::NAN,
            first_count: 0,
            pending: Vec::new(),
        }
    }

    #[inline]
    pub fn add(&mut self, value: f64) {
        if value == self.first {
            self.first_count += 1;
        } else if value.is_nan() {
            // Not counted.
        } else if self.first.is_nan() {
            (self.first, self.first_count) = (value, 1);
        } else {
            self.pending.push(value);
            if self.pending.len() >= PENDING_MAX {
                self.buckets = self.all_buckets().into_owned();
                (self.first, self.first_count) = (f64::NAN, 0);
                self.pending.clear();
            }
        }
    }

    pub fn merge(&mut self, other: &QuantileSketch) {
        if other.first_count <= 1 {
            self.add(other.first);
        } else if self.first.is_nan() {
            (self.first, self.first_count) = (other.first, other.first_count);
        } else if self.first == other.first {
            self.first_count += other.first_count;
        } else {
            let first = [(key_of(other.first), other.first_count)];
            self.buckets = merge_buckets(&self.buckets, &first);
        }
        for &value in &other.pending {
            self.add(value);
        }
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else if !other.buckets.is_empty() {
            self.buckets = merge_buckets(&self.buckets, &other.buckets);
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        let in_buckets = self.buckets.iter().map(|(_, count)| *count);
        let in_buckets = in_buckets.fold(0, u64::saturating_add);
        in_buckets
            .saturating_add(self.first_count)
            .saturating_add(self.pending.len() as u64)
    }

    /// Returns the memory that it takes besides its own size.
    pub fn heap_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<SketchBucket>()
            + self.pending.capacity() * size_of::<f64>()
    }

    /// Returns the value at `q` of the sorted values, interpolated between two of them as PromQL's
    /// `quantile` does. `None` without values, and if `q` is not in 0..=1.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = q * (count - 1) as f64;
        let low_rank = rank as u64;
        let (low, high) = if self.buckets.is_empty() {
            self.values_at(low_rank)
        } else {
            let buckets = self.all_buckets();
            let at = |rank| value_of(key_at(&buckets, rank));
            (at(low_rank), at(low_rank.saturating_add(1).min(count - 1)))
        };
        let weight = rank - low_rank as f64;
        if low == high || weight == 0.0 || low == f64::NEG_INFINITY {
            return Some(low);
        }
        Some(low * (1.0 - weight) + high * weight)
    }

    /// Returns the values of the buckets of the value at `rank` and of the next one. Only without
    /// buckets: order is preserved by them, so selecting among the values gives the same result.
    fn values_at(&self, rank: u64) -> (f64, f64) {
        let mut others = self.pending.clone();
        // The first value occupies a range of ranks among the others.
        let below = others.iter().filter(|value| **value < self.first).count() as u64;
        let end = below + self.first_count;
        let mut at = |rank: u64| {
            if (below..end).contains(&rank) {
                return self.first;
            }
            let index = if rank < below {
                rank
            } else {
                rank - self.first_count
            };
            let index = (index as usize).min(others.len() - 1);
            *others.select_nth_unstable_by(index, f64::total_cmp).1
        };
        let last = end + self.pending.len() as u64 - below - 1;
        let (low, high) = (at(rank.min(last)), at((rank + 1).min(last)));
        (value_of(key_of(low)), value_of(key_of(high)))
    }

    /// Returns the buckets of all values.
    fn all_buckets(&self) -> Cow<'_, [SketchBucket]> {
        if self.first.is_nan() {
            // Then nothing is pending.
            return Cow::Borrowed(&self.buckets);
        }
        let mut keys: Vec<i32> = self.pending.iter().copied().map(key_of).collect();
        keys.sort_unstable();
        let runs = keys.chunk_by(|a, b| a == b);
        let pending: Vec<SketchBucket> = runs.map(|run| (run[0], run.len() as u64)).collect();
        let first = [(key_of(self.first), self.first_count)];
        let buckets = merge_buckets(&self.buckets, &first);
        Cow::Owned(merge_buckets(&buckets, &pending))
    }

    /// Encodes the buckets in the order of their keys. Each is the distance of its key from the one
    /// before (from the key of minus infinity, for the first), shifted left by one; the lowest bit
    /// is set if a count follows, otherwise the count is 1. Numbers are variable-length, 7 bits per
    /// byte, lowest first, as in protobuf.
    pub fn encode(&self) -> Vec<u8> {
        let buckets = self.all_buckets();
        let mut bytes = Vec::with_capacity(2 * buckets.len() + 2);
        let mut previous = -KEY_OF_INFINITY;
        for &(key, count) in buckets.iter() {
            let has_count = u64::from(count > 1);
            push_varint(&mut bytes, ((key - previous) as u64) << 1 | has_count);
            if has_count == 1 {
                push_varint(&mut bytes, count);
            }
            previous = key;
        }
        bytes
    }

    /// Decodes a sketch. Accepts only what `encode` writes: a sketch has one encoding.
    pub fn decode(mut bytes: &[u8]) -> Result<QuantileSketch, SketchError> {
        let mut buckets: Vec<SketchBucket> = Vec::new();
        let mut key = -i64::from(KEY_OF_INFINITY);
        let mut total = 0u64;
        while !bytes.is_empty() {
            let number = take_varint(&mut bytes)?;
            let distance = (number >> 1) as i64;
            if distance == 0 && !buckets.is_empty() {
                return Err(SketchError::Key);
            }
            key = key.checked_add(distance).ok_or(SketchError::Key)?;
            if key > i64::from(KEY_OF_INFINITY) {
                return Err(SketchError::Key);
            }
            let count = match number & 1 {
                0 => 1,
                _ => take_varint(&mut bytes)?,
            };
            if number & 1 == 1 && count < 2 {
                return Err(SketchError::Count);
            }
            total = total.checked_add(count).ok_or(SketchError::Count)?;
            if buckets.len() == BUCKETS_MAX {
                return Err(SketchError::Buckets);
            }
            buckets.push((key as i32, count));
        }
        Ok(QuantileSketch {
            buckets,
            ..QuantileSketch::new()
        })
    }
}

/// Adds up two sorted lists of buckets. If there are too many, those of the smallest values are
/// joined: the largest `BUCKETS_MAX` keys remain, whatever the order of merges.
fn merge_buckets(a: &[SketchBucket], b: &[SketchBucket]) -> Vec<SketchBucket> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    while let (Some(&(key_a, count_a)), Some(&(key_b, count_b))) = (a.peek(), b.peek()) {
        let count = match key_a.cmp(&key_b) {
            std::cmp::Ordering::Less => count_a,
            std::cmp::Ordering::Greater => count_b,
            std::cmp::Ordering::Equal => count_a.saturating_add(count_b),
        };
        a.next_if(|_| key_a <= key_b);
        b.next_if(|_| key_b <= key_a);
        merged.push((key_a.min(key_b), count));
    }
    merged.extend(a);
    merged.extend(b);
    if let Some(excess) = merged.len().checked_sub(BUCKETS_MAX).filter(|n| *n > 0) {
        let joined = merged.drain(..excess).map(|(_, count)| count);
        let joined = joined.fold(0, u64::saturating_add);
        merged[0].1 = merged[0].1.saturating_add(joined);
        merged.shrink_to_fit();
    }
    merged
}

fn key_at(buckets: &[SketchBucket], rank: u64) -> i32 {
    let mut below = 0u64;
    for &(key, count) in buckets {
        below = below.saturating_add(count);
        if rank < below {
            return key;
        }
    }
    // Only if counts are saturated.
    buckets.last().map_or(0, |(key, _)| *key)
}

fn key_of(value: f64) -> i32 {
    let size = value.abs();
    let key = if size == 0.0 {
        0
    } else if size.is_infinite() {
        KEY_OF_INFINITY
    } else {
        KEY_OF_ONE + (size.ln() / LN_GAMMA).ceil() as i32
    };
    if value < 0.0 { -key } else { key }
}

/// Returns the value that differs by at most 1 % from all values of a bucket.
fn value_of(key: i32) -> f64 {
    let size = match key.abs() {
        0 => return 0.0,
        KEY_OF_INFINITY.. => f64::INFINITY,
        key => {
            let power = f64::from(key - KEY_OF_ONE) * LN_GAMMA;
            // Halved, since the bound of the highest bucket exceeds the range of numbers.
            let half_bound = (power - std::f64::consts::LN_2).exp();
            (half_bound * (2.0 / (GAMMA + 1.0)) * 2.0).clamp(f64::from_bits(1), f64::MAX)
        }
    };
    if key < 0 { -size } else { size }
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, SketchError> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(SketchError::Truncated)?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
            return Err(SketchError::Number);
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(SketchError::Number)
}

#[cfg(test)]
mod tests;
