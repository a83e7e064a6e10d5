//! The query that several scenarios measure.

use pegel_metric::{Millis, Selector};
use pegel_store::{QueryStep, RangeQuery, StepAggregation, Store};

use crate::RecordedHour;

const STEP_MS: Millis = 10_000;

/// Sums 192 CPU counters (24 CPUs, 8 modes), or their rates, at each of 360 steps. Returns the
/// total over all steps.
pub fn sum_of_192(store: &Store, start: Millis, rate: bool) -> f64 {
    let selector = Selector::parse("node_cpu_seconds_total").expect("a valid selector");
    let fold = if rate {
        StepAggregation::Last
    } else {
        StepAggregation::Avg
    };
    let step = QueryStep {
        millis: STEP_MS,
        aggregation: Some(fold),
    };
    let question = RangeQuery::new(
        selector,
        start,
        start + RecordedHour::MILLIS - 1,
        Some(step),
    );
    let mut sums = vec![0.0; (RecordedHour::MILLIS / STEP_MS) as usize];
    let mut series = 0;
    store
        .query_range(&question, &mut |_, points| {
            series += 1;
            let mut previous: Option<(Millis, f64)> = None;
            for &(time, value) in points {
                let step = ((time - start) / STEP_MS) as usize;
                if !rate {
                    sums[step] += value;
                } else if let Some((previous_time, previous_value)) = previous {
                    // A counter that decreased was reset to zero: its increase is its value.
                    let increase = if value >= previous_value {
                        value - previous_value
                    } else {
                        value
                    };
                    sums[step] += increase * 1000.0 / (time - previous_time) as f64;
                }
                previous = Some((time, value));
            }
        })
        .expect("an answer");
    assert_eq!(series, 192);
    sums.iter().sum()
}
