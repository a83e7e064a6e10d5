//! Aggregations over series.

use super::*;

fn hosts() -> MemorySource {
    series(&[
        ("m{host=\"a\",cpu=\"0\"}", "1 10"),
        ("m{host=\"a\",cpu=\"1\"}", "2 20"),
        ("m{host=\"b\",cpu=\"0\"}", "4 _"),
        ("m{host=\"b\",cpu=\"1\"}", "9 40"),
    ])
}

#[test]
fn groups_are_formed_by_labels_or_without_them() {
    let source = hosts();
    assert_eq!(at(&source, "sum(m)", 0.0), ["{} 16"]);
    let by_host = ["{host=\"a\"} 3", "{host=\"b\"} 13"];
    assert_eq!(at(&source, "sum by (host) (m)", 0.0), by_host);
    assert_eq!(at(&source, "sum(m) without (cpu)", 0.0), by_host);
    assert_eq!(at(&source, "sum by (host, other) (m)", 0.0), by_host);
    assert_eq!(
        at(&source, "sum by (__name__) (m)", 0.0),
        ["{__name__=\"m\"} 16"]
    );
    assert_eq!(at(&source, "sum without () (m)", 0.0).len(), 4);
}

#[test]
fn every_aggregation_combines_the_values_of_a_step() {
    let source = hosts();
    for (expression, expected) in [
        ("avg(m)", "4"),
        ("min(m)", "1"),
        ("max(m)", "9"),
        ("count(m)", "4"),
        ("group(m)", "1"),
        // Distances from 4: 9 + 4 + 0 + 25 = 38; / 4.
        ("stdvar(m)", "9.5"),
        ("stddev(m) ^ 2", "9.5"),
        ("quantile(0.5, m)", "3"),
        ("quantile(1, m)", "9"),
        ("quantile(-1, m)", "-Inf"),
    ] {
        assert_eq!(number(&source, expression, 0.0), expected, "{expression}");
    }
    assert_eq!(
        outcome(&source, "quantile by (host) (1.5, m)", 0.0).warnings,
        ["PromQL warning: quantile value should be between 0 and 1, got 1.5 (1:21)"]
    );
    assert_eq!(at(&source, "sum(nothing)", 0.0), [""; 0]);
}

#[test]
fn each_step_has_the_series_that_have_a_value_there() {
    let source = series(&[("m{l=\"1\"}", "1 stale 3"), ("m{l=\"2\"}", "_ 20 30")]);
    assert_eq!(over(&source, "sum(m)", (0, 20, 10)), ["{} 1@0 20@10 33@20"]);
    assert_eq!(over(&source, "count(m)", (0, 20, 10)), ["{} 1@0 1@10 2@20"]);
}

#[test]
fn the_largest_and_smallest_series_are_chosen() {
    let source = hosts();
    let line = |host: &str, cpu: &str, value: &str| {
        format!("{{__name__=\"m\", cpu=\"{cpu}\", host=\"{host}\"}} {value}")
    };
    assert_eq!(
        at(&source, "topk(2, m)", 0.0),
        [line("b", "1", "9"), line("b", "0", "4")]
    );
    assert_eq!(
        at(&source, "bottomk(2, m)", 0.0),
        [line("a", "0", "1"), line("a", "1", "2")]
    );
    assert_eq!(
        at(&source, "topk by (host) (1, m)", 0.0),
        [line("a", "1", "2"), line("b", "1", "9")]
    );
    assert_eq!(at(&source, "topk(0, m)", 0.0), [""; 0]);
    assert_eq!(at(&source, "topk(9, m)", 0.0).len(), 4);
    assert_eq!(at(&source, "limitk(3, m)", 0.0).len(), 3);
    assert_eq!(at(&source, "limitk by (host) (1, m)", 0.0).len(), 2);
    assert_eq!(
        error(&source, "topk(NaN, m)", 0.0).1,
        "Parameter value is NaN"
    );
    // The chosen series can change from step to step.
    let source = series(&[("m{l=\"1\"}", "1 5"), ("m{l=\"2\"}", "2 4")]);
    assert_eq!(
        over(&source, "topk(1, m)", (0, 10, 10)),
        [
            "{__name__=\"m\", l=\"1\"} 5@10",
            "{__name__=\"m\", l=\"2\"} 2@0"
        ]
    );
}

#[test]
fn nan_is_chosen_last() {
    let source = series(&[
        ("m{l=\"1\"}", "NaN"),
        ("m{l=\"2\"}", "2"),
        ("m{l=\"3\"}", "3"),
    ]);
    let values = |expression: &str| -> Vec<String> {
        let lines = at(&source, expression, 0.0);
        let value = |line: String| line.rsplit(' ').next().expect("a value").to_owned();
        lines.into_iter().map(value).collect()
    };
    assert_eq!(values("topk(3, m)"), ["3", "2", "NaN"]);
    assert_eq!(values("bottomk(3, m)"), ["2", "3", "NaN"]);
    assert_eq!(values("topk(2, m)"), ["3", "2"]);
}

#[test]
fn a_ratio_and_its_complement_choose_every_series_once() {
    let list: Vec<String> = (0..200)
        .map(|number| format!("m{{l=\"{number}\"}}"))
        .collect();
    let list: Vec<(&str, &str)> = list.iter().map(|name| (name.as_str(), "1")).collect();
    let source = series(&list);
    let count = |expression: &str| at(&source, expression, 0.0).len();
    let (part, rest) = (count("limit_ratio(0.3, m)"), count("limit_ratio(-0.7, m)"));
    assert!((30..90).contains(&part), "{part}");
    assert_eq!(part + rest, 200);
    assert_eq!(count("limit_ratio(0.3, m) and limit_ratio(-0.7, m)"), 0);
    assert_eq!(
        (count("limit_ratio(1, m)"), count("limit_ratio(0, m)")),
        (200, 0)
    );
    assert_eq!(
        outcome(&source, "limit_ratio(1.5, m)", 0.0).warnings,
        ["PromQL warning: ratio value should be between -1 and 1, got 1.5, capping to 1 (1:13)"]
    );
}

#[test]
fn equal_values_are_counted() {
    let source = series(&[
        ("m{l=\"1\"}", "1 2"),
        ("m{l=\"2\"}", "1 1"),
        ("m{l=\"3\"}", "0.5 2"),
    ]);
    assert_eq!(
        over(&source, "count_values(\"v\", m)", (0, 10, 10)),
        ["{v=\"0.5\"} 1@0", "{v=\"1\"} 2@0 1@10", "{v=\"2\"} 2@10"]
    );
    assert_eq!(
        at(&source, "count_values by (l) (\"v\", m)", 0.0)[0],
        "{l=\"1\", v=\"1\"} 1"
    );
    assert_eq!(
        at(&source, "count_values without () (\"l\", m)", 0.0),
        ["{l=\"1\"} 2", "{l=\"0.5\"} 1"]
    );
}
