//! Turns current values into requests: counters into cumulative monotonic sums, gauges and values
//! of unknown kind into gauges, buckets with their sums and counts into histograms. The thread of a
//! receiver calls it once per interval. It only reads the store; the start times of counters and
//! the series that ended are its own state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pegel_metric::{Input, MetricKind, Millis, Selector, Series, glob_matches};
use pegel_store::{LatestValue, Store};
use pegel_wire::otlp::messages::collector::ExportMetricsServiceRequest;
use pegel_wire::otlp::messages::common::{AnyValue, InstrumentationScope, KeyValue, any_value};
use pegel_wire::otlp::messages::metrics::{
    AggregationTemporality, DataPointFlags, Gauge, Histogram, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use pegel_wire::otlp::messages::resource::Resource;

use super::histograms::{HistogramParts, is_histogram_part};
use super::settings::OtlpSettings;

/// The most data points of a request: about half a megabyte.
const POINTS_MAX: usize = 2000;
const SCOPE: &str = "pegel";

/// The requests of one interval, and the number of values that were left out.
#[derive(Debug, Default)]
pub struct OtlpExport {
    /// Each with the number of its data points.
    pub requests: Vec<(ExportMetricsServiceRequest, u64)>,
    /// Values that are not numbers.
    pub unsuitable: u64,
}

/// Builds the requests of one receiver. Keeps the start time and the last value of each series.
#[derive(Debug)]
pub struct MetricBuilder {
    names: Vec<String>,
    except: Vec<String>,
    resource: Resource,
    /// Keyed by the address of the series. The entry holds the series, so no other series can get
    /// the address.
    entries: HashMap<usize, SentSeries>,
    /// The number of the last export.
    exports: u64,
}

#[derive(Debug)]
struct SentSeries {
    series: Arc<Series>,
    is_selected: bool,
    /// The start time of the total: the first value that was sent, or the last one before a reset.
    start: Millis,
    was_reset: bool,
    time: Millis,
    value: f64,
    /// The last export in which the series was among the current values.
    export: u64,
}

/// A value to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentValue {
    pub start: Millis,
    /// Whether the start is that of a reset.
    pub was_reset: bool,
    pub time: Millis,
    pub value: f64,
}

/// Metrics by name, while they are collected.
#[derive(Debug, Default)]
struct CollectedMetrics {
    metrics: BTreeMap<String, CollectedMetric>,
    histograms: HistogramParts,
}

#[derive(Debug)]
struct CollectedMetric {
    kind: MetricKind,
    description: String,
    unit: &'static str,
    points: Vec<NumberDataPoint>,
}

impl MetricBuilder {
    pub fn new(settings: &OtlpSettings, node: &str, version: &str) -> MetricBuilder {
        let mut attributes: BTreeMap<&str, &str> = BTreeMap::from([
            ("service.name", "pegel"),
            ("service.instance.id", node),
            ("service.version", version),
            ("host.name", node),
        ]);
        for (key, value) in &settings.resource {
            attributes.insert(key, value);
        }
        let attributes = attributes.into_iter();
        MetricBuilder {
            names: settings.names.clone(),
            except: settings.except.clone(),
            resource: Resource {
                attributes: attributes.map(|(k, v)| attribute(k, v)).collect(),
                ..Resource::default()
            },
            entries: HashMap::new(),
            exports: 0,
        }
    }

    /// Returns the values that are new since the last export.
    pub fn read(&mut self, store: &Store, now: Millis) -> OtlpExport {
        self.exports += 1;
        let mut collected = CollectedMetrics::default();
        let mut export = OtlpExport::default();
        store.latest(&Selector::all(), 0, &mut |series, latest| {
            if let Some(value) = self.next_value(series, latest, now) {
                match value.value.is_finite() {
                    true => collected.add(series, value),
                    false => export.unsuitable += 1,
                }
            }
        });
        let last = self.exports;
        self.entries.retain(|_, entry| {
            let is_current = entry.export == last;
            // A series that ended is sent once more, with the flag "no recorded value".
            let was_sent = entry.is_selected && entry.time > Millis::MIN;
            // The receiver has no series for a part of a histogram.
            if !is_current && was_sent && !is_histogram_part(&entry.series) {
                collected.add_ended(&entry.series, entry.start, now);
            }
            is_current
        });
        export.requests = collected.into_requests(&self.resource);
        export
    }

    /// Returns the value of a series if it is selected and was sampled since the last export.
    fn next_value(
        &mut self,
        series: &Arc<Series>,
        latest: LatestValue,
        now: Millis,
    ) -> Option<SentValue> {
        let (names, except) = (&self.names, &self.except);
        let key = Arc::as_ptr(series) as usize;
        let entry = self.entries.entry(key).or_insert_with(|| {
            let matches = |patterns: &[String]| {
                let mut patterns = patterns.iter();
                patterns.any(|pattern| glob_matches(pattern, series.name()))
            };
            SentSeries {
                series: series.clone(),
                is_selected: (names.is_empty() || matches(names)) && !matches(except),
                start: 0,
                was_reset: false,
                time: Millis::MIN,
                value: 0.0,
                export: 0,
            }
        });
        entry.export = self.exports;
        if !entry.is_selected {
            return None;
        }
        // Programs send a value when it changes: until then the last one is valid now.
        let time = match series.family().input {
            _ if latest.last_sampled > entry.time => latest.last_sampled,
            Input::Lane | Input::Programs | Input::Statsd => now,
            _ => return None,
        };
        if entry.time == Millis::MIN {
            // The real start is unknown. OTLP marks this by a first point whose start equals its
            // time.
            entry.start = time;
        } else if latest.value < entry.value {
            (entry.start, entry.was_reset) = (entry.time, true);
        }
        (entry.time, entry.value) = (time, latest.value);
        Some(SentValue {
            start: entry.start,
            was_reset: entry.was_reset,
            time,
            value: latest.value,
        })
    }
}

impl CollectedMetrics {
    fn add(&mut self, series: &Arc<Series>, value: SentValue) {
        let kind = series.family().kind;
        if kind == MetricKind::Counter && self.histograms.add(series, value) {
            return;
        }
        let number = number_data_point::Value::AsDouble(value.value);
        self.push(series, value, Some(number));
    }

    fn add_ended(&mut self, series: &Series, start: Millis, now: Millis) {
        let value = SentValue {
            start,
            was_reset: false,
            time: now,
            value: 0.0,
        };
        self.push(series, value, None);
    }

    /// Adds a point. Without a `number` it has the flag "no recorded value", which ends its series.
    fn push(
        &mut self,
        series: &Series,
        value: SentValue,
        number: Option<number_data_point::Value>,
    ) {
        let family = series.family();
        let metric = self.metrics.entry(series.name().to_owned());
        let metric = metric.or_insert_with(|| CollectedMetric {
            kind: family.kind,
            description: family.help.to_string(),
            unit: ucum_unit(series.name()),
            points: Vec::new(),
        });
        // A metric has one kind. If its series have two, those of the second kind are gauges.
        if metric.kind != family.kind {
            metric.kind = MetricKind::Unknown;
        }
        let flags = match number {
            Some(_) => DataPointFlags::DoNotUse,
            None => DataPointFlags::NoRecordedValueMask,
        };
        metric.points.push(NumberDataPoint {
            attributes: attributes_of(series, None),
            start_time_unix_nano: match family.kind {
                MetricKind::Counter => nanos(value.start),
                _ => 0,
            },
            time_unix_nano: nanos(value.time),
            exemplars: Vec::new(),
            flags: flags as u32,
            value: number,
        });
    }

    fn into_requests(self, resource: &Resource) -> Vec<(ExportMetricsServiceRequest, u64)> {
        let mut requests = RequestList::new(resource);
        let (histograms, loose) = self.histograms.finish();
        let mut others = CollectedMetrics {
            metrics: self.metrics,
            histograms: HistogramParts::default(),
        };
        for (series, value) in loose {
            let number = number_data_point::Value::AsDouble(value.value);
            others.push(&series, value, Some(number));
        }
        for (name, metric) in others.metrics {
            for points in metric.points.chunks(POINTS_MAX) {
                let count = points.len();
                requests.push(metric.message(&name, points.to_vec()), count);
            }
        }
        for (name, description, points) in histograms {
            for points in points.chunks(POINTS_MAX / 10) {
                let data = metric::Data::Histogram(Histogram {
                    data_points: points.to_vec(),
                    aggregation_temporality: AggregationTemporality::Cumulative as i32,
                });
                // Smaller chunks: a point has about ten buckets.
                let message = Metric {
                    unit: ucum_unit(&name).to_owned(),
                    name: name.clone(),
                    description: description.clone(),
                    data: Some(data),
                    metadata: Vec::new(),
                };
                requests.push(message, points.len());
            }
        }
        requests.0
    }
}

impl CollectedMetric {
    fn message(&self, name: &str, points: Vec<NumberDataPoint>) -> Metric {
        let data = match self.kind {
            MetricKind::Counter => metric::Data::Sum(Sum {
                data_points: points,
                aggregation_temporality: AggregationTemporality::Cumulative as i32,
                is_monotonic: true,
            }),
            _ => metric::Data::Gauge(Gauge {
                data_points: points,
            }),
        };
        Metric {
            name: name.to_owned(),
            description: self.description.clone(),
            unit: self.unit.to_owned(),
            data: Some(data),
            metadata: Vec::new(),
        }
    }
}

/// Requests that are being filled.
struct RequestList<'a>(Vec<(ExportMetricsServiceRequest, u64)>, &'a Resource);

impl RequestList<'_> {
    fn new(resource: &Resource) -> RequestList<'_> {
        RequestList(Vec::new(), resource)
    }

    /// Adds a metric to the last request, or to a new one if that is full.
    fn push(&mut self, metric: Metric, points: usize) {
        let has_room = |count: u64| count + points as u64 <= POINTS_MAX as u64;
        if !self.0.last().is_some_and(|(_, count)| has_room(*count)) {
            self.0.push((empty_request(self.1), 0));
        }
        let Some((request, count)) = self.0.last_mut() else {
            return;
        };
        *count += points as u64;
        let scopes = request.resource_metrics.iter_mut();
        if let Some(scope) = scopes.flat_map(|one| &mut one.scope_metrics).next() {
            scope.metrics.push(metric);
        }
    }
}

fn empty_request(resource: &Resource) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: SCOPE.to_owned(),
        ..InstrumentationScope::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
    }
}

/// Returns the labels of a series as attributes, without one.
pub(super) fn attributes_of(series: &Series, without: Option<&str>) -> Vec<KeyValue> {
    let labels = series.labels().filter(|(key, _)| Some(*key) != without);
    labels.map(|(key, value)| attribute(key, &value)).collect()
}

pub(super) fn nanos(time: Millis) -> u64 {
    u64::try_from(time).unwrap_or(0).saturating_mul(1_000_000)
}

/// Returns the UCUM code of the unit that a name ends with. No other unit is sent, because
/// receivers would append it to the name.
fn ucum_unit(name: &str) -> &'static str {
    let mut words = name.split('_');
    let unit = words.find_map(|word| match word {
        "seconds" => Some("s"),
        "bytes" => Some("By"),
        "celsius" => Some("Cel"),
        "joules" => Some("J"),
        "watts" => Some("W"),
        "volts" => Some("V"),
        "amperes" => Some("A"),
        "hertz" => Some("Hz"),
        _ => None,
    });
    unit.unwrap_or_default()
}
