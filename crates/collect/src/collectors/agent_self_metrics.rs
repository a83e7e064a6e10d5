//! Publishes the metrics that other parts of the agent report about themselves. Part of the
//! collector `agent`.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, SeriesError, Slot};

use crate::SelfMetrics;
use crate::proc_parse::ProcParseError;

#[derive(Debug)]
pub(super) struct SelfMetricsSeries {
    sources: Vec<Arc<dyn SelfMetrics>>,
    slots: SelfMetricSlots,
}

/// The series declared so far. Parts report their readings in a stable order, so the lookup tries
/// the entry after the previous hit first and falls back to a linear search.
#[derive(Debug, Default)]
struct SelfMetricSlots {
    entries: Vec<SelfMetricSlot>,
    cursor: usize,
}

#[derive(Debug)]
struct SelfMetricSlot {
    family: Arc<Family>,
    labels: Vec<(String, String)>,
    slot: Slot,
}

impl SelfMetricsSeries {
    pub(super) fn new(parts: Vec<Arc<dyn SelfMetrics>>) -> SelfMetricsSeries {
        SelfMetricsSeries {
            sources: parts,
            slots: SelfMetricSlots::default(),
        }
    }

    pub(super) fn update(&mut self, out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.slots.cursor = 0;
        let mut result = Ok(());
        for part in &self.sources {
            part.readings(
                &mut |family, labels, value| match self.slots.slot(family, labels, out) {
                    Ok(slot) => out.set(slot, value),
                    Err(error) => result = Err(ProcParseError::from(error)),
                },
            );
        }
        result
    }
}

impl SelfMetricSlots {
    fn slot(
        &mut self,
        family: &Arc<Family>,
        labels: &[(&str, &str)],
        out: &mut SampleGroup,
    ) -> Result<Slot, SeriesError> {
        let is_match = |entry: &SelfMetricSlot| entry.matches(family, labels);
        if !self.entries.get(self.cursor).is_some_and(is_match) {
            self.cursor = match self.entries.iter().position(is_match) {
                Some(position) => position,
                None => {
                    let slot = out.declare(family, labels)?;
                    let owned = |(key, value): &(&str, &str)| ((*key).into(), (*value).into());
                    let labels = labels.iter().map(owned).collect();
                    self.entries.push(SelfMetricSlot {
                        family: family.clone(),
                        labels,
                        slot,
                    });
                    self.entries.len() - 1
                }
            };
        }
        let slot = self.entries[self.cursor].slot;
        self.cursor += 1;
        Ok(slot)
    }
}

impl SelfMetricSlot {
    fn matches(&self, family: &Arc<Family>, labels: &[(&str, &str)]) -> bool {
        // A part may create its families on every pass; then the names decide.
        (Arc::ptr_eq(&self.family, family) || self.family.name == family.name)
            && self.labels.len() == labels.len()
            && self
                .labels
                .iter()
                .zip(labels)
                .all(|((k, v), (key, value))| k == key && v == value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use pegel_metric::MetricKind;

    use super::*;
    use crate::collectors::testing::present_series;

    #[derive(Debug)]
    struct TestSelfMetrics {
        family: Arc<Family>,
        pass: AtomicU64,
    }

    impl SelfMetrics for TestSelfMetrics {
        fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
            let pass = self.pass.fetch_add(1, Relaxed);
            put(&self.family, &[("part", "a")], 1.0);
            if pass != 1 {
                put(&self.family, &[("part", "b")], pass as f64);
            }
            put(&self.family, &[], 3.0);
        }
    }

    #[test]
    fn readings_may_disappear_and_return() {
        let family = Arc::new(Family::new("pegel_x", MetricKind::Gauge, "", 0, "X."));
        let part = Arc::new(TestSelfMetrics {
            family,
            pass: AtomicU64::new(0),
        });
        let mut readings = SelfMetricsSeries::new(vec![part]);
        let mut group = SampleGroup::new("agent", 0, 1000);
        for expected in [
            &[
                "pegel_x{part=\"a\"} 1",
                "pegel_x{part=\"b\"} 0",
                "pegel_x 3",
            ][..],
            &["pegel_x{part=\"a\"} 1", "pegel_x 3"],
            &[
                "pegel_x{part=\"a\"} 1",
                "pegel_x{part=\"b\"} 2",
                "pegel_x 3",
            ],
        ] {
            group.clear();
            readings.update(&mut group).expect("valid");
            assert_eq!(present_series(&mut group), expected);
        }
    }

    #[test]
    fn an_invalid_name_is_an_error() {
        let family = Arc::new(Family::new("bad{name", MetricKind::Gauge, "", 0, "X."));
        let part = Arc::new(TestSelfMetrics {
            family,
            pass: AtomicU64::new(0),
        });
        let result =
            SelfMetricsSeries::new(vec![part]).update(&mut SampleGroup::new("agent", 0, 1000));
        assert_eq!(
            result,
            Err(ProcParseError::Series(SeriesError::NameCharacter('{')))
        );
    }
}
