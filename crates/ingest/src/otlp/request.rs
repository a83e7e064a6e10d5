//! Processes one request in two steps. While it is parsed, its metrics get their names and series:
//! the expensive step, which many requests do at once and whose work is limited. Then its points
//! change the streams, which only one request at a time may do. `OtlpWriter` stores the result;
//! nothing is changed before the request was read to its end.

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
use super::labels::{
    OtlpLabels, own_labels, point_labels, resource_labels, scope_labels, text_bytes,
};
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
/// The most bytes of names and labels of all samples of a request: the labels of a resource are
/// those of all its points, so that a short request can have very much text. Far more than clients
/// send: 1.3 KiB for each of the most samples.
const REQUEST_TEXT_BYTES_MAX: usize = 128 << 20;
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

/// A request that is being parsed, or was.
pub(super) struct OtlpRequest<'a> {
    writer: &'a OtlpWriter,
    sender: &'a Arc<Sender>,
    session: PointSession<'a>,
    now: Millis,
    collected: CollectedSamples,
    resource: Arc<OtlpLabels>,
    scope: Arc<OtlpLabels>,
    /// The length of both, computed once for all points that have them.
    shared_bytes: usize,
    metric: Arc<CurrentMetric>,
    resolved: Vec<ResolvedPoint>,
    /// The number of samples in `resolved`.
    samples: usize,
    /// The length of names and labels of all samples.
    text_bytes: usize,
}

/// A data point whose series are known, before it changes a stream.
struct ResolvedPoint {
    /// The number of the data point in the request.
    number: u32,
    times: DataPointTimes,
    mode: ValueMode,
    /// For an increase of an exponential histogram, only its count and its sum.
    samples: Vec<SeriesSample>,
    exponential: Option<Box<ExponentialIncrease>>,
}

/// An increase of an exponential histogram. Its buckets depend on all increases so far, so that
/// their series are found when it is added.
struct ExponentialIncrease {
    increase: ExponentialTotal,
    /// The number of its samples, if it was the first one.
    samples: u64,
    metric: Arc<CurrentMetric>,
    resource: Arc<OtlpLabels>,
    scope: Arc<OtlpLabels>,
    own: OtlpLabels,
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
        self.resource = Arc::new(resource_labels(attributes, &self.writer.settings));
        self.shared_bytes = text_bytes(&self.resource) + text_bytes(&self.scope);
    }

    fn scope(&mut self, scope: &Scope<'_>) {
        self.scope = Arc::new(scope_labels(scope));
        self.shared_bytes = text_bytes(&self.resource) + text_bytes(&self.scope);
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
        self.metric = Arc::new(CurrentMetric {
            name,
            help: metric.description[..end].to_owned(),
            data,
        });
    }

    fn point(&mut self, point: &DataPoint<'_>) -> Result<(), OtlpError> {
        self.collected.visited += 1;
        self.collected.exemplars += point.exemplars;
        if let Err((error, samples)) = self.add_point(point) {
            self.collected.refuse(&error, samples);
        }
        // Refused points count as well: they cost as much.
        let samples = self.samples.max(self.collected.visited as usize);
        self.check_limits(samples)
    }
}

impl CollectedSamples {
    fn refuse(&mut self, error: &DataPointError, samples: u64) {
        self.rejected += 1;
        self.refused
            .add(error.reason(), samples, || error.to_string());
    }
}

impl<'a> OtlpRequest<'a> {
    pub(super) fn new(
        writer: &'a OtlpWriter,
        sender: &'a Arc<Sender>,
        now: Millis,
    ) -> OtlpRequest<'a> {
        OtlpRequest {
            writer,
            sender,
            session: writer.points.session(now),
            now,
            collected: CollectedSamples::default(),
            resource: Arc::default(),
            scope: Arc::default(),
            shared_bytes: 0,
            metric: Arc::default(),
            resolved: Vec::new(),
            samples: 0,
            text_bytes: 0,
        }
    }

    /// Changes the streams by the points that were read. Fails if there are too many samples: then
    /// the caller restores the streams.
    pub(super) fn apply(
        mut self,
        streams: &mut OtlpStreams,
    ) -> Result<CollectedSamples, OtlpError> {
        let resolved = std::mem::take(&mut self.resolved);
        let is_delta = |point: &ResolvedPoint| point.mode == ValueMode::Delta;
        if resolved.iter().any(is_delta) {
            streams.load_totals(self.writer.points.store(), self.now);
        }
        for point in &resolved {
            let before = self.collected.points.len();
            match &point.exponential {
                Some(exponential) => {
                    let added = self.add_exponential_increase(point, exponential, streams);
                    if let Err((error, samples)) = added {
                        self.collected.refuse(&error, samples);
                    }
                }
                None => self.apply_samples(point.times, point.mode, &point.samples, streams),
            }
            let count = self.collected.points.len();
            let added = std::iter::repeat_n(point.number, count - before);
            { &mut self.collected.data_points }.extend(added);
            self.check_limits(count)?;
        }
        Ok(self.collected)
    }

    fn check_limits(&self, samples: usize) -> Result<(), OtlpError> {
        if samples > SAMPLES_MAX {
            return Err(OtlpError::TooMany("samples", SAMPLES_MAX));
        }
        if self.text_bytes > REQUEST_TEXT_BYTES_MAX {
            let what = "bytes of names and labels";
            return Err(OtlpError::TooMany(what, REQUEST_TEXT_BYTES_MAX));
        }
        Ok(())
    }

    /// Finds the series of a data point, or returns why it is refused and how many samples it has.
    fn add_point(&mut self, point: &DataPoint<'_>) -> Result<(), (DataPointError, u64)> {
        let metric = self.metric.clone();
        let data = metric.data;
        let refused_as = |error: DataPointError| (error, 1);
        let mode = value_mode(data).map_err(|error| refused_as(error.into()))?;
        let times = self.times(point).map_err(refused_as)?;
        let Some(name) = &metric.name else {
            return Err(refused_as(DataPointError::Name));
        };
        // Refused before they are copied for each point: a request may have very many.
        if self.shared_bytes > TEXT_BYTES_MAX {
            let error = SeriesError::TextTooLong(self.shared_bytes);
            return Err(refused_as(DataPointError::Series(
                name.clone(),
                error.into(),
            )));
        }
        let own = own_labels(&point.attributes, added_label(data));
        let labels = point_labels(&self.resource, &self.scope, &own, added_label(data));
        let expanded = expand(point, data).map_err(|error| refused_as(error.into()))?;
        self.count_invalid_sum(point);
        let is_delta = data == MetricData::ExponentialHistogram(Temporality::Delta);
        let is_increase = is_delta && !point.has_no_value;
        let is_sum = |sample: &ExpandedSample| sample.suffix == "_sum";
        let resolved = match is_increase {
            true => 1 + usize::from(expanded.get(1).is_some_and(is_sum)),
            false => expanded.len(),
        };
        let samples = self.resolve_all(&metric, &expanded[..resolved], &labels)?;
        let exponential = is_increase.then(|| ExponentialIncrease {
            increase: ExponentialTotal {
                buckets: point.value.exponential.clone(),
                count: point.value.count,
                sum: point.value.sum.filter(|sum| sum.is_finite()),
                is_first: true,
            },
            samples: expanded.len() as u64,
            metric,
            resource: self.resource.clone(),
            scope: self.scope.clone(),
            own,
        });
        self.samples += samples.len();
        self.resolved.push(ResolvedPoint {
            number: self.collected.visited - 1,
            times,
            mode,
            samples,
            exponential: exponential.map(Box::new),
        });
        Ok(())
    }

    fn apply_samples(
        &mut self,
        times: DataPointTimes,
        mode: ValueMode,
        samples: &[SeriesSample],
        streams: &mut OtlpStreams,
    ) {
        let out = &mut self.collected.points;
        if !streams.apply(times, mode, samples, self.now, out) {
            self.collected.repeated += samples.len() as u64;
        }
    }

    /// Adds an increase of an exponential histogram. The scale of its buckets depends on all
    /// increases so far.
    fn add_exponential_increase(
        &mut self,
        point: &ResolvedPoint,
        added: &ExponentialIncrease,
        streams: &mut OtlpStreams,
    ) -> Result<(), (DataPointError, u64)> {
        let refused = |error| (DataPointError::from(ExpandError::from(error)), 1);
        let (times, counted) = (point.times, &point.samples);
        let count_series = &counted[0].series;
        let sum_series = counted.get(1).map(|sample| &sample.series);
        let total = streams
            .add_exponential(times, (count_series, sum_series), &added.increase, self.now)
            .map_err(refused)?;
        let Some(total) = total else {
            self.collected.repeated += added.samples;
            return Ok(());
        };
        let buckets = classic_buckets(&total.buckets, total.count).map_err(refused)?;
        let expanded = histogram_samples(total.count, total.sum, &buckets);
        let reserved = added_label(added.metric.data);
        let labels = point_labels(&added.resource, &added.scope, &added.own, reserved);
        let samples = self.resolve_all(&added.metric, &expanded, &labels)?;
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
        streams.apply(times, mode, &samples, self.now, out);
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
        metric: &CurrentMetric,
        expanded: &[ExpandedSample],
        labels: &OtlpLabels,
    ) -> Result<Vec<SeriesSample>, (DataPointError, u64)> {
        let base = metric.name.as_deref().unwrap_or_default();
        // Refused series are found out by their lengths.
        let bytes = (base.len() + text_bytes(labels)).min(TEXT_BYTES_MAX);
        let bytes = bytes.saturating_mul(expanded.len());
        self.text_bytes = self.text_bytes.saturating_add(bytes);
        let mut samples = Vec::with_capacity(expanded.len());
        let mut pairs: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (&**k, &**v)).collect();
        for sample in expanded {
            pairs.truncate(labels.len());
            if let Some((key, value)) = &sample.label {
                pairs.push((key, value));
            }
            let name = format!("{base}{}", sample.suffix);
            let series = resolve(
                &mut self.session,
                self.sender,
                (&name, &pairs),
                &metric.help,
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
