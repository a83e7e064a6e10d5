//! Explores every interleaving of the lock-free parts with loom.
//!
//! `cargo test -p pegel-lane --features loom --test loom`

use loom::sync::Arc;
use loom::thread;
use pegel_lane::model::{Cells, Ring};

#[test]
fn no_addition_is_lost() {
    loom::model(|| {
        let cells = Arc::new(Cells::new());
        let other = cells.clone();
        let adder = thread::spawn(move || {
            other.add(1);
            other.add_float(0.5);
        });
        cells.add(2);
        cells.add_float(0.25);
        adder.join().expect("no panic");
        assert_eq!((cells.value(), cells.float()), (3, 0.75));
    });
}

#[test]
fn a_histogram_keeps_count_sum_and_bounds() {
    loom::model(|| {
        let cells = Arc::new(Cells::new());
        let other = cells.clone();
        let recorder = thread::spawn(move || other.record(8.0));
        cells.record(-2.0);
        recorder.join().expect("no panic");
        assert_eq!(cells.distribution(), (2, 6.0, -2.0, 8.0));
    });
}

/// More points than slots: writers compete for one slot, and a reader copies meanwhile. Each point
/// that it reads is one that was written, complete.
#[test]
fn points_are_complete_in_every_order() {
    // Unbounded, three threads take minutes; bugs of this kind show with two or three preemptions.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(Ring::new(1));
        let writers: Vec<_> = (1..=2)
            .map(|number| {
                let ring = ring.clone();
                thread::spawn(move || ring.push(number, number))
            })
            .collect();
        for (time, value) in ring.read() {
            assert_eq!(time, value);
        }
        let written: Vec<bool> = writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"))
            .collect();
        assert!(written.contains(&true));
        let last = ring.read();
        assert!(last.iter().all(|(time, value)| time == value));
    });
}

/// Enough slots: every point is present in the end, with its own number.
#[test]
fn points_within_the_capacity_are_all_read() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2));
        let other = ring.clone();
        let writer = thread::spawn(move || assert!(other.push(1, 1)));
        assert!(ring.push(2, 2));
        writer.join().expect("no panic");
        let mut points = ring.read();
        points.sort_unstable();
        assert_eq!(points, [(1, 1), (2, 2)]);
    });
}
