//! The encodings of columns, rows and packed blocks.

use pegel_store::fuzzing::{
    COLUMN_ROWS_MAX, decode_row, decode_times, decode_values, encode_row, encode_times,
    encode_values, pack, unpack,
};

use super::Target;
use crate::memory::bounded;
use crate::source::InputReader;

/// The memory limit of decoding: a small multiple of the rows, for any input.
const COLUMN_BYTES_MAX: usize = 4 << 20;

pub(super) const VALUES: Target = Target {
    name: "values",
    run: values,
    dictionary: &[],
    seeds: || (0..6).map(numbers).collect(),
};

pub(super) const VALUES_BYTES: Target = Target {
    name: "values_bytes",
    run: values_bytes,
    dictionary: &[],
    seeds: || {
        let encoded = columns().into_iter().flat_map(|column| {
            [false, true].map(|is_small| with_rows(column.len(), encode_values(&column, is_small)))
        });
        encoded.collect()
    },
};

pub(super) const TIMES: Target = Target {
    name: "times",
    run: times,
    dictionary: &[],
    seeds: || (0..6).map(numbers).collect(),
};

pub(super) const TIMES_BYTES: Target = Target {
    name: "times_bytes",
    run: times_bytes,
    dictionary: &[],
    seeds: || {
        let grids = [1, 2, 40, 700].into_iter().flat_map(|rows: i64| {
            let start = 1_700_000_000_000;
            let regular = (0..rows).map(|row| start + 500 * row).collect::<Vec<i64>>();
            let jitter = (0..rows)
                .map(|row| start + 500 * row + row * 7919 % 16)
                .collect();
            let gaps = (0..rows)
                .map(|row| start + 500 * row + row / 20 * 3_600_000)
                .collect();
            [regular, jitter, gaps]
        });
        grids
            .map(|times| with_rows(times.len(), encode_times(&times)))
            .collect()
    },
};

pub(super) const ROW: Target = Target {
    name: "row",
    run: row,
    dictionary: &[],
    seeds: || (0..6).map(numbers).collect(),
};

pub(super) const ROW_BYTES: Target = Target {
    name: "row_bytes",
    run: row_bytes,
    dictionary: &[],
    seeds: || {
        let rows = columns()
            .into_iter()
            .filter(|column| column.len() <= 256)
            .map(|column| {
                let current: Vec<u64> = column.iter().map(|value| value.to_bits()).collect();
                let encoded = encode_row(
                    &vec![0; current.len()],
                    &current,
                    &mut vec![0; current.len()],
                );
                with_rows(current.len(), encoded)
            });
        rows.collect()
    },
};

pub(super) const UNPACK: Target = Target {
    name: "unpack",
    run: unpacks,
    dictionary: &[],
    seeds: || {
        let raw = [
            &b""[..],
            b"a",
            &[7; 5000],
            b"abcabcabcabcabcdabcdabcd",
            &numbers(3),
        ];
        raw.map(pack).to_vec()
    },
};

/// The number of rows, then the bytes.
fn with_rows(rows: usize, bytes: Vec<u8>) -> Vec<u8> {
    let mut input = (rows as u16).to_le_bytes().to_vec();
    input.extend(bytes);
    input
}

/// Bytes from which `InputReader::float` decodes different columns.
fn numbers(shape: u8) -> Vec<u8> {
    (0..600_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 / (shape + 1))
        .collect()
}

fn columns() -> Vec<Vec<f64>> {
    let mut columns = Vec::new();
    for rows in [1, 9, 256, 1000] {
        let number = |f: &dyn Fn(usize) -> f64| (0..rows).map(f).collect::<Vec<f64>>();
        columns.push(number(&|_| 42.5));
        columns.push(number(&|row| (row * row) as f64));
        columns.push(number(&|row| (row % 7) as f64 / 100.0));
        columns.push(number(&|row| (row / 50) as f64 * 4096.0));
        columns.push(number(&|row| 1.0 / (row + 1) as f64));
        columns.push(number(&|row| {
            f64::from_bits((row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        }));
        columns.push(number(&|row| f64::from((row as f32).sqrt())));
    }
    columns
}

/// Decodes a column, either value by value or as a repeated short piece.
fn column(source: &mut InputReader<'_>) -> Vec<f64> {
    let rows = source.up_to(COLUMN_ROWS_MAX);
    let distinct = 1 + source.up_to(300);
    let step = source.float();
    let mut piece = Vec::new();
    while piece.len() < distinct.min(rows) && !source.is_empty() {
        piece.push(source.float());
    }
    if piece.is_empty() {
        piece.push(0.0);
    }
    let mut column: Vec<f64> = piece.iter().copied().cycle().take(rows).collect();
    if step.is_finite() {
        column
            .iter_mut()
            .enumerate()
            .for_each(|(row, value)| *value += step * (row / piece.len()) as f64);
    }
    column
}

fn values(input: &[u8]) {
    let column = column(&mut InputReader::new(input));
    for is_small in [false, true] {
        let encoded = encode_values(&column, is_small);
        assert!(
            encoded.len() <= 1 + 8 * column.len(),
            "larger than the values themselves"
        );
        let decoded = bounded(COLUMN_BYTES_MAX, || decode_values(&encoded, column.len()));
        let decoded = decoded.expect("its own encoding");
        assert!(same(&decoded, &column), "small: {is_small}");
    }
}

fn values_bytes(input: &[u8]) {
    let mut source = InputReader::new(input);
    let rows = source.up_to(COLUMN_ROWS_MAX + 1);
    let decoded = bounded(COLUMN_BYTES_MAX, || decode_values(source.rest(), rows));
    let Some(decoded) = decoded else { return };
    assert_eq!(decoded.len(), rows);
    let again = decode_values(&encode_values(&decoded, true), rows).expect("its own encoding");
    assert!(same(&again, &decoded));
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn times(input: &[u8]) {
    let mut source = InputReader::new(input);
    let mut time = source.u64() as i64;
    let scale = source.u8() % 64;
    let rows = source.up_to(COLUMN_ROWS_MAX);
    let mut times = vec![time];
    while times.len() < rows {
        let step = if source.is_empty() {
            500
        } else {
            1 + (u64::from(source.u16()) << scale)
        };
        match time.checked_add_unsigned(step) {
            Some(next) => time = next,
            None => break,
        }
        times.push(time);
    }
    let encoded = encode_times(&times);
    let decoded = bounded(COLUMN_BYTES_MAX, || decode_times(&encoded, times.len()));
    assert_eq!(decoded.as_deref(), Some(&times[..]));
}

fn times_bytes(input: &[u8]) {
    let mut source = InputReader::new(input);
    let rows = source.up_to(COLUMN_ROWS_MAX + 1);
    let decoded = bounded(COLUMN_BYTES_MAX, || decode_times(source.rest(), rows));
    let Some(decoded) = decoded else { return };
    assert_eq!(decoded.len(), rows);
    assert!(decoded.is_sorted_by(|a, b| a < b), "times that do not rise");
    assert_eq!(decode_times(&encode_times(&decoded), rows), Some(decoded));
}

/// Rows one after the other, as in the log.
fn row(input: &[u8]) {
    let mut source = InputReader::new(input);
    let width = source.up_to(300);
    let (mut previous, mut state) = (vec![0; width], vec![0; width]);
    let mut hints = vec![0; width];
    for _ in 0..16 {
        let mut current = previous.clone();
        for value in &mut current {
            if source.is_empty() {
                break;
            }
            if !source.u8().is_multiple_of(4) {
                *value = source.float().to_bits();
            }
        }
        let encoded = encode_row(&previous, &current, &mut hints);
        assert_eq!(decode_row(&encoded, &mut state), Some(encoded.len()));
        assert_eq!(state, current);
        previous = current;
    }
}

fn row_bytes(input: &[u8]) {
    let mut source = InputReader::new(input);
    let width = source.up_to(4_000);
    let mut state = vec![0; width];
    for _ in 0..16 {
        let rest = source.rest();
        let taken = bounded(COLUMN_BYTES_MAX, || decode_row(rest, &mut state));
        match taken {
            Some(taken) if taken > 0 => drop(source.take(taken)),
            _ => break,
        }
    }
}

fn unpacks(input: &[u8]) {
    // A block declares its length before it is read; LZ4 expands input at most 255 times.
    let raw = bounded(255 * input.len() + (1 << 16), || unpack(input));
    if let Some(raw) = raw {
        assert_eq!(unpack(&pack(&raw)).as_ref(), Some(&raw));
    }
    assert_eq!(unpack(&pack(input)).as_deref(), Some(input));
}
