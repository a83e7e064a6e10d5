use pegel_testkit::Rng;

use super::*;

fn sketch_of(values: &[f64]) -> QuantileSketch {
    let mut sketch = QuantileSketch::new();
    values.iter().for_each(|value| sketch.add(*value));
    sketch
}

/// The quantile of sorted values, as PromQL defines it.
fn exact_quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = q * (sorted.len() - 1) as f64;
    let low = sorted[rank as usize];
    let high = sorted[(rank as usize + 1).min(sorted.len() - 1)];
    low + (high - low) * (rank - rank.floor())
}

#[test]
fn quantiles_differ_by_at_most_one_percent() {
    let mut rng = Rng::new(2);
    for _ in 0..200 {
        let count = 1 + rng.below(2_000);
        let magnitude = rng.between(-12..15) as i32;
        let sign = if rng.chance(2) { -1.0 } else { 1.0 };
        let mut values: Vec<f64> = (0..count)
            .map(|_| match rng.below(10) {
                0 => 0.0,
                _ => sign * (rng.unit() * 6.0).exp() * 10f64.powi(magnitude),
            })
            .collect();
        let sketch = sketch_of(&values);
        values.sort_by(f64::total_cmp);
        for q in [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0] {
            let (estimate, exact) = (sketch.quantile(q).unwrap(), exact_quantile(&values, q));
            let error = (estimate - exact).abs();
            assert!(
                error <= 0.010_000_001 * exact.abs(),
                "{q}: {estimate} {exact}"
            );
        }
    }
}

#[test]
fn buckets_cover_all_numbers() {
    assert!((GAMMA.ln() - LN_GAMMA).abs() < 1e-15);
    for size in [f64::MIN_POSITIVE, 1e-300, 0.99, 1.0, 1.01, 1e300, f64::MAX] {
        for value in [size, -size] {
            let estimate = sketch_of(&[value]).quantile(0.5).unwrap();
            let error = (estimate / value - 1.0).abs();
            assert!(error <= 0.010_000_001, "{value} {estimate}");
        }
    }
    let smallest = f64::from_bits(1);
    let all = [f64::NEG_INFINITY, -smallest, 0.0, smallest, f64::INFINITY];
    let sketch = sketch_of(&all);
    for (index, value) in all.into_iter().enumerate() {
        let estimate = sketch.quantile(index as f64 / 4.0).unwrap();
        assert_eq!(estimate.signum(), value.signum());
        assert_eq!(
            (estimate == 0.0, estimate.is_finite()),
            (value == 0.0, value.is_finite())
        );
    }
    assert_eq!(QuantileSketch::decode(&sketch.encode()), Ok(sketch));
}

#[test]
fn nan_is_ignored() {
    let mut sketch = sketch_of(&[f64::NAN]);
    assert_eq!((sketch.count(), sketch.quantile(0.5)), (0, None));
    assert!(sketch.encode().is_empty());
    sketch.merge(&sketch_of(&[f64::NAN, 2.0, f64::NAN]));
    assert_eq!(sketch.count(), 1);
    assert_eq!(sketch.quantile(f64::NAN), None);
    assert_eq!(sketch.quantile(1.01), None);
}

#[test]
fn memory_and_bytes_are_bounded() {
    let mut rng = Rng::new(3);
    let mut sketch = QuantileSketch::new();
    for _ in 0..200_000 {
        let value = f64::from_bits(rng.next_u64());
        sketch.add(value);
        assert!(sketch.buckets.len() <= BUCKETS_MAX && sketch.pending.len() < PENDING_MAX);
    }
    assert!(sketch.buckets.capacity() <= 2 * BUCKETS_MAX);
    let bytes = sketch.encode();
    assert!(bytes.len() <= SKETCH_BYTES_MAX);
    assert_eq!(QuantileSketch::decode(&bytes), Ok(sketch));
}

#[test]
fn joined_buckets_do_not_depend_on_the_order_and_leave_large_values_exact() {
    let mut rng = Rng::new(4);
    let values: Vec<f64> = (0..5_000)
        .map(|_| (rng.unit() * 100.0 - 50.0).exp())
        .collect();
    let all = sketch_of(&values);
    assert_eq!(all.all_buckets().len(), BUCKETS_MAX);
    let mut merged = QuantileSketch::new();
    for part in values.chunks(313).rev() {
        merged.merge(&sketch_of(part));
    }
    assert_eq!(all, merged);
    assert_eq!(all.count(), 5_000);
    let mut sorted = values;
    sorted.sort_by(f64::total_cmp);
    let (estimate, exact) = (all.quantile(0.99).unwrap(), exact_quantile(&sorted, 0.99));
    assert!((estimate / exact - 1.0).abs() < 0.011);
}

#[test]
fn sixty_four_similar_values_take_about_a_byte_each() {
    let mut rng = Rng::new(5);
    let values: Vec<f64> = (0..64).map(|_| 40.0 + 40.0 * rng.unit()).collect();
    assert!(sketch_of(&values).encode().len() <= 70);
    assert_eq!(sketch_of(&[0.0; 64]).encode().len(), 4);
}

#[test]
fn hostile_bytes_are_refused_or_have_the_same_encoding() {
    use SketchError::{Buckets, Count, Key, Number, Truncated};
    let refused: [(&[u8], SketchError); 9] = [
        (&[0x80], Truncated),
        (&[0x03], Truncated),
        (&[0x80, 0x00], Number),
        (&[0xff; 11], Number),
        // Bit 64.
        (
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02],
            Number,
        ),
        (
            &[
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x02,
            ],
            Key,
        ),
        (&[0x02, 0x00], Key),
        (&[0x03, 0x01], Count),
        (&[0x03, 0x00], Count),
    ];
    for (bytes, error) in refused {
        assert_eq!(QuantileSketch::decode(bytes), Err(error), "{bytes:x?}");
    }
    assert!(QuantileSketch::decode(&[0x02; BUCKETS_MAX]).is_ok());
    assert_eq!(
        QuantileSketch::decode(&[0x02; BUCKETS_MAX + 1]),
        Err(Buckets)
    );
    // The counts exceed 64 bits.
    let half = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let both = [&[0x03][..], &half, &[0x03], &half].concat();
    assert_eq!(QuantileSketch::decode(&both), Err(Count));
    let one = [&[0x03][..], &half].concat();
    let mut huge = QuantileSketch::decode(&one).unwrap();
    huge.merge(&huge.clone());
    huge.add(1.0);
    assert_eq!(huge.count(), u64::MAX);
    assert!(huge.quantile(0.5).is_some() && huge.quantile(1.0).is_some());

    let mut rng = Rng::new(6);
    let mut accepted = 0;
    for _ in 0..100_000 {
        let mask = if rng.chance(2) { 0x7f } else { 0xff };
        let length = rng.below(12);
        let bytes: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8 & mask).collect();
        if let Ok(sketch) = QuantileSketch::decode(&bytes) {
            accepted += 1;
            assert_eq!(sketch.encode(), bytes);
            assert_eq!(sketch.quantile(0.5).is_some(), !bytes.is_empty());
        }
    }
    assert!(accepted > 1_000);
}
