//! Parses InfluxDB's line protocol.
//!
//! ```text
//! MEASUREMENT[,TAG=VALUE…] FIELD=VALUE[,FIELD=VALUE…] [TIME]
//! CPUFrequency,host=n1,job=7,step=0,task=0 value=2400 1713379493
//! ```
//!
//! Each field becomes a point named `MEASUREMENT_FIELD`, or `MEASUREMENT` if the field is `value`.
//! Numbers may be floats, integers (`1i`), unsigned integers (`1u`) and booleans, which are 1 and
//! 0. Fields with text cannot be stored. A malformed line does not affect the others.

use std::borrow::Cow;

use pegel_metric::Millis;

use crate::point::{ParsedPoint, PointBatch, PointFault, PointLabel};
use crate::statsd::{DecimalNumber, NumberFault};

/// The field whose name is not part of the metric's.
const PLAIN_FIELD: &str = "value";

/// The unit of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimePrecision {
    #[default]
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
}

impl TimePrecision {
    /// Returns the precision that versions 1 and 2 of InfluxDB call by this name.
    pub fn from_name(name: &str) -> Option<TimePrecision> {
        Some(match name {
            "n" | "ns" => TimePrecision::Nanoseconds,
            "u" | "us" | "µ" => TimePrecision::Microseconds,
            "ms" => TimePrecision::Milliseconds,
            "s" => TimePrecision::Seconds,
            "m" => TimePrecision::Minutes,
            "h" => TimePrecision::Hours,
            _ => return None,
        })
    }

    fn to_millis(self, time: i64) -> Option<Millis> {
        match self {
            TimePrecision::Nanoseconds => Some(time.div_euclid(1_000_000)),
            TimePrecision::Microseconds => Some(time.div_euclid(1000)),
            TimePrecision::Milliseconds => Some(time),
            TimePrecision::Seconds => time.checked_mul(1000),
            TimePrecision::Minutes => time.checked_mul(60_000),
            TimePrecision::Hours => time.checked_mul(3_600_000),
        }
    }
}

/// More fields than one body may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {} fields, or too long names and tags; send them in parts",
    crate::POINTS_MAX
)]
pub struct TooManyFields;

/// Parses a body. Its lines are in `spans` of the batch, once for each field.
pub fn parse(body: &[u8], precision: TimePrecision) -> Result<PointBatch<'_>, TooManyFields> {
    let mut batch = PointBatch::default();
    let mut lines = LineReader {
        body,
        at: 0,
        precision,
    };
    while let Some(start) = lines.next_line() {
        let parsed = lines.line();
        if parsed.is_err() {
            lines.skip_line();
        }
        let span = (start, lines.at);
        let labelled = parsed.and_then(|line| {
            let shared = line.shared_bytes();
            if shared > pegel_metric::TEXT_BYTES_MAX {
                return Err(PointFault::TextTooLong);
            }
            batch.count_shared(shared, line.fields.len());
            let labels = batch.push_labels(line.tags.into_iter())?;
            Ok((line.measurement, line.fields, line.time, labels))
        });
        let (measurement, fields, time, labels) = match labelled {
            Ok(line) => line,
            Err(fault) => {
                // One entry stands for the line.
                (
                    Cow::Borrowed(""),
                    vec![("".into(), Err(fault))],
                    None,
                    (0, 0),
                )
            }
        };
        for (field, value) in fields {
            if batch.is_full() {
                return Err(TooManyFields);
            }
            let point = value.map(|value| {
                let name = metric_name(&measurement, &field);
                ParsedPoint::new(name, time, value, labels)
            });
            batch.push(span, point);
        }
    }
    Ok(batch)
}

/// The parts of one line.
struct FieldLine<'a> {
    measurement: Cow<'a, str>,
    tags: Vec<PointLabel<'a>>,
    fields: Vec<(Cow<'a, str>, Result<f64, PointFault>)>,
    time: Option<Millis>,
}

impl FieldLine<'_> {
    /// Returns the length of what all fields share. No field of a line is stored whose measurement
    /// and tags alone are too long for a series.
    fn shared_bytes(&self) -> usize {
        let tags = self.tags.iter();
        let tags = tags.map(|(key, value)| key.len() + value.len());
        self.measurement.len() + tags.sum::<usize>()
    }
}

struct LineReader<'a> {
    body: &'a [u8],
    at: usize,
    precision: TimePrecision,
}

impl<'a> LineReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    /// Skips blank lines and comments. Returns the position of the next line.
    fn next_line(&mut self) -> Option<usize> {
        loop {
            match self.peek()? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'#' => self.skip_line(),
                _ => return Some(self.at),
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.body[self.at..];
        self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    }

    fn line(&mut self) -> Result<FieldLine<'a>, PointFault> {
        let measurement = self.token(b", ")?;
        if measurement.is_empty() {
            return Err(PointFault::NameMissing);
        }
        let mut tags = Vec::new();
        while self.take(b',') {
            let key = self.token(b",= ")?;
            if key.is_empty() || !self.take(b'=') {
                return Err(PointFault::Tag);
            }
            let value = self.token(b", ")?;
            if value.is_empty() {
                return Err(PointFault::Tag);
            }
            tags.push((key, value));
        }
        self.skip_spaces();
        if self.is_at_end() {
            return Err(PointFault::FieldsMissing);
        }
        let mut fields = Vec::new();
        loop {
            let key = self.token(b",= ")?;
            if key.is_empty() || !self.take(b'=') {
                return Err(PointFault::Field);
            }
            let value = self.field_value()?;
            fields.push((key, value));
            if !self.take(b',') {
                break;
            }
        }
        let time = self.time()?;
        Ok(FieldLine {
            measurement,
            tags,
            fields,
            time,
        })
    }

    /// Reads the value of a field. A malformed number affects only its field; text that does not
    /// end affects the line.
    fn field_value(&mut self) -> Result<Result<f64, PointFault>, PointFault> {
        if self.take(b'"') {
            loop {
                match self.peek().ok_or(PointFault::Field)? {
                    b'"' => break self.at += 1,
                    b'\\' => self.at = self.body.len().min(self.at + 2),
                    _ => self.at += 1,
                }
            }
            return Ok(Err(PointFault::TextField));
        }
        let text = self.token(b", ")?;
        Ok(parse_number(&text).map_err(PointFault::from))
    }

    fn time(&mut self) -> Result<Option<Millis>, PointFault> {
        self.skip_spaces();
        if self.is_at_end() {
            return Ok(None);
        }
        let text = self.token(b" ")?;
        self.skip_spaces();
        let time = text.parse().ok().filter(|_| self.is_at_end());
        let time = time.and_then(|time| self.precision.to_millis(time));
        time.map(Some).ok_or(PointFault::TimePrecision)
    }

    fn skip_spaces(&mut self) {
        while let Some(b' ' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn is_at_end(&self) -> bool {
        matches!(self.peek(), None | Some(b'\n'))
    }

    /// Reads up to one of `stops` or the end of the line. A backslash before a comma, an equals
    /// sign or a space stands for that character; any other backslash is a character.
    fn token(&mut self, stops: &[u8]) -> Result<Cow<'a, str>, PointFault> {
        let start = self.at;
        let mut is_escaped = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => break,
                b'\r' if self.body.get(self.at + 1).is_none_or(|next| *next == b'\n') => break,
                b'\\' if matches!(self.body.get(self.at + 1), Some(b',' | b'=' | b' ')) => {
                    is_escaped = true;
                    self.at += 2;
                }
                byte if stops.contains(&byte) => break,
                _ => self.at += 1,
            }
        }
        let text = std::str::from_utf8(&self.body[start..self.at]);
        let text = text.map_err(|_| PointFault::Utf8)?;
        if text.contains(|c: char| c.is_control()) {
            return Err(PointFault::Control);
        }
        Ok(match is_escaped {
            false => text.into(),
            true => unescape(text).into(),
        })
    }
}

fn metric_name<'a>(measurement: &Cow<'a, str>, field: &str) -> Cow<'a, str> {
    match field {
        PLAIN_FIELD => measurement.clone(),
        field => format!("{measurement}_{field}").into(),
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(',' | '=' | ' ')) => {}
            _ => out.push(c),
        }
    }
    out
}

fn parse_number(text: &str) -> Result<f64, NumberFault> {
    let not_a_number = |_| NumberFault::NotANumber;
    if let Some(digits) = text.strip_suffix('i') {
        let number: i64 = digits.parse().map_err(not_a_number)?;
        return Ok(number as f64);
    }
    if let Some(digits) = text.strip_suffix('u') {
        let number: u64 = digits.parse().map_err(not_a_number)?;
        return Ok(number as f64);
    }
    match text {
        "t" | "T" | "true" | "True" | "TRUE" => Ok(1.0),
        "f" | "F" | "false" | "False" | "FALSE" => Ok(0.0),
        text => Ok(DecimalNumber::parse(text.as_bytes())?.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::POINTS_MAX;

    fn show_in(text: &str, precision: TimePrecision) -> Vec<String> {
        let batch = parse(text.as_bytes(), precision).expect("few fields");
        let shown = batch.points.iter().map(|point| match point {
            Ok(point) => {
                let labels = &batch.labels()[batch.labels_of(point)];
                let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
                let time = point.time.map(|time| time.to_string()).unwrap_or_default();
                format!("{} {} {} {time}", point.name, labels.join("|"), point.value)
            }
            Err(fault) => fault.to_string(),
        });
        shown.collect()
    }

    fn show(text: &str) -> Vec<String> {
        show_in(text, TimePrecision::Nanoseconds)
    }

    #[test]
    fn fields_become_metrics() {
        assert_eq!(
            show(
                "cpu,host=a,core=0 user=1.5,sys=2i,idle=18446744073709551615u,on=t 1713379493123456789\n"
            ),
            [
                "cpu_user host=a|core=0 1.5 1713379493123",
                "cpu_sys host=a|core=0 2 1713379493123",
                "cpu_idle host=a|core=0 18446744073709552000 1713379493123",
                "cpu_on host=a|core=0 1 1713379493123",
            ]
        );
        assert_eq!(show("load value=1"), ["load  1 "]);
        assert_eq!(
            show("# comment\n\r\n  a value=-1e3\r\nb value=false 1000000\r\n"),
            ["a  -1000 ", "b  0 1"]
        );
    }

    #[test]
    fn what_slurm_sends() {
        // acct_gather_profile/influxdb without flags: one line for each value, times in seconds.
        let plain = "CPUTime,host=n1,job=1234,step=0,task=3 value=0.25 1713379493\n\
                     RSS,host=n1,job=1234,step=0,task=3 value=104857600 1713379493\n\
                     CPUTime,host=n1,job=1234,step=4294967292,task=0 value=0.00 1713379493\n";
        assert_eq!(
            show_in(plain, TimePrecision::Seconds),
            [
                "CPUTime host=n1|job=1234|step=0|task=3 0.25 1713379493000",
                "RSS host=n1|job=1234|step=0|task=3 104857600 1713379493000",
                "CPUTime host=n1|job=1234|step=4294967292|task=0 0 1713379493000",
            ]
        );
        // With ProfileInfluxDBFlags=grouped_fields and extra tags.
        let grouped = "task,cluster=c1,host=n1,job=1234,sluid=sABC,step=batch,task=0,uid=1000,user=ada \
                       CPUFrequency=2400i,CPUUtilization=99.5 1713379493\n";
        assert_eq!(
            show_in(grouped, TimePrecision::Seconds),
            [
                "task_CPUFrequency cluster=c1|host=n1|job=1234|sluid=sABC|step=batch|task=0|uid=1000|user=ada 2400 1713379493000",
                "task_CPUUtilization cluster=c1|host=n1|job=1234|sluid=sABC|step=batch|task=0|uid=1000|user=ada 99.5 1713379493000",
            ]
        );
    }

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(
            show("my\\ disk\\,1,a\\=b=c\\ d,back\\slash=\\\\x x\\ y=1"),
            ["my disk,1_x y a=b=c d|back\\slash=\\\\x 1 "]
        );
    }

    #[test]
    fn text_costs_its_field_and_may_hold_anything() {
        assert_eq!(
            show("a s=\"x, y=1 \\\" \n z\",n=2 1000000\nb n=3"),
            ["a field with text cannot be stored", "a_n  2 1", "b_n  3 "]
        );
    }

    #[test]
    fn malformed_lines_do_not_affect_others() {
        for (line, fault) in [
            ("a", "missing fields"),
            ("a,b=c", "missing fields"),
            (",b=c x=1", "the metric name is missing"),
            ("a,b x=1", "a tag must be written KEY=VALUE"),
            ("a,b= x=1", "a tag must be written KEY=VALUE"),
            ("a x", "a field must be written KEY=VALUE"),
            ("a =1", "a field must be written KEY=VALUE"),
            ("a x=1,", "a field must be written KEY=VALUE"),
            ("a x=", "malformed value; expected a number"),
            ("a x=1x", "malformed value; expected a number"),
            ("a x=1.5i", "malformed value; expected a number"),
            (
                "a x=NaN",
                "the value is not finite, or exceeds the range of a 64-bit float",
            ),
            (
                "a x=1 now",
                "the timestamp is not a whole number in the precision of the request",
            ),
            (
                "a x=1 1 2",
                "the timestamp is not a whole number in the precision of the request",
            ),
            (
                "a\u{1b} x=1",
                "a name or a tag contains a control character",
            ),
            ("<html>", "missing fields"),
        ] {
            let body = format!("before value=1\n{line}\nafter value=2\n");
            assert_eq!(show(&body), ["before  1 ", fault, "after  2 "], "{line}");
        }
        assert_eq!(show("a x=\"open"), ["a field must be written KEY=VALUE"]);
        let batch = parse(b"\xff x=1\nb x=1", TimePrecision::Seconds).expect("few");
        assert_eq!(batch.points[0], Err(PointFault::Utf8));
        assert_eq!(batch.spans, [(0, 5), (6, 11)]);
    }

    #[test]
    fn times_have_the_precision_of_the_request() {
        for (precision, millis) in [
            ("ns", "1"),
            ("n", "1"),
            ("u", "1713"),
            ("us", "1713"),
            ("ms", "1713379"),
            ("s", "1713379000"),
            ("m", "102802740000"),
            ("h", "6168164400000"),
        ] {
            let precision = TimePrecision::from_name(precision).expect("known");
            assert_eq!(
                show_in("a value=0 1713379", precision),
                [format!("a  0 {millis}")]
            );
        }
        assert_eq!(TimePrecision::from_name("d"), None);
        assert_eq!(
            show_in("a value=0 9223372036854775807", TimePrecision::Hours),
            ["the timestamp is not a whole number in the precision of the request"]
        );
    }

    #[test]
    fn the_number_of_fields_is_limited() {
        let many = "a x=1\n".repeat(POINTS_MAX + 1);
        assert_eq!(
            parse(many.as_bytes(), TimePrecision::Seconds).err(),
            Some(TooManyFields)
        );
        let fields: String = (0..20_000).map(|at| format!(",f{at}=1")).collect();
        let long = format!("{} f=1{fields}", "m".repeat(10_000));
        assert!(
            parse(long.as_bytes(), TimePrecision::Seconds).is_err(),
            "a short body does not become many long names"
        );
        let tagged = |tag: usize| {
            let body = format!("m,t={} f=1{fields}", "v".repeat(tag));
            let batch = parse(body.as_bytes(), TimePrecision::Seconds)?;
            Ok(batch
                .points
                .into_iter()
                .map(Result::err)
                .collect::<Vec<_>>())
        };
        assert_eq!(tagged(1_000), Ok(vec![None; 20_001]));
        assert_eq!(tagged(10_000), Err(TooManyFields), "nor many labels");
        // Longer than any series: the line is refused once, not each of its fields.
        assert_eq!(tagged(600_000), Ok(vec![Some(PointFault::TextTooLong)]));
        let malformed = "a\n".repeat(POINTS_MAX + 1);
        assert!(parse(malformed.as_bytes(), TimePrecision::Seconds).is_err());
    }
}
