//! Parses JSON of scripts and files into points.
//!
//! ```text
//! {"queue": {"depth": 3, "paused": false}}                                    queue_depth 3, queue_paused 0
//! [{"metric": "queue.depth", "value": 3, "tags": {"q": "main"}}]              points, with or without "timestamp"
//! ```
//!
//! An object gives one point for each number and boolean in it, named by the keys that lead there,
//! joined by `_`. Texts, lists and nulls in it are not samples and are ignored. A list holds points
//! in the form of OpenTSDB's `put`, whose timestamp may be missing.

use pegel_metric::NAME_BYTES_MAX;

use crate::json::{JsonReader, JsonSyntaxError, JsonValue};
use crate::point::{
    self, ParsedPoint, PointBatch, PointDialect, PointFault, PointTimes, parse_json_number,
};

const DIALECT: PointDialect = PointDialect {
    times: PointTimes::Optional,
    quoted_values: true,
};

/// Parses a body. `prefix` is put before the names of an object's values.
pub fn parse<'a>(body: &'a [u8], prefix: &str) -> Result<PointBatch<'a>, JsonSyntaxError> {
    let mut reader = JsonReader::new(body);
    let mut batch = PointBatch::default();
    match reader.peek() {
        Some(b'[') => reader.list(|reader| point::read_point(reader, DIALECT, &mut batch))?,
        Some(b'{') => read_object(&mut reader, prefix, false, &mut batch)?,
        _ => {
            return Err(JsonSyntaxError {
                at: reader.at(),
                expected: "an object of numbers or a list of points",
            });
        }
    }
    reader.end()?;
    Ok(batch)
}

/// Reads the numbers of an object. The reader limits the depth.
fn read_object<'a>(
    reader: &mut JsonReader<'a>,
    path: &str,
    is_nested: bool,
    batch: &mut PointBatch<'a>,
) -> Result<(), JsonSyntaxError> {
    reader.map(|reader, key| {
        let start = reader.at();
        let separator = if is_nested { "_" } else { "" };
        let name = key.map(|key| joined(path, separator, &key));
        if reader.peek() == Some(b'{') {
            return read_object(reader, &name.unwrap_or_default(), true, batch);
        }
        let value = match reader.value()? {
            JsonValue::Number(text) => parse_json_number(text),
            JsonValue::Bool(is_true) => Ok(f64::from(u8::from(is_true))),
            JsonValue::Text(_) | JsonValue::Null | JsonValue::List | JsonValue::Map => {
                return Ok(());
            }
        };
        if batch.is_full() {
            return Err(JsonSyntaxError {
                at: start,
                expected: "at most 50000 values with short names",
            });
        }
        let point = name
            .ok_or(PointFault::Utf8)
            .and_then(|name| Ok(ParsedPoint::new(name.into(), None, value?, (0, 0))));
        batch.push((start, reader.end_of_last()), point);
        Ok(())
    })
}

/// Joins the parts of a name. One that is too long is cut, and refused as too long later: a short
/// body can have many keys below a long one.
fn joined(path: &str, separator: &str, key: &str) -> String {
    let mut end = key.len().min(NAME_BYTES_MAX + 1);
    while !key.is_char_boundary(end) {
        end += 1;
    }
    let key = &key[..end];
    match path.len() > NAME_BYTES_MAX {
        true => path.to_owned(),
        false => format!("{path}{separator}{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::NumberFault;

    fn show(text: &str) -> Vec<String> {
        let batch = parse(text.as_bytes(), "p_").expect("JSON");
        let shown = batch.points.iter().map(|point| match point {
            Ok(point) => {
                let labels = &batch.labels()[batch.labels_of(point)];
                format!("{} {} {:?} {labels:?}", point.name, point.value, point.time)
            }
            Err(fault) => fault.to_string(),
        });
        shown.collect()
    }

    #[test]
    fn numbers_of_an_object_are_named_by_their_keys() {
        assert_eq!(
            show(
                r#"{"a": 1, "b": {"c": true, "d": {"e": -2.5}, "f": "text"}, "g": [1], "h": null}"#
            ),
            ["p_a 1 None []", "p_b_c 1 None []", "p_b_d_e -2.5 None []"]
        );
        assert_eq!(show("{}"), [""; 0]);
        assert_eq!(
            show(r#"{"a": 1e999}"#),
            [NumberFault::NotFinite.to_string()]
        );
    }

    #[test]
    fn a_list_holds_points_with_or_without_times() {
        assert_eq!(
            show(
                r#"[{"metric":"a","value":1,"tags":{"k":"v"}},{"metric":"b","value":2,"timestamp":3},7]"#
            ),
            [
                r#"a 1 None [("k", "v")]"#,
                "b 2 Some(3000) []",
                "a point must be an object with a metric and a value"
            ]
        );
    }

    #[test]
    fn names_below_a_long_key_are_not_as_long() {
        let keys: String = (0..1_000).map(|at| format!("\"{at}\":1,")).collect();
        let long = format!(
            "{{\"{}\":{{{keys}\"z\":{{\"y\":2}}}}}}",
            "ü".repeat(100_000)
        );
        let batch = parse(long.as_bytes(), "p_").expect("JSON");
        assert_eq!(batch.len(), 1_001);
        let names = batch.points.iter().flatten().map(|point| point.name.len());
        let is_cut = |bytes| (NAME_BYTES_MAX + 1..NAME_BYTES_MAX + 10).contains(&bytes);
        assert!(names.into_iter().all(is_cut), "refused later as too long");
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "7", "\"x\"", "{", "<html>", "{\"a\":1} {\"a\":2}"] {
            assert!(parse(text.as_bytes(), "").is_err(), "{text}");
        }
        let keys: String = (0..50_000).map(|at| format!("\"{at}\":1,")).collect();
        let long = format!("{{\"{}\":{{{keys}\"z\":1}}}}", "x".repeat(100_000));
        assert!(parse(long.as_bytes(), "").is_err(), "memory is bounded");
        let deep = "{\"a\":".repeat(40) + "1" + &"}".repeat(40);
        assert!(parse(deep.as_bytes(), "").is_err());
    }
}
