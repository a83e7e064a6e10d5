//! PromQL: random expressions over random series, and texts.
//!
//! A range query has at each step what an instant query at that time has.

use std::collections::BTreeMap;
use std::time::Duration;

use pegel_metric::Millis;
use pegel_query::promql::{
    self, LabelSet, PromqlError, PromqlErrorKind, PromqlLimits, QueryValue, STALE_NAN,
    SampleColumns, Selection, SeriesSampleVisitor, SeriesSource,
};

use super::Target;
use crate::fixed_clock::NOW;
use crate::memory::bounded;
use crate::source::InputReader;

/// The memory limit of one query, and the allowance for its expression and its result.
const QUERY_BYTES_MAX: usize = 1 << 20;
const BESIDE_BYTES_MAX: usize = 48 << 20;

pub(super) const EXPRESSION: Target = Target {
    name: "promql_expression",
    run: expression,
    dictionary: &[
        b"sum by (l) (",
        b"without (l)",
        b"rate(",
        b"[1m]",
        b"[5m:10s]",
        b" offset -1m",
        b" @ start()",
        b" @ end()",
        b" on (l) ",
        b" group_left (k) ",
        b" ignoring () ",
        b" bool ",
        b" and ",
        b" unless ",
        b" or ",
        b" atan2 ",
        b"{__name__=~\"a|b\"}",
        b"histogram_quantile(0.9, ",
        b"label_replace(a, \"x\", \"$1\", \"l\", \"(.*)\")",
        b"count_values(\"v\", ",
        b"topk(2, ",
        b"limit_ratio(-0.5, ",
        b"NaN",
        b"-Inf",
        b"1e300",
        b"0x7f",
        b"1y2w3d",
    ],
    seeds: || {
        [
            "sum by (l) (rate(a[1m]))",
            "histogram_quantile(0.9, sum by (le) (rate(b[5m])))",
            "a{l=\"1\",k!~\"x.*\"} * on (l) group_left (k) b offset 10s",
            "max_over_time((a > bool 3 or vector(time()))[5m:10s] @ end())",
            "label_join(topk(2, a), \"x\", \"-\", \"l\", \"k\") unless on () absent(c)",
            "predict_linear(a[2m], 3600) % 7 ^ 2 atan2 -day_of_week()",
            "{\"a\", \"l\"=~\"1|2\"} == a",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

pub(super) const EVALUATION: Target = Target {
    name: "promql_evaluation",
    run: evaluation,
    dictionary: &[],
    seeds: || {
        (0..24u8)
            .map(|seed| {
                (0..200u8)
                    .map(|at| at.wrapping_mul(37).wrapping_add(seed))
                    .collect()
            })
            .collect()
    },
};

/// Series in memory.
struct RandomSource(Vec<(LabelSet, Vec<(Millis, f64)>)>);

impl SeriesSource for RandomSource {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        for (labels, samples) in &self.0 {
            let is_wanted = selection
                .matchers
                .iter()
                .all(|matcher| matcher.matches(labels));
            let in_range = |time: &Millis| (selection.start..=selection.end).contains(time);
            let wanted = samples.iter().copied().filter(|(time, _)| in_range(time));
            let wanted: Vec<(Millis, f64)> = wanted.collect();
            if is_wanted && !wanted.is_empty() {
                visit(labels.clone(), SampleColumns::new(&wanted).samples())?;
            }
        }
        Ok(())
    }
}

/// Generates two metrics with up to four series each.
fn random_source(reader: &mut InputReader<'_>) -> RandomSource {
    let mut all = BTreeMap::new();
    for _ in 0..2 + reader.up_to(6) {
        let labels = LabelSet::new([
            ("__name__", ["a", "b"][reader.up_to(1)]),
            ("l", ["1", "2", ""][reader.up_to(2)]),
            ("k", ["", "x"][reader.up_to(1)]),
            ("le", ["", "1", "2", "+Inf"][reader.up_to(3)]),
        ]);
        let mut time = NOW - 600_000 + reader.up_to(30) as Millis * 1_000;
        let mut samples = Vec::new();
        for _ in 0..reader.up_to(20) {
            let value = if reader.up_to(9) == 0 {
                STALE_NAN
            } else {
                reader.float()
            };
            samples.push((time, value));
            time += 1_000 * (1 + reader.up_to(40) as Millis);
        }
        all.insert(labels, samples);
    }
    RandomSource(all.into_iter().collect())
}

fn pick<'a>(reader: &mut InputReader<'_>, of: &[&'a str]) -> &'a str {
    of[reader.up_to(of.len() - 1)]
}

fn selector(reader: &mut InputReader<'_>) -> String {
    let matchers = ["", "{l=\"1\"}", "{l!=\"1\"}", "{k=~\"x?\"}", "{l!~\"2|\"}"];
    format!("{}{}", pick(reader, &["a", "b"]), pick(reader, &matchers))
}

fn modifier(reader: &mut InputReader<'_>) -> String {
    let at = format!(" @ {}", (NOW - 200_000) / 1_000);
    let at = [" ", " ", " ", " offset 20s", " offset -30s", &at];
    pick(reader, &at).to_owned()
}

fn scalar(reader: &mut InputReader<'_>) -> String {
    pick(
        reader,
        &["0", "1", "2.5", "-1", "NaN", "1e9", "time()", "scalar(a)"],
    )
    .to_owned()
}

fn matrix(reader: &mut InputReader<'_>, depth: usize) -> String {
    let range = pick(reader, &["10s", "45s", "2m", "5m"]);
    if depth == 0 || reader.up_to(2) > 0 {
        return format!("{}[{range}]{}", selector(reader), modifier(reader));
    }
    let step = pick(reader, &["", "7s", "30s"]);
    format!(
        "({})[{range}:{step}]{}",
        vector(reader, depth - 1),
        modifier(reader)
    )
}

/// Generates an expression whose value is a vector.
fn vector(reader: &mut InputReader<'_>, depth: usize) -> String {
    if depth == 0 {
        return format!("{}{}", selector(reader), modifier(reader));
    }
    let depth = depth - 1;
    match reader.up_to(9) {
        0 => format!("{}{}", selector(reader), modifier(reader)),
        1 | 2 => {
            let functions = [
                "rate",
                "increase",
                "delta",
                "irate",
                "deriv",
                "changes",
                "resets",
                "avg_over_time",
                "sum_over_time",
                "max_over_time",
                "count_over_time",
                "stddev_over_time",
                "last_over_time",
                "absent_over_time",
                "mad_over_time",
                "ts_of_max_over_time",
            ];
            format!("{}({})", pick(reader, &functions), matrix(reader, depth))
        }
        3 => {
            let functions = [
                "abs",
                "sqrt",
                "sgn",
                "timestamp",
                "absent",
                "minute",
                "-",
                "round",
                "exp",
                "sort",
                "year",
            ];
            format!("{}({})", pick(reader, &functions), vector(reader, depth))
        }
        4 => {
            let operations = [
                "sum",
                "avg",
                "min",
                "max",
                "count",
                "group",
                "stddev",
                "stdvar",
                "topk(1,",
                "bottomk(2,",
                "quantile(0.4,",
                "count_values(\"v\",",
                "limit_ratio(0.5,",
            ];
            let operation = pick(reader, &operations);
            let grouping = pick(reader, &["", " by (l)", " without (l, le)", " by ()"]);
            let (name, parameter) = operation.split_once('(').unwrap_or((operation, ""));
            format!("{name}{grouping}({parameter} {})", vector(reader, depth))
        }
        5 => {
            let operators = [
                "+", "-", "*", "/", "%", "^", "==", "!=", ">", "<= bool", "atan2",
            ];
            let (operator, scalar) = (pick(reader, &operators), scalar(reader));
            match reader.up_to(1) {
                0 => format!("({}) {operator} {scalar}", vector(reader, depth)),
                _ => format!("{scalar} {operator} ({})", vector(reader, depth)),
            }
        }
        6 | 7 => {
            let operators = [
                "+",
                "-",
                "*",
                "/",
                ">",
                "== bool",
                "+ on (l)",
                "* ignoring (k, le)",
                "+ on (l) group_left ()",
                "< on (l) group_right (k)",
                "and",
                "or",
                "unless",
                "and on (l)",
                "or on ()",
                "unless ignoring (le)",
                "+ fill (0)",
            ];
            let operator = pick(reader, &operators);
            format!(
                "({}) {operator} ({})",
                vector(reader, depth),
                vector(reader, depth)
            )
        }
        8 => {
            let quantile = pick(reader, &["0.5", "-1", "0.99"]);
            let function = ["histogram_quantile(", "histogram_fraction(0.2,"];
            format!(
                "{}{quantile}, {})",
                pick(reader, &function),
                vector(reader, depth)
            )
        }
        _ => {
            let calls = [
                "label_replace(_, \"k\", \"$1\", \"l\", \"(.)\")",
                "label_join(_, \"k\", \"-\", \"l\", \"le\")",
                "clamp(_, 1, 5)",
                "vector(scalar(_))",
                "sort_by_label(_, \"l\")",
            ];
            pick(reader, &calls).replace('_', &vector(reader, depth))
        }
    }
}

fn limits() -> PromqlLimits {
    PromqlLimits {
        bytes_max: QUERY_BYTES_MAX,
        time_max: Duration::from_millis(500),
        ..PromqlLimits::default()
    }
}

const STEPS: Millis = 7;
const STEP: Millis = 33_000;

/// Evaluates an expression at several times, at once and one by one.
fn evaluate(source: &RandomSource, text: &str) {
    let start = NOW - 400_000;
    let ends = (start, start + (STEPS - 1) * STEP);
    let query = || promql::range(source, text, ends, STEP, &limits());
    let series = match bounded(QUERY_BYTES_MAX + BESIDE_BYTES_MAX, query) {
        Ok(outcome) => match outcome.value {
            QueryValue::Matrix(series) => series,
            other => panic!("{text}: {other:?}"),
        },
        Err(error) => return check_error(&error),
    };
    // The value of these depends on the range of the query, and a slow query may time out.
    if ["start", "end", "range", "step", "limitk"]
        .iter()
        .any(|word| text.contains(word))
    {
        return;
    }
    for step in 0..STEPS {
        let time = start + step * STEP;
        let mut expected = BTreeMap::new();
        for one in &series {
            if let Some((_, value)) = one.points.iter().find(|point| point.0 == time) {
                expected.insert(one.labels.clone(), bits(*value));
            }
        }
        let mut found = BTreeMap::new();
        match promql::instant(source, text, time, &limits()).map(|outcome| outcome.value) {
            Ok(QueryValue::Vector(_, samples)) => {
                for sample in samples {
                    let before = found.insert(sample.labels.clone(), bits(sample.value));
                    assert!(before.is_none(), "{text}: {} twice", sample.labels);
                }
            }
            Ok(QueryValue::Scalar(_, value)) => {
                found.insert(LabelSet::empty(), bits(value));
            }
            Ok(other) => panic!("{text}: {other:?}"),
            Err(error) => {
                assert!(
                    error.kind() == PromqlErrorKind::Timeout,
                    "{text} at {step}: {error}"
                );
                return;
            }
        }
        assert_eq!(expected, found, "{text} at step {step}");
    }
}

/// Returns the bits of a value; those of NaN are arbitrary.
fn bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}

fn check_error(error: &PromqlError) {
    assert!(error.kind() != PromqlErrorKind::Internal, "{error:?}");
    assert!(!error.to_string().is_empty());
}

fn expression(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut reader =
        InputReader::new(b"some bytes from which the series are generated, always the same");
    let source = random_source(&mut reader);
    if let Err(error) = promql::instant(&source, text, NOW, &limits()) {
        check_error(&error);
    }
    evaluate(&source, text);
}

fn evaluation(input: &[u8]) {
    let mut reader = InputReader::new(input);
    let source = random_source(&mut reader);
    let text = vector(&mut reader, 4);
    evaluate(&source, &text);
}
