//! Selects the samples of a record that are printed: by series and by time.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{Millis, is_stale};
use pegel_query::promql::parse_time;
use pegel_record::RecordSamples;

use crate::command_error::CommandError;
use crate::series_query::SeriesQuery;

/// The most series whose match is cached.
const REMEMBERED_MAX: usize = 1 << 20;

/// Selects samples.
#[derive(Debug)]
pub(super) struct SampleFilter {
    query: SeriesQuery,
    start: Millis,
    end: Millis,
    /// Caches whether a series matches: each occurs in every block.
    matched: HashMap<Arc<str>, bool>,
}

impl SampleFilter {
    pub(super) fn parse(
        patterns: &[String],
        start: Option<&str>,
        end: Option<&str>,
    ) -> anyhow::Result<SampleFilter> {
        let time = |option: &str, text: Option<&str>, default: Millis| {
            let Some(text) = text else {
                return Ok(default);
            };
            parse_time(text).ok_or_else(|| {
                CommandError::usage(format!(
                    "{option} {text:?}: expected seconds since 1970 or RFC 3339, such as \
                     2026-11-17T10:00:00Z"
                ))
            })
        };
        let filter = SampleFilter {
            query: SeriesQuery::parse(&[], patterns)?,
            start: time("--start", start, Millis::MIN)?,
            end: time("--end", end, Millis::MAX)?,
            matched: HashMap::new(),
        };
        if filter.start > filter.end {
            return Err(CommandError::usage("--start is after --end"));
        }
        Ok(filter)
    }

    /// Whether the samples of a series are selected.
    pub(super) fn selects(&mut self, series: &Arc<str>) -> bool {
        if self.query.selects_everything() {
            return true;
        }
        if let Some(is_matched) = self.matched.get(series) {
            return *is_matched;
        }
        let is_matched = self.query.matches(series);
        if self.matched.len() < REMEMBERED_MAX {
            self.matched.insert(series.clone(), is_matched);
        }
        is_matched
    }

    pub(super) fn contains(&self, time: Millis) -> bool {
        (self.start..=self.end).contains(&time)
    }

    /// Returns the selected times and values of a series that is selected. Stale markers only mark
    /// the end of a series, and are left out.
    pub(super) fn samples<'a>(
        &'a self,
        samples: &'a RecordSamples,
    ) -> impl Iterator<Item = (Millis, f64)> + 'a {
        let pairs = samples.times.iter().zip(&samples.values);
        pairs
            .map(|(time, value)| (*time, *value))
            .filter(|(time, value)| self.contains(*time) && !is_stale(*value))
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{MetricKind, STALE_NAN};

    use super::*;

    #[test]
    fn series_and_times_are_selected_and_stale_markers_left_out() {
        let patterns = ["load".to_owned()];
        let mut filter =
            SampleFilter::parse(&patterns, Some("2"), Some("1970-01-01T00:00:04Z")).expect("valid");
        assert!(filter.selects(&"node_load1".into()) && !filter.selects(&"memory".into()));
        assert!(filter.selects(&"node_load1".into()));
        let samples = RecordSamples {
            series: "node_load1".into(),
            kind: MetricKind::Gauge,
            times: [1999, 2000, 3000, 4000, 4001].into(),
            values: vec![1.0, 2.0, STALE_NAN, 4.0, 5.0],
        };
        let found: Vec<(Millis, f64)> = filter.samples(&samples).collect();
        assert_eq!(found, [(2000, 2.0), (4000, 4.0)]);
    }

    #[test]
    fn wrong_times_are_usage_errors() {
        for (start, end) in [(Some("x"), None), (None, Some("")), (Some("2"), Some("1"))] {
            assert!(SampleFilter::parse(&[], start, end).is_err(), "{start:?}");
        }
    }
}
