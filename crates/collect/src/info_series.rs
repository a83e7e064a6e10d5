//! Info series: series with the value 1 whose labels carry the information.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, SeriesError, Slot};

/// A label key and its value.
pub(crate) type OwnedLabel = (&'static str, String);

/// A series that carries information in its labels. When the labels change, the old series is retired and another
/// one takes its place.
#[derive(Debug)]
pub(crate) struct InfoSeries {
    family: Arc<Family>,
    labels: Vec<OwnedLabel>,
    slot: Option<Slot>,
}

impl InfoSeries {
    pub(crate) fn new(family: &Family) -> InfoSeries {
        InfoSeries {
            family: Arc::new(family.clone()),
            labels: Vec::new(),
            slot: None,
        }
    }

    pub(crate) fn set(
        &mut self,
        out: &mut SampleGroup,
        labels: Vec<OwnedLabel>,
        value: f64,
    ) -> Result<(), SeriesError> {
        if self.labels != labels {
            self.retire(out);
        }
        let slot = match self.slot {
            Some(slot) => slot,
            None => {
                let pairs: Vec<(&str, &str)> =
                    labels.iter().map(|(key, text)| (*key, &**text)).collect();
                let slot = out.declare(&self.family, &pairs)?;
                self.labels = labels;
                *self.slot.insert(slot)
            }
        };
        out.set(slot, value);
        Ok(())
    }

    pub(crate) fn retire(&mut self, out: &mut SampleGroup) {
        if let Some(slot) = self.slot.take() {
            out.retire(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::MetricKind;

    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn other_labels_take_the_place_of_the_old_ones() {
        static INFO: Family = Family::new("info", MetricKind::Gauge, "", 2, "What it is.");
        let (mut fact, mut group) = (InfoSeries::new(&INFO), SampleGroup::new("x", 3, 1000));
        for text in ["a", "a", "b", "a"] {
            group.clear();
            fact.set(&mut group, vec![("is", text.to_owned())], 1.0)
                .expect("valid");
            assert_eq!(
                present_series(&mut group),
                [format!("info{{is=\"{text}\"}} 1")]
            );
        }
        assert_eq!(group.members().series.len(), 1);
    }
}
