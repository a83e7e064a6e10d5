//! The rules of the OpenTSDB manual, with its own examples where it has them.

use pegel_metric::Millis;

use crate::fixture::{NOW, QueryFixture, ResponseSeries, T0};

/// The manual's two series, a value every 10 s.
fn two() -> QueryFixture {
    let fixture = QueryFixture::new();
    let every_ten = |values: &[f64]| {
        let points = values.iter().enumerate();
        points
            .map(|(at, value)| (at as Millis * 10_000, *value))
            .collect::<Vec<_>>()
    };
    fixture.put(
        "m{host=\"a\"}",
        &every_ten(&[5.0, 5.0, 10.0, 15.0, 20.0, 5.0, 1.0]),
    );
    fixture.put(
        "m{host=\"b\"}",
        &every_ten(&[10.0, 5.0, 20.0, 15.0, 10.0, 0.0, 5.0]),
    );
    fixture
}

fn only(lines: Vec<ResponseSeries>) -> ResponseSeries {
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.into_iter().next().expect("one line")
}

#[test]
fn series_are_added_up_time_by_time() {
    // "For timestamp t0 the data points for A and B are summed, i.e. 5 + 10 == 15."
    let sum = only(two().query("sum:m"));
    assert_eq!(
        sum.tens(),
        [
            (0, 15.0),
            (1, 10.0),
            (2, 30.0),
            (3, 30.0),
            (4, 30.0),
            (5, 5.0),
            (6, 6.0)
        ]
    );
    assert_eq!((&*sum.tags, &*sum.aggregate_tags), ("", "host"));
}

#[test]
fn buckets_of_thirty_seconds() {
    // T0 is a multiple of 30 s. A: 5+5+10, 15+20+5, 1. B: 10+5+20, 15+10+0, 5. Together 55, 65, 6.
    let fixture = two();
    assert_eq!(
        only(fixture.query("sum:30s-sum:m")).tens(),
        [(0, 55.0), (3, 65.0), (6, 6.0)]
    );
    for (function, a) in [
        ("avg", [20.0 / 3.0, 40.0 / 3.0, 1.0]),
        ("min", [5.0, 5.0, 1.0]),
        ("max", [10.0, 20.0, 1.0]),
        ("count", [3.0, 3.0, 1.0]),
        ("first", [5.0, 15.0, 1.0]),
        ("last", [10.0, 5.0, 1.0]),
        ("zimsum", [20.0, 40.0, 1.0]),
        ("pfsum", [20.0, 40.0, 1.0]),
        ("mimmin", [5.0, 5.0, 1.0]),
        ("mimmax", [10.0, 20.0, 1.0]),
        // The last minus the first.
        ("diff", [5.0, -10.0, 0.0]),
        ("mult", [250.0, 1_500.0, 1.0]),
        ("squareSum", [150.0, 650.0, 1.0]),
        // The middle values of 5 5 10 and of 5 15 20.
        ("median", [5.0, 15.0, 1.0]),
        // At 0.5 × (3 + 1) = 2, counted from 1.
        ("p50", [5.0, 15.0, 1.0]),
        // 0.95 × 4 = 3.8 lies beyond the last.
        ("p95", [10.0, 20.0, 1.0]),
        // 0.75 × 3 = 2.25 is nearest to 2.
        ("ep75r3", [5.0, 15.0, 1.0]),
        // 1 + 0.75 × 2 = 2.5.
        ("ep75r7", [7.5, 17.5, 1.0]),
        // The mean is 20/3; squares of the distances 25/9, 25/9, 100/9 give 150/27. And 40/3: 25/9,
        // 400/9, 625/9.
        (
            "dev",
            [(150.0f64 / 27.0).sqrt(), (1_050.0f64 / 27.0).sqrt(), 0.0],
        ),
    ] {
        let line = only(fixture.query(&format!("sum:30s-{function}:m{{host=a}}")));
        let times: Vec<Millis> = line.tens().iter().map(|point| point.0).collect();
        assert_eq!(times, [0, 3, 6], "{function}");
        for ((_, value), expected) in line.points.iter().zip(a) {
            assert!(
                (value - expected).abs() < 1e-9,
                "{function}: {value} for {expected}"
            );
        }
    }
}

#[test]
fn only_buckets_that_begin_in_the_range_are_given() {
    let fixture = two();
    // The bucket of T0 begins before the start; the one of T0 + 30 s is read to its end, beyond
    // that of the query.
    let line = only(fixture.query_range("sum:30s-count:m{host=a}", T0 + 10_000, T0 + 40_000));
    assert_eq!(line.tens(), [(3, 3.0)]);
    let line = only(fixture.query_range("sum:30s-count:m{host=a}", T0, T0 + 60_000));
    assert_eq!(
        line.tens(),
        [(0, 3.0), (3, 3.0), (6, 1.0)],
        "both ends are part of the question"
    );
    assert_eq!(
        fixture.query_range("sum:30s-count:m", T0 + 1_000, T0 + 29_000),
        []
    );
}

#[test]
fn one_bucket_for_all() {
    let fixture = two();
    let line = only(fixture.query_range("sum:0all-sum:m{host=a}", T0 + 10_000, T0 + 50_000));
    // "The timestamp of the result will be the start time of the query": 5 + 10 + 15 + 20 + 5.
    assert_eq!(line.points, [(10_000, 55.0)]);
    let line = only(fixture.query_range("sum:0all-median:m{host=a}", T0 + 10_000, T0 + 50_000));
    assert_eq!(line.points, [(10_000, 10.0)]);
    // Also if the query starts long before the first sample; so few digits are seconds.
    let line = only(fixture.query_range("avg:0all-max:m", 5_000, NOW));
    assert_eq!(line.points, [(5_000_000 - T0, 20.0)]);
}

#[test]
fn buckets_of_a_calendar() {
    let fixture = QueryFixture::new();
    let hour = 3_600_000;
    // T0 is 2023-11-14 21:00 UTC. In Kabul, 4:30 ahead, the 15th begins at 19:30 UTC.
    fixture.put("m", &[(-2 * hour, 1.0), (-hour, 2.0), (0, 4.0)]);
    let day = |zone: &str| {
        let body = format!(
            r#"{{"start":"3d-ago","timezone":"{zone}","msResolution":true,"queries":[{{"metric":"m","aggregator":"sum","downsample":"1dc-sum"}}]}}"#
        );
        fixture.query_json(&body).expect("answered")[0]["dps"].clone()
    };
    // Midnight of the 14th in UTC is 21 hours before T0.
    assert_eq!(
        day("UTC"),
        serde_json::json!({ (T0 - 21 * hour).to_string(): 7 })
    );
    let half = hour / 2;
    let expected = serde_json::json!({
        (T0 - 25 * hour - half).to_string(): 1,
        (T0 - hour - half).to_string(): 6,
    });
    assert_eq!(day("Asia/Kabul"), expected);
    let body = r#"{"start":"3d-ago","useCalendar":true,"queries":[{"metric":"m","aggregator":"sum","downsample":"12h-count"}]}"#;
    let noon = ((T0 - 9 * hour) / 1_000).to_string();
    assert_eq!(
        fixture.query_json(body).expect("answered")[0]["dps"],
        serde_json::json!({ noon: 3 })
    );
}

#[test]
fn fill_policies() {
    let fixture = QueryFixture::new();
    // The manual's example: A at 30 and 50 s, B at 0, 20 and 60 s.
    fixture.put("m{host=\"a\"}", &[(30_000, 15.0), (50_000, 5.0)]);
    fixture.put(
        "m{host=\"b\"}",
        &[(0, 10.0), (20_000, 20.0), (60_000, 20.0)],
    );
    let ask = |fill: &str, aggregator: &str| {
        only(fixture.query_range(&format!("{aggregator}:10s-sum-{fill}:m"), T0, T0 + 60_000)).tens()
    };
    let nan = |points: Vec<(Millis, f64)>| {
        points
            .into_iter()
            .map(|(_, value)| (!value.is_nan()).then_some(value))
            .collect::<Vec<_>>()
    };
    let result = [
        Some(10.0),
        None,
        Some(20.0),
        Some(15.0),
        None,
        Some(5.0),
        Some(20.0),
    ];
    assert_eq!(nan(ask("nan", "sum")), result);
    assert_eq!(nan(ask("null", "sum")), result);
    assert_eq!(
        nan(ask("nan", "avg")),
        result,
        "a series without a value does not count"
    );
    assert_eq!(
        ask("zero", "sum"),
        [
            (0, 10.0),
            (1, 0.0),
            (2, 20.0),
            (3, 15.0),
            (4, 0.0),
            (5, 5.0),
            (6, 20.0)
        ]
    );
    assert_eq!(
        ask("zero", "avg"),
        [
            (0, 5.0),
            (1, 0.0),
            (2, 10.0),
            (3, 7.5),
            (4, 0.0),
            (5, 2.5),
            (6, 10.0)
        ]
    );
    // Without a fill policy, times without any value are omitted, and B is interpolated at 30 and
    // 50 s.
    assert_eq!(
        ask("none", "sum"),
        [(0, 10.0), (2, 20.0), (3, 35.0), (5, 25.0), (6, 20.0)]
    );
}

#[test]
fn rates_come_after_buckets_and_before_groups() {
    let fixture = QueryFixture::new();
    fixture.put(
        "m{host=\"a\"}",
        &[(0, 0.0), (10_000, 100.0), (20_000, 300.0), (30_000, 50.0)],
    );
    fixture.put(
        "m{host=\"b\"}",
        &[(0, 5.0), (10_000, 15.0), (20_000, 25.0), (30_000, 35.0)],
    );
    // 100, 200 and −250 in 10 s, and three times 10 in 10 s.
    assert_eq!(
        only(fixture.query("sum:rate:m")).tens(),
        [(1, 11.0), (2, 21.0), (3, -24.0)]
    );
    // A counter that overflows at 349: 349 − 300 + 50 = 99.
    assert_eq!(
        only(fixture.query("sum:rate{counter,349}:m")).tens(),
        [(1, 11.0), (2, 21.0), (3, 10.9)]
    );
    assert_eq!(
        only(fixture.query("sum:rate{counter,349,9}:m")).tens(),
        [(1, 11.0), (2, 21.0), (3, 1.0)]
    );
    // Dropped: A ends at 20 s, and B is alone.
    assert_eq!(
        only(fixture.query("sum:rate{dropcounter}:m")).tens(),
        [(1, 11.0), (2, 21.0), (3, 1.0)]
    );
    // Buckets of 20 s first: A has 50 and 175, B 10 and 30; then (175 − 50) / 20 + (30 − 10) / 20.
    assert_eq!(
        only(fixture.query("sum:20s-avg:rate:m")).points,
        [(20_000, 7.25)]
    );
    // A single bucket has no rate, but the series is still in the result.
    assert_eq!(only(fixture.query("sum:0all-avg:rate:m")).points, []);
}

#[test]
fn several_points_in_one_second_become_one() {
    let fixture = QueryFixture::new();
    fixture.put("m", &[(0, 1.0), (500, 3.0), (1_000, 5.0)]);
    let ask = |aggregator: &str, more: &str| {
        let body = format!(
            r#"{{"start":{T0},"end":{NOW},"queries":[{{"metric":"m","aggregator":"{aggregator}"{more}}}]}}"#
        );
        fixture.query_json(&body).expect("answered")[0]["dps"].clone()
    };
    let [first, second] = [0, 1].map(|second| (T0 / 1_000 + second).to_string());
    // The last point counts, whatever the aggregator.
    for aggregator in ["avg", "min", "max", "sum", "none"] {
        assert_eq!(
            ask(aggregator, ""),
            serde_json::json!({ &first: 3, &second: 5 }),
            "{aggregator}"
        );
    }
    // An explicit interval below a second is evaluated, but the object holds only the last point of
    // each second.
    assert_eq!(
        ask("sum", r#","downsample":"500ms-avg""#),
        serde_json::json!({ &first: 3, &second: 5 })
    );
}

#[test]
fn points_of_one_second_do_not_pass_the_aggregator_twice() {
    let fixture = QueryFixture::new();
    // Two points of each host in the first second, of which the last counts; one in the next.
    fixture.put("m{host=\"a\"}", &[(0, 100.0), (500, 2.0), (1_000, 3.0)]);
    fixture.put("m{host=\"b\"}", &[(100, 100.0), (600, 6.0), (1_200, 4.0)]);
    for (aggregator, first, second) in [
        ("sum", 8.0, 7.0),
        ("count", 2.0, 2.0),
        // Half of the distance between the hosts.
        ("dev", 2.0, 0.5),
        ("first", 2.0, 3.0),
        ("last", 6.0, 4.0),
        ("diff", 4.0, 1.0),
        ("mult", 12.0, 12.0),
        ("squareSum", 40.0, 25.0),
        ("median", 6.0, 4.0),
        ("p50", 4.0, 3.5),
        ("p99", 6.0, 4.0),
        ("ep50r3", 2.0, 3.0),
        ("ep50r7", 4.0, 3.5),
    ] {
        let line = only(fixture.query_seconds(&format!("{aggregator}:m"), T0, T0 + 10_000));
        assert_eq!(line.points, [(0, first), (1_000, second)], "{aggregator}");
    }
    // Each series by itself has the last point of each second.
    let lines = fixture.query_seconds("none:m", T0, T0 + 10_000);
    let points: Vec<_> = lines.into_iter().map(|line| line.points).collect();
    assert_eq!(points, [[(0, 2.0), (1_000, 3.0)], [(0, 6.0), (1_000, 4.0)]]);
}
