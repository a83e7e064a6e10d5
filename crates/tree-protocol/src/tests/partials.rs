use bytes::Bytes;
use pegel_testkit::Rng;

use super::next_value;
use crate::limits::SKETCH_BYTES_MAX;
use crate::{
    PartialCell, PartialTickDecoder, PartialTickEncoder, TickCodecError, decode_partials,
    encode_partials,
};

fn next_cell(rng: &mut Rng, cell: &PartialCell) -> PartialCell {
    let sketch = match rng.below(3) {
        0 => cell.sketch.clone(),
        _ => (0..rng.below(40)).map(|_| rng.next_u64() as u8).collect(),
    };
    PartialCell {
        count: match rng.below(4) {
            0 => rng.next_u64(),
            1 => rng.below(100),
            _ => cell.count,
        },
        sum: next_value(rng, cell.sum),
        min: next_value(rng, cell.min),
        max: next_value(rng, cell.max),
        total: next_value(rng, cell.total),
        sketch,
    }
}

fn bits(cell: &PartialCell) -> (u64, [u64; 4], &[u8]) {
    let numbers = [cell.sum, cell.min, cell.max, cell.total].map(f64::to_bits);
    (cell.count, numbers, &cell.sketch)
}

#[test]
fn partial_ticks_read_back_to_the_bit() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut cells = vec![PartialCell::default(); 1 + rng.below(60) as usize];
        let mut encoder = PartialTickEncoder::new();
        let mut decoder = PartialTickDecoder::new(cells.len());
        for _ in 0..30 {
            for cell in &mut cells {
                if !rng.chance(3) {
                    *cell = next_cell(&mut rng, cell);
                }
            }
            let listed = (0_u32..).zip(cells.iter().cloned());
            let listed: Vec<_> = listed.filter(|_| !rng.chance(8)).collect();
            decoder.decode(&encoder.encode(&listed)).expect("decoded");
            let decoded: Vec<_> = decoder.cells().map(|(id, cell)| (id, bits(cell))).collect();
            let expected: Vec<_> = listed.iter().map(|(id, cell)| (*id, bits(cell))).collect();
            assert_eq!(decoded, expected, "seed {seed}");
            for id in 0..cells.len() as u32 {
                let expected = listed.iter().find(|(listed, _)| *listed == id);
                assert_eq!(
                    decoder.cell(id).map(bits),
                    expected.map(|(_, cell)| bits(cell))
                );
            }
            assert!(encoder.encode(&listed).is_empty());
        }
    }
}

#[test]
fn a_partial_of_a_counter_is_small() {
    let mut rng = Rng::new(1);
    let mut encoder = PartialTickEncoder::new();
    let mut total = 1e9;
    let mut length = 0;
    for _ in 0..100 {
        let sum = rng.between(1000..9000) as f64;
        total += sum;
        let cell = PartialCell {
            count: 64,
            sum,
            min: rng.between(0..30) as f64,
            max: rng.between(100..400) as f64,
            total,
            sketch: Bytes::new(),
        };
        length += encoder.encode(&[(0, cell)]).len();
    }
    assert!(length <= 100 * 10, "{length} bytes for 100 cells");
}

#[test]
fn columns_of_partials_read_back_to_the_bit() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut cell = PartialCell::default();
        let cells: Vec<_> = (0..rng.below(70))
            .map(|_| {
                cell = next_cell(&mut rng, &cell);
                cell.clone()
            })
            .collect();
        let encoded = encode_partials(&cells);
        let decoded = decode_partials(&encoded, cells.len()).expect("decoded");
        let both = [&decoded, &cells].map(|cells| cells.iter().map(bits).collect::<Vec<_>>());
        assert_eq!(both[0], both[1], "seed {seed}");
        for length in 0..encoded.len() {
            assert!(decode_partials(&encoded[..length], cells.len()).is_err());
        }
        let longer = [&encoded[..], &[0]].concat();
        let trailing = Err(TickCodecError::TrailingBytes(1));
        assert_eq!(decode_partials(&longer, cells.len()), trailing);
        if let Some(limit) = cells.len().checked_sub(1) {
            let count = cells.len() as u64;
            let too_many = Err(TickCodecError::TooMany { count, limit });
            assert_eq!(decode_partials(&encoded, limit), too_many);
        }
    }
}

#[test]
fn malformed_partials_are_refused() {
    let decode = |bytes: &[u8]| PartialTickDecoder::new(1).decode(bytes);
    assert_eq!(decode(&[0x00, 0x40]), Ok(()));
    assert_eq!(decode(&[0x00, 0xc0]), Err(TickCodecError::Form(0xc0)));
    assert_eq!(decode(&[0x00, 0x02, 7, 0]), Err(TickCodecError::Form(7)));
    assert_eq!(decode(&[0x03, 0x00]), Err(TickCodecError::Form(3)));
    assert_eq!(decode(&[0x07]), Err(TickCodecError::AbsentBefore(0)));
    let refused = TickCodecError::SketchSize {
        length: SKETCH_BYTES_MAX as u64 + 1,
        limit: SKETCH_BYTES_MAX,
    };
    assert_eq!(decode(&[0x00, 0x60, 0x81, 0x80, 1]), Err(refused));
    assert_eq!(decode(&[0x00, 0x60, 2, 0]), Err(TickCodecError::Truncated));
    // A count beyond the data allocates nothing.
    let count = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(
        decode_partials(&count, usize::MAX),
        Err(TickCodecError::Truncated)
    );
}
