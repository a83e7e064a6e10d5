//! Parses the output of exporters, to compare two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Series};

use crate::exposition::{Exposition, MetricType};

/// The output of an exporter in a form that can be compared.
#[derive(Debug, Clone, Default)]
pub struct ExporterReadings {
    /// Values by series text, `name{k="v",…}` with sorted keys.
    pub values: BTreeMap<String, f64>,
    /// Types by family name.
    pub types: BTreeMap<String, MetricType>,
}

impl ExporterReadings {
    #[track_caller]
    pub fn parse_prometheus(text: &str) -> ExporterReadings {
        let parsed = Exposition::parse_prometheus(text);
        ExporterReadings::of(
            &parsed.unwrap_or_else(|e| panic!("not the Prometheus text format: {e}\n{text}")),
        )
    }

    #[track_caller]
    pub fn parse_openmetrics(text: &str) -> ExporterReadings {
        let parsed = Exposition::parse_openmetrics(text);
        ExporterReadings::of(&parsed.unwrap_or_else(|e| panic!("not OpenMetrics: {e}\n{text}")))
    }

    #[track_caller]
    fn of(exposition: &Exposition) -> ExporterReadings {
        let mut readings = ExporterReadings::default();
        for (name, family) in &exposition.families {
            if let Some(kind) = family.kind {
                readings.types.insert(name.clone(), kind);
            }
        }
        for sample in &exposition.samples {
            let labels: Vec<(&str, &str)> = sample
                .labels
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            let family = Family {
                name: sample.name.clone().into(),
                kind: MetricKind::Unknown,
                help: "".into(),
                unit: "".into(),
                level: 0,
                input: Input::Collect,
            };
            let series = Series::new(Arc::new(family), &labels)
                .unwrap_or_else(|e| panic!("invalid series: {sample:?}: {e}"));
            let before = readings
                .values
                .insert(series.text().to_owned(), sample.value);
            assert!(before.is_none(), "duplicate series {series}");
        }
        readings
    }

    /// Returns the value of one series, by its text.
    #[track_caller]
    pub fn value(&self, series: &str) -> f64 {
        *self
            .values
            .get(series)
            .unwrap_or_else(|| panic!("no series {series}"))
    }

    /// Returns the distinct names of all series.
    pub fn names(&self) -> BTreeSet<&str> {
        self.values.keys().map(|text| name_of(text)).collect()
    }
}

/// Returns the name in the text of a series.
fn name_of(text: &str) -> &str {
    text.split('{').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_so_that_readings_compare() {
        let readings =
            ExporterReadings::parse_prometheus("# TYPE a gauge\na{y=\"2\",x=\"1\"} 3\na 4\n");
        assert_eq!(readings.value("a{x=\"1\",y=\"2\"}"), 3.0);
        assert_eq!(readings.types["a"], MetricType::Gauge);
        assert!(readings.names().into_iter().eq(["a"]));
    }
}
