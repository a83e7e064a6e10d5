use pegel_testkit::Rng;

use super::{any_value, next_value};
use crate::{TickCodecError, ValueTickDecoder, ValueTickEncoder};

fn bits(values: impl IntoIterator<Item = (u32, f64)>) -> Vec<(u32, u64)> {
    let values = values.into_iter();
    values.map(|(id, value)| (id, value.to_bits())).collect()
}

/// A series of a node that runs.
enum SentTestSeries {
    Counter(i64),
    Hundredths(i64),
    Thousandths(i64),
    Bytes(i64),
    Float(f64),
}

/// The series of an ordinary node, of which about a third changes in each second.
struct ChangingNode {
    rng: Rng,
    series: Vec<SentTestSeries>,
}

impl ChangingNode {
    fn new() -> ChangingNode {
        let mut rng = Rng::new(18);
        let series = (0..300).map(|index| match index % 10 {
            0..=3 => SentTestSeries::Counter(rng.between(0..4_000_000_000)),
            4 | 5 => SentTestSeries::Hundredths(rng.between(0..50_000_000)),
            6 => SentTestSeries::Thousandths(rng.between(0..500_000_000)),
            7 | 8 => SentTestSeries::Bytes(rng.between(0..64 << 30) / 4096),
            _ => SentTestSeries::Float(rng.unit()),
        });
        let series = series.collect();
        ChangingNode { rng, series }
    }

    fn tick(&mut self) -> Vec<(u32, f64)> {
        for series in &mut self.series {
            if !self.rng.chance(3) {
                continue;
            }
            let rng = &mut self.rng;
            match series {
                // Most count few events, some count packets.
                SentTestSeries::Counter(number) => *number += 1 << rng.below(15),
                SentTestSeries::Hundredths(number) => *number += rng.between(1..100),
                SentTestSeries::Thousandths(number) => *number += rng.between(1..1000),
                SentTestSeries::Bytes(pages) => *pages = (*pages + rng.between(-2000..2000)).max(0),
                SentTestSeries::Float(number) => *number = rng.unit() * 100.0,
            }
        }
        let values = self.series.iter().map(|series| match *series {
            SentTestSeries::Counter(number) => number as f64,
            SentTestSeries::Hundredths(number) => number as f64 / 100.0,
            SentTestSeries::Thousandths(number) => number as f64 / 1000.0,
            SentTestSeries::Bytes(pages) => (pages * 4096) as f64,
            SentTestSeries::Float(number) => number,
        });
        (0..).zip(values).collect()
    }
}

#[test]
fn a_tick_of_a_node_is_small() {
    let mut node = ChangingNode::new();
    let (mut encoder, mut decoder) = (ValueTickEncoder::new(), ValueTickDecoder::new(300));
    let first = encoder.encode(&node.tick());
    decoder.decode(&first).expect("decoded");
    let mut total = 0;
    for _ in 0..100 {
        let values = node.tick();
        let tick = encoder.encode(&values);
        total += tick.len();
        decoder.decode(&tick).expect("decoded");
        assert_eq!(bits(decoder.values()), bits(values));
    }
    let mean = total / 100;
    assert!(
        first.len() < 1800,
        "the first tick has {} bytes",
        first.len()
    );
    assert!(mean < 400, "a tick has {mean} bytes");
}

#[test]
fn ticks_read_back_to_the_bit_while_series_come_and_go() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let width = 1 + rng.below(200) as u32;
        let stride = 1 + rng.below(100) as u32;
        let mut values: Vec<f64> = (0..width).map(|_| any_value(&mut rng)).collect();
        let mut encoder = ValueTickEncoder::new();
        let mut decoder = ValueTickDecoder::new((width * stride) as usize);
        for _ in 0..30 {
            for value in &mut values {
                *value = next_value(&mut rng, *value);
            }
            let listed = (0..).step_by(stride as usize).zip(values.iter().copied());
            let listed: Vec<(u32, f64)> = listed.filter(|_| !rng.chance(8)).collect();
            decoder.decode(&encoder.encode(&listed)).expect("decoded");
            assert_eq!(
                bits(decoder.values()),
                bits(listed.iter().copied()),
                "seed {seed}"
            );
            for id in 0..width * stride {
                let expected = listed.iter().find(|(listed, _)| *listed == id);
                let expected = expected.map(|(_, value)| value.to_bits());
                assert_eq!(decoder.value(id).map(f64::to_bits), expected, "seed {seed}");
            }
        }
    }
}

#[test]
fn an_unchanged_tick_is_empty() {
    let mut encoder = ValueTickEncoder::new();
    let values = [(0, 1.0), (7, f64::NAN), (9, -0.0)];
    assert!(!encoder.encode(&values).is_empty());
    assert!(encoder.encode(&values).is_empty());
}

#[test]
fn truncated_and_damaged_ticks_do_not_panic() {
    let mut node = ChangingNode::new();
    let mut encoder = ValueTickEncoder::new();
    let ticks = [encoder.encode(&node.tick()), encoder.encode(&node.tick())];
    let decode = |first: &[u8], second: &[u8]| {
        let mut decoder = ValueTickDecoder::new(300);
        let decoded = decoder.decode(first).and_then(|()| decoder.decode(second));
        if decoded.is_err() {
            assert_eq!(decoder.values().count(), 0);
            assert_eq!(decoder.decode(&[]), Err(TickCodecError::Failed));
        }
    };
    for length in 0..ticks[0].len() {
        decode(&ticks[0][..length], &ticks[1]);
    }
    for length in 0..ticks[1].len() {
        decode(&ticks[0], &ticks[1][..length]);
    }
    let mut rng = Rng::new(3);
    for _ in 0..20_000 {
        let mut damaged = ticks.clone().map(Vec::from);
        let tick = &mut damaged[rng.below(2) as usize];
        let index = rng.below(tick.len() as u64) as usize;
        tick[index] = rng.next_u64() as u8;
        decode(&damaged[0], &damaged[1]);
    }
}

#[test]
fn malformed_ticks_are_refused() {
    let decode = |bytes: &[u8]| ValueTickDecoder::new(100).decode(bytes);
    let id = |id| Err(TickCodecError::SeriesId { id, limit: 100 });
    // The highest id, and the one after it.
    assert_eq!(decode(&[0xf8, 68, 2]), Ok(()));
    assert_eq!(decode(&[0xf8, 69, 2]), id(100));
    assert_eq!(decode(&[0xf8, 68, 2, 0, 2]), id(100));
    let largest = [&[0xf8][..], &[0xff; 9], &[1, 2]].concat();
    assert_eq!(decode(&largest), id(u64::MAX));
    assert_eq!(decode(&[0x07]), Err(TickCodecError::AbsentBefore(0)));
    assert_eq!(decode(&[0x00]), Err(TickCodecError::Truncated));
    assert_eq!(decode(&[0x00, 0x80, 0]), Err(TickCodecError::Varint));
    // 2^53 + 1, and bits that do not fit.
    let too_large = [0x00, 0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    assert_eq!(decode(&too_large), Err(TickCodecError::Range));
    assert_eq!(decode(&[0x06, 0x10]), Err(TickCodecError::Range));
    assert_eq!(
        decode(&[0x06, 0x18, 1, 2, 3, 4, 5, 6, 7, 8]),
        Err(TickCodecError::Range)
    );
}

#[test]
fn ids_are_limited_to_the_series_defined_so_far() {
    let mut decoder = ValueTickDecoder::new(0);
    decoder.set_series_max(1);
    assert_eq!(decoder.decode(&[0x00, 2]), Ok(()));
    assert_eq!(decoder.value(0), Some(1.0));
    let refused = TickCodecError::SeriesId { id: 1, limit: 1 };
    assert_eq!(decoder.decode(&[0x08, 2]), Err(refused));
}
