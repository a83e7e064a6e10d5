//! Round trips and damage over many shapes of data.

use super::*;

/// xorshift64*: enough for tests, the same on every machine.
struct TestRandom(u64);

impl TestRandom {
    fn new(seed: u64) -> TestRandom {
        TestRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.bits() >> 11) % bound
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const LENGTHS: [usize; 12] = [0, 1, 2, 63, 64, 65, 255, 256, 257, 600, 3600, 8192];

type ColumnShape = (&'static str, fn(&mut TestRandom, usize) -> Vec<f64>);

const SHAPES: [ColumnShape; 18] = [
    ("constant", |random, rows| {
        vec![random.below(1000) as f64 / 8.0; rows]
    }),
    ("constant NaN", |random, rows| {
        vec![f64::from_bits(0x7ff0_0000_0000_0001 | random.below(1 << 51)); rows]
    }),
    ("steady counter", |random, rows| {
        running(rows, 1e6, |_| 50.0 + random.below(3) as f64)
    }),
    ("exactly steady counter", |_, rows| {
        running(rows, 17.0, |_| 500.0)
    }),
    ("bursty counter", |random, rows| {
        running(rows, 1e9, |_| {
            if random.below(20) == 0 {
                random.below(1 << 20) as f64
            } else {
                0.0
            }
        })
    }),
    ("counter that restarts", |random, rows| {
        let mut total = 1e12;
        (0..rows)
            .map(|row| {
                total = if row % 100 == 99 {
                    0.0
                } else {
                    total + random.below(5000) as f64
                };
                total
            })
            .collect()
    }),
    ("counter beyond 2^53", |random, rows| {
        running(rows, 1e18, |_| (random.below(1 << 20) << 10) as f64)
    }),
    ("counter at the end of u64", |random, rows| {
        (0..rows)
            .map(|_| (u64::MAX - random.below(1 << 20)) as f64)
            .collect()
    }),
    ("CPU seconds", |random, rows| {
        let mut ticks = 123_456_789;
        (0..rows)
            .map(|_| {
                ticks += 40 + random.below(12);
                ticks as f64 / 100.0
            })
            .collect()
    }),
    ("bytes in pages", |random, rows| {
        let mut pages = 1_000_000_i64;
        (0..rows)
            .map(|_| {
                pages += random.below(401) as i64 - 200;
                (pages * 4096) as f64
            })
            .collect()
    }),
    ("pressure totals", |random, rows| {
        let mut micros = 987_654_321_u64;
        (0..rows)
            .map(|_| {
                micros += random.below(2) * random.below(5000);
                micros as f64 / 1e6
            })
            .collect()
    }),
    ("percent of ratios", |random, rows| {
        (0..rows)
            .map(|_| 100.0 * random.below(101) as f64 / (96 + random.below(9)) as f64)
            .collect()
    }),
    ("random walk", |random, rows| {
        running(rows, 100.0, |_| random.unit() - 0.5)
    }),
    ("single precision", |random, rows| {
        (0..rows).map(|_| f64::from(random.unit() as f32)).collect()
    }),
    ("random bits", |random, rows| {
        (0..rows).map(|_| f64::from_bits(random.bits())).collect()
    }),
    ("special values", |random, rows| {
        let special = [
            0.0,
            -0.0,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            5e-324,
            f64::MAX,
            f64::MIN,
            1.0,
            0.1,
        ];
        (0..rows)
            .map(|_| special[random.below(11) as usize])
            .collect()
    }),
    ("integers of any size", |random, rows| {
        (0..rows)
            .map(|_| (random.bits() as i64 >> random.below(64)) as f64)
            .collect()
    }),
    ("mostly decimal", |random, rows| {
        (0..rows)
            .map(|_| {
                if random.below(500) == 0 {
                    f64::NAN
                } else {
                    random.below(1000) as f64 / 10.0
                }
            })
            .collect()
    }),
];

fn running(rows: usize, start: f64, mut step: impl FnMut(usize) -> f64) -> Vec<f64> {
    let mut total = start;
    (0..rows)
        .map(|row| {
            total += step(row);
            total
        })
        .collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

type ValueEncoder = fn(&[f64], &mut Vec<u8>);

const ENCODERS: [ValueEncoder; 2] = [encode_quick, encode_small];

#[test]
fn every_shape_reads_back_bit_for_bit() {
    for (seed, (name, shape)) in SHAPES.iter().enumerate() {
        for rows in LENGTHS {
            let values = shape(&mut TestRandom::new(seed as u64 + 1), rows);
            assert_eq!(values.len(), rows);
            for encode in ENCODERS {
                let mut bytes = Vec::new();
                encode(&values, &mut bytes);
                assert!(
                    bytes.len() <= 8 * rows + 1,
                    "{name}, {rows} rows: {} bytes",
                    bytes.len()
                );
                let mut back = vec![42.0];
                assert_eq!(
                    decode_values(&bytes, rows, &mut back),
                    Ok(()),
                    "{name}, {rows} rows"
                );
                assert_eq!(bits(&back[1..]), bits(&values), "{name}, {rows} rows");
            }
        }
    }
}

#[test]
fn small_is_never_larger_than_quick() {
    for (seed, (name, shape)) in SHAPES.iter().enumerate() {
        for rows in LENGTHS {
            let values = shape(&mut TestRandom::new(seed as u64 + 100), rows);
            let (mut quick, mut small) = (Vec::new(), Vec::new());
            encode_quick(&values, &mut quick);
            encode_small(&values, &mut small);
            assert!(
                small.len() <= quick.len(),
                "{name}, {rows} rows: {} > {}",
                small.len(),
                quick.len()
            );
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (seed, (name, shape)) in SHAPES.iter().enumerate() {
        for rows in [1, 2, 64, 257, 600] {
            let values = shape(&mut TestRandom::new(seed as u64 + 200), rows);
            for encode in ENCODERS {
                let mut bytes = Vec::new();
                encode(&values, &mut bytes);
                // A constant without its last bytes is another constant.
                if bytes[0] == 1 {
                    continue;
                }
                for end in 0..bytes.len() {
                    let mut out = vec![1.0];
                    assert!(
                        decode_values(&bytes[..end], rows, &mut out).is_err(),
                        "{name}, {rows} rows, {end} bytes"
                    );
                    assert_eq!(out, [1.0]);
                }
            }
        }
    }
}

#[test]
fn flipped_bits_and_noise_never_panic() {
    let mut random = TestRandom::new(7);
    for (name, shape) in SHAPES {
        for rows in [2, 65, 600, 1024] {
            let values = shape(&mut random, rows);
            for encode in ENCODERS {
                let mut bytes = Vec::new();
                encode(&values, &mut bytes);
                for round in 0..400 {
                    let mut damaged = bytes.clone();
                    // Heads and metadata are where damage does most.
                    let reach = if round % 2 == 0 {
                        damaged.len().min(40)
                    } else {
                        damaged.len()
                    };
                    for _ in 0..=random.below(3) {
                        let at = random.below(reach as u64) as usize;
                        damaged[at] ^= 1 << random.below(8);
                    }
                    expect_rows_or_nothing(&damaged, rows, name);
                    expect_rows_or_nothing(&bytes, rows + 1 + random.below(300) as usize, name);
                    expect_rows_or_nothing(&bytes, rows - 1, name);
                }
            }
        }
    }
    for _ in 0..20_000 {
        let mut noise: Vec<u8> = (0..1 + random.below(200))
            .map(|_| random.bits() as u8)
            .collect();
        noise[0] &= 0xf7;
        expect_rows_or_nothing(&noise, 1 + random.below(700) as usize, "noise");
    }
}

fn expect_rows_or_nothing(bytes: &[u8], rows: usize, name: &str) {
    let mut out = Vec::new();
    let decoded = decode_values(bytes, rows, &mut out);
    assert_eq!(out.len(), if decoded.is_ok() { rows } else { 0 }, "{name}");
    assert!(out.capacity() <= 2 * ROWS_MAX, "{name}");
}

#[test]
fn a_column_beyond_the_limit_is_refused() {
    assert!(decode_values(&[1], ROWS_MAX, &mut Vec::new()).is_ok());
    assert!(decode_values(&[1], ROWS_MAX + 1, &mut Vec::new()).is_err());
    assert!(decode_times(&[0, 0, 1, 1], usize::MAX, &mut Vec::new()).is_err());
}

#[test]
fn damaged_times_never_panic_and_always_rise() {
    let mut random = TestRandom::new(11);
    for jitter in [1, 2, 50, 1 << 20, 1 << 50] {
        let mut time = -5_000_000;
        let times: Vec<i64> = (0..700)
            .map(|_| {
                time += 1 + random.below(jitter) as i64;
                time
            })
            .collect();
        let mut bytes = Vec::new();
        encode_times(&times, &mut bytes);
        for end in 0..bytes.len() {
            assert!(decode_times(&bytes[..end], times.len(), &mut Vec::new()).is_err());
        }
        for _ in 0..2000 {
            let mut damaged = bytes.clone();
            let at = random.below(damaged.len().min(300) as u64) as usize;
            damaged[at] ^= 1 << random.below(8);
            let mut out = Vec::new();
            if decode_times(&damaged, times.len(), &mut out).is_ok() {
                assert_eq!(out.len(), times.len());
                assert!(out.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
