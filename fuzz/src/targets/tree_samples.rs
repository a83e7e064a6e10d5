//! The ticks that go up in a tree, and the responses of `/tree/select`.

use bytes::Bytes;
use pegel_tree_protocol::{
    PartialCell, PartialTickDecoder, PartialTickEncoder, SelectEnd, SelectReader, SelectWriter,
    SelectedSeries, ValueTickDecoder, ValueTickEncoder, decode_partials, decode_times,
    decode_values, encode_partials, encode_times, encode_values, select_part,
};

use super::Target;
use crate::memory::bounded;
use crate::source::InputReader;

/// The series of the decoders: few, so that ids at the limit are found.
const TICK_SERIES: usize = 300;

/// The memory limit of a tick, beyond a copy of its bytes.
const TICK_BYTES_MAX: usize = 1 << 20;

/// The limit on the elements of a column.
const COLUMN_MAX: usize = 10_000;

/// The memory limit of a column of this many elements, beyond a copy of its bytes.
const COLUMN_BYTES_MAX: usize = 4 << 20;

pub(super) const VALUE_TICKS: Target = Target {
    name: "tree_value_ticks",
    run: value_ticks,
    dictionary: &[b"\xf8", b"\x80\x00", b"\x06\x08"],
    seeds: || {
        let inputs = [1, 7, 60].map(|stride| {
            let mut encoder = ValueTickEncoder::new();
            framed((0..4).map(|tick| encoder.encode(&seed_values(stride, tick))))
        });
        inputs.to_vec()
    },
};

pub(super) const PARTIAL_TICKS: Target = Target {
    name: "tree_partial_ticks",
    run: partial_ticks,
    dictionary: &[b"\x00\x7f", b"\x00\x3f", b"\xff\xff\x03"],
    seeds: || {
        let inputs = [1, 7, 60].map(|stride| {
            let mut encoder = PartialTickEncoder::new();
            framed((0..4).map(|tick| encoder.encode(&seed_cells(stride, tick))))
        });
        inputs.to_vec()
    },
};

pub(super) const SELECT_RESPONSE: Target = Target {
    name: "tree_select_response",
    run: select_response,
    dictionary: &[
        b"\x00\x00\x00",
        b"\x12\x00",
        b"\x3a\x01\x00",
        b"\x42\x01\x00",
    ],
    seeds: || vec![seed_response()],
};

/// Ticks, each after its length: the form that the targets read.
fn framed(ticks: impl Iterator<Item = Bytes>) -> Vec<u8> {
    let framed = ticks.flat_map(|tick| [&(tick.len() as u16).to_le_bytes()[..], &tick].concat());
    framed.collect()
}

/// Values of all forms. Some series are absent in some ticks.
fn seed_values(stride: u32, tick: u32) -> Vec<(u32, f64)> {
    let value = |index: u32| match index % 8 {
        0 => f64::from(1000 + tick),
        1 => f64::from(1234 + tick) / 100.0,
        2 => f64::from(1234 + tick) / 1000.0,
        3 => f64::from(1 << 30) - 4096.0 * f64::from(tick),
        4 => f64::from(7 + tick) / 1e6,
        5 => f64::from(7 + tick) / 1e9,
        6 => 1.0 / f64::from(3 + tick),
        _ => f64::from_bits(0x7ff0_0000_0000_0002),
    };
    let present = (0..300 / stride).filter(|index| !(index + tick).is_multiple_of(5));
    let present = present.take(40);
    present
        .map(|index| (index * stride, value(index)))
        .collect()
}

fn seed_cells(stride: u32, tick: u32) -> Vec<(u32, PartialCell)> {
    let cell = |(id, value): (u32, f64)| {
        let cell = PartialCell {
            count: u64::from(id % 3),
            sum: value,
            min: -value,
            max: value.round(),
            total: value * f64::from(id % 2),
            sketch: vec![id as u8; (id % 6) as usize].into(),
        };
        (id, cell)
    };
    let values = seed_values(stride, tick).into_iter();
    values.take(12).map(cell).collect()
}

fn seed_response() -> Vec<u8> {
    let mut writer = SelectWriter::new(1 << 16);
    let values: Vec<f64> = seed_values(7, 1)
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    let times: Vec<i64> = (0..values.len() as i64)
        .map(|row| row * row + row)
        .collect();
    let cells: Vec<PartialCell> = seed_cells(7, 1).into_iter().map(|(_, cell)| cell).collect();
    let samples = SelectedSeries {
        host: "n1".to_owned(),
        text: "up{job=\"a\"}".to_owned(),
        kind: 2,
        input: "node".to_owned(),
        times: encode_times(&times).into(),
        values: encode_values(&values).into(),
        ..SelectedSeries::default()
    };
    let partials = SelectedSeries {
        text: "up".to_owned(),
        times: encode_times(&times[..cells.len()]).into(),
        partials: encode_partials(&cells).into(),
        ..SelectedSeries::default()
    };
    for series in [samples, partials] {
        writer.series(&series).expect("within the limit");
    }
    let end = SelectEnd {
        answered: 1,
        expected: 2,
        late: vec!["n2".to_owned()],
        nodes: vec!["n1".to_owned()],
    };
    writer.finish(end).to_vec()
}

/// Reads the ticks of an input.
fn ticks(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut source = InputReader::new(input);
    std::iter::from_fn(move || {
        (!source.is_empty()).then(|| {
            let length = usize::from(source.u16());
            source.take(length)
        })
    })
}

/// What a decoder accepted is encoded to ticks that decode to the same bits.
fn value_ticks(input: &[u8]) {
    let (mut decoder, mut second) = [(); 2].map(|()| ValueTickDecoder::new(TICK_SERIES)).into();
    let mut encoder = ValueTickEncoder::new();
    for tick in ticks(input) {
        if bounded(TICK_BYTES_MAX, || decoder.decode(tick)).is_err() {
            assert_eq!(decoder.values().count(), 0);
            assert!(decoder.decode(&[]).is_err());
            return;
        }
        let values: Vec<(u32, f64)> = decoder.values().collect();
        assert!(values.iter().all(|(id, _)| (*id as usize) < TICK_SERIES));
        let again = encoder.encode(&values);
        second.decode(&again).expect("its own encoding");
        let bits = |decoder: &ValueTickDecoder| -> Vec<(u32, u64)> {
            let values = decoder.values();
            values.map(|(id, value)| (id, value.to_bits())).collect()
        };
        assert_eq!(bits(&second), bits(&decoder));
    }
}

fn partial_ticks(input: &[u8]) {
    let (mut decoder, mut second) = [(); 2]
        .map(|()| PartialTickDecoder::new(TICK_SERIES))
        .into();
    let mut encoder = PartialTickEncoder::new();
    for tick in ticks(input) {
        if bounded(TICK_BYTES_MAX + tick.len(), || decoder.decode(tick)).is_err() {
            assert_eq!(decoder.cells().count(), 0);
            assert!(decoder.decode(&[]).is_err());
            return;
        }
        let cells: Vec<(u32, PartialCell)> = decoder
            .cells()
            .map(|(id, cell)| (id, cell.clone()))
            .collect();
        second
            .decode(&encoder.encode(&cells))
            .expect("its own encoding");
        let again: Vec<_> = second
            .cells()
            .map(|(id, cell)| (id, cell_bits(cell)))
            .collect();
        let cells: Vec<_> = cells
            .iter()
            .map(|(id, cell)| (*id, cell_bits(cell)))
            .collect();
        assert_eq!(again, cells);
    }
}

fn cell_bits(cell: &PartialCell) -> (u64, [u64; 4], &[u8]) {
    let numbers = [cell.sum, cell.min, cell.max, cell.total].map(f64::to_bits);
    (cell.count, numbers, &cell.sketch)
}

fn select_response(input: &[u8]) {
    let mut has_end = false;
    let mut parts = 0;
    let mut reader = SelectReader::new(input);
    while let Some(part) = bounded(64 * input.len() + (1 << 16), || reader.next()) {
        assert!(!has_end, "a part after the end");
        let Ok(part) = part else {
            assert!(reader.next().is_none(), "a part after an error");
            return;
        };
        parts += 1;
        match part.kind.expect("unknown parts are skipped") {
            select_part::Kind::Series(series) => columns(&series),
            select_part::Kind::End(_) => has_end = true,
        }
    }
    assert!(
        has_end && parts <= input.len(),
        "a response without its end"
    );
}

fn columns(series: &SelectedSeries) {
    let limit = |column: &Bytes| COLUMN_BYTES_MAX + 128 * column.len();
    let decoded = bounded(limit(&series.times), || {
        decode_times(&series.times, COLUMN_MAX)
    });
    if let Ok(times) = decoded {
        assert!(times.len() <= COLUMN_MAX && times.is_sorted_by(|a, b| a < b));
        assert_eq!(decode_times(&encode_times(&times), times.len()), Ok(times));
    }
    let decoded = bounded(limit(&series.values), || {
        decode_values(&series.values, COLUMN_MAX)
    });
    if let Ok(values) = decoded {
        assert!(values.len() <= COLUMN_MAX);
        let again = decode_values(&encode_values(&values), values.len()).expect("its own encoding");
        let bits = |values: &[f64]| {
            values
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(&again), bits(&values));
    }
    let partials = &series.partials;
    let decoded = bounded(limit(partials), || decode_partials(partials, COLUMN_MAX));
    if let Ok(cells) = decoded {
        let again = decode_partials(&encode_partials(&cells), cells.len());
        let again = again.expect("its own encoding");
        assert!(again.iter().map(cell_bits).eq(cells.iter().map(cell_bits)));
    }
}
