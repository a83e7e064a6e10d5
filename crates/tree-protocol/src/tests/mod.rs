//! Tests of the codings with generated values: what is written reads back to the bit, and no
//! truncated or damaged input causes a panic.

mod columns;
mod documented_bytes;
mod messages;
mod partials;
mod select;
mod ticks;

use pegel_testkit::Rng;

/// The marker of a series that ended, in Prometheus' coding: its payload must survive.
const STALE_NAN: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

const SPECIAL: [f64; 14] = [
    0.0,
    -0.0,
    f64::NAN,
    STALE_NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MIN_POSITIVE,
    5e-324,
    f64::MAX,
    f64::MIN,
    9_007_199_254_740_992.0,
    -9_007_199_254_740_992.0,
    4_503_599_627_370_497.0,
    0.1,
];

/// Returns a value of one of the kinds that occur, or a special one.
fn any_value(rng: &mut Rng) -> f64 {
    let number = rng.between(-1_000_000..100_000_000);
    match rng.below(9) {
        0 => *rng.pick(&SPECIAL),
        1 => f64::from_bits(rng.next_u64()),
        2 => rng.unit() * 100.0,
        3 => number as f64,
        4 => number as f64 / 100.0,
        5 => number as f64 / 1000.0,
        6 => number as f64 / 1e6,
        7 => number as f64 / 1e9,
        _ => number as f64 * 4096.0,
    }
}

/// Changes a value as its series would: by a little, or to anything.
fn next_value(rng: &mut Rng, value: f64) -> f64 {
    match rng.below(6) {
        0 => value,
        1 => value + 1.0,
        2 => value + 0.25,
        3 => value - 512.0,
        _ => any_value(rng),
    }
}
