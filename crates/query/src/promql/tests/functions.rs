//! Functions, one by one.

use super::*;

fn counters() -> MemorySource {
    series(&[
        ("c_total", "0+10x10"),
        ("reset_total", "0 10 20 5 15 25"),
        ("g", "1 3 2 5 4 4 NaN 6"),
    ])
}

#[test]
fn rates_are_extrapolated_to_the_ends_of_the_window() {
    let source = counters();
    // Samples at 70, 80, 90, 100 for (65, 100]: 30 in 30 s; 5 s to the start and 0 to the end are
    // less than 1.1 × 10 s, so 35 s are covered.
    assert_eq!(number(&source, "increase(c_total[35s])", 100.0), "35");
    assert_eq!(number(&source, "rate(c_total[35s])", 100.0), "1");
    assert_eq!(number(&source, "delta(c_total[35s])", 100.0), "35");
    // Samples 0, 10 for (-20, 10]: the counter cannot have been negative, so nothing is added
    // before the first one.
    assert_eq!(number(&source, "increase(c_total[30s])", 10.0), "10");
    // A gauge can: 20 s to the start are more than 11 s, so half of 10 s is added.
    assert_eq!(number(&source, "delta(c_total[30s])", 10.0), "15");
    // At the end: 15 s after the last sample, so half of 10 s is added: 20 + 5 + 5 of 20 s.
    assert_eq!(number(&source, "delta(c_total[40s])", 115.0), "30");
    assert_eq!(
        at(&source, "rate(c_total[5s])", 102.0),
        [""; 0],
        "one sample has no rate"
    );
}

#[test]
fn a_counter_that_falls_was_reset() {
    let source = counters();
    // 10 20 5 15 25 at 10 to 50: 15 and 20 before the reset, in 40 s; 10 s to the start.
    // The start is limited by 10 / 35 × 40 s = 11.4 s, which is more.
    assert_eq!(number(&source, "increase(reset_total[50s])", 50.0), "43.75");
    assert_eq!(number(&source, "resets(reset_total[50s])", 50.0), "1");
    assert_eq!(number(&source, "irate(reset_total[1m])", 35.0), "0.5");
    assert_eq!(number(&source, "idelta(reset_total[1m])", 35.0), "-15");
    assert_eq!(number(&source, "irate(reset_total[1m])", 45.0), "1");
    // Windows that end before, at and after the reset. At 40 the samples are 5 and 15: the counter
    // was zero 5 s before the first of them.
    assert_eq!(
        over(&source, "increase(reset_total[20s])", (20, 50, 10)),
        ["{} 20@20 10@30 15@40 20@50"]
    );
}

#[test]
fn aggregations_over_time() {
    let source = counters();
    for (expression, expected) in [
        ("avg_over_time(g[50s])", "3.6"),
        ("sum_over_time(g[50s])", "18"),
        ("min_over_time(g[50s])", "2"),
        ("max_over_time(g[50s])", "5"),
        ("count_over_time(g[50s])", "5"),
        ("first_over_time(g[50s])", "3"),
        ("last_over_time(g[50s])", "4"),
        ("present_over_time(g[50s])", "1"),
        // 3 2 5 4 4: mean 3.6; squares 0.36 + 2.56 + 1.96 + 0.16 + 0.16 = 5.2; / 5.
        ("stdvar_over_time(g[50s])", "1.04"),
        ("stddev_over_time(g[50s]) ^ 2", "1.04"),
        ("quantile_over_time(0.5, g[50s])", "4"),
        ("quantile_over_time(0.25, g[50s])", "3"),
        // Distances from 4: 1 2 1 0 0; sorted 0 0 1 1 2.
        ("mad_over_time(g[50s])", "1"),
        ("changes(g[50s])", "3"),
        ("ts_of_max_over_time(g[50s])", "30"),
        ("ts_of_min_over_time(g[50s])", "20"),
        ("ts_of_first_over_time(g[50s])", "10"),
        ("ts_of_last_over_time(g[50s])", "50"),
    ] {
        assert_eq!(number(&source, expression, 50.0), expected, "{expression}");
    }
    // With NaN: the extremes ignore it, sums do not; two equal neighbours that are NaN are equal.
    assert_eq!(number(&source, "max_over_time(g[20s])", 60.0), "4");
    assert_eq!(number(&source, "sum_over_time(g[20s])", 60.0), "NaN");
    assert_eq!(number(&source, "changes(g[30s])", 70.0), "2");
    assert_eq!(
        at(&source, "last_over_time(g[50s])", 50.0),
        ["{__name__=\"g\"} 4"],
        "the name stays"
    );
    let values = outcome(&source, "quantile_over_time(2, g[50s])", 50.0);
    assert_eq!(
        values.warnings,
        ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:20)"]
    );
}

#[test]
fn regression_and_smoothing() {
    let source = series(&[("m", "0+10x10"), ("flat", "3x10"), ("n", "1 2 4 8 16")]);
    assert_eq!(number(&source, "deriv(m[50s])", 100.0), "1");
    assert_eq!(number(&source, "predict_linear(m[50s], 60)", 100.0), "160");
    assert_eq!(
        number(&source, "predict_linear(m[50s] offset 50s, 60)", 100.0),
        "160"
    );
    assert_eq!(number(&source, "deriv(flat[50s])", 100.0), "0");
    assert_eq!(number(&source, "predict_linear(flat[50s], 60)", 100.0), "3");
    // 1, 2, 4, 8, 16 with both factors 0.5: s = 1, b = 1; x=2: s = 1 + 1 = 2;
    // x=4: b = 0.5×1 + 0.5×1 = 1, s = 2 + 1.5 = 3.5; x=8: b = 0.5×1.5 + 0.5 = 1.25,
    // s = 4 + 2.375 = 6.375; x=16: b = 0.5×2.875 + 0.625 = 2.0625, s = 8 + 4.21875.
    assert_eq!(
        number(
            &source,
            "double_exponential_smoothing(n[1m], 0.5, 0.5)",
            40.0
        ),
        "12.21875"
    );
    assert_eq!(
        error(&source, "double_exponential_smoothing(n[1m], 1, 0.5)", 40.0),
        (
            "execution",
            "invalid smoothing factor. Expected: 0 < sf < 1, got: 1.000000".to_owned()
        )
    );
}

#[test]
fn functions_of_single_values() {
    let source = series(&[("m", "-2.5"), ("p", "100")]);
    for (expression, expected) in [
        ("abs(m)", "2.5"),
        ("ceil(m)", "-2"),
        ("floor(m)", "-3"),
        ("round(m)", "-2"),
        ("round(m, 0.2)", "-2.4"),
        ("sgn(m)", "-1"),
        ("clamp(m, -1, 1)", "-1"),
        ("clamp_min(m, 0)", "0"),
        ("clamp_max(p, 7)", "7"),
        ("sqrt(p)", "10"),
        ("log10(p)", "2"),
        ("log2(p / 100 * 8)", "3"),
        ("ln(exp(p))", "100"),
        ("sqrt(m)", "NaN"),
        ("deg(rad(p))", "100"),
        ("sin(m) ^ 2 + cos(m) ^ 2", "1"),
        ("scalar(p)", "100"),
        ("scalar(nothing)", "NaN"),
        ("vector(3)", "3"),
        ("pi() - pi()", "0"),
        ("max_of(1, 2) - min_of(1, 2)", "1"),
        ("time()", "7"),
        ("-m", "2.5"),
        ("year(vector(1700000000))", "2023"),
        ("day_of_week(vector(1700000000))", "2"),
        ("minute()", "0"),
        ("day_of_month()", "1"),
    ] {
        assert_eq!(number(&source, expression, 7.0), expected, "{expression}");
    }
    assert_eq!(at(&source, "clamp(m, 1, -1)", 7.0), [""; 0]);
    assert_eq!(
        at(&source, "abs(m)", 7.0),
        ["{} 2.5"],
        "the name is dropped"
    );
    assert_eq!(at(&source, "\"text\"", 7.0), ["text"]);
    assert_eq!(
        over(&source, "end() - start() + range() + step()", (10, 30, 10)),
        ["{} 50@10 50@20 50@30"]
    );
}

#[test]
fn absence() {
    let source = series(&[("m{a=\"1\"}", "1x2 stale _x40 1")]);
    assert_eq!(at(&source, "absent(m)", 10.0), [""; 0]);
    assert_eq!(
        at(&source, "absent(x{a=\"1\",b!=\"2\",c=~\"3\"})", 10.0),
        ["{a=\"1\"} 1"]
    );
    assert_eq!(at(&source, "absent(x{a=\"1\",a=\"2\"})", 10.0), ["{} 1"]);
    assert_eq!(at(&source, "absent(sum(x{a=\"1\"}))", 10.0), ["{} 1"]);
    assert_eq!(over(&source, "absent(m)", (10, 50, 20)), ["{} 1@30 1@50"]);
    assert_eq!(
        over(&source, "absent_over_time(m{a=\"1\"}[20s])", (30, 50, 10)),
        ["{a=\"1\"} 1@40 1@50"]
    );
    assert_eq!(at(&source, "absent_over_time(m[1m:10s])", 400.0), ["{} 1"]);
}

#[test]
fn labels_are_replaced_and_joined() {
    let source = series(&[("m{a=\"x-1\",b=\"y\"}", "1"), ("m{a=\"z\"}", "2")]);
    assert_eq!(
        at(
            &source,
            "label_replace(m, \"c\", \"$2:${1}\", \"a\", \"(.*)-(.*)\")",
            0.0
        ),
        [
            "{__name__=\"m\", a=\"x-1\", b=\"y\", c=\"1:x\"} 1",
            "{__name__=\"m\", a=\"z\"} 2"
        ]
    );
    assert_eq!(
        at(
            &source,
            "label_replace(m{b=\"y\"}, \"b\", \"\", \"a\", \".*\")",
            0.0
        ),
        ["{__name__=\"m\", a=\"x-1\"} 1"],
        "an empty value removes the label"
    );
    assert_eq!(
        at(&source, "label_join(m, \"c\", \"/\", \"b\", \"a\")", 0.0),
        [
            "{__name__=\"m\", a=\"x-1\", b=\"y\", c=\"y/x-1\"} 1",
            "{__name__=\"m\", a=\"z\", c=\"/z\"} 2"
        ]
    );
    assert_eq!(
        error(
            &source,
            "label_replace(sum by (a) (m), \"a\", \"1\", \"\", \"\")",
            0.0
        )
        .1,
        "vector cannot contain metrics with the same labelset"
    );
    assert_eq!(
        error(&source, "label_replace(m, \"c\", \"\", \"a\", \"(\")", 0.0),
        (
            "execution",
            "invalid regular expression in label_replace(): (".to_owned()
        )
    );
}

#[test]
fn results_of_instant_queries_are_sorted() {
    let source = series(&[
        ("m{l=\"a10\"}", "2"),
        ("m{l=\"a2\"}", "NaN"),
        ("m{l=\"a1\"}", "3"),
    ]);
    let order = |expression: &str| -> Vec<String> {
        let lines = at(&source, expression, 0.0);
        let label = |line: String| line.split('"').nth(1).expect("a label").to_owned();
        lines.into_iter().map(label).collect()
    };
    assert_eq!(order("sort(sum by (l) (m))"), ["a10", "a1", "a2"]);
    assert_eq!(order("sort_desc(sum by (l) (m))"), ["a1", "a10", "a2"]);
    assert_eq!(
        order("sort_by_label(sum by (l) (m), \"l\")"),
        ["a1", "a2", "a10"]
    );
    assert_eq!(
        order("sort_by_label_desc(sum by (l) (m), \"l\")"),
        ["a10", "a2", "a1"]
    );
}

#[test]
fn rates_of_names_that_are_not_counters_are_noted() {
    let source = counters();
    let infos = |expression: &str| outcome(&source, expression, 50.0).infos;
    assert_eq!(
        infos("sum(rate(g[1m])) + sum(rate(c_total[1m]))"),
        [
            "PromQL info: metric might not be a counter, name does not end in \
          _total/_sum/_count/_bucket: \"g\" (1:10)"
        ]
    );
    assert_eq!(infos("rate(c_total[1m]) + delta(g[1m])"), [""; 0]);
}

#[test]
fn info_series_add_their_labels() {
    let source = series(&[
        ("m{instance=\"i\",job=\"j\",l=\"1\"}", "1 1 1"),
        ("m{instance=\"other\",job=\"j\"}", "2 2 2"),
        (
            "target_info{instance=\"i\",job=\"j\",os=\"linux\",l=\"x\"}",
            "1 1 stale",
        ),
        ("target_info{instance=\"i\",job=\"j\",os=\"bsd\"}", "_ _ 1"),
        ("build_info{instance=\"i\",job=\"j\",v=\"3\"}", "1 1 1"),
    ]);
    let other = "{__name__=\"m\", instance=\"other\", job=\"j\"} 2";
    assert_eq!(
        at(&source, "info(m)", 10.0),
        [
            "{__name__=\"m\", instance=\"i\", job=\"j\", l=\"1\", os=\"linux\"} 1",
            other
        ],
        "labels of the series itself stay"
    );
    assert_eq!(
        at(&source, "info(m, {os=~\".+\"})", 10.0),
        ["{__name__=\"m\", instance=\"i\", job=\"j\", l=\"1\", os=\"linux\"} 1"],
        "without an info series"
    );
    assert_eq!(
        at(&source, "info(m, {__name__=\"build_info\"})", 10.0),
        [
            "{__name__=\"m\", instance=\"i\", job=\"j\", l=\"1\", v=\"3\"} 1",
            other
        ]
    );
    assert_eq!(at(&source, "info(target_info)", 0.0).len(), 1);
    assert_eq!(
        over(&source, "info(m{l=\"1\"})", (10, 20, 10)),
        [
            "{__name__=\"m\", instance=\"i\", job=\"j\", l=\"1\", os=\"bsd\"} 1@20",
            "{__name__=\"m\", instance=\"i\", job=\"j\", l=\"1\", os=\"linux\"} 1@10"
        ]
    );
}
