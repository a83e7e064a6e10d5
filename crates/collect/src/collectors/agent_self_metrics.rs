//! The readings of other parts of the agent.

use std::sync::Arc;

use pegel_metric::{Family, Group, SeriesError, Slot};

use crate::Own;
use crate::scan::Fault;

#[derive(Debug)]
pub(super) struct SelfMetricsSeries {
    sources: Vec<Arc<dyn Own>>,
    slots: SelfMetricSlots,
}

/// The series seen so far. Readings come in the same order each time, so that the next one is
/// tried first.
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
    pub(super) fn new(parts: Vec<Arc<dyn Own>>) -> SelfMetricsSeries {
        SelfMetricsSeries {
            sources: parts,
            slots: SelfMetricSlots::default(),
        }
    }

    pub(super) fn update(&mut self, out: &mut Group) -> Result<(), Fault> {
        self.slots.cursor = 0;
        let mut result = Ok(());
        for part in &self.sources {
            part.readings(
                &mut |family, labels, value| match self.slots.slot(family, labels, out) {
                    Ok(slot) => out.set(slot, value),
                    Err(error) => result = Err(Fault::from(error)),
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
        out: &mut Group,
    ) -> Result<Slot, SeriesError> {
        let is_it = |entry: &SelfMetricSlot| entry.matches(family, labels);
        if !self.entries.get(self.cursor).is_some_and(is_it) {
            self.cursor = match self.entries.iter().position(is_it) {
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
        // A part may make its families anew each time: then the names decide.
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

    use pegel_metric::Kind;

    use super::*;
    use crate::collectors::testing::present_series;

    #[derive(Debug)]
    struct TestSelfMetrics {
        family: Arc<Family>,
        pass: AtomicU64,
    }

    impl Own for TestSelfMetrics {
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
    fn readings_may_come_and_go() {
        let family = Arc::new(Family::new("pegel_x", Kind::Gauge, "", 0, "X."));
        let part = Arc::new(TestSelfMetrics {
            family,
            pass: AtomicU64::new(0),
        });
        let mut readings = SelfMetricsSeries::new(vec![part]);
        let mut group = Group::new("agent", 0, 1000);
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
    fn a_bad_reading_is_an_error() {
        let family = Arc::new(Family::new("bad{name", Kind::Gauge, "", 0, "X."));
        let part = Arc::new(TestSelfMetrics {
            family,
            pass: AtomicU64::new(0),
        });
        let result = SelfMetricsSeries::new(vec![part]).update(&mut Group::new("agent", 0, 1000));
        assert_eq!(result, Err(Fault::Series(SeriesError::NameCharacter('{'))));
    }
}
