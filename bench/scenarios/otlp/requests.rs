//! The requests: exports of all streams of one kind, one second apart.

use pegel_metric::Millis;
use pegel_wire::otlp::messages::Message;
use pegel_wire::otlp::messages::collector::ExportMetricsServiceRequest;
use pegel_wire::otlp::messages::common::{AnyValue, KeyValue, any_value};
use pegel_wire::otlp::messages::metrics::{
    AggregationTemporality, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use pegel_wire::otlp::messages::resource::Resource;

const POINTS_PER_REQUEST: usize = 1_000;
/// The bounds of histograms.
const BOUNDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportKind {
    Total,
    Increase,
    Histogram,
}

impl ExportKind {
    pub(crate) const ALL: [ExportKind; 3] = [
        ExportKind::Total,
        ExportKind::Increase,
        ExportKind::Histogram,
    ];

    pub(crate) fn work(self) -> &'static str {
        match self {
            ExportKind::Total => "cumulative sums, 5,000 series",
            ExportKind::Increase => "delta sums, 5,000 series",
            ExportKind::Histogram => "cumulative histograms, 1,000 with 13 series",
        }
    }

    /// Returns the number of data points of one export.
    pub(crate) fn streams(self) -> usize {
        match self {
            ExportKind::Total | ExportKind::Increase => 5_000,
            ExportKind::Histogram => 1_000,
        }
    }
}

/// Consecutive exports.
pub(crate) struct Exports {
    kind: ExportKind,
    attributes: Vec<Vec<KeyValue>>,
    start: Millis,
    round: u64,
}

impl Exports {
    pub(crate) fn new(kind: ExportKind, start: Millis) -> Exports {
        Exports {
            kind,
            attributes: (0..kind.streams()).map(attributes).collect(),
            start,
            round: 0,
        }
    }

    /// Returns the bodies of the next exports.
    pub(crate) fn bodies(&mut self, exports: usize) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        for _ in 0..exports {
            self.round += 1;
            for attributes in self.attributes.chunks(POINTS_PER_REQUEST) {
                bodies.push(request(self.metric(attributes)).encode_to_vec());
            }
        }
        bodies
    }

    /// Returns start and time of the points.
    fn times(&self) -> (u64, u64) {
        let start = self.start.unsigned_abs() * 1_000_000;
        let time = start + self.round * 1_000_000_000;
        match self.kind {
            ExportKind::Increase => (time - 1_000_000_000, time),
            _ => (start, time),
        }
    }

    fn metric(&self, attributes: &[Vec<KeyValue>]) -> Metric {
        let (name, data) = match self.kind {
            ExportKind::Total => ("bench.total", self.sum(attributes)),
            ExportKind::Increase => ("bench.increase", self.sum(attributes)),
            ExportKind::Histogram => ("bench.duration", self.histogram(attributes)),
        };
        Metric {
            name: name.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn sum(&self, attributes: &[Vec<KeyValue>]) -> metric::Data {
        let (start, time) = self.times();
        let (temporality, value) = match self.kind {
            ExportKind::Increase => (AggregationTemporality::Delta, self.round % 100),
            _ => (AggregationTemporality::Cumulative, self.round * 17),
        };
        let points = attributes.iter().map(|attributes| NumberDataPoint {
            attributes: attributes.clone(),
            start_time_unix_nano: start,
            time_unix_nano: time,
            value: Some(number_data_point::Value::AsInt(value as i64)),
            ..NumberDataPoint::default()
        });
        metric::Data::Sum(Sum {
            data_points: points.collect(),
            aggregation_temporality: temporality as i32,
            is_monotonic: true,
        })
    }

    fn histogram(&self, attributes: &[Vec<KeyValue>]) -> metric::Data {
        let (start, time) = self.times();
        let counts: Vec<u64> = (0..=BOUNDS.len() as u64)
            .map(|bucket| self.round * (bucket + 1))
            .collect();
        let points = attributes.iter().map(|attributes| HistogramDataPoint {
            attributes: attributes.clone(),
            start_time_unix_nano: start,
            time_unix_nano: time,
            count: counts.iter().sum(),
            sum: Some(self.round as f64 / 8.0),
            bucket_counts: counts.clone(),
            explicit_bounds: BOUNDS.to_vec(),
            ..HistogramDataPoint::default()
        });
        metric::Data::Histogram(Histogram {
            data_points: points.collect(),
            aggregation_temporality: AggregationTemporality::Cumulative as i32,
        })
    }
}

fn request(metric: Metric) -> ExportMetricsServiceRequest {
    let resource = Resource {
        attributes: vec![
            attribute("service.name", "bench"),
            attribute("service.instance.id", "7c9f8d6b5"),
        ],
        ..Resource::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![metric],
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

/// Attributes like those of a request to a service in a cluster, eight besides the two of the
/// resource.
fn attributes(number: usize) -> Vec<KeyValue> {
    let host = number / 100;
    vec![
        attribute("cluster", "production-eu-1"),
        attribute("container", &format!("worker-{}", number % 7)),
        attribute("datacenter", "frankfurt-2"),
        attribute("http.route", &format!("/api/v1/items/{}", number % 100)),
        attribute("net.host", &format!("10.12.{}.{}", host / 256, host % 256)),
        attribute("namespace", &format!("tenant-{}", number % 23)),
        attribute(
            "pod",
            &format!("service-{host}-{:05}", number * 7919 % 100_000),
        ),
        attribute("version", "1.42.3"),
    ]
}
