//! The formats of pull inputs: InfluxDB's line protocol, Prometheus' text formats, JSON of scripts.

use pegel_wire::exposition::{self, TextFormat};
use pegel_wire::influx::{self, TimePrecision};
use pegel_wire::{POINTS_MAX, PointBatch, json_values};

use super::Target;
use crate::memory::bounded;

pub(super) const INFLUX: Target = Target {
    name: "influx",
    run: influx_lines,
    dictionary: &[
        b",tag=value",
        b" field=1",
        b"=1i",
        b"=1u",
        b"=true",
        b"=\"text\"",
        b"\\ ",
        b"\\,",
        b"\\=",
        b"\\\"",
        b" 1713379493123456789",
        b"\r\n",
        b"#",
    ],
    seeds: || {
        texts(&[
            "cpu,host=a,core=0 user=1.5,sys=2i,idle=3u,on=t 1713379493123456789\n",
            "CPUTime,host=n1,job=1234,step=0,task=3 value=0.25 1713379493\nRSS value=1",
            "a\\ b,c\\=d=e\\,f g=\"x, \\\" \n y\",h=1\r\n# comment\nbad\nb value=1 x\n",
        ])
    },
};

pub(super) const EXPOSITION: Target = Target {
    name: "exposition",
    run: exposition_text,
    dictionary: &[
        b"# TYPE a counter\n",
        b"# HELP a ",
        b"# EOF\n",
        b"{a=\"b\"}",
        b"{\"a.b\"}",
        b"\\n",
        b"\\\"",
        b" NaN",
        b" +Inf",
        b" 1395066363000",
        b"_bucket{le=\"+Inf\"}",
        b" # {trace_id=\"x\"} 1",
    ],
    seeds: || {
        texts(&[
            "# HELP a_total Help \\\\ text.\n# TYPE a_total counter\na_total{b=\"c\\n\\\"\",} 1 1395066363000\n",
            "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 3\nh_sum 2.5\nh_count 3\nnan NaN\n",
            "# TYPE a counter\na_total 1 1520879607.789 # {t=\"x\"} 0.67\n{\"b.c\", d=\"e\"} 1\n# EOF\n",
            "<html>",
        ])
    },
};

pub(super) const JSON_VALUES: Target = Target {
    name: "json_values",
    run: json_text,
    dictionary: &[
        b"{\"a\":",
        b"[{\"metric\":\"a\",\"value\":1}]",
        b"\"tags\":{\"k\":\"v\"}",
        b"true",
        b"null",
        b"1e400",
    ],
    seeds: || {
        texts(&[
            r#"{"a": 1, "b": {"c": true, "d": {"e": -2.5}, "f": "text"}, "g": [1], "h": null}"#,
            r#"[{"metric":"a","value":1,"tags":{"k":"v"},"timestamp":1713379493},7]"#,
        ])
    },
};

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Composed names are limited to 16 MiB in all; everything else is proportional to the input.
fn bytes_max(input: &[u8]) -> usize {
    300 * input.len() + (20 << 20)
}

fn check_batch(input: &[u8], batch: &PointBatch<'_>) {
    assert!(batch.len() <= POINTS_MAX && batch.spans.len() == batch.len());
    for (point, (start, end)) in batch.points.iter().zip(&batch.spans) {
        assert!(start <= end && *end <= input.len());
        if let Ok(point) = point {
            assert!(batch.labels_of(point).len() <= pegel_metric::LABELS_MAX);
            assert!(batch.labels().get(batch.labels_of(point)).is_some());
        }
    }
}

/// A line gives the same points alone as among others, unless it holds text, which may span lines.
fn influx_lines(input: &[u8]) {
    let precision = TimePrecision::Seconds;
    let Ok(batch) = bounded(bytes_max(input), || influx::parse(input, precision)) else {
        return;
    };
    check_batch(input, &batch);
    assert!(
        batch
            .points
            .iter()
            .flatten()
            .all(|point| point.value.is_finite())
    );
    if input.contains(&b'"') {
        return;
    }
    let lines = input.split(|byte| *byte == b'\n');
    let alone: usize = lines
        .map(|line| influx::parse(line, precision).map_or(0, |batch| batch.len()))
        .sum();
    assert_eq!(alone, batch.len());
}

fn exposition_text(input: &[u8]) {
    for format in [TextFormat::Prometheus, TextFormat::OpenMetrics] {
        if let Ok(batch) = bounded(bytes_max(input), || exposition::parse(input, format)) {
            check_batch(input, &batch);
            let names = batch.points.iter().flatten().map(|point| &point.name);
            assert!(names.into_iter().all(|name| !name.is_empty()));
        }
    }
}

fn json_text(input: &[u8]) {
    if let Ok(batch) = bounded(bytes_max(input), || json_values::parse(input, "p_")) {
        check_batch(input, &batch);
        let is_json = serde_json::from_slice::<serde_json::Value>(input).is_ok();
        let values = batch.points.iter().flatten();
        assert!(values.into_iter().all(|point| point.value.is_finite()) || !is_json);
    }
}
