//! Processes one request while it is parsed: names its metrics, finds their series and collects
//! their samples. `OtlpWriter` stores the result; nothing is stored before the request was read to
//! its end.

use std::sync::Arc;

use pegel_metric::{
    DropReason, MetricKind, Millis, NAME_BYTES_MAX, Point, Series, SeriesError, TEXT_BYTES_MAX,
};
use pegel_wire::otlp::buckets::classic_buckets;
use pegel_wire::otlp::names::metric_name;
use pegel_wire::otlp::{
    Attribute, DataPoint, Metric, MetricData, MetricVisitor, OtlpError, Scope, Temporality,
};

use super::expand::{
    ExpandError, ExpandedSample, ValueMode, added_label, expand, histogram_samples, value_mode,
};
use super::labels::{OtlpLabels, point_labels, resource_labels, scope_labels, text_bytes};
use super::restored_totals::retention;
use super::series_state::DataPointTimes;
use super::streams::{ExponentialTotal, OtlpStreams, SeriesSample};
use super::{OtlpWriter, SAMPLES_MAX};
use crate::admission::AdmissionError;
use crate::point_writer::{IncomingPoint, PointSession};
use crate::remote_write::RefusedSamples;
use crate::senders::Sender;

/// The metric level of all series: metrics that a program sends are always kept.
const LEVEL: u8 = 1;
/// The most bytes of a description; longer ones are truncated.
const HELP_BYTES_MAX: usize = 1024;
/// How far samples may be ahead of the clock: the limit of the store.
const FUTURE_MS: Millis = 10 * 60 * 1000;

/// The samples and counts of a request.
#[derive(Debug, Default)]
pub(super) struct CollectedSamples {
    pub points: Vec<Point>,
    /// The number of the data point of each sample.
    pub data_points: Vec<u32>,
    pub refused: RefusedSamples,
    /// The number of all data points, and of those that were refused.
    pub visited: u32,
    pub rejected: u32,
    pub exemplars: u64,
    /// Samples of increases that were sent again.
    pub repeated: u64,
}

/// The state of a request that is being parsed.
pub(super) struct OtlpRequest<'a> {
    pub writer: &'a OtlpWriter,
    pub sender: &'a Arc<Sender>,
    pub session: PointSession<'a>,
    pub streams: &'a mut OtlpStreams,
    pub now: Millis,
    pub collected: CollectedSamples,
    pub resource: OtlpLabels,
    pub scope: OtlpLabels,
    pub metric: CurrentMetric,
}

/// The metric whose points follow.
#[derive(Debug)]
pub(super) struct CurrentMetric {
    /// `None` if no character of the name is valid.
    name: Option<String>,
    help: String,
    data: MetricData,
}

impl Default for CurrentMetric {
    fn default() -> CurrentMetric {
        CurrentMetric {
            name: None,
            help: String::new(),
            data: MetricData::Gauge,
        }
    }
}

/// The reason why a data point is refused.
#[derive(Debug, thiserror::Error)]
enum DataPointError {
    #[error("the name has no letter or digit")]
    Name,
    #[error(transparent)]
    Value(#[from] ExpandError),
    #[error("{0}: {1}")]
    Series(String, AdmissionError),
    #[error("the timestamp is older than the store's retention")]
    TooOld,
    #[error("the timestamp is more than ten minutes in the future")]
    Future,
}

impl DataPointError {
    fn reason(&self) -> DropReason {
        match self {
            DataPointError::Name => DropReason::BadName,
            DataPointError::Value(error) => error.reason(),
            DataPointError::Series(_, error) => error.reason(),
            DataPointError::TooOld => DropReason::TooOld,
            DataPointError::Future => DropReason::Future,
        }
    }
}

impl MetricVisitor for OtlpRequest<'_> {
    fn resource(&mut self, attributes: &[Attribute<'_>]) {
        self.resource = resource_labels(attributes, &self.writer.settings);
    }

    fn scope(&mut self, scope: &Scope<'_>) {
        self.scope = scope_labels(scope);
    }

    fn metric(&mut self, metric: &Metric<'_>, data: MetricData) {
        let mut end = metric.description.len().min(HELP_BYTES_MAX);
        while !metric.description.is_char_boundary(end) {
            end -= 1;
        }
        let mut name = metric_name(&metric.name, &metric.unit, data);
        // A longer name is refused as well, without being copied for each point.
        if let Some(name) = &mut name {
            name.truncate(NAME_BYTES_MAX + 1);
        }
        self.metric = CurrentMetric {
            name,
            help: metric.description[..end].to_owned(),
            data,
        };
    }

    fn point(&mut self, point: &DataPoint<'_>) -> Result<(), OtlpError> {
        self.collected.visited = self.collected.visited.saturating_add(1);
        self.collected.exemplars += point.exemplars;
        let before = self.collected.points.len();
        if let Err((error, samples)) = self.add_point(point) {
            self.collected.rejected += 1;
            let refused = &mut self.collected.refused;
            refused.add(error.reason(), samples, || error.to_string());
        }
        let collected = &mut self.collected;
        if collected.points.len() > SAMPLES_MAX {
            return Err(OtlpError::TooMany("samples", SAMPLES_MAX));
        }
        let added = collected.points.len() - before;
        let number = collected.visited - 1;
        { &mut collected.data_points }.extend(std::iter::repeat_n(number, added));
        Ok(())
    }
}

impl OtlpRequest<'_> {
    /// Adds the samples of a data point, or returns why it is refused and how many samples it has.
    fn add_point(&mut self, point: &DataPoint<'_>) -> Result<(), (DataPointError, u64)> {
        let data = self.metric.data;
        let refused_as = |error: DataPointError| (error, 1);
        let mode = value_mode(data).map_err(|error| refused_as(error.into()))?;
        let times = self.times(point).map_err(refused_as)?;
        let Some(name) = &self.metric.name else {
            return Err(refused_as(DataPointError::Name));
        };
        // Refused before they are copied for each point: a request may have very many.
        let shared = text_bytes(&self.resource) + text_bytes(&self.scope);
        if shared > TEXT_BYTES_MAX {
            let error = SeriesError::TextTooLong(shared);
            return Err(refused_as(DataPointError::Series(
                name.clone(),
                error.into(),
            )));
        }
        let labels = point_labels(
            &self.resource,
            &self.scope,
            &point.attributes,
            added_label(data),
        );
        if mode == ValueMode::Delta {
            self.streams
                .load_totals(self.writer.points.store(), self.now);
        }
        let is_delta = data == MetricData::ExponentialHistogram(Temporality::Delta);
        if is_delta && !point.has_no_value {
            return self.add_exponential_increase(point, times, &labels);
        }
        let expanded = expand(point, data).map_err(|error| refused_as(error.into()))?;
        self.count_invalid_sum(point);
        let samples = self.resolve_all(&expanded, &labels)?;
        let out = &mut self.collected.points;
        if !self.streams.apply(times, mode, &samples, self.now, out) {
            self.collected.repeated += samples.len() as u64;
        }
        Ok(())
    }

    /// Adds an increase of an exponential histogram. The scale of its buckets depends on all
    /// increases so far.
    fn add_exponential_increase(
        &mut self,
        point: &DataPoint<'_>,
        times: DataPointTimes,
        labels: &OtlpLabels,
    ) -> Result<(), (DataPointError, u64)> {
        let refused = |error| (DataPointError::from(ExpandError::from(error)), 1);
        // An inconsistent point is refused before it changes the total.
        let own = expand(point, self.metric.data).map_err(|error| (error.into(), 1))?;
        self.count_invalid_sum(point);
        let is_sum = |sample: &ExpandedSample| sample.suffix == "_sum";
        let counted = 1 + usize::from(own.get(1).is_some_and(is_sum));
        let counted = self.resolve_all(&own[..counted], labels)?;
        let increase = ExponentialTotal {
            buckets: point.value.exponential.clone(),
            count: point.value.count,
            sum: point.value.sum.filter(|sum| sum.is_finite()),
            is_first: true,
        };
        let count_series = &counted[0].series;
        let sum_series = counted.get(1).map(|sample| &sample.series);
        let total = self
            .streams
            .add_exponential(times, (count_series, sum_series), &increase, self.now)
            .map_err(refused)?;
        let Some(total) = total else {
            self.collected.repeated += own.len() as u64;
            return Ok(());
        };
        let buckets = classic_buckets(&total.buckets, total.count).map_err(refused)?;
        let expanded = histogram_samples(total.count, total.sum, &buckets);
        let samples = self.resolve_all(&expanded, labels)?;
        let out = &mut self.collected.points;
        if let Some(at) = times.zero_time(Millis::MIN).filter(|_| total.is_first) {
            out.extend(samples.iter().map(|sample| sample.zero_at(at)));
        }
        // The total has no start time: it is not reset while the agent runs.
        let times = DataPointTimes {
            start_nanos: 0,
            ..times
        };
        let mode = ValueMode::Cumulative;
        self.streams.apply(times, mode, &samples, self.now, out);
        Ok(())
    }

    /// Counts a sum that is not finite. The rest of its histogram is stored.
    fn count_invalid_sum(&mut self, point: &DataPoint<'_>) {
        if point.value.sum.is_some_and(|sum| !sum.is_finite()) && !point.has_no_value {
            let error = ExpandError::NotFinite;
            self.collected
                .refused
                .add(error.reason(), 1, || format!("_sum: {error}"));
        }
    }

    fn times(&self, point: &DataPoint<'_>) -> Result<DataPointTimes, DataPointError> {
        let time = match point.time_nanos {
            0 => self.now,
            nanos => Millis::try_from(nanos / 1_000_000).unwrap_or(Millis::MAX),
        };
        let oldest = self
            .now
            .saturating_sub(retention(self.writer.points.store()));
        if time > self.now.saturating_add(FUTURE_MS) {
            return Err(DataPointError::Future);
        }
        if time < oldest {
            return Err(DataPointError::TooOld);
        }
        Ok(DataPointTimes {
            start_nanos: point.start_nanos,
            time_nanos: point.time_nanos,
            time,
            oldest,
        })
    }

    /// Finds the series of all samples of a data point. If one is refused, none is stored.
    fn resolve_all(
        &mut self,
        expanded: &[ExpandedSample],
        labels: &OtlpLabels,
    ) -> Result<Vec<SeriesSample>, (DataPointError, u64)> {
        let mut samples = Vec::with_capacity(expanded.len());
        let mut pairs: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (&**k, &**v)).collect();
        for sample in expanded {
            pairs.truncate(labels.len());
            if let Some((key, value)) = &sample.label {
                pairs.push((key, value));
            }
            let base = self.metric.name.as_deref().unwrap_or_default();
            let name = format!("{base}{}", sample.suffix);
            let series = resolve(
                &mut self.session,
                self.sender,
                (&name, &pairs),
                &self.metric.help,
                sample.kind,
            );
            let series = series.map_err(|error| {
                let count = expanded.len() as u64;
                (DataPointError::Series(name, error), count)
            })?;
            samples.push(SeriesSample {
                series,
                value: sample.value,
                bound: sample.bound,
            });
        }
        Ok(samples)
    }
}

fn resolve(
    session: &mut PointSession<'_>,
    sender: &Arc<Sender>,
    (name, labels): (&str, &[(&str, &str)]),
    help: &str,
    kind: MetricKind,
) -> Result<Arc<Series>, AdmissionError> {
    let point = IncomingPoint {
        name,
        labels,
        help,
        kind,
        level: LEVEL,
        time: 0,
        value: 0.0,
    };
    session.resolve(sender, &point)
}
