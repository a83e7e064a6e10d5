//! Random series and queries, evaluated by the engine and by the reference implementation.

use std::collections::BTreeMap;

use pegel_metric::Millis;
use pegel_query::Aggregator;
use pegel_testkit::Rng;

use crate::fixture::{QueryFixture, T0};
use crate::reference::{self, ReferencePoints, ReferenceQuery, ReferenceTags};

const HOSTS: [&str; 3] = ["a", "b", "c"];
const CORES: [&str; 3] = ["0", "1", "2"];
const FUNCTIONS: [&str; 34] = [
    "avg",
    "count",
    "dev",
    "diff",
    "first",
    "last",
    "max",
    "median",
    "mimmax",
    "mimmin",
    "min",
    "mult",
    "pfsum",
    "squareSum",
    "sum",
    "zimsum",
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p999",
    "ep50r3",
    "ep75r3",
    "ep90r3",
    "ep95r3",
    "ep99r3",
    "ep999r3",
    "ep50r7",
    "ep75r7",
    "ep90r7",
    "ep95r7",
    "ep99r7",
    "ep999r7",
];

/// Generates up to nine series, some with irregular times, some on a grid, with gaps.
fn fill(rng: &mut Rng, fixture: &QueryFixture) -> Vec<(ReferenceTags, ReferencePoints)> {
    let mut all = Vec::new();
    for host in HOSTS {
        for core in CORES {
            if rng.chance(4) {
                continue;
            }
            let on_grid = rng.chance(2);
            let mut time = rng.between(0..30) * 500;
            let mut samples = Vec::new();
            for _ in 0..rng.between(1..60) {
                samples.push((time, rng.between(-50..200) as f64 / 4.0));
                time += if on_grid {
                    500 * rng.between(1..4)
                } else {
                    rng.between(1..4_000)
                };
            }
            fixture.put(&format!("m{{core=\"{core}\",host=\"{host}\"}}"), &samples);
            let tags = [("core", core), ("host", host)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
            let samples = samples.into_iter().map(|(time, value)| (T0 + time, value));
            all.push((ReferenceTags::from(tags), samples.collect()));
        }
    }
    // The store returns series sorted by text.
    all.sort_by(|a: &(ReferenceTags, ReferencePoints), b| a.0.iter().cmp(b.0.iter()));
    all
}

fn random_query(rng: &mut Rng) -> ReferenceQuery {
    let start = T0 + rng.between(-5_000..20_000);
    let interval = *rng.pick(&[500, 1_000, 3_000, 7_000, 60_000]);
    ReferenceQuery {
        start,
        end: start + rng.between(0..90_000),
        aggregator: rng.pick::<&str>(&FUNCTIONS),
        downsample: (!rng.chance(3)).then(|| {
            (
                interval,
                *rng.pick(&FUNCTIONS),
                *rng.pick(&["none", "none", "nan", "null", "zero"]),
            )
        }),
        rate: rng.chance(2).then(|| {
            (
                rng.chance(2),
                rng.between(50..300) as f64,
                rng.between(0..3) as f64 * 20.0,
                rng.chance(3),
            )
        }),
        group_by: rng
            .pick(&[vec![], vec!["host"], vec!["core"], vec!["core", "host"]])
            .clone(),
        in_seconds: false,
    }
}

/// In the syntax of `m=`.
fn to_m_syntax(question: &ReferenceQuery) -> String {
    let mut text = format!("{}:", question.aggregator);
    if let Some((interval, function, fill)) = question.downsample {
        text += &format!("{interval}ms-{function}-{fill}:");
    }
    if let Some((counter, max, reset, drop)) = question.rate {
        text += &match (counter, drop) {
            (true, true) => format!("rate{{dropcounter,{max},{reset}}}:"),
            (true, false) => format!("rate{{counter,{max},{reset}}}:"),
            (false, _) => "rate:".to_owned(),
        };
    }
    let keys: Vec<String> = question
        .group_by
        .iter()
        .map(|key| format!("{key}=*"))
        .collect();
    format!("{text}m{{{}}}", keys.join(","))
}

fn check(
    fixture: &QueryFixture,
    all: &[(ReferenceTags, ReferencePoints)],
    question: &ReferenceQuery,
) {
    let m = to_m_syntax(question);
    let lines = if question.in_seconds {
        fixture.query_seconds(&m, question.start, question.end)
    } else {
        fixture.query_range(&m, question.start, question.end)
    };
    let expected = reference::evaluate(all, question);
    let mut found: BTreeMap<Vec<Option<String>>, ReferencePoints> = BTreeMap::new();
    for line in lines {
        let tags: BTreeMap<&str, &str> = line
            .tags
            .split(',')
            .filter_map(|tag| tag.split_once('='))
            .collect();
        let key = question
            .group_by
            .iter()
            .map(|key| tags.get(key).map(|value| (*value).to_owned()));
        let points = line
            .points
            .iter()
            .map(|(time, value)| (T0 + time, *value))
            .collect();
        assert!(
            found.insert(key.collect(), points).is_none(),
            "{m}: a group twice"
        );
    }
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>(),
        "{m}"
    );
    for (key, points) in &found {
        let expected = &expected[key];
        let times = |points: &ReferencePoints| {
            points
                .iter()
                .map(|point| point.0 - T0)
                .collect::<Vec<Millis>>()
        };
        assert_eq!(
            times(points),
            times(expected),
            "{m} {key:?} from {}",
            question.start - T0
        );
        for (&(time, value), &(_, wanted)) in points.iter().zip(expected) {
            // JSON cannot represent an infinite result.
            let is_same = (value.is_nan() && !wanted.is_finite())
                || (value - wanted).abs() <= 1e-6 * wanted.abs().max(1.0);
            assert!(
                is_same,
                "{m} {key:?} at {}: {value} for {wanted}",
                time - T0
            );
        }
    }
}

#[test]
fn the_slow_evaluator_knows_every_function() {
    let mut names = Aggregator::names();
    names.retain(|name| name != "none");
    let mut known = FUNCTIONS.map(str::to_owned).to_vec();
    known.sort();
    assert_eq!(names, known);
}

#[test]
fn random_queries_equal_the_slow_evaluator() {
    let mut rng = Rng::from_env();
    for _ in 0..12 {
        let fixture = QueryFixture::new();
        let all = fill(&mut rng, &fixture);
        for _ in 0..150 {
            check(&fixture, &all, &random_query(&mut rng));
        }
        // The same query, answered from a block.
        fixture.store.flush_to_blocks();
        for _ in 0..50 {
            check(&fixture, &all, &random_query(&mut rng));
        }
    }
}

#[test]
fn every_aggregator_works_across_series_at_second_resolution() {
    let mut rng = Rng::from_env();
    for _ in 0..6 {
        let fixture = QueryFixture::new();
        let all = fill(&mut rng, &fixture);
        for aggregator in FUNCTIONS {
            let question = ReferenceQuery {
                aggregator,
                downsample: None,
                in_seconds: true,
                ..random_query(&mut rng)
            };
            check(&fixture, &all, &question);
        }
    }
}
