//! A query across the border equals the same query on an engine that holds everything: on the
//! store of an agent that kept all samples, and on a real Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use pegel_history::HistoryApi;
use pegel_metric::{Millis, Selector};
use pegel_query::promql::{
    LabelSet, PromqlLimits, QueryValue, Selection, SeriesSource, StoreSource, instant,
    parse_selector, range,
};
use pegel_query::{
    Annotations, HistoryRecord, QueryEngine, QueryParams, QueryRequest, SampleReader,
};
use pegel_store::{QueryStep, RangeQuery, StepAggregation};
use pegel_testkit::{AgentAddress, PrometheusProcess, TempDir, get, now_millis};

use crate::data::{RetainedStore, TestData, history};
use crate::engines::{prometheus, victoria_metrics};

/// Expressions whose windows cross the border.
const EXPRESSIONS: &[&str] = &[
    "rate(requests_total[5m])",
    "increase(requests_total[17m])",
    "irate(requests_total[2m])",
    "sum by (path) (rate(requests_total[1m]))",
    "resets(requests_total[1h])",
    "changes(queue_depth[20m])",
    "delta(queue_depth[10m])",
    "deriv(queue_depth[10m])",
    "idelta(queue_depth[3m])",
    "predict_linear(queue_depth[15m], 600)",
    "avg_over_time(queue_depth[13m])",
    "min_over_time(queue_depth[30m])",
    "max_over_time(queue_depth[30m])",
    "sum_over_time(queue_depth[7m])",
    "count_over_time(queue_depth[1h])",
    "count_over_time(sparse[25m])",
    "stddev_over_time(queue_depth[11m])",
    "quantile_over_time(0.9, queue_depth[40m])",
    "last_over_time(sparse[1h])",
    "present_over_time(sparse[5m])",
    "timestamp(queue_depth)",
    "queue_depth",
    "queue_depth offset 23m",
    "queue_depth offset -5m",
    "queue_depth @ start()",
    "rate(requests_total[13m] @ end())",
    "rate(requests_total[5m] offset 40m)",
    "queue_depth - queue_depth offset 30m",
    "avg_over_time(rate(requests_total[120001ms])[30m:1m])",
    "max_over_time(sum(queue_depth)[1h:90s] offset 10m)",
    "sum_over_time(absent(sparse)[50m:10s])",
    "topk(2, avg_over_time(queue_depth[7m]))",
    "bottomk(1, rate(requests_total[10m]))",
    // Without topk: equal maxima are chosen in an order that PromQL leaves open.
    "sum by (queue) (max_over_time(queue_depth[9m]))",
    "histogram_quantile(0.9, rate(latency_seconds_bucket[10m]))",
    "histogram_quantile(0.5, sum by (le) (increase(latency_seconds_bucket[45m])))",
    "absent(sparse)",
    "absent_over_time(sparse[3m])",
    "sum(queue_depth) / count(queue_depth)",
    "requests_total > bool 1000 and on (path) rate(requests_total[5m])",
    "label_replace(queue_depth, \"q\", \"$1\", \"queue\", \"(.*)\")",
    "{__name__=~\"queue_.*|sparse\",queue!=\"x\"}",
];

/// Expressions that depend on stale markers.
const STALENESS: &[&str] = &[
    "ended_long_ago",
    "ended_before",
    "ended_at_border",
    "ended_after",
    "began_after",
    "count({kind=\"ending\"})",
    "flapping",
    "absent(flapping)",
    "count_over_time(flapping[30m])",
    "sum_over_time(count(flapping)[40m:10s])",
    "absent(ended_at_border)",
    "changes(flapping[20m])",
    "sum({job=\"node\",__name__!~\".*_bucket\"})",
];

type Found = BTreeMap<String, Vec<(Millis, f64)>>;

fn key(labels: &LabelSet) -> String {
    labels.to_string()
}

fn evaluate(source: &StoreSource, expression: &str, times: EvaluationTimes) -> Found {
    let limits = PromqlLimits::default();
    let outcome = match times {
        EvaluationTimes::Instant(time) => instant(source, expression, time, &limits),
        EvaluationTimes::Range(start, end, step) => {
            range(source, expression, (start, end), step, &limits)
        }
    };
    let outcome = outcome.unwrap_or_else(|error| panic!("{expression}: {error}"));
    match outcome.value {
        QueryValue::Vector(_, samples) => { samples.iter() }
            .map(|sample| (key(&sample.labels), vec![(0, sample.value)]))
            .collect(),
        QueryValue::Matrix(series) => { series.into_iter() }
            .map(|series| (key(&series.labels), series.points))
            .collect(),
        other => panic!("{expression}: {other:?}"),
    }
}

#[derive(Debug, Clone, Copy)]
enum EvaluationTimes {
    Instant(Millis),
    Range(Millis, Millis, Millis),
}

impl EvaluationTimes {
    fn all(data: &TestData) -> Vec<EvaluationTimes> {
        let offsets = [-900_000, -15_000, -1, 0, 1, 15_000, 250_000, 1_200_000];
        let instants = offsets.map(|offset| EvaluationTimes::Instant(data.border + offset));
        let ranges = [
            EvaluationTimes::Range(data.start + 300_000, data.now, 37_000),
            EvaluationTimes::Range(data.border - 90_000, data.border + 90_000, 5_000),
            EvaluationTimes::Range(data.border - 600_003, data.border + 400_007, 11_111),
        ];
        instants.into_iter().chain(ranges).collect()
    }
}

/// Asserts that two results have the same series and points, to 1e-9.
#[track_caller]
fn assert_equal(expected: &Found, found: &Found, what: &str) {
    let series = |found: &Found| found.keys().cloned().collect::<Vec<_>>();
    assert_eq!(series(expected), series(found), "{what}");
    for (labels, points) in expected {
        let other = &found[labels];
        let times = |points: &[(Millis, f64)]| points.iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(times(points), times(other), "{what}: times of {labels}");
        for ((time, a), (_, b)) in points.iter().zip(other) {
            let is_equal = a == b
                || (a.is_nan() && b.is_nan())
                || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.);
            assert!(is_equal, "{what}: {labels} at {time}: {a} and {b}");
        }
    }
}

/// Evaluates an expression on a real Prometheus.
fn ask(prometheus: &PrometheusProcess, expression: &str, times: EvaluationTimes) -> Found {
    let encoded: String = expression
        .bytes()
        .map(|byte| format!("%{byte:02x}"))
        .collect();
    let seconds = |time: Millis| format!("{}.{:03}", time / 1_000, time % 1_000);
    let path = match times {
        EvaluationTimes::Instant(time) => {
            format!("/api/v1/query?query={encoded}&time={}", seconds(time))
        }
        EvaluationTimes::Range(start, end, step) => format!(
            "/api/v1/query_range?query={encoded}&start={}&end={}&step={}",
            seconds(start),
            seconds(end),
            seconds(step)
        ),
    };
    let body = prometheus.get(&path).json();
    let result = body["data"]["result"].as_array().expect("a list");
    let point = |pair: &serde_json::Value| {
        let time = (pair[0].as_f64().expect("a time") * 1_000.).round() as Millis;
        let value: f64 = pair[1].as_str().expect("a text").parse().expect("a number");
        (time, value)
    };
    let series = result.iter().map(|series| {
        let labels = series["metric"].as_object().expect("labels").iter();
        let labels = labels.map(|(key, value)| (key, value.as_str().unwrap_or_default()));
        let points = match series["values"].as_array() {
            Some(values) => values.iter().map(point).collect(),
            None => vec![(0, point(&series["value"]).1)],
        };
        (key(&LabelSet::new(labels)), points)
    });
    series.collect()
}

fn url(address: &AgentAddress) -> String {
    match address {
        AgentAddress::Tcp(address) => format!("http://{address}"),
        other => panic!("{other:?}"),
    }
}

/// Returns whether no window begins at a sample. Windows of Prometheus 2 include their start, those
/// of Prometheus 3, which this evaluator follows, do not: results differ if a window begins at a
/// sample.
fn is_off_grid(times: EvaluationTimes) -> bool {
    match times {
        EvaluationTimes::Instant(time) => time % 1_000 != 0,
        EvaluationTimes::Range(start, _, step) => start % 1_000 != 0 && step % 1_000 != 0,
    }
}

#[test]
fn a_query_across_the_border_equals_prometheus_with_everything() {
    let data = TestData::new(now_millis());
    let (Some(prometheus), Some(victoria)) = (prometheus(&data), victoria_metrics(&data)) else {
        return;
    };
    let (all, last) = (RetainedStore::of_all(&data), RetainedStore::of_last(&data));
    let mut compared = 0;
    for (engine, api, knows_markers) in [
        (url(&prometheus.address), HistoryApi::Auto, true),
        (url(&prometheus.address), HistoryApi::Query, false),
        (url(&victoria.address), HistoryApi::Auto, true),
    ] {
        let reader = history(&engine, |settings| settings.api = api);
        let record = Arc::new(HistoryRecord::default());
        let joined = { last.source.clone() }
            .with_history(reader.clone())
            .recording(record.clone());
        let staleness = STALENESS.iter().filter(|_| knows_markers);
        for expression in EXPRESSIONS.iter().chain(staleness) {
            for times in EvaluationTimes::all(&data) {
                let what = format!("{expression} {times:?} {engine} {api}");
                let found = evaluate(&joined, expression, times);
                let expected = evaluate(&all.source, expression, times);
                assert_equal(&expected, &found, &what);
                if is_off_grid(times) {
                    assert_equal(&ask(&prometheus, expression, times), &found, &what);
                    compared += 1;
                }
            }
        }
        let mark = record.mark().expect("the history was used");
        assert_eq!((mark.from, mark.problems), (None, Vec::new()), "{engine}");
        let status = reader.status();
        assert!(status.cache_hits > status.requests, "{status:?}");
    }
    assert!(compared > 100);
    // Without the history the same queries differ: the comparison can fail.
    let alone = evaluate(&last.source, "queue_depth", EvaluationTimes::all(&data)[0]);
    assert!(alone.is_empty());
}

/// Reads the points of all series that match.
fn points(source: &dyn SampleReader, query: &RangeQuery) -> Vec<(String, Vec<(Millis, f64)>)> {
    let mut found = Vec::new();
    source
        .query_range(query, &mut |series, points| {
            found.push((series.text().to_owned(), points.to_vec()));
        })
        .expect("reads");
    assert!(
        found.is_sorted_by(|a, b| a.0 < b.0),
        "sorted by text, each once"
    );
    found
}

fn opentsdb(engine: &QueryEngine, query: &str, now: Millis) -> String {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let params = QueryParams::new(pairs.collect());
    let request = QueryRequest::from_uri(&params, now).expect(query);
    let mut out = Vec::new();
    engine.query(&request, &mut out).expect(query);
    String::from_utf8(out).expect("JSON")
}

#[test]
fn stored_points_and_opentsdb_queries_equal_those_of_a_store_with_everything() {
    let data = TestData::new(now_millis());
    let Some(prometheus) = prometheus(&data) else {
        return;
    };
    let (all, last) = (RetainedStore::of_all(&data), RetainedStore::of_last(&data));
    let reader = history(&url(&prometheus.address), |_| {});
    let joined = last.source.clone().with_history(reader).stored_series();
    let folds = StepAggregation::ALL.map(Some).into_iter().chain([None]);
    let steps = folds.flat_map(|aggregation| {
        [7_000, 60_000, 3_600_000, Millis::MAX].map(|millis| {
            Some(QueryStep {
                millis,
                aggregation,
            })
        })
    });
    for step in steps.chain([None]) {
        for pattern in [
            "requests_total",
            "queue_depth{queue!=\"y\"}",
            "latency*",
            "s*",
        ] {
            let selector = Selector::parse(pattern).expect("valid");
            for (start, end) in [
                (data.start + 1, data.now),
                (data.border - 100_000, data.border + 100_000),
                (data.start, data.border - 1),
            ] {
                let query = RangeQuery::new(selector.clone(), start, end, step);
                let expected = points(&all.store, &query);
                assert_eq!(points(&*joined, &query), expected, "{pattern} {step:?}");
                assert!(!expected.is_empty() || pattern == "s*");
            }
        }
    }
    let dir = TempDir::new();
    let annotations = Arc::new(Annotations::open(dir.path()).expect("opens"));
    let whole = QueryEngine::new(all.store.clone(), annotations.clone(), "n1", false);
    let across = whole.over(joined, annotations);
    for query in [
        "m=sum:queue_depth",
        "m=avg:1m-avg:queue_depth{queue=*}",
        "m=sum:rate:requests_total{path=a|b}",
        "m=max:10m-max:rate:requests_total{path=*}",
        "m=none:30s-last-zero:sparse",
        "m=sum:0all-sum:queue_depth",
        "m=p90:5m-count-null:latency_seconds_bucket{le=*}",
    ] {
        let query = format!("start={}&end={}&{query}", data.start, data.now);
        let expected = opentsdb(&whole, &query, data.now);
        assert_eq!(opentsdb(&across, &query, data.now), expected, "{query}");
        assert!(expected.len() > 100, "{expected}");
    }
}

/// Lists the labels of the series that match.
fn listed(source: &StoreSource, selector: &str, range: (Millis, Millis)) -> Vec<String> {
    let matchers = parse_selector(selector).expect("valid");
    let selection = Selection {
        matchers: &matchers,
        input: None,
        start: range.0,
        end: range.1,
        bytes_max: 1 << 24,
        deadline: Instant::now() + std::time::Duration::from_secs(20),
        cancellation: Default::default(),
    };
    let mut found = Vec::new();
    source
        .series(&selection, &mut |labels, _| {
            found.push(key(&labels));
            Ok(())
        })
        .expect("lists");
    let count = found.len();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), count, "each series once");
    found
}

#[test]
fn series_of_the_history_are_listed_and_other_nodes_are_not() {
    let data = TestData::new(now_millis());
    let (Some(prometheus), Some(victoria)) = (prometheus(&data), victoria_metrics(&data)) else {
        return;
    };
    let (all, last) = (RetainedStore::of_all(&data), RetainedStore::of_last(&data));
    for address in [&prometheus.address, &victoria.address] {
        let body = get(address, "/api/v1/series?match[]=queue_depth").expect("answered");
        assert_eq!(body.status, 200);
        let joined = last
            .source
            .clone()
            .with_history(history(&url(address), |_| {}));
        for selector in ["{job=\"node\"}", "ended_long_ago", "{kind=\"ending\"}"] {
            let range = (data.start, data.now);
            let expected = listed(&all.source, selector, range);
            assert_eq!(listed(&joined, selector, range), expected, "{selector}");
            assert!(!expected.is_empty());
            // Without a start: as far as the history reaches.
            assert_eq!(listed(&joined, selector, (0, i64::MAX)), expected);
        }
        // An agent of another name sees nothing of this one.
        let elsewhere = history(&url(address), |settings| {
            settings
                .external_labels
                .insert("instance".into(), "n2:1337".into());
        });
        let joined = last.source.clone().with_history(elsewhere);
        let mut count = 0;
        let matchers = parse_selector("ended_long_ago").expect("valid");
        let selection = Selection {
            matchers: &matchers,
            input: None,
            start: data.start,
            end: data.now,
            bytes_max: 1 << 24,
            deadline: Instant::now() + std::time::Duration::from_secs(20),
            cancellation: Default::default(),
        };
        let selected = joined.select(&selection, &mut |_, _| {
            count += 1;
            Ok(())
        });
        selected.expect("reads");
        assert_eq!(count, 0);
    }
}
