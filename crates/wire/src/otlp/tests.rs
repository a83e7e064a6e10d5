//! Tests of both readers against the generated messages: every part of a request is visited, in
//! protobuf and in JSON.

use super::messages::Message;
use super::messages::collector::ExportMetricsServiceRequest;
use super::messages::common::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value::Value,
};
use super::messages::metrics::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric as MetricMessage, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exponential_histogram_data_point::Buckets, metric::Data,
    number_data_point::Value as Number, summary_data_point::ValueAtQuantile,
};
use super::messages::resource::Resource;
use super::*;

/// Writes down everything that is visited.
#[derive(Default)]
struct VisitRecorder(Vec<String>);

impl MetricVisitor for VisitRecorder {
    fn resource(&mut self, attributes: &[Attribute<'_>]) {
        self.0.push(format!("resource {}", listed(attributes)));
    }

    fn scope(&mut self, scope: &Scope<'_>) {
        let attributes = listed(&scope.attributes);
        let line = format!("scope {} {} {attributes}", scope.name, scope.version);
        self.0.push(line);
    }

    fn metric(&mut self, metric: &Metric<'_>, data: MetricData) {
        let Metric {
            name,
            description,
            unit,
        } = metric;
        self.0
            .push(format!("metric {name} ({description}) {unit} {data:?}"));
    }

    fn point(&mut self, point: &DataPoint<'_>) -> Result<(), OtlpError> {
        let attributes = listed(&point.attributes);
        self.0.push(format!(
            "point {attributes} {}..{} {} {} {:?}",
            point.start_nanos, point.time_nanos, point.has_no_value, point.exemplars, point.value
        ));
        Ok(())
    }
}

fn listed(attributes: &[Attribute<'_>]) -> String {
    let pairs = attributes
        .iter()
        .map(|one| format!("{}={}", one.key, one.value));
    pairs.collect::<Vec<_>>().join(",")
}

fn visited_protobuf(message: &[u8]) -> Result<Vec<String>, OtlpError> {
    let mut recorder = VisitRecorder::default();
    read_protobuf(message, &mut recorder).map(|()| recorder.0)
}

fn visited_json(body: &str) -> Result<Vec<String>, OtlpError> {
    let mut recorder = VisitRecorder::default();
    read_json(body.as_bytes(), &mut recorder).map(|()| recorder.0)
}

fn any(value: Value) -> Option<AnyValue> {
    Some(AnyValue { value: Some(value) })
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: any(value),
    }
}

fn metric(name: &str, data: Data) -> MetricMessage {
    MetricMessage {
        name: name.to_owned(),
        description: "D.".to_owned(),
        unit: "s".to_owned(),
        data: Some(data),
        metadata: Vec::new(),
    }
}

fn number(value: Number) -> NumberDataPoint {
    NumberDataPoint {
        attributes: vec![attribute("a", Value::StringValue("ü\"".to_owned()))],
        start_time_unix_nano: 1,
        time_unix_nano: 1_700_000_000_000_000_001,
        exemplars: vec![Default::default()],
        flags: 0,
        value: Some(value),
    }
}

fn request() -> ExportMetricsServiceRequest {
    let list = ArrayValue {
        values: vec![
            AnyValue {
                value: Some(Value::IntValue(-1)),
            },
            AnyValue::default(),
            AnyValue {
                value: Some(Value::KvlistValue(KeyValueList {
                    values: vec![attribute("k", Value::DoubleValue(0.5))],
                })),
            },
        ],
    };
    let resource = Resource {
        attributes: vec![
            attribute("service.name", Value::StringValue("app".to_owned())),
            attribute("n", Value::IntValue(i64::MIN)),
            attribute("b", Value::BoolValue(true)),
            attribute("d", Value::DoubleValue(1.5)),
            attribute("l", Value::ArrayValue(list)),
            attribute("y", Value::BytesValue(vec![1, 2])),
        ],
        dropped_attributes_count: 3,
        entity_refs: Vec::new(),
    };
    let scope = InstrumentationScope {
        name: "lib".to_owned(),
        version: "1.2".to_owned(),
        attributes: vec![attribute("s", Value::StringValue("1".to_owned()))],
        dropped_attributes_count: 0,
    };
    let empty = NumberDataPoint {
        flags: 1,
        ..NumberDataPoint::default()
    };
    let metrics = vec![
        metric(
            "gauge",
            Data::Gauge(Gauge {
                data_points: vec![number(Number::AsDouble(-0.25)), empty],
            }),
        ),
        metric(
            "sum",
            Data::Sum(Sum {
                data_points: vec![number(Number::AsInt(i64::MAX))],
                aggregation_temporality: 1,
                is_monotonic: true,
            }),
        ),
        metric(
            "histogram",
            Data::Histogram(Histogram {
                data_points: vec![HistogramDataPoint {
                    count: 6,
                    sum: Some(7.5),
                    bucket_counts: vec![1, 2, 3],
                    explicit_bounds: vec![0.5, 2.0],
                    min: Some(0.1),
                    max: Some(3.0),
                    time_unix_nano: 9,
                    ..HistogramDataPoint::default()
                }],
                aggregation_temporality: 2,
            }),
        ),
        metric(
            "exponential",
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points: vec![ExponentialHistogramDataPoint {
                    count: 600,
                    sum: None,
                    scale: -3,
                    zero_count: 2,
                    positive: Some(Buckets {
                        offset: -7,
                        bucket_counts: vec![300, 0, 1],
                    }),
                    negative: Some(Buckets {
                        offset: 5,
                        bucket_counts: vec![1],
                    }),
                    zero_threshold: 0.001,
                    ..ExponentialHistogramDataPoint::default()
                }],
                aggregation_temporality: 2,
            }),
        ),
        metric(
            "summary",
            Data::Summary(Summary {
                data_points: vec![SummaryDataPoint {
                    count: 3,
                    sum: 1.5,
                    quantile_values: vec![ValueAtQuantile {
                        quantile: 0.5,
                        value: 0.25,
                    }],
                    ..SummaryDataPoint::default()
                }],
            }),
        ),
    ];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics,
                schema_url: "https://example.org".to_owned(),
            }],
            schema_url: String::new(),
        }],
    }
}

/// The same request, with fields in unusual orders and forms.
const JSON: &str = r#"{"unknown":[{}],"resourceMetrics":[{"scopeMetrics":[{"metrics":[
 {"gauge":{"dataPoints":[
   {"attributes":[{"key":"a","value":{"stringValue":"ü\""}}],"startTimeUnixNano":"1","timeUnixNano":"1700000000000000001",
    "asDouble":-0.25,"exemplars":[{"spanId":"00f067aa0ba902b7"}]},
   {"flags":1}]},"unit":"s","description":"D.","name":"gauge"},
 {"name":"sum","description":"D.","unit":"s","sum":{"isMonotonic":true,"dataPoints":[
   {"attributes":[{"value":{"stringValue":"ü\""},"key":"a"}],"startTimeUnixNano":1,"timeUnixNano":1700000000000000001,
    "asInt":"9223372036854775807","exemplars":[{}]}],"aggregationTemporality":1}},
 {"name":"histogram","description":"D.","unit":"s","histogram":{"aggregationTemporality":"AGGREGATION_TEMPORALITY_CUMULATIVE",
   "dataPoints":[{"timeUnixNano":"9","count":"6","sum":7.5,"bucketCounts":["1",2,"3"],"explicitBounds":[0.5,2],"min":0.1}]}},
 {"name":"exponential","description":"D.","unit":"s","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[
   {"count":6e2,"sum":null,"scale":-3,"zeroCount":"2","positive":{"offset":-7,"bucketCounts":["300","0","1"]},
    "negative":{"offset":5,"bucketCounts":[1]},"zeroThreshold":0.001}]}},
 {"name":"summary","description":"D.","unit":"s","summary":{"dataPoints":[
   {"count":3,"sum":"1.5","quantileValues":[{"quantile":0.5,"value":0.25}]}]}},
 {"name":"nothing"}],
 "scope":{"name":"lib","version":"1.2","attributes":[{"key":"s","value":{"stringValue":"1"}}]}}],
 "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"app"}},{"key":"n","value":{"intValue":"-9223372036854775808"}},
  {"key":"b","value":{"boolValue":true}},{"key":"d","value":{"doubleValue":1.5}},
  {"key":"l","value":{"arrayValue":{"values":[{"intValue":-1},{},{"kvlistValue":{"values":[{"key":"k","value":{"doubleValue":0.5}}]}}]}}},
  {"key":"y","value":{"bytesValue":"AQI="}}]}}]}"#;

#[test]
fn both_forms_of_a_request_say_the_same() {
    let from_protobuf = visited_protobuf(&request().encode_to_vec()).expect("valid");
    assert_eq!(
        from_protobuf[0],
        "resource service.name=app,n=-9223372036854775808,b=true,d=1.5,l=[-1,null,{\"k\":0.5}],y=AQI="
    );
    assert_eq!(from_protobuf[1], "scope lib 1.2 s=1");
    let from_json = visited_json(JSON).expect("valid");
    assert_eq!(from_json, from_protobuf);
    assert_eq!(from_protobuf.len(), 13, "{from_protobuf:#?}");
}

#[test]
fn a_truncated_message_is_an_error_at_every_length() {
    let message = request().encode_to_vec();
    for len in 1..message.len() {
        // The outermost field spans the whole message.
        assert!(visited_protobuf(&message[..len]).is_err(), "{len} bytes");
    }
    assert_eq!(visited_protobuf(b""), Ok(Vec::new()));
    assert_eq!(visited_json("{}"), Ok(Vec::new()));
}

#[test]
fn errors_in_json_name_the_field_and_its_place() {
    let error = |body: &str| visited_json(body).expect_err("invalid").to_string();
    assert_eq!(error("[]"), "byte 0: the request is not an object");
    let points =
        r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"dataPoints":[VALUE]}}]}]}]}"#;
    let point = |value: &str| error(&points.replace("VALUE", value));
    assert_eq!(
        point(r#"{"asInt":"x"}"#),
        "byte 80: asInt is not a whole number of 64 bits"
    );
    assert_eq!(
        point(r#"{"timeUnixNano":-1}"#),
        "byte 87: timeUnixNano is not a whole number of 64 bits"
    );
    assert_eq!(
        point(r#"{"asDouble":"inf"}"#),
        "byte 83: asDouble is not a number"
    );
    assert_eq!(point("7"), "byte 71: dataPoints is not an object");
    assert!(error("{\"resourceMetrics\":").starts_with("not JSON: byte 19"));
}

#[test]
fn nesting_and_lists_are_bounded() {
    let mut value = Value::BoolValue(true);
    for _ in 0..=VALUE_DEPTH_MAX {
        value = Value::ArrayValue(ArrayValue {
            values: vec![AnyValue { value: Some(value) }],
        });
    }
    let of_resource = |attributes: Vec<KeyValue>| ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes,
                ..Resource::default()
            }),
            ..ResourceMetrics::default()
        }],
    };
    let deep = of_resource(vec![attribute("deep", value)]).encode_to_vec();
    assert_eq!(visited_protobuf(&deep), Err(OtlpError::TooDeep));
    let many = vec![attribute("a", Value::BoolValue(true)); 10_000];
    let visited = visited_protobuf(&of_resource(many).encode_to_vec()).expect("valid");
    assert_eq!(visited[0].matches("a=true").count(), ATTRIBUTES_MAX);
    let counts = format!("[{}0]", "0,".repeat(BUCKETS_MAX));
    let json = JSON.replace(r#"["1",2,"3"]"#, &counts);
    let error = OtlpError::TooMany("buckets in a data point", BUCKETS_MAX);
    assert_eq!(visited_json(&json), Err(error));
}
