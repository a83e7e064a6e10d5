use pegel_testkit::Rng;
use std::collections::HashMap;

use super::*;
use crate::QuantileSketch;

fn gauges(cells: &[(u32, f64)]) -> TickCells {
    let mut all = TickCells::default();
    cells
        .iter()
        .for_each(|(key, value)| all.add_gauge(*key, *value));
    all
}

fn gauge(key: u32, value: f64) -> TickCells {
    gauges(&[(key, value)])
}

fn total(value: f64) -> TickCells {
    let mut cells = TickCells::default();
    cells.add_counter(0, None, value);
    cells
}

#[test]
fn a_complete_tick_closes_at_once_and_others_at_their_time() {
    let mut window = TickWindow::new(1_000, 5);
    assert_eq!(window.put(1, 1, 10_000, 1, total(1000.0)), PutOutcome::Open);
    assert_eq!(window.put(2, 1, 10_000, 3, total(507.0)), PutOutcome::Open);
    assert_eq!(window.put(1, 1, 11_000, 1, total(1001.0)), PutOutcome::Open);
    let closed = window.close(&[1, 2], 8_000);
    assert_eq!(closed.len(), 1);
    assert_eq!(
        (closed[0].time, closed[0].nodes, &closed[0].missing[..]),
        (10_000, 4, &[][..])
    );
    assert_eq!(closed[0].partials, [(0, Partial::of_counter(None, 1507.0))]);
    assert_eq!(window.close(&[1, 2], 10_999), []);
    let closed = window.close(&[1, 2, 3], 11_000);
    assert_eq!(
        (closed[0].time, &closed[0].missing[..]),
        (11_000, &[2, 3][..])
    );
    assert_eq!(window.open_count(), 0);
    assert_eq!(window.put(2, 1, 11_000, 1, total(1.0)), PutOutcome::Late);
}

#[test]
fn a_later_complete_tick_does_not_close_an_earlier_one() {
    let mut window = TickWindow::new(1_000, 5);
    window.put(1, 1, 1_000, 1, gauge(0, 1.0));
    window.put(1, 1, 2_000, 1, gauge(0, 1.0));
    window.put(2, 1, 2_000, 1, gauge(0, 1.0));
    assert_eq!(window.close(&[1, 2], 0)[0].time, 2_000);
    assert_eq!(window.put(2, 1, 2_000, 1, gauge(0, 5.0)), PutOutcome::Late);
    assert_eq!(window.put(2, 1, 1_000, 1, gauge(0, 5.0)), PutOutcome::Open);
    assert_eq!(window.close(&[1, 2], 0)[0].partials[0].1.sum, 6.0);
}

#[test]
fn a_newer_epoch_replaces_and_an_older_one_is_ignored() {
    let mut window = TickWindow::new(1_000, 5);
    window.put(1, 5, 1_000, 1, gauge(0, 1.0));
    assert_eq!(window.put(1, 6, 1_000, 1, gauge(0, 2.0)), PutOutcome::Open);
    assert_eq!(window.put(1, 5, 1_000, 1, gauge(0, 3.0)), PutOutcome::Late);
    assert_eq!(
        window.close(&[1], 0)[0].partials,
        [(0, Partial::of_gauge(2.0))]
    );
}

#[test]
fn the_last_cell_of_a_series_counts() {
    let mut window = TickWindow::new(1_000, 5);
    let mut cells = gauges(&[(9, 1.0), (4, 8.0), (9, 3.0), (u32::MAX, 1.0)]);
    for (rate, total) in [(1.0, 5.0), (2.0, 6.0)] {
        cells.add_counter(7, Some(rate), total);
    }
    window.put(1, 1, 1_000, 1, cells);
    let partials = &window.close(&[], 0)[0].partials;
    assert_eq!(
        *partials,
        [
            (4, Partial::of_gauge(8.0)),
            (7, Partial::of_counter(Some(2.0), 6.0)),
            (9, Partial::of_gauge(3.0))
        ]
    );
    // Keys of the tick before have no effect.
    window.put(1, 1, 2_000, 1, gauge(4, 7.0));
    assert_eq!(
        window.close(&[], 0)[0].partials,
        [(4, Partial::of_gauge(7.0))]
    );
}

#[test]
fn a_removed_child_leaves_open_ticks() {
    let mut window = TickWindow::new(1_000, 5);
    window.put(1, 1, 1_000, 1, gauge(0, 1.0));
    window.put(2, 1, 1_000, 1, gauge(0, 2.0));
    window.put(2, 1, 2_000, 1, gauge(0, 2.0));
    window.remove_child(2);
    let closed = window.close(&[1], 3_000);
    assert_eq!(
        (closed.len(), &closed[0].partials),
        (1, &vec![(0, Partial::of_gauge(1.0))])
    );
}

#[test]
fn the_window_is_bounded_at_any_time() {
    let mut window = TickWindow::new(1_000, 4);
    let mut rng = Rng::new(1);
    // Before the first close, a child may claim any time; extremes do not overflow.
    for time in [Millis::MAX, Millis::MIN, 0, -1] {
        window.put(1, 1, time, 1, gauge(0, 1.0));
    }
    assert_eq!(
        window.put(1, 1, 50_000, 1, gauge(0, 1.0)),
        PutOutcome::TooEarly
    );
    assert!(window.close(&[1, 2], 8_000).len() <= 3);
    assert_eq!(
        window.open_count(),
        0,
        "times in the far future are dropped"
    );
    assert_eq!(window.put(1, 1, 12_000, 1, gauge(0, 1.0)), PutOutcome::Open);
    assert_eq!(
        window.put(1, 1, 13_000, 1, gauge(0, 1.0)),
        PutOutcome::TooEarly
    );
    assert_eq!(
        window.put(1, 1, Millis::MAX, 1, gauge(0, 1.0)),
        PutOutcome::TooEarly
    );
    for _ in 0..10_000 {
        window.put(1, 1, rng.between(0..20_000), 1, gauge(0, 1.0));
        assert!(window.ticks.len() <= 4);
    }
    assert!(window.ticks.keys().all(|time| time % 1_000 == 0));
}

#[test]
fn the_window_follows_a_clock_that_is_set_back() {
    let mut window = TickWindow::new(1_000, 4);
    window.close(&[], 1_000_000);
    window.close(&[], 998_000);
    assert_eq!(
        window.put(1, 1, 999_000, 1, gauge(0, 1.0)),
        PutOutcome::Late
    );
    window.close(&[], 10_000);
    assert_eq!(window.put(1, 1, 11_000, 1, gauge(0, 1.0)), PutOutcome::Open);
}

/// Random puts, repeats, removals and closes, compared with a plain map of the last contributions.
#[test]
fn repeated_partials_replace_and_late_ones_change_nothing() {
    let mut rng = Rng::new(7);
    let mut window = TickWindow::new(1_000, 8);
    let mut model: HashMap<(Millis, u32), f64> = HashMap::new();
    let mut closed_times: Vec<Millis> = Vec::new();
    let (mut late, mut now) = (0, 100_000);
    window.close(&[], now - 2_000);
    for _ in 0..20_000 {
        let child = rng.below(4) as u32;
        match rng.below(20) {
            0 => {
                window.remove_child(child);
                model.retain(|key, _| key.1 != child);
            }
            1..4 => {
                now += rng.between(0..1_500);
                for tick in window.close(&[0, 1, 2, 3], now - 2_000) {
                    assert!(!closed_times.contains(&tick.time), "closed twice");
                    closed_times.push(tick.time);
                    let values: Vec<f64> = (0..4)
                        .filter_map(|child| model.remove(&(tick.time, child)))
                        .collect();
                    let partial = &tick.partials[0].1;
                    assert_eq!(partial.sum, values.iter().sum::<f64>());
                    assert_eq!(partial.count, values.len() as u64);
                    assert_eq!(partial.sketch.count(), partial.count);
                    assert_eq!(tick.nodes as usize + tick.missing.len(), 4);
                    assert_eq!(tick.nodes as usize, values.len());
                }
            }
            _ => {
                let time = (now - rng.between(-1_000..5_000)) / 1_000 * 1_000;
                let value = rng.below(1_000) as f64;
                match window.put(child, 1, time, 1, gauge(3, value)) {
                    PutOutcome::Open => drop(model.insert((time, child), value)),
                    PutOutcome::Late => late += 1,
                    PutOutcome::TooEarly | PutOutcome::TooLarge => panic!("{time} at {now}"),
                }
            }
        }
    }
    assert!(late > 100 && closed_times.len() > 100);
}

#[test]
fn the_sketches_of_one_child_are_limited_over_all_open_ticks() {
    let mut wide = Partial::default();
    (1..=1024).for_each(|value| wide.add_value(1.05_f64.powi(value)));
    let wide = || Partial {
        sketch: QuantileSketch::decode(&wide.sketch.encode()).unwrap(),
        ..wide.clone()
    };
    let cells = |count: u32| {
        let mut cells = TickCells::default();
        (0..count).for_each(|key| cells.add_partial(key, wide()));
        cells
    };
    let size = cells(1).sketch_bytes();
    assert!(size >= 16 * 1000, "{size} bytes");
    let half = (CHILD_SKETCH_BYTES_MAX / size / 2) as u32;
    let mut window = TickWindow::new(1000, 16);
    assert_eq!(window.put(1, 1, 1000, 9, cells(half)), PutOutcome::Open);
    assert_eq!(window.put(1, 1, 2000, 9, cells(half)), PutOutcome::Open);
    assert_eq!(window.put(1, 1, 3000, 9, cells(half)), PutOutcome::TooLarge);
    assert_eq!(window.put(2, 1, 3000, 9, cells(1)), PutOutcome::Open);
    assert_eq!(window.put(1, 2, 2000, 9, cells(half)), PutOutcome::Open);
}
