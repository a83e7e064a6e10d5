//! Collects the samples of one response of the engine while it is parsed. The parsers of `matrix`
//! and `remote_read` call it for every sample. A series that the request does not select, a sample
//! outside of the range or out of order, and memory beyond the limit end the response with an
//! error: an answer never contains samples that were not checked.

use std::collections::HashMap;

use pegel_metric::Millis;
use pegel_query::HistorySeries;
use pegel_query::promql::LabelSet;

use crate::selector::EngineSelector;

/// The memory of a series besides its labels and samples.
const SERIES_BYTES: usize = 96;
const SAMPLE_BYTES: usize = size_of::<(Millis, f64)>();

/// The reason why a response cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerError {
    /// The samples exceed the memory of the request.
    TooLarge,
    Malformed(String),
}

impl AnswerError {
    pub(crate) fn malformed(message: impl Into<String>) -> AnswerError {
        AnswerError::Malformed(message.into())
    }
}

/// Checks and collects the series of a response.
#[derive(Debug)]
pub(crate) struct AnswerBuilder<'a> {
    selector: &'a EngineSelector<'a>,
    /// Both ends are included.
    range: (Millis, Millis),
    bytes_left: usize,
    bytes_max: usize,
    times: Vec<Millis>,
    values: Vec<f64>,
    series: HashMap<LabelSet, HistorySeries>,
}

impl<'a> AnswerBuilder<'a> {
    pub(crate) fn new(
        selector: &'a EngineSelector<'a>,
        range: (Millis, Millis),
        bytes_max: usize,
    ) -> AnswerBuilder<'a> {
        AnswerBuilder {
            selector,
            range,
            bytes_left: bytes_max,
            bytes_max,
            times: Vec::new(),
            values: Vec::new(),
            series: HashMap::new(),
        }
    }

    /// Adds a sample to the current series. A sample in the millisecond before the range is
    /// ignored: some engines include the start of a range selector, others do not. So is a second
    /// sample of the same time: VictoriaMetrics keeps what a sender repeats.
    pub(crate) fn sample(&mut self, time: Millis, value: f64) -> Result<(), AnswerError> {
        if time == self.range.0.saturating_sub(1) && self.times.is_empty() {
            return Ok(());
        }
        if time < self.range.0 || time > self.range.1 {
            return Err(AnswerError::malformed(format!(
                "a sample at {time} ms is outside of the requested range"
            )));
        }
        match self.times.last() {
            Some(last) if *last == time => return Ok(()),
            Some(last) if *last > time => {
                return Err(AnswerError::malformed(format!(
                    "the sample at {time} ms does not follow the one before it"
                )));
            }
            _ => {}
        }
        self.reserve(SAMPLE_BYTES)?;
        self.times.push(time);
        self.values.push(value);
        Ok(())
    }

    /// Ends the current series. A series without samples is left out.
    pub(crate) fn end_series(&mut self, labels: LabelSet) -> Result<(), AnswerError> {
        let times = std::mem::take(&mut self.times);
        let values = std::mem::take(&mut self.values);
        let Some(labels) = self.selector.own_labels(labels.clone()) else {
            return Err(AnswerError::malformed(format!(
                "the series {labels} does not match the request"
            )));
        };
        if times.is_empty() {
            return Ok(());
        }
        self.reserve(SERIES_BYTES + 2 * labels.bytes())?;
        let series = HistorySeries {
            labels: labels.clone(),
            times,
            values,
        };
        match self.series.remove(&labels) {
            None => self.series.insert(labels, series),
            // Replicas: their labels differed only in external labels, which are removed here.
            Some(other) => self.series.insert(labels, merge(other, series)),
        };
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), AnswerError> {
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or(AnswerError::TooLarge)?;
        Ok(())
    }

    /// Returns the series and their memory.
    pub(crate) fn finish(self) -> (Vec<HistorySeries>, usize) {
        let mut series: Vec<HistorySeries> = self.series.into_values().collect();
        series.iter_mut().for_each(|one| {
            one.times.shrink_to_fit();
            one.values.shrink_to_fit();
        });
        (series, self.bytes_max - self.bytes_left)
    }
}

/// Merges the samples of two series. Where both have a sample at one time, that of `first` is kept.
pub(crate) fn merge(first: HistorySeries, second: HistorySeries) -> HistorySeries {
    let samples = |series: &HistorySeries| -> Vec<(Millis, f64)> {
        let times = series.times.iter().copied();
        times.zip(series.values.iter().copied()).collect()
    };
    let mut all = samples(&first);
    all.extend(samples(&second));
    // Stable: a sample of the first series stays before one of the second at the same time.
    all.sort_by_key(|(time, _)| *time);
    all.dedup_by_key(|(time, _)| *time);
    let (times, values) = all.into_iter().unzip();
    HistorySeries {
        labels: first.labels,
        times,
        values,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use pegel_query::HistoryRequest;
    use pegel_query::promql::{NodeLabels, QueryCancellation, parse_selector};

    use super::*;

    /// Calls `read` with a builder for samples of `m` at 1000 ms to 2000 ms.
    pub(crate) fn with_builder<T>(
        bytes_max: usize,
        read: impl FnOnce(&mut AnswerBuilder<'_>) -> Result<T, AnswerError>,
    ) -> Result<(T, Vec<HistorySeries>), AnswerError> {
        let matchers = parse_selector("m").expect("valid");
        let request = HistoryRequest {
            matchers: &matchers,
            node: &NodeLabels {
                job: "node".into(),
                instance: "n1".into(),
            },
            start: 1_000,
            end: 2_000,
            now: 3_000,
            bytes_max,
            deadline: Instant::now(),
            cancellation: &QueryCancellation::default(),
        };
        let external = BTreeMap::new();
        let selector = EngineSelector::new(&request, &external).expect("can match");
        let mut builder = AnswerBuilder::new(&selector, (1_000, 2_000), bytes_max);
        let read = read(&mut builder)?;
        let (mut series, _) = builder.finish();
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok((read, series))
    }

    pub(crate) fn labels(extra: &[(&str, &str)]) -> LabelSet {
        let own = [("__name__", "m"), ("instance", "n1")];
        LabelSet::new(own.iter().chain(extra).copied())
    }

    #[test]
    fn samples_must_be_in_the_range_and_in_order() {
        let read = |times: &[Millis]| {
            with_builder(1_000, |builder| {
                times.iter().try_for_each(|time| builder.sample(*time, 1.))
            })
        };
        assert!(read(&[999, 1_000, 2_000]).is_ok());
        for wrong in [&[998][..], &[2_001], &[1_500, 1_400], &[1_500, 999]] {
            assert!(
                matches!(read(wrong), Err(AnswerError::Malformed(_))),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_sample_that_was_sent_twice_counts_once() {
        let (_, series) = with_builder(10_000, |builder| {
            for time in [1_000, 1_000, 1_500, 1_500, 1_500] {
                builder.sample(time, 1.)?;
            }
            builder.end_series(labels(&[]))
        })
        .expect("valid");
        assert_eq!(series[0].times, [1_000, 1_500]);
    }

    #[test]
    fn memory_and_labels_are_checked() {
        let many = with_builder(1_000, |builder| {
            (0..100).try_for_each(|time| builder.sample(1_000 + time, 1.))
        });
        assert_eq!(many.map(drop), Err(AnswerError::TooLarge));
        let other = LabelSet::new([("__name__", "m"), ("instance", "n2")]);
        let foreign = with_builder(1_000, |builder| builder.end_series(other.clone()));
        assert!(matches!(foreign, Err(AnswerError::Malformed(_))));
    }

    #[test]
    fn replicas_are_merged() {
        let (_, series) = with_builder(10_000, |builder| {
            for (times, value) in [([1_000, 1_500], 1.), ([1_200, 1_500], 2.)] {
                times
                    .iter()
                    .try_for_each(|time| builder.sample(*time, value))?;
                builder.end_series(labels(&[]))?;
            }
            builder.end_series(labels(&[("x", "1")]))
        })
        .expect("valid");
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].times, [1_000, 1_200, 1_500]);
        assert_eq!(series[0].values, [1., 2., 1.]);
    }
}
