//! The times of a group or of one series: strictly increasing milliseconds.
//!
//! After the first time come the steps between neighbours, in one of three forms: runs of equal
//! steps (a regular grid is one run, each gap adds two), packed, or entropy-coded, which stays
//! small when a few large gaps stand among small jitter.

use super::bits::{pack, packed_len, unpack, width_of};
use super::byte_reader::{ByteReader, put_varint, put_zigzag};
use super::{DecodeError, ROWS_MAX, entropy};

const RUNS: u8 = 0;
const PACKED: u8 = 1;
const ENTROPY: u8 = 2;

/// Packed steps shorter than this are kept: a smaller form is not worth the time.
const PACKED_SMALL: usize = 64;

pub(crate) fn encode_times(times: &[i64], out: &mut Vec<u8>) {
    assert!(
        times.len() <= ROWS_MAX,
        "a column holds at most {ROWS_MAX} times"
    );
    assert!(
        times.is_sorted_by(|a, b| a < b),
        "times are strictly increasing"
    );
    let Some(&first) = times.first() else {
        return;
    };
    put_zigzag(out, first);
    // Even from the least to the largest i64, a step fits in 64 bits.
    let steps: Vec<u64> = times
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]) as u64)
        .collect();
    if steps.is_empty() {
        return;
    }
    let least = steps.iter().copied().min().unwrap_or(0);
    let largest = steps.iter().copied().max().unwrap_or(0);
    let width = width_of(largest - least);
    let packed = packed_len(width, steps.len());
    let start = out.len();
    put_runs(&steps, out);
    if out.len() - start <= PACKED_SMALL.min(packed) {
        return;
    }
    let mut best = out.split_off(start);
    let offsets: Vec<u64> = steps.iter().map(|step| step - least).collect();
    if packed < best.len() {
        best.clear();
        put_head(PACKED, least, width, &mut best);
        pack(&offsets, width, &mut best);
    }
    if best.len() > PACKED_SMALL {
        put_head(ENTROPY, least, width, out);
        entropy::encode(&offsets, width, out);
        if out.len() - start < best.len() {
            return;
        }
        out.truncate(start);
    }
    out.append(&mut best);
}

fn put_head(form: u8, least: u64, width: u32, out: &mut Vec<u8>) {
    out.push(form);
    put_varint(out, least);
    out.push(width as u8);
}

fn put_runs(steps: &[u64], out: &mut Vec<u8>) {
    out.push(RUNS);
    for run in steps.chunk_by(|a, b| a == b) {
        put_varint(out, run[0]);
        put_varint(out, run.len() as u64);
    }
}

/// Appends exactly `rows` strictly increasing times, or nothing on an error.
pub(crate) fn decode_times(
    bytes: &[u8],
    rows: usize,
    out: &mut Vec<i64>,
) -> Result<(), DecodeError> {
    let start = out.len();
    decode(bytes, rows, out).inspect_err(|_| out.truncate(start))
}

fn decode(bytes: &[u8], rows: usize, out: &mut Vec<i64>) -> Result<(), DecodeError> {
    if rows > ROWS_MAX {
        return Err(DecodeError("too many times in a column"));
    }
    let mut reader = ByteReader::new(bytes);
    if rows > 0 {
        out.reserve(rows);
        let mut times = TimesDecoder {
            last: reader.zigzag()?,
            is_increasing: true,
            out,
        };
        times.out.push(times.last);
        if rows > 1 {
            return decode_steps(reader, rows - 1, &mut times);
        }
    }
    if reader.is_empty() {
        Ok(())
    } else {
        Err(DecodeError("trailing data after times"))
    }
}

fn decode_steps(
    mut reader: ByteReader<'_>,
    count: usize,
    times: &mut TimesDecoder<'_>,
) -> Result<(), DecodeError> {
    match reader.u8()? {
        RUNS => decode_runs(reader, count, times)?,
        form @ (PACKED | ENTROPY) => {
            let least = reader.varint()?;
            let width = u32::from(reader.u8()?);
            let mut offsets = vec![0; count];
            match form {
                PACKED => unpack(reader.rest(), width, &mut offsets, |offset| offset)?,
                _ => entropy::decode(reader.rest(), width, &mut offsets, |offset| offset)?,
            }
            offsets
                .iter()
                .for_each(|offset| times.step(least.wrapping_add(*offset), least));
        }
        _ => return Err(DecodeError("unknown form of times")),
    }
    if times.is_increasing {
        Ok(())
    } else {
        Err(DecodeError("times are not increasing"))
    }
}

fn decode_runs(
    mut reader: ByteReader<'_>,
    count: usize,
    times: &mut TimesDecoder<'_>,
) -> Result<(), DecodeError> {
    let mut left = count as u64;
    while left > 0 {
        let step = reader.varint()?;
        let length = reader.varint()?;
        if length == 0 || length > left {
            return Err(DecodeError("wrong length of a run of times"));
        }
        left -= length;
        for _ in 0..length {
            times.step(step, 0);
        }
    }
    if reader.is_empty() {
        Ok(())
    } else {
        Err(DecodeError("trailing data after times"))
    }
}

struct TimesDecoder<'a> {
    last: i64,
    is_increasing: bool,
    out: &'a mut Vec<i64>,
}

impl TimesDecoder<'_> {
    /// Adds a step. A step below `least` means that its computation overflowed.
    fn step(&mut self, step: u64, least: u64) {
        let next = self.last.wrapping_add(step as i64);
        self.is_increasing &= next > self.last && step >= least;
        self.last = next;
        self.out.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_after_round_trip(times: &[i64]) -> usize {
        let mut bytes = Vec::new();
        encode_times(times, &mut bytes);
        let mut back = vec![42];
        decode_times(&bytes, times.len(), &mut back).unwrap();
        assert_eq!(back[1..], *times);
        bytes.len()
    }

    const NOW: i64 = 1_760_000_000_000;

    fn regular(count: i64, step: i64) -> Vec<i64> {
        (0..count).map(|i| NOW + i * step).collect()
    }

    #[test]
    fn a_regular_grid_costs_a_few_bytes() {
        assert_eq!(size_after_round_trip(&[]), 0);
        assert_eq!(size_after_round_trip(&[NOW]), 6);
        assert!(size_after_round_trip(&regular(7200, 500)) <= 11);
        assert!(size_after_round_trip(&regular(8192, 1)) <= 11);
    }

    #[test]
    fn each_gap_costs_a_few_bytes_more() {
        let mut times = regular(7200, 500);
        times.drain(100..130);
        times.remove(4000);
        assert!(size_after_round_trip(&times) <= 27);
    }

    #[test]
    fn jitter_costs_its_bits_even_beside_a_large_gap() {
        let mut times: Vec<i64> = (0..4096)
            .map(|i| NOW + i * 1000 + (i * 7919) % 16)
            .collect();
        assert!(size_after_round_trip(&times) < 4096 * 6 / 8);
        times[2048..].iter_mut().for_each(|time| *time += 1 << 40);
        assert!(size_after_round_trip(&times) < 4096 * 6 / 8);
    }

    #[test]
    fn the_whole_range_of_times_reads_back() {
        size_after_round_trip(&[i64::MIN, i64::MAX]);
        size_after_round_trip(&[i64::MIN, -1, 0, 1, i64::MAX]);
        size_after_round_trip(
            &(0..3000)
                .map(|i| i64::MIN + i * i * 1_000_003)
                .collect::<Vec<i64>>(),
        );
        let mut wide: Vec<i64> = (-300..300).map(|i| i * 7 + i % 3).collect();
        wide.insert(0, i64::MIN);
        wide.push(i64::MAX);
        size_after_round_trip(&wide);
    }

    #[test]
    fn times_that_do_not_rise_are_refused() {
        let runs = |step: u64, length: u64| {
            let mut bytes = vec![0, RUNS];
            put_varint(&mut bytes, step);
            put_varint(&mut bytes, length);
            bytes
        };
        assert_eq!(decode_times(&runs(1, 3), 4, &mut Vec::new()), Ok(()));
        for (step, length) in [(0, 3), (1, 2), (1, 4), (1, 0), (u64::MAX, 3), (1 << 62, 3)] {
            let mut out = vec![5];
            assert!(
                decode_times(&runs(step, length), 4, &mut out).is_err(),
                "{length} steps of {step}"
            );
            assert_eq!(out, [5]);
        }
        // Offsets that overflow when their least step is added.
        let mut bytes = vec![0];
        put_head(PACKED, u64::MAX, 8, &mut bytes);
        bytes.push(2);
        assert!(decode_times(&bytes, 2, &mut Vec::new()).is_err());
    }

    #[test]
    #[should_panic(expected = "strictly increasing")]
    fn equal_times_are_not_encoded() {
        encode_times(&[1, 1], &mut Vec::new());
    }
}
