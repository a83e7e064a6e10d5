//! Queries that exceed the limits are rejected at once, or answered within the limits.

use std::time::Duration;

use crate::fixture::{NOW, QueryFixture, T0};

/// Returns the number of lines, or the status of the error: 504 if the query takes longer than its
/// limit.
fn status(fixture: &QueryFixture, m: &str, start: i64, end: i64) -> Result<usize, u16> {
    let body = format!(r#"{{"start":{start},"end":{end},"msResolution":true,"queries":[{m}]}}"#);
    let answer = fixture
        .query_json(&body)
        .map_err(|problem| problem.status());
    answer.map(|lines| lines.as_array().map_or(0, Vec::len))
}

fn example_fixture() -> QueryFixture {
    let fixture = QueryFixture::new();
    for host in 0..20 {
        let samples: Vec<(i64, f64)> = (0..500).map(|at| (at * 1_000 + host, at as f64)).collect();
        fixture.put(&format!("m{{host=\"{host}\"}}"), &samples);
    }
    fixture
}

#[test]
fn absurd_ranges_and_steps_end_quickly() {
    let fixture = example_fixture();
    let query = |downsample: &str| {
        format!(r#"{{"metric":"m","aggregator":"sum","downsample":"{downsample}"}}"#)
    };
    // The whole time range in steps of a millisecond: only buckets with samples cost memory, unless
    // all are filled.
    assert_eq!(status(&fixture, &query("1ms-avg"), 0, NOW), Ok(1));
    assert_eq!(
        status(&fixture, &query("1ms-avg"), 1, 999_999_999_999_999),
        Ok(1)
    );
    assert_eq!(status(&fixture, &query("1ms-avg-zero"), 0, NOW), Err(413));
    assert_eq!(status(&fixture, &query("1msc-avg"), 1, NOW), Err(413));
    assert_eq!(
        status(&fixture, &query("1y-avg"), 0, NOW),
        Ok(1),
        "a bucket begins long before its sample"
    );
    assert_eq!(status(&fixture, &query("1dc-avg"), 1, NOW), Ok(1));
    assert_eq!(
        status(&fixture, &query("1s-p99-nan"), T0, T0 + 86_400_000),
        Ok(1)
    );
}

#[test]
fn memory_and_time_are_bounded() {
    let mut fixture = example_fixture();
    let raw = r#"{"metric":"m","aggregator":"sum"}"#;
    assert_eq!(status(&fixture, raw, T0, NOW), Ok(1));
    fixture.engine.limits.bytes_max = 100_000;
    assert_eq!(
        status(&fixture, raw, T0, NOW),
        Err(413),
        "10,000 samples of 16 bytes"
    );
    let folded = r#"{"metric":"m","aggregator":"sum","downsample":"1m-avg"}"#;
    assert_eq!(status(&fixture, folded, T0, NOW), Ok(1));
    fixture.engine.limits.time_max = Duration::ZERO;
    assert_eq!(status(&fixture, folded, T0, NOW), Err(504));
}
