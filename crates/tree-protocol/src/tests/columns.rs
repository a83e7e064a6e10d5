use pegel_testkit::Rng;

use super::next_value;
use crate::{TickCodecError, decode_times, decode_values, encode_times, encode_values};

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn times_read_back() {
    let mut columns = vec![
        vec![],
        vec![-5],
        vec![i64::MIN, i64::MAX],
        vec![i64::MIN, -1, 0, i64::MAX - 1, i64::MAX],
    ];
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut time = rng.between(-1_000_000..2_000_000_000_000);
        let columns_of_seed = (0..rng.below(200)).map(|_| {
            time += match rng.below(10) {
                0 => 1 + rng.below(1 << 40) as i64,
                1 => 999,
                _ => 1000,
            };
            time
        });
        columns.push(columns_of_seed.collect());
    }
    for times in columns {
        let encoded = encode_times(&times);
        assert_eq!(
            decode_times(&encoded, times.len()).as_deref(),
            Ok(&times[..])
        );
        for length in 0..encoded.len() {
            assert!(decode_times(&encoded[..length], times.len()).is_err());
        }
        let longer = [&encoded[..], &[0]].concat();
        let trailing = Err(TickCodecError::TrailingBytes(1));
        assert_eq!(decode_times(&longer, times.len()), trailing);
    }
}

#[test]
fn an_hour_of_seconds_has_few_bytes() {
    let times: Vec<i64> = (0..3600)
        .map(|tick| 1_700_000_000_000 + 1000 * tick)
        .collect();
    assert!(encode_times(&times).len() <= 12);
    assert!(encode_values(&vec![42.5; 3600]).len() <= 8);
    let counter: Vec<f64> = (0..3600).map(|tick| f64::from(tick * 50)).collect();
    assert!(encode_values(&counter).len() <= 3600 * 2 + 5);
}

#[test]
fn malformed_times_are_refused() {
    let decode = |bytes: &[u8]| decode_times(bytes, 10);
    let too_many = |count, limit| Err(TickCodecError::TooMany { count, limit });
    assert_eq!(decode(&[11, 0, 2, 9]), too_many(11, 10));
    // More intervals than the column has.
    assert_eq!(decode(&[3, 0, 2, 2]), too_many(2, 1));
    assert_eq!(decode(&[3, 0, 2, 1]), Ok(vec![0, 1, 2]));
    assert_eq!(decode(&[2, 0, 0, 0]), Err(TickCodecError::TimeOrder));
    assert_eq!(decode(&[2, 0, 1, 0]), Err(TickCodecError::TimeOrder));
    assert_eq!(decode(&[3, 0, 2, 0, 1, 0]), Err(TickCodecError::TimeOrder));
}

#[test]
fn values_read_back_to_the_bit() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut value = 0.0;
        let values = (0..rng.below(200)).map(|_| {
            if !rng.chance(3) {
                value = next_value(&mut rng, value);
            }
            value
        });
        let values: Vec<f64> = values.collect();
        let encoded = encode_values(&values);
        let decoded = decode_values(&encoded, values.len()).expect("decoded");
        assert_eq!(bits(&decoded), bits(&values), "seed {seed}");
        for length in 0..encoded.len() {
            assert!(decode_values(&encoded[..length], values.len()).is_err());
        }
        let longer = [&encoded[..], &[0]].concat();
        let trailing = TickCodecError::TrailingBytes(1);
        assert_eq!(decode_values(&longer, values.len()), Err(trailing));
        for _ in 0..200 {
            let mut damaged = encoded.clone();
            let index = rng.below(damaged.len() as u64) as usize;
            damaged[index] = rng.next_u64() as u8;
            let _ = decode_values(&damaged, 1000);
            let _ = decode_times(&damaged, 1000);
        }
    }
}

#[test]
fn malformed_values_are_refused() {
    let decode = |bytes: &[u8]| decode_values(bytes, 10);
    let too_many = |count, limit| Err(TickCodecError::TooMany { count, limit });
    assert_eq!(decode(&[11, 0x5f]), too_many(11, 10));
    assert_eq!(decode(&[10, 0x57]), Ok(vec![0.0; 10]));
    assert_eq!(decode(&[10, 0x5f]), too_many(11, 10));
    // A run without values would let a few bytes run forever.
    assert_eq!(decode(&[10, 0x07]), too_many(0, 10));
    assert_eq!(
        decode(&[10, 0x57, 0x57]),
        Err(TickCodecError::TrailingBytes(1))
    );
}
