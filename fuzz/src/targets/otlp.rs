//! Requests of OpenTelemetry's metrics, in protobuf, compared with a second decoder, and in JSON.

use pegel_wire::otlp::buckets::{
    add_buckets, classic_buckets, explicit_buckets, exponential_buckets, merge_scale,
};
use pegel_wire::otlp::messages::Message;
use pegel_wire::otlp::messages::collector::ExportMetricsServiceRequest;
use pegel_wire::otlp::messages::common::{AnyValue, ArrayValue, KeyValue, any_value::Value};
use pegel_wire::otlp::messages::metrics::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint,
    exponential_histogram_data_point::Buckets, metric::Data, number_data_point,
    summary_data_point::ValueAtQuantile,
};
use pegel_wire::otlp::messages::resource::Resource;
use pegel_wire::otlp::names::{label_name, metric_name};
use pegel_wire::otlp::{
    Attribute, DataPoint, ExponentialBuckets, Metric as VisitedMetric, MetricData, MetricVisitor,
    OtlpError, Scope, read_json, read_protobuf,
};
use pegel_wire::remote_write::ProtobufError;

use super::Target;
use crate::memory::bounded;

pub(super) const PROTOBUF: Target = Target {
    name: "otlp_protobuf",
    run: protobuf,
    dictionary: &[
        b"\x0a\x05\x12\x03\x12\x01\x0a",
        b"\x2a\x02\x0a\x00",
        b"\x3a\x06\x0a\x02\x40\x01\x10\x01",
        b"\x4a\x02\x10\x02",
        b"\x52\x02\x10\x01",
        b"\x5a\x02\x0a\x00",
        b"\x0a\x01a\x12\x03\x0a\x01b",
        b"\x2a\x04\x0a\x02\x2a\x00",
        b"\x19\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
    seeds: seeds_protobuf,
};

pub(super) const JSON: Target = Target {
    name: "otlp_json",
    run: json,
    dictionary: &[
        b"{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[",
        b"\"dataPoints\":[{",
        b"\"aggregationTemporality\":2",
        b"\"attributes\":[{\"key\":\"k\",\"value\":{\"stringValue\":\"v\"}}]",
        b"\"timeUnixNano\":\"1\"",
        b"\"asInt\":\"-1\"",
        b"\"exponentialHistogram\":{",
        b"\"positive\":{\"offset\":-1,\"bucketCounts\":[\"1\"]}",
        b"{\"arrayValue\":{\"values\":[",
        b"\"NaN\"",
    ],
    seeds: seeds_json,
};

/// Uses everything that is visited, and counts the points.
#[derive(Default)]
struct Checker {
    points: usize,
    attributes: usize,
    data: Option<MetricData>,
    total: ExponentialBuckets,
}

impl Checker {
    fn check_names(&mut self, attributes: &[Attribute<'_>]) {
        self.attributes += attributes.len();
        for attribute in attributes {
            let name = label_name(&attribute.key);
            let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(name.is_none_or(|name| name.chars().all(is_valid)));
        }
    }
}

impl MetricVisitor for Checker {
    fn resource(&mut self, attributes: &[Attribute<'_>]) {
        self.check_names(attributes);
    }

    fn scope(&mut self, scope: &Scope<'_>) {
        self.check_names(&scope.attributes);
    }

    fn metric(&mut self, metric: &VisitedMetric<'_>, data: MetricData) {
        self.data = Some(data);
        let name = metric_name(&metric.name, &metric.unit, data);
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let starts_well = |name: &str| !name.starts_with(|c: char| c.is_ascii_digit());
        assert!(name.is_none_or(|name| name.chars().all(is_valid) && starts_well(&name)));
    }

    fn point(&mut self, point: &DataPoint<'_>) -> Result<(), OtlpError> {
        self.points += 1;
        self.check_names(&point.attributes);
        let value = &point.value;
        if let Ok(buckets) = explicit_buckets(value) {
            check_buckets(&buckets, value.count);
        }
        if let Ok(merged) = merge_scale(&value.exponential) {
            if let Ok(buckets) = classic_buckets(&merged, value.count) {
                check_buckets(&buckets, value.count);
                let read = exponential_buckets(&buckets, merged.zero_threshold);
                assert!(merge_scale(&read).is_ok(), "{buckets:?}");
            }
            if let Ok(total) = add_buckets(&self.total, &merged) {
                assert!(total.positive.counts.len() + total.negative.counts.len() <= 80);
                self.total = total;
            }
        }
        Ok(())
    }
}

fn check_buckets(buckets: &[(f64, u64)], count: u64) {
    for pair in buckets.windows(2) {
        assert!(
            pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1,
            "{buckets:?}"
        );
    }
    assert!(
        buckets
            .iter()
            .all(|(bound, part)| bound.is_finite() && *part <= count)
    );
}

/// Both decoders accept the same messages, but for limits and groups, which proto3 does not have;
/// and ours visits every point of a message in its usual form.
fn protobuf(input: &[u8]) {
    let mut ours = Checker::default();
    let read = bounded(1 << 20, || read_protobuf(input, &mut ours));
    let Ok(theirs) = ExportMetricsServiceRequest::decode(input) else {
        return;
    };
    let is_limit = |error: &OtlpError| {
        matches!(
            error,
            OtlpError::Protobuf(ProtobufError::Tag) | OtlpError::TooMany(..) | OtlpError::TooDeep
        )
    };
    assert!(read.as_ref().err().is_none_or(is_limit), "{read:?}");
    let usual = theirs.encode_to_vec();
    let mut again = Checker::default();
    if read_protobuf(&usual, &mut again).is_ok() {
        assert_eq!(again.points, point_count(&theirs));
    }
}

fn point_count(request: &ExportMetricsServiceRequest) -> usize {
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|one| &one.scope_metrics);
    let metrics = scopes.flat_map(|scope| &scope.metrics);
    let counts = metrics.map(|metric| match &metric.data {
        Some(Data::Gauge(data)) => data.data_points.len(),
        Some(Data::Sum(data)) => data.data_points.len(),
        Some(Data::Histogram(data)) => data.data_points.len(),
        Some(Data::ExponentialHistogram(data)) => data.data_points.len(),
        Some(Data::Summary(data)) => data.data_points.len(),
        None => 0,
    });
    counts.sum()
}

fn json(input: &[u8]) {
    let mut checker = Checker::default();
    let _ = bounded(1 << 20, || read_json(input, &mut checker));
}

fn seeds_protobuf() -> Vec<Vec<u8>> {
    let value = |value| AnyValue { value: Some(value) };
    let list = ArrayValue {
        values: vec![value(Value::IntValue(-1)), value(Value::BoolValue(true))],
    };
    let attribute = KeyValue {
        key: "service.name".to_owned(),
        value: Some(value(Value::ArrayValue(list))),
    };
    let metric = |name: &str, data| Metric {
        name: name.to_owned(),
        unit: "By/s".to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    let metrics = vec![
        metric(
            "a.b",
            Data::Sum(Sum {
                data_points: vec![NumberDataPoint {
                    attributes: vec![attribute.clone()],
                    time_unix_nano: 1_700_000_000_000_000_000,
                    value: Some(number_data_point::Value::AsInt(-3)),
                    ..NumberDataPoint::default()
                }],
                aggregation_temporality: 1,
                is_monotonic: true,
            }),
        ),
        metric(
            "h",
            Data::Histogram(Histogram {
                data_points: vec![HistogramDataPoint {
                    count: 3,
                    sum: Some(1.5),
                    bucket_counts: vec![1, 2],
                    explicit_bounds: vec![0.5],
                    ..HistogramDataPoint::default()
                }],
                aggregation_temporality: 2,
            }),
        ),
        metric(
            "e",
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points: vec![ExponentialHistogramDataPoint {
                    count: 9,
                    scale: 20,
                    zero_count: 1,
                    positive: Some(Buckets {
                        offset: -7,
                        bucket_counts: vec![1, 0, 300],
                    }),
                    negative: Some(Buckets {
                        offset: i32::MAX,
                        bucket_counts: vec![1],
                    }),
                    ..ExponentialHistogramDataPoint::default()
                }],
                aggregation_temporality: 2,
            }),
        ),
        metric(
            "s",
            Data::Summary(Summary {
                data_points: vec![SummaryDataPoint {
                    count: 1,
                    quantile_values: vec![ValueAtQuantile {
                        quantile: 0.5,
                        value: 2.0,
                    }],
                    ..SummaryDataPoint::default()
                }],
            }),
        ),
    ];
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![attribute],
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    vec![request.encode_to_vec()]
}

fn seeds_json() -> Vec<Vec<u8>> {
    let wrap = |metric: &str| {
        format!(
            "{{\"resourceMetrics\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"a.b\",\"value\":{{\"kvlistValue\":\
             {{\"values\":[{{\"key\":\"k\",\"value\":{{\"doubleValue\":0.5}}}}]}}}}}}]}},\"scopeMetrics\":[{{\"scope\":\
             {{\"name\":\"l\"}},\"metrics\":[{metric}]}}]}}]}}"
        )
        .into_bytes()
    };
    vec![
        wrap(
            r#"{"name":"c","unit":"1","sum":{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{"asInt":"7","timeUnixNano":"1","flags":1}]}}"#,
        ),
        wrap(
            r#"{"name":"h","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"3","sum":1.5,"bucketCounts":["1",2],"explicitBounds":[5]}]}}"#,
        ),
        wrap(
            r#"{"name":"e","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[{"count":3,"scale":-1,"positive":{"offset":-2,"bucketCounts":[3]}}]}}"#,
        ),
        wrap(
            r#"{"name":"s","summary":{"dataPoints":[{"count":1,"sum":"NaN","quantileValues":[{"quantile":1,"value":2}]}]}}"#,
        ),
    ]
}
