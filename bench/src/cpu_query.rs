use pegel_metric::{Millis, Selector};
use pegel_store::{Fold, Question, Step, Store};

use crate::RecordedHour;

const STEP_MS: Millis = 10_000;

/// The sum of 192 CPU counters (24 CPUs, 8 modes) at each of 360 steps, or of their rates; returns the total.
pub fn sum_of_192(store: &Store, start: Millis, rate: bool) -> f64 {
    let selector = Selector::parse("node_cpu_seconds_total").expect("a valid selector");
    let fold = if rate { Fold::Last } else { Fold::Avg };
    let step = Step {
        millis: STEP_MS,
        fold: Some(fold),
    };
    let question = Question::new(
        selector,
        start,
        start + RecordedHour::MILLIS - 1,
        Some(step),
    );
    let mut sums = vec![0.0; (RecordedHour::MILLIS / STEP_MS) as usize];
    let mut series = 0;
    store
        .range(&question, &mut |_, points| {
            series += 1;
            let mut before: Option<(Millis, f64)> = None;
            for &(time, value) in points {
                let at = ((time - start) / STEP_MS) as usize;
                if !rate {
                    sums[at] += value;
                } else if let Some((earlier, old)) = before {
                    // A counter that went back was reset: it has grown by what it shows.
                    let grown = if value >= old { value - old } else { value };
                    sums[at] += grown * 1000.0 / (time - earlier) as f64;
                }
                before = Some((time, value));
            }
        })
        .expect("an answer");
    assert_eq!(series, 192);
    sums.iter().sum()
}
