//! A collector of the model, and the values of its series.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, SampleGroup, Series, Slot};
use pegel_testkit::Rng;

/// A group with changing members.
pub(super) struct ModelCollector {
    pub group: SampleGroup,
    pub live_for: Millis,
    pub slots: Vec<(Slot, Arc<Series>)>,
    pub absent: Vec<Arc<Series>>,
}

impl ModelCollector {
    pub(super) fn new(name: &str, rng: &mut Rng) -> ModelCollector {
        let live_for = *rng.pick(&[2_000, 10_000]);
        let away = (0..6)
            .map(|n| {
                series(
                    name,
                    if n < 3 {
                        MetricKind::Counter
                    } else {
                        MetricKind::Gauge
                    },
                    n,
                )
            })
            .collect();
        let mut collector = ModelCollector {
            group: SampleGroup::new(name, 3, live_for),
            live_for,
            slots: Vec::new(),
            absent: away,
        };
        for _ in 0..rng.between(1..5) {
            let series = collector.absent.remove(0);
            collector.declare(series);
        }
        collector
    }

    /// Adds or removes a member; returns a description.
    pub(super) fn change(&mut self, rng: &mut Rng) -> String {
        let grows = self.slots.is_empty() || (!self.absent.is_empty() && rng.chance(2));
        if grows {
            let from = rng.below(self.absent.len() as u64) as usize;
            let series = self.absent.swap_remove(from);
            self.declare(series.clone());
            format!("+ {series}")
        } else {
            let from = rng.below(self.slots.len() as u64) as usize;
            let (slot, series) = self.slots.swap_remove(from);
            self.group.retire(slot);
            self.absent.push(series.clone());
            format!("- {series}")
        }
    }

    fn declare(&mut self, series: Arc<Series>) {
        let labels: Vec<(String, String)> = series
            .labels()
            .map(|(key, value)| (key.to_owned(), value.into_owned()))
            .collect();
        let labels: Vec<(&str, &str)> = labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let slot = self
            .group
            .declare(series.family(), &labels)
            .expect("a valid series");
        self.slots.push((slot, series));
    }
}

pub(super) fn series(name: &str, kind: MetricKind, number: usize) -> Arc<Series> {
    let family = Family {
        name: name.to_owned().into(),
        kind,
        help: "What it is.".into(),
        unit: "".into(),
        level: 1,
        // Members of one group go to blocks of several classes.
        input: [Input::Collect, Input::Statsd, Input::Put][number % 3],
    };
    let number = number.to_string();
    Arc::new(Series::new(Arc::new(family), &[("n", &number)]).expect("a valid series"))
}

/// Returns often the previous value, mostly ordinary numbers, sometimes arbitrary bits.
pub(super) fn next_value(
    rng: &mut Rng,
    last: &mut HashMap<Arc<Series>, f64>,
    series: &Arc<Series>,
) -> f64 {
    let before = last.get(series).copied().unwrap_or(0.0);
    let value = match rng.below(16) {
        0..=4 => before,
        5..=8 => before + rng.between(0..100) as f64,
        9..=10 => rng.between(-1000..1000) as f64 / 100.0,
        11 => rng.unit() * 1e-3,
        12 => f64::from_bits(rng.next_u64()),
        13 => *rng.pick(&[
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            0.0,
            f64::MAX,
        ]),
        _ => rng.below(5) as f64,
    };
    last.insert(series.clone(), value);
    value
}
