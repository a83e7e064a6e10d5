//! Points in bodies and lines: OpenTSDB's `put` and Dragon's POST bodies.

use pegel_wire::{POINTS_MAX, PointBatch, dragon, opentsdb};
use serde_json::Value;

use super::Target;
use crate::memory::bounded;

const DICTIONARY: &[&[u8]] = &[
    b"\"metric\":\"a\"",
    b"\"timestamp\":1713379493",
    b"\"value\":1.5",
    b"\"tags\":{\"a\":\"b\"}",
    b"\"telemetry_level\":2",
    b"\"dps\":[",
    b"\"start_time\":1",
    b"\"auth_key\":\"k\"",
    b"\\ud83d\\ude00",
    b"\\u0000",
    b"NaN",
    b"-Infinity",
    b"1e400",
    b"null",
    b"put ",
    b" k=v",
];

pub(super) const PUT: Target = Target {
    name: "put",
    run: put,
    dictionary: DICTIONARY,
    seeds: || {
        texts(&[
            r#"{"metric":"sys.cpu","timestamp":1713379493,"value":18,"tags":{"host":"a"}}"#,
            r#"[{"metric":"a","timestamp":"1713379493250","value":"1.5","tags":{"x":1,"y":true,"z":null}},7,{}]"#,
            r#"[{"metric":"\u00e4\ud83d\ude00","timestamp":1.5e9,"value":-1e-3,"tags":{"a":"\n"}},{"metric":"b","timestamp":1,"value":NaN}]"#,
            r#"[{"metric":"a","timestamp":1,"value":1e400,"extra":[[[{"a":[]}]]]},null,[],"x"]"#,
        ])
    },
};

pub(super) const PUT_LINE: Target = Target {
    name: "put_line",
    run: put_line,
    dictionary: DICTIONARY,
    seeds: || {
        texts(&[
            "put sys.cpu 1713379493 18 host=a cpu=0",
            "put a 1713379493.25 \"-1.5\" k=a=b",
            "put  ü\t1713379493250  1e-3 ",
            "put a 1 NaN",
        ])
    },
};

pub(super) const DRAGON: Target = Target {
    name: "dragon",
    run: dragon_bodies,
    dictionary: DICTIONARY,
    seeds: || {
        texts(&[
            r#"{"timestamp":1713379493,"dps":[{"metric":"m","value":1.5,"tags":{"gpu":0}}]}"#,
            r#"{"dps":[{"metric":"m","value":"x"},{"metric":"n","value":2,"telemetry_level":4},7],"timestamp":null}"#,
            r#"{"start_time":1713379493}"#,
            r#"{"auth_key":"k\"\\"}"#,
        ])
    },
};

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn bytes_max(input: &[u8]) -> usize {
    // A point takes some hundred bytes and may be written in two; a label takes 48 and may be
    // written in six.
    200 * input.len() + (1 << 16)
}

/// Any JSON is parsed as by a second, independent parser.
fn put(input: &[u8]) {
    let read = bounded(bytes_max(input), || opentsdb::put(input));
    let known: Option<Value> = serde_json::from_slice(input).ok();
    let list = match known {
        Some(Value::Array(list)) if list.len() <= POINTS_MAX => list,
        Some(point @ Value::Object(_)) => vec![point],
        _ => return,
    };
    if list.iter().any(|value| depth(value) > 20) {
        return;
    }
    let batch = read.expect("this is JSON");
    assert_eq!(batch.len(), list.len());
    for (point, value) in batch.points.iter().zip(&list) {
        let tags_are_plain = match value.get("tags") {
            None | Some(Value::Null) => true,
            Some(Value::Object(tags)) => tags.is_empty(),
            _ => false,
        };
        let name = value.get("metric").and_then(Value::as_str);
        let number = value.get("value").filter(|value| value.is_number());
        match point {
            Ok(point) => {
                assert_eq!(Some(&*point.name), name);
                assert!(point.value.is_finite() && point.time.is_some());
                if let Some(number) = number.and_then(Value::as_f64) {
                    let difference = (point.value - number).abs();
                    assert!(
                        difference <= number.abs() * 1e-14,
                        "{number} became {}",
                        point.value
                    );
                }
            }
            Err(fault) => {
                let is_plain = name.is_some_and(|name| !name.chars().any(char::is_control))
                    && number.is_some()
                    && value.get("timestamp").is_some_and(Value::is_u64)
                    && value["timestamp"].as_u64() < Some(1 << 50)
                    && value.get("telemetry_level").is_none()
                    && tags_are_plain;
                assert!(!is_plain, "{value}: {fault}");
            }
        }
    }
}

fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(list) => list.iter().map(depth).max(),
        Value::Object(map) => map.values().map(depth).max(),
        _ => return 0,
    };
    1 + inner.unwrap_or(0)
}

/// Parsed input survives a round trip through the encoder.
fn put_line(input: &[u8]) {
    let mut batch = PointBatch::default();
    let read = bounded(bytes_max(input), || opentsdb::put_line(input, &mut batch));
    if read.is_err() {
        assert!(batch.is_empty() && batch.labels().is_empty());
        return;
    }
    let Some(Ok(point)) = batch.points.first() else {
        panic!("a line that was read is a point");
    };
    let time = point.time.expect("a line has a time");
    let mut line = format!("put {} {}.{:03} ", point.name, time / 1000, time % 1000);
    pegel_metric::format_value(&mut line, point.value);
    for (key, value) in batch.labels() {
        line.push_str(&format!(" {key}={value}"));
    }
    let mut again = PointBatch::default();
    opentsdb::put_line(line.as_bytes(), &mut again).expect("our own line");
    assert_eq!(again.labels(), batch.labels(), "{line}");
    let Some(Ok(back)) = again.points.first() else {
        panic!("{line}");
    };
    assert_eq!(
        (&back.name, back.value.to_bits()),
        (&point.name, point.value.to_bits()),
        "{line}"
    );
    // A number of seconds with more than ten digits is parsed as milliseconds.
    if time < 10_000_000_000_000 {
        assert_eq!(back.time, point.time, "{line}");
    }
}

fn dragon_bodies(input: &[u8]) {
    let read = bounded(bytes_max(input), || dragon::metrics(input));
    if let Ok(batch) = read {
        assert!(batch.len() <= POINTS_MAX && batch.spans.len() == batch.len());
        let times: Vec<_> = batch
            .points
            .iter()
            .flatten()
            .map(|point| point.time)
            .collect();
        assert!(times.windows(2).all(|pair| pair[0] == pair[1]));
        for point in batch.points.iter().flatten() {
            assert!(point.value.is_finite() && batch.labels_of(point).len() <= 64);
        }
    }
    if let Ok(time) = dragon::cleanup_time(input) {
        assert!(time >= 0);
    }
    if let Ok(key) = dragon::auth_key(input) {
        let known: Option<Value> = serde_json::from_slice(input).ok();
        if let Some(known) = known.as_ref().and_then(|known| known["auth_key"].as_str()) {
            assert_eq!(key, known);
        }
    }
}
