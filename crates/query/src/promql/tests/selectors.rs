//! Selectors, lookback, staleness, offset, `@` and subqueries.

use super::*;

#[test]
fn matchers_select_series() {
    let source = series(&[
        ("m{a=\"1\"}", "1x10"),
        ("m{a=\"2\",b=\"x\"}", "2x10"),
        ("{__name__=\"with.dot\",\"a.b\"=\"c\"}", "3x10"),
    ]);
    let one = "{__name__=\"m\", a=\"1\"} 1";
    let two = "{__name__=\"m\", a=\"2\", b=\"x\"} 2";
    assert_eq!(at(&source, "m", 50.0), [one, two]);
    assert_eq!(at(&source, "m{a=\"1\"}", 50.0), [one]);
    assert_eq!(at(&source, "m{a!=\"1\"}", 50.0), [two]);
    assert_eq!(at(&source, "m{b=\"\"}", 50.0), [one]);
    assert_eq!(at(&source, "m{a=~\"1|3\"}", 50.0), [one]);
    assert_eq!(at(&source, "m{a=~\"1.+\"}", 50.0), [""; 0], "anchored");
    assert_eq!(at(&source, "m{a!~\"1\",b=~\".+\"}", 50.0), [two]);
    assert_eq!(at(&source, "{__name__=~\"m|n\",a=\"1\"}", 50.0), [one]);
    let dotted = "{__name__=\"with.dot\", \"a.b\"=\"c\"} 3";
    assert_eq!(at(&source, "{\"with.dot\"}", 50.0), [dotted]);
    assert_eq!(at(&source, "{\"with.dot\",\"a.b\"=~\"c\"}", 50.0), [dotted]);
}

#[test]
fn the_last_sample_counts_for_five_minutes() {
    let source = series(&[("m", "1 2 _x5 3")]);
    assert_eq!(number(&source, "m", 9.9), "1");
    assert_eq!(number(&source, "m", 10.0), "2");
    assert_eq!(number(&source, "m", 69.0), "2");
    assert_eq!(number(&source, "m", 70.0), "3");
    assert_eq!(number(&source, "m", 369.999), "3");
    assert_eq!(
        at(&source, "m", 370.0),
        [""; 0],
        "the lookback is left-open"
    );
}

#[test]
fn a_stale_marker_ends_a_series() {
    let source = series(&[("m", "1 stale _ 4 NaN")]);
    assert_eq!(number(&source, "m", 5.0), "1");
    assert_eq!(at(&source, "m", 25.0), [""; 0]);
    assert_eq!(number(&source, "m", 30.0), "4");
    assert_eq!(number(&source, "m", 45.0), "NaN");
    assert_eq!(
        number(&source, "count_over_time(m[1m])", 45.0),
        "3",
        "the marker is no sample"
    );
    assert_eq!(
        over(&source, "m", (0, 40, 10)),
        ["{__name__=\"m\"} 1@0 4@30 NaN@40"]
    );
}

#[test]
fn ranges_are_left_open() {
    let source = series(&[("m", "0+1x10")]);
    assert_eq!(at(&source, "m[20s]", 50.0), ["{__name__=\"m\"} 4@40 5@50"]);
    assert_eq!(
        at(&source, "m[21s]", 50.0),
        ["{__name__=\"m\"} 3@30 4@40 5@50"]
    );
    assert_eq!(
        at(&source, "m[20s] offset 10s", 50.0),
        ["{__name__=\"m\"} 3@30 4@40"]
    );
    assert_eq!(at(&source, "m[5s]", 57.0), [""; 0]);
}

#[test]
fn offset_and_at_move_the_time() {
    let source = series(&[("m", "0+1x10")]);
    assert_eq!(number(&source, "m offset 20s", 50.0), "3");
    assert_eq!(number(&source, "m offset -20s", 50.0), "7");
    assert_eq!(number(&source, "m @ 30", 50.0), "3");
    assert_eq!(number(&source, "m @ 30 offset 10s", 50.0), "2");
    assert_eq!(number(&source, "m offset 10s @ 30", 50.0), "2");
    assert_eq!(
        over(&source, "m @ start() + m @ end()", (20, 40, 10)),
        ["{} 6@20 6@30 6@40"]
    );
    assert_eq!(
        over(&source, "m - m @ 20", (20, 40, 10)),
        ["{} 0@20 1@30 2@40"]
    );
    assert_eq!(
        over(&source, "sum_over_time(m[30s] @ end())", (20, 30, 10)),
        ["{} 6@20 6@30"]
    );
}

#[test]
fn subqueries_evaluate_at_multiples_of_their_step() {
    let source = series(&[("m", "0+1x10")]);
    // Multiples of 20 s in (35, 95]: 40, 60, 80.
    assert_eq!(
        at(&source, "m[1m:20s]", 95.0),
        ["{__name__=\"m\"} 4@40 6@60 8@80"]
    );
    assert_eq!(number(&source, "sum_over_time(m[1m:20s])", 95.0), "18");
    assert_eq!(
        at(&source, "m[40s:20s]", 80.0),
        ["{__name__=\"m\"} 6@60 8@80"],
        "left-open"
    );
    assert_eq!(
        at(&source, "m[40s:20s] offset 20s", 80.0),
        ["{__name__=\"m\"} 4@40 6@60"]
    );
    assert_eq!(
        at(&source, "m[40s:20s] @ 60", 80.0),
        ["{__name__=\"m\"} 4@40 6@60"]
    );
    // The default step is one minute.
    assert_eq!(at(&source, "m[2m:]", 100.0), ["{__name__=\"m\"} 0@0 6@60"]);
    assert_eq!(
        over(
            &source,
            "max_over_time(rate(m[20s])[40s:10s])",
            (60, 80, 10)
        ),
        ["{} 0.1@60 0.1@70 0.1@80"]
    );
}

#[test]
fn timestamps_are_those_of_samples() {
    let source = series(&[("m", "0+1x10")]);
    assert_eq!(number(&source, "timestamp(m)", 57.0), "50");
    assert_eq!(number(&source, "timestamp(m offset 10s)", 57.0), "40");
    assert_eq!(number(&source, "timestamp((m))", 57.0), "50");
    assert_eq!(number(&source, "timestamp(m + 1)", 57.0), "57");
    assert_eq!(number(&source, "timestamp(m @ 30)", 57.0), "30");
}

#[test]
fn series_with_equal_and_different_times_are_read_alike() {
    let mut source = series(&[("m{l=\"1\"}", "0+1x10"), ("m{l=\"2\"}", "0+2x10")]);
    let shifted = source.series[1]
        .1
        .iter()
        .map(|(time, value)| (time + 1, *value));
    let labels = LabelSet::new([("__name__", "m"), ("l", "3")]);
    source.series.push((labels, shifted.collect()));
    let times = (30, 50, 10);
    assert_eq!(
        over(&source, "m", times),
        [
            "{__name__=\"m\", l=\"1\"} 3@30 4@40 5@50",
            "{__name__=\"m\", l=\"2\"} 6@30 8@40 10@50",
            "{__name__=\"m\", l=\"3\"} 4@30 6@40 8@50"
        ]
    );
    assert_eq!(
        over(&source, "increase(m[20s])", times),
        [
            "{l=\"1\"} 2@30 2@40 2@50",
            "{l=\"2\"} 4@30 4@40 4@50",
            "{l=\"3\"} 4@30 4@40 4@50"
        ]
    );
}
