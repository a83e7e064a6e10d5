//! An aggregation that five nodes evaluate and their parents merge has the value that it has over
//! the series of all nodes.

use std::cell::Cell;

use pegel_tree_protocol::SelectEnd;

use super::*;
use crate::promql::pushdown::{
    PushedAggregation, PushedMerger, PushedRequest, PushedSeries, decode_pushed_request,
    decode_pushed_series, encode_pushed_request, encode_pushed_series, evaluate_pushed, set_host,
};

/// Counters with resets, gauges with NaN, stale series, series that only some nodes have, equal
/// values, sums that cancel, and means whose sum overflows.
fn nodes() -> Vec<(&'static str, MemorySource)> {
    let node = |number: usize, list: &[(&str, &str)]| {
        let name = ["n1", "n2", "n3", "n4", "n5"][number];
        (name, series(list))
    };
    vec![
        node(
            0,
            &[
                ("cpu_total{cpu=\"0\"}", "0+3.7x60"),
                ("cpu_total{cpu=\"1\"}", "0+1.1x20 0+2x39"),
                ("temp{zone=\"a\"}", "20.5 NaN 21 19+0.3x57"),
                ("temp{zone=\"a\",Rack=\"7\"}", "20x60"),
                ("big{}", "1e16x60"),
                ("big{part=\"1\"}", "1x60"),
                ("huge", "1.7e308x60"),
                ("huge{part=\"1\"}", "1.7e308x60"),
                ("lat_bucket{le=\"1\"}", "0+1x60"),
                ("lat_bucket{le=\"+Inf\"}", "0+3x60"),
                ("load_a{i=\"1\"}", "1x30"),
                ("tie{C=\"1\"}", "1x60"),
                ("tie{z=\"1\"}", "1x60"),
                ("load_b{i=\"2\"}", "1x60"),
                ("odd{host=\"forged\"}", "5x60"),
            ],
        ),
        node(
            1,
            &[
                ("cpu_total{cpu=\"0\"}", "5+1x20 stale _x38"),
                ("cpu_total{cpu=\"1\"}", "_x30 7+0.1x30"),
                ("temp{zone=\"a\"}", "NaNx60"),
                ("temp{zone=\"b\"}", "20x60"),
                ("big{}", "-1e16x60"),
                ("huge", "1.6e308x60"),
                ("lat_bucket{le=\"1\"}", "0+2x60"),
                ("lat_bucket{le=\"+Inf\"}", "0+2x60"),
            ],
        ),
        node(
            2,
            &[
                ("cpu_total{cpu=\"0\"}", "1e9+0.125x60"),
                ("big{}", "0.1x60"),
                ("huge", "-Infx10 1e308x50"),
                ("load_b{i=\"1\"}", "1x60"),
            ],
        ),
        node(
            3,
            &[
                ("cpu_total{cpu=\"0\"}", "_x10 3+2x10 _x20 0+9x20"),
                ("cpu_total{cpu=\"2\",A=\"z\"}", "0+3.7x60"),
                ("temp{zone=\"a\"}", "20x60"),
                ("temp{zone=\"c\"}", "-3.25x20 Inf 4x30"),
                ("huge", "1.5e308x60"),
                ("tie", "1x60"),
                ("tie{b=\"1\"}", "1x60"),
                ("tie{B=\"1\"}", "1x60"),
            ],
        ),
        node(4, &[("other", "1x100")]),
    ]
}

/// The nodes of a tree: `n1` and `n2` below a parent, which has the others as its siblings.
struct PushedTreeSource {
    nodes: Vec<(&'static str, MemorySource)>,
    union: MemorySource,
    pushes: bool,
    pushed: Cell<usize>,
}

impl PushedTreeSource {
    fn new(pushes: bool) -> PushedTreeSource {
        let nodes = nodes();
        let all = nodes.iter().flat_map(|(host, source)| {
            let series = source.series.iter();
            series.map(|(labels, samples)| (labels.with("host", host), samples.clone()))
        });
        PushedTreeSource {
            union: MemorySource {
                series: all.collect(),
            },
            nodes,
            pushes,
            pushed: Cell::new(0),
        }
    }

    /// Answers as the nodes do, with every message encoded and decoded.
    fn answer(
        &self,
        pushed: &PushedAggregation<'_>,
        body: &[u8],
    ) -> Result<Vec<PushedSeries>, PromqlError> {
        let request = decode_pushed_request(body)?;
        assert_eq!(request, pushed.request);
        let limits = pushed.limits();
        let mut parent = PushedMerger::new(&request, &limits)?;
        let mut root = PushedMerger::new(&request, &limits)?;
        for (index, (host, source)) in self.nodes.iter().enumerate() {
            if !pushed.accepts_host(host) {
                continue;
            }
            let knows_host = index % 2 == 0;
            let own = knows_host.then_some(*host);
            let mut series = transfer(evaluate_pushed(source, &request, own, &limits)?, &request);
            if !knows_host {
                set_host(&mut series, &request, host);
            }
            if index < 2 {
                parent.add(series)?;
            } else {
                root.add(series)?;
            }
        }
        root.add(transfer(parent.finish()?, &request))?;
        root.finish()
    }
}

fn transfer(series: Vec<PushedSeries>, request: &PushedRequest) -> Vec<PushedSeries> {
    let sent: Vec<LabelSet> = series.iter().map(|one| one.labels.clone()).collect();
    let end = SelectEnd {
        answered: 1,
        expected: 2,
        late: vec!["n9".to_owned()],
        nodes: Vec::new(),
    };
    let body = encode_pushed_series(series, end.clone());
    let (received, received_end) = decode_pushed_series(&body, request).expect("as sent");
    assert_eq!(received_end, end);
    assert!(received.iter().map(|one| &one.labels).eq(&sent));
    received
}

impl SeriesSource for PushedTreeSource {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        self.union.select(selection, visit)
    }

    fn takes_aggregations(&self) -> bool {
        self.pushes
    }

    fn aggregate(
        &self,
        pushed: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        self.pushed.set(self.pushed.get() + 1);
        let body = encode_pushed_request(&pushed.request);
        Some(self.answer(pushed, &body))
    }
}

/// The ends and the step of the queries of each expression; without step, an instant query.
const TIMES: [(Millis, Millis, Option<Millis>); 4] = [
    (0, 700, Some(30)),
    (305, 905, Some(60)),
    (215, 215, None),
    (450, 450, None),
];

fn evaluate(
    source: &PushedTreeSource,
    expression: &str,
    (start, end, step): (Millis, Millis, Option<Millis>),
) -> QueryOutcome {
    let limits = PromqlLimits::default();
    let (start, end) = (start * 1_000, end * 1_000);
    let outcome = match step {
        Some(step) => range(source, expression, (start, end), step * 1_000, &limits),
        None => instant(source, expression, end, &limits),
    };
    outcome.unwrap_or_else(|error| panic!("{expression}: {error}"))
}

type ResultPoints = Vec<(LabelSet, Vec<(Millis, f64)>)>;

/// Returns the points of a result. Without `in_order`, elements are sorted by their labels.
fn points(outcome: &QueryOutcome, in_order: bool) -> ResultPoints {
    let mut all: ResultPoints = match &outcome.value {
        QueryValue::Vector(time, samples) => samples
            .iter()
            .map(|one| (one.labels.clone(), vec![(*time, one.value)]))
            .collect(),
        QueryValue::Matrix(series) => series
            .iter()
            .map(|one| (one.labels.clone(), one.points.clone()))
            .collect(),
        other => panic!("{other:?}"),
    };
    if !in_order {
        all.sort_by(|a, b| a.0.cmp(&b.0));
    }
    all
}

fn is_close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

fn is_same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn assert_equal(expression: &str, pushes: usize, equal: fn(f64, f64) -> bool) {
    let (tree, all) = (PushedTreeSource::new(true), PushedTreeSource::new(false));
    let mut found = 0;
    for times in TIMES {
        tree.pushed.set(0);
        let (merged, expected) = (
            evaluate(&tree, expression, times),
            evaluate(&all, expression, times),
        );
        assert_eq!(tree.pushed.get(), pushes, "{expression} at {times:?}");
        let in_order = expression.contains("topk(");
        let [got, want] = [&merged, &expected].map(|outcome| points(outcome, in_order));
        let is_equal = got.len() == want.len()
            && got.iter().zip(&want).all(|(got, want)| {
                let pairs = || got.1.iter().zip(&want.1);
                got.0 == want.0
                    && got.1.len() == want.1.len()
                    && pairs().all(|(got, want)| got.0 == want.0 && equal(got.1, want.1))
            });
        assert!(
            is_equal,
            "{expression} at {times:?}\n{got:?}\ninstead of\n{want:?}"
        );
        assert_eq!(
            (merged.infos, merged.warnings),
            (expected.infos, expected.warnings)
        );
        found += got.len();
    }
    assert!(found > 0 || expression.contains("nothing"), "{expression}");
}

#[test]
fn merged_choices_counts_and_extremes_are_exact() {
    for expression in [
        "min(temp)",
        "max(temp)",
        "count(temp)",
        "group(temp)",
        "min by (zone) (temp)",
        "max without (zone) (temp)",
        "count by (host) (cpu_total)",
        "count by (host, cpu) (cpu_total)",
        "count without (cpu) (cpu_total)",
        "count without (host) (cpu_total)",
        "group by (host) ({__name__=~\".+\"})",
        "count by (__name__) ({__name__=~\"load_.\"})",
        "count by (host) (odd)",
        "count by (host) ({host=\"n2\"})",
        "count({host=~\"n1|n4\",__name__=\"temp\"})",
        "max(cpu_total{host!=\"n3\"})",
        "max by (host) (rate(cpu_total[1m]))",
        "min by (host) (irate(cpu_total[1m]))",
        "max(increase(cpu_total{cpu=~\"0|1\"}[2m]))",
        "max(delta(temp[1m]))",
        "min(deriv(cpu_total[2m]))",
        "max by (cpu) (resets(cpu_total[10m]))",
        "max(changes(temp[3m]))",
        "max(predict_linear(cpu_total[2m], 60))",
        "max(quantile_over_time(1.5, temp[1m]))",
        "max by (zone) (max_over_time(temp[90s]))",
        "count(present_over_time(cpu_total[1m]))",
        "count(last_over_time(cpu_total[25s]))",
        "max(cpu_total offset 1m)",
        "min(cpu_total offset -30s)",
        "max(cpu_total @ 130.5)",
        "max(rate(cpu_total[1m] @ end()))",
        "max(rate(cpu_total[1m] @ start() offset 20s) * time())",
        "max(temp > 20)",
        "count(temp > bool 20)",
        "count(20 <= temp)",
        "max(-temp)",
        "max(abs(clamp(temp, -2, 20.5)) ^ 2 % 7)",
        "max(round(temp, 0.25) atan2 3)",
        "min(timestamp(cpu_total))",
        "max(time() - timestamp(cpu_total offset 5s))",
        "count(hour(temp * 1e6))",
        "max(temp - (end() - start()) / (step() + 1))",
        "max(temp * -Inf)",
        "count(temp != NaN)",
        "max(max_over_time(rate(cpu_total[1m])[2m:20s] offset 10s))",
        "max(avg_over_time(temp[5m:]))",
        "max_over_time(max(rate(cpu_total[1m]))[5m:30s])",
        "max(temp) - min(temp) > 1",
        "count(nothing)",
        "topk(2, temp)",
        "topk(3, rate(cpu_total[1m]))",
        "topk(3, cpu_total{cpu=\"0\"} * 0)",
        "topk(4, temp * 0 + 20)",
        "topk by (zone) (1, temp)",
        "topk by (host) (1, temp)",
        "topk without (host) (1, temp)",
        "topk(0, temp) or count(temp)",
        "topk(1, tie)",
        "topk(1, tie{B=\"\",C=\"\"})",
        "bottomk by (host) (1, tie{B=\"\",C=\"\"})",
        "topk(2, tie)",
        "bottomk(3, tie * 1)",
        "topk(4, tie * 1)",
        "topk by (host) (1, tie)",
        "topk(3, max_over_time((tie * 1)[1m:10s]))",
        "topk(1, max_over_time(rate(cpu_total[1m])[5m:1m]))",
        "topk(100, temp)",
        "topk(2, {__name__=~\"load_.\"})",
        "bottomk(2, temp)",
        "bottomk(5, temp > bool 20)",
        "bottomk by (cpu) (1, irate(cpu_total[1m]))",
    ] {
        let second = [" - min(", " or count("];
        let pushes = 1 + usize::from(second.iter().any(|text| expression.contains(text)));
        assert_equal(expression, pushes, is_same);
    }
}

#[test]
fn merged_sums_and_averages_differ_in_rounding_only() {
    for expression in [
        "sum(cpu_total)",
        "sum by (cpu) (cpu_total)",
        "sum by (host) (cpu_total)",
        "sum without (cpu) (cpu_total)",
        "sum without (host) (rate(cpu_total[1m]))",
        "sum(rate(cpu_total[1m]))",
        "sum(increase(cpu_total[5m] offset 10s))",
        "sum(temp)",
        "sum by (zone) (temp)",
        "sum(big)",
        "sum by (part) (big)",
        "sum(huge)",
        "sum without (host) (huge / 1e300)",
        "sum by (le) (rate(lat_bucket[1m]))",
        "histogram_quantile(0.9, sum by (le) (rate(lat_bucket[1m])))",
        "avg(cpu_total)",
        "avg by (zone) (temp)",
        "avg by (host) (rate(cpu_total[1m]))",
        "avg(temp > 0)",
        "avg(huge)",
        "avg(huge > 0)",
        "avg by (host) (huge)",
        "avg without (part) (big)",
        "avg(sum_over_time(temp[1m]))",
        "sum(sum by (cpu) (rate(cpu_total[1m])))",
        "sum(cpu_total) / sum(temp)",
    ] {
        let pushes = 1 + expression.matches(" / sum(").count();
        assert_equal(expression, pushes, is_close);
    }
}

#[test]
fn a_sum_that_cancels_over_nodes_is_exact() {
    let tree = PushedTreeSource::new(true);
    let QueryValue::Vector(_, samples) = evaluate(&tree, "sum(big)", TIMES[2]).value else {
        panic!("a vector");
    };
    // 1e16 + 1 - 1e16 + 0.1
    assert!(is_close(samples[0].value, 1.1), "{}", samples[0].value);
}

#[test]
fn what_needs_more_than_one_series_at_a_time_is_not_pushed_down() {
    for expression in [
        "sum(absent(nothing))",
        "sum(absent_over_time(nothing[1m]))",
        "sum(temp + temp)",
        "sum(temp and temp)",
        "count(temp or cpu_total)",
        "sum(temp * scalar(other))",
        "sum(vector(1))",
        "sum(hour())",
        "sum(vector(time()))",
        "sum(sort(temp))",
        "sum(label_replace(temp, \"zone\", \"x\", \"zone\", \"a\"))",
        "sum by (x) (label_replace(temp, \"x\", \"$1\", \"host\", \"(.*)\"))",
        "sum(label_join(temp, \"x\", \"-\", \"zone\", \"host\"))",
        "sum(histogram_quantile(0.5, lat_bucket))",
        "sum(info(temp))",
        "stddev(temp)",
        "stdvar(temp)",
        "quantile(0.5, temp)",
        "count_values(\"v\", cpu_total)",
        "limitk(1, temp)",
        "limit_ratio(0.5, temp)",
        "topk(scalar(other), temp)",
        "topk(time() / 100, temp)",
        // Equal values are ranked by names that the result does not have.
        "topk(1, abs({__name__=~\"load_.\"}))",
        "max_over_time(temp[5m:1m])",
        "temp",
    ] {
        let (tree, all) = (PushedTreeSource::new(true), PushedTreeSource::new(false));
        for times in TIMES {
            let [got, want] = [&tree, &all].map(|source| evaluate(source, expression, times));
            assert_eq!(format!("{:?}", got.value), format!("{:?}", want.value));
            // The parameter of an instant query's topk is one number.
            if !expression.contains("time() / 100") || times.2.is_some() {
                assert_eq!(tree.pushed.get(), 0, "{expression}");
            }
            tree.pushed.set(0);
        }
    }
    // Only the inner aggregation is pushed down.
    for expression in [
        "sum(max by (cpu) (cpu_total))",
        "stddev(max by (cpu) (cpu_total))",
        "sum(temp * on () group_left max(other))",
        "scalar(max(other)) + 1",
    ] {
        let tree = PushedTreeSource::new(true);
        evaluate(&tree, expression, TIMES[0]);
        assert_eq!(tree.pushed.get(), 1, "{expression}");
    }
}
