//! Parses OpenTSDB's two write formats: the body of `POST /api/put`, and the `put` lines of its
//! telnet port.
//!
//! ```text
//! {"metric": "sys.cpu", "timestamp": 1713379493, "value": 18, "tags": {"host": "a"}}    or a list of these
//! put sys.cpu 1713379493 18 host=a
//! ```
//!
//! Values and times may be quoted. OpenTSDB requires at least one tag; Pegel accepts points without
//! tags.

use crate::json::{JsonReader, JsonSyntaxError};
use crate::point::{self, PointBatch, PointDialect, PointFault, PointTimes};
use crate::statsd::DecimalNumber;

const DIALECT: PointDialect = PointDialect {
    times: PointTimes::Required,
    quoted_values: true,
};

/// Parses a body: one point or a list of points.
pub fn put(body: &[u8]) -> Result<PointBatch<'_>, JsonSyntaxError> {
    let mut reader = JsonReader::new(body);
    let mut batch = PointBatch::default();
    match reader.peek() {
        Some(b'[') => reader.list(|reader| point::read_point(reader, DIALECT, &mut batch))?,
        Some(b'{') => point::read_point(&mut reader, DIALECT, &mut batch)?,
        _ => {
            return Err(JsonSyntaxError {
                at: reader.at(),
                expected: "a point or a list of points",
            });
        }
    }
    reader.end()?;
    Ok(batch)
}

/// Parses `put METRIC TIME VALUE KEY=VALUE…`, without the line ending, into a batch.
pub fn put_line<'a>(line: &'a [u8], batch: &mut PointBatch<'a>) -> Result<(), PointFault> {
    let line = std::str::from_utf8(line).map_err(|_| PointFault::Utf8)?;
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("put") {
        return Err(PointFault::NotAPoint);
    }
    let name = words.next().ok_or(PointFault::NameMissing)?;
    let time = point::parse_time(words.next().ok_or(PointFault::TimeMissing)?)?;
    let value = words.next().ok_or(PointFault::ValueMissing)?;
    let value = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(value);
    let value = DecimalNumber::parse(value.as_bytes())?.value;
    let tags = words.map(|word| {
        let tag = word.split_once('=');
        tag.filter(|(key, value)| !key.is_empty() && !value.is_empty())
            .ok_or(PointFault::Tag)
    });
    point::add_point(batch, name, time, value, tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::NumberFault;

    fn show(batch: &PointBatch<'_>) -> Vec<String> {
        let shown = batch.points.iter().map(|point| match point {
            Ok(point) => {
                let labels = &batch.labels()[batch.labels_of(point)];
                let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
                let time = point.time.expect("put points have times");
                format!("{} {time} {} {}", point.name, point.value, labels.join(","))
            }
            Err(fault) => fault.to_string(),
        });
        shown.collect()
    }

    #[test]
    fn one_point_or_many() {
        let one = br#"{"metric":"sys.cpu","timestamp":1713379493,"value":18,"tags":{"host":"a"}}"#;
        assert_eq!(
            show(&put(one).expect("one")),
            ["sys.cpu 1713379493000 18 host=a"]
        );
        let many =
            br#" [ {"metric":"a","timestamp":"1713379493250","value":"1.5","tags":{"x":"1","y":2}},
            {"tags":{},"value":-1e-3,"timestamp":1713379493,"metric":"b\/c","extra":[{"a":1}]} ] "#;
        let batch = put(many).expect("many");
        assert_eq!(
            show(&batch),
            ["a 1713379493250 1.5 x=1,y=2", "b/c 1713379493000 -0.001 "]
        );
        let (start, end) = batch.spans[0];
        assert!(
            many[start..end].starts_with(b"{\"metric\":\"a\"") && many[start..end].ends_with(b"}}")
        );
        assert!(put(b"[]").expect("none").is_empty());
    }

    #[test]
    fn bad_points_do_not_spoil_the_others() {
        let value = |value: &str| {
            let body = format!(
                r#"[{{"metric":"bad","timestamp":1,"value":{value}}},{{"metric":"good","timestamp":1,"value":2,"tags":{{"a":"b"}}}}]"#
            );
            let batch = put(body.as_bytes()).expect("readable");
            let shown = show(&batch);
            assert_eq!(shown[1], "good 1000 2 a=b", "{value}");
            shown[0].clone()
        };
        let not_finite = NumberFault::NotFinite.to_string();
        let no_number = NumberFault::NotANumber.to_string();
        for text in [
            "NaN",
            "Infinity",
            "-Infinity",
            "1e400",
            "\"NaN\"",
            "\"1e400\"",
        ] {
            assert_eq!(value(text), not_finite, "{text}");
        }
        for text in ["true", "\"x\"", "[1]", "{}", "1.2.3", "\"\"", "0x10"] {
            assert_eq!(value(text), no_number, "{text}");
        }
        assert_eq!(value("null"), "the value is missing");
    }

    #[test]
    fn each_fault_has_its_name() {
        for (point, fault) in [
            ("7", PointFault::NotAPoint),
            ("null", PointFault::NotAPoint),
            ("[]", PointFault::NotAPoint),
            ("{}", PointFault::NameMissing),
            (
                r#"{"metric":7,"timestamp":1,"value":1}"#,
                PointFault::NameNotText,
            ),
            (r#"{"metric":"a","value":1}"#, PointFault::TimeMissing),
            (
                r#"{"metric":"a","timestamp":"x","value":1}"#,
                PointFault::Time,
            ),
            (
                r#"{"metric":"a","timestamp":-5,"value":1}"#,
                PointFault::Time,
            ),
            (r#"{"metric":"a","timestamp":1}"#, PointFault::ValueMissing),
            (
                r#"{"metric":"a","timestamp":1,"value":1,"tags":[]}"#,
                PointFault::Tags,
            ),
            (
                r#"{"metric":"a","timestamp":1,"value":1,"tags":{"a":[]}}"#,
                PointFault::Tags,
            ),
            (
                r#"{"metric":"a","timestamp":1,"value":1,"tags":{"a":"\u0000"}}"#,
                PointFault::Control,
            ),
            (
                r#"{"metric":"a","timestamp":1,"value":1,"telemetry_level":-1}"#,
                PointFault::Level,
            ),
        ] {
            let body = format!("[{point}]");
            let batch = put(body.as_bytes()).expect("readable");
            assert_eq!(batch.points, [Err(fault)], "{point}");
            assert!(batch.labels().is_empty(), "{point}");
        }
        let batch = put(b"[{\"metric\":\"\xff\",\"timestamp\":1,\"value\":1}]").expect("readable");
        assert_eq!(batch.points, [Err(PointFault::Utf8)]);
        let many: Vec<String> = (0..65).map(|at| format!("\"{at}\":1")).collect();
        let body = format!(
            r#"{{"metric":"a","timestamp":1,"value":1,"tags":{{{}}}}}"#,
            many.join(",")
        );
        assert_eq!(
            put(body.as_bytes()).expect("readable").points,
            [Err(PointFault::TooManyTags)]
        );
    }

    #[test]
    fn what_is_no_body_is_refused_as_a_whole() {
        for body in ["", "7", "\"x\"", "{", "[{]", "[{}] x", "put a 1 1 b=c"] {
            assert!(put(body.as_bytes()).is_err(), "{body}");
        }
        let many = format!("[{}]", vec!["0"; point::POINTS_MAX + 1].join(","));
        assert!(put(many.as_bytes()).is_err());
    }

    #[test]
    fn lines_are_words() {
        let mut batch = PointBatch::default();
        for line in [
            &b"put sys.cpu 1713379493 18 host=a cpu=0"[..],
            b"put  a\t1713379493250  \"-1.5\"  k=a=b ",
            b"put a 1 2",
        ] {
            put_line(line, &mut batch).expect("a good line");
        }
        assert_eq!(
            show(&batch),
            [
                "sys.cpu 1713379493000 18 host=a,cpu=0",
                "a 1713379493250 -1.5 k=a=b",
                "a 1000 2 "
            ]
        );
    }

    #[test]
    fn bad_lines_leave_nothing_behind() {
        let many: String = (0..65).map(|at| format!(" k{at}=1")).collect();
        let many = format!("put a 1 1{many}");
        for (line, fault) in [
            (&b"put"[..], PointFault::NameMissing),
            (b"put a", PointFault::TimeMissing),
            (b"put a 1", PointFault::ValueMissing),
            (b"put a x 1", PointFault::Time),
            (b"put a 1 NaN", PointFault::Value(NumberFault::NotFinite)),
            (b"put a 1 1e400", PointFault::Value(NumberFault::NotFinite)),
            (b"put a 1 x", PointFault::Value(NumberFault::NotANumber)),
            (b"put a 1 1 x", PointFault::Tag),
            (b"put a 1 1 k=v =v", PointFault::Tag),
            (b"put a 1 1 k=", PointFault::Tag),
            (b"put a 1 1 k=\0", PointFault::Control),
            (b"put a\x01 1 1", PointFault::Control),
            (b"put \xff 1 1", PointFault::Utf8),
            (b"putt a 1 1", PointFault::NotAPoint),
            (b"", PointFault::NotAPoint),
            (many.as_bytes(), PointFault::TooManyTags),
        ] {
            let mut batch = PointBatch::default();
            assert_eq!(
                put_line(line, &mut batch),
                Err(fault),
                "{}",
                String::from_utf8_lossy(line)
            );
            assert!(batch.is_empty() && batch.labels().is_empty());
        }
    }
}
