//! Points with their own times, parsed from bodies and lines, and the faults of malformed points. A
//! malformed point never affects its neighbours in a batch.

use std::borrow::Cow;

use pegel_metric::{Level, MetricKind, Millis};

use crate::json::{JsonReader, JsonSyntaxError, JsonValue};
use crate::statsd::{DecimalNumber, NumberFault};

/// The most points in one body. A body of one mebibyte holds fewer well-formed points.
pub const POINTS_MAX: usize = 50_000;
/// The most bytes of names that are composed of several parts of a body: a short body must not
/// become many long names.
const NAME_BYTES_MAX: usize = 16 << 20;
/// The most bytes of names and labels that several points share, counted for each of them: a short
/// body must not become much text. Far more than clients send: 1.3 KiB for each of the most points.
const SHARED_BYTES_MAX: usize = 64 << 20;

/// The reason why a point is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PointFault {
    #[error("a point must be an object with a metric and a value")]
    NotAPoint,
    #[error("the metric name is missing")]
    NameMissing,
    #[error("the metric name is not a string")]
    NameNotText,
    #[error("the timestamp is missing")]
    TimeMissing,
    #[error(
        "the timestamp is not a number of seconds (up to 10 digits) or milliseconds since 1970"
    )]
    Time,
    #[error("the value is missing")]
    ValueMissing,
    #[error("{0}")]
    Value(#[from] NumberFault),
    #[error("the tags must be an object of strings or numbers")]
    Tags,
    #[error("a tag must be written KEY=VALUE")]
    Tag,
    #[error("more than {} tags", pegel_metric::LABELS_MAX)]
    TooManyTags,
    #[error("name and tags have more than {} bytes", pegel_metric::TEXT_BYTES_MAX)]
    TextTooLong,
    #[error("a name or a tag is not UTF-8")]
    Utf8,
    #[error("a name or a tag contains a control character")]
    Control,
    #[error("the level is not a whole number from 0 to 255")]
    Level,
    #[error("missing fields")]
    FieldsMissing,
    #[error("a field must be written KEY=VALUE")]
    Field,
    #[error("a field with text cannot be stored")]
    TextField,
    #[error("the timestamp is not a whole number in the precision of the request")]
    TimePrecision,
}

/// A well-formed point. Admission decides later whether its name is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedPoint<'a> {
    pub name: Cow<'a, str>,
    /// `None` if the agent sets the time.
    pub time: Option<Millis>,
    /// Finite, except in Prometheus' text formats.
    pub value: f64,
    pub level: Option<Level>,
    /// Unknown, unless the format declares it.
    pub kind: MetricKind,
    /// The place of its help text in the batch; `None`, unless the format has one.
    pub(crate) help: Option<usize>,
    /// The length of the family's name, with which the name begins.
    pub(crate) family_length: usize,
    /// Its labels in the batch.
    labels: LabelRange,
}

/// A range of the labels of a batch: first and one past the last.
pub(crate) type LabelRange = (usize, usize);

pub(crate) type PointLabel<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The points of one body, well-formed or not, in their order.
#[derive(Debug, Default)]
pub struct PointBatch<'a> {
    pub points: Vec<Result<ParsedPoint<'a>, PointFault>>,
    /// The position of each point in the body, for error messages that quote it.
    pub spans: Vec<(usize, usize)>,
    labels: Vec<PointLabel<'a>>,
    /// Help texts, which many points share.
    pub(crate) helps: Vec<Cow<'a, str>>,
    /// The length of all names that are not parts of the body.
    name_bytes: usize,
    /// The length of names and labels that points share, for each of these points.
    shared_bytes: usize,
}

impl<'a> PointBatch<'a> {
    pub fn labels(&self) -> &[PointLabel<'a>] {
        &self.labels
    }

    pub fn labels_of(&self, point: &ParsedPoint<'a>) -> std::ops::Range<usize> {
        point.labels.0..point.labels.1
    }

    /// Returns the help text of a point; empty, unless the format has one.
    pub fn help_of(&self, point: &ParsedPoint<'a>) -> &str {
        point.help.map_or("", |place| &self.helps[place])
    }

    pub fn len(&self) -> usize {
        self.points.len()
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Adds points of another protocol that differ only in their values. They share their labels.
    pub fn add_values(
        &mut self,
        name: Cow<'a, str>,
        time: Millis,
        values: impl Iterator<Item = f64>,
        labels: Vec<(String, String)>,
    ) {
        let first = self.labels.len();
        let labels = labels.into_iter();
        self.labels
            .extend(labels.map(|(key, value)| (key.into(), value.into())));
        let range = (first, self.labels.len());
        for value in values {
            let point = ParsedPoint::new(name.clone(), Some(time), value, range);
            self.push((0, 0), Ok(point));
        }
    }

    /// Adds a sample of a known kind, whose time the agent sets.
    pub fn add_sample(
        &mut self,
        (name, kind, help): (impl Into<Cow<'a, str>>, MetricKind, &'a str),
        value: f64,
        labels: &[(&'a str, &'a str)],
    ) {
        let first = self.labels.len();
        let labels = labels.iter();
        self.labels
            .extend(labels.map(|(key, value)| ((*key).into(), (*value).into())));
        let labels = (first, self.labels.len());
        let mut point = ParsedPoint::new(name.into(), None, value, labels);
        point.kind = kind;
        if !help.is_empty() {
            point.help = Some(match self.helps.last() {
                Some(last) if last == help => self.helps.len() - 1,
                _ => self.push_help(help.into()),
            });
        }
        self.push((0, 0), Ok(point));
    }

    /// Adds a point, well-formed or not, that stands at `span` of the body.
    pub(crate) fn push(
        &mut self,
        span: (usize, usize),
        point: Result<ParsedPoint<'a>, PointFault>,
    ) {
        if let Ok(ParsedPoint {
            name: Cow::Owned(name),
            ..
        }) = &point
        {
            self.name_bytes += name.len();
        }
        self.points.push(point);
        self.spans.push(span);
    }

    /// Adds labels, which one or more points refer to.
    pub(crate) fn push_labels(
        &mut self,
        labels: impl ExactSizeIterator<Item = PointLabel<'a>>,
    ) -> Result<LabelRange, PointFault> {
        if labels.len() > pegel_metric::LABELS_MAX {
            return Err(PointFault::TooManyTags);
        }
        let first = self.labels.len();
        self.labels.extend(labels);
        Ok((first, self.labels.len()))
    }

    /// Adds a help text, which one or more points refer to. Returns its place.
    pub(crate) fn push_help(&mut self, help: Cow<'a, str>) -> usize {
        self.helps.push(help);
        self.helps.len() - 1
    }

    /// Counts names and labels of this length that so many points share.
    pub(crate) fn count_shared(&mut self, bytes: usize, points: usize) {
        let bytes = bytes.saturating_mul(points.saturating_sub(1));
        self.shared_bytes = self.shared_bytes.saturating_add(bytes);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.points.len() >= POINTS_MAX
            || self.name_bytes >= NAME_BYTES_MAX
            || self.shared_bytes > SHARED_BYTES_MAX
    }
}

impl<'a> ParsedPoint<'a> {
    /// A point of unknown kind without help text.
    pub(crate) fn new(
        name: Cow<'a, str>,
        time: Option<Millis>,
        value: f64,
        labels: LabelRange,
    ) -> ParsedPoint<'a> {
        ParsedPoint {
            time,
            value,
            level: None,
            kind: MetricKind::Unknown,
            help: None,
            family_length: name.len(),
            labels,
            name,
        }
    }

    /// Returns the name of the metric's family: without the suffix of a histogram's bucket, for
    /// example.
    pub fn family(&self) -> &str {
        &self.name[..self.family_length]
    }
}

/// Whether points of a protocol have their own times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointTimes {
    Required,
    Optional,
    /// The time of the body applies to all of its points.
    Shared,
}

/// The keys and forms of a protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointDialect {
    pub times: PointTimes,
    /// Numbers may be written as strings.
    pub quoted_values: bool,
}

/// The fields of a point found so far while its object is read.
struct PointDraft<'a> {
    name: Result<Cow<'a, str>, PointFault>,
    time: Result<Option<Millis>, PointFault>,
    value: Result<f64, PointFault>,
    level: Result<Option<Level>, PointFault>,
    tags: Result<(), PointFault>,
}

/// Reads one point, well-formed or not, into the batch.
pub(crate) fn read_point<'a>(
    reader: &mut JsonReader<'a>,
    dialect: PointDialect,
    batch: &mut PointBatch<'a>,
) -> Result<(), JsonSyntaxError> {
    let start = reader.at();
    if batch.is_full() {
        return Err(JsonSyntaxError {
            at: start,
            expected: "at most 50000 points; send them in parts",
        });
    }
    let first_label = batch.labels.len();
    let point = match reader.peek() {
        Some(b'{') => read_draft(reader, dialect, &mut batch.labels)?.finish(),
        _ => reader.value().map(|_| Err(PointFault::NotAPoint))?,
    };
    let point = point.and_then(|mut point| {
        point.labels = (first_label, batch.labels.len());
        let count = point.labels.1 - point.labels.0;
        if count > pegel_metric::LABELS_MAX {
            Err(PointFault::TooManyTags)
        } else {
            Ok(point)
        }
    });
    if point.is_err() {
        batch.labels.truncate(first_label);
    }
    batch.points.push(point);
    batch.spans.push((start, reader.end_of_last()));
    Ok(())
}

fn read_draft<'a>(
    reader: &mut JsonReader<'a>,
    dialect: PointDialect,
    labels: &mut Vec<PointLabel<'a>>,
) -> Result<PointDraft<'a>, JsonSyntaxError> {
    let first_label = labels.len();
    let mut draft = PointDraft {
        name: Err(PointFault::NameMissing),
        time: match dialect.times {
            PointTimes::Required => Err(PointFault::TimeMissing),
            PointTimes::Optional | PointTimes::Shared => Ok(None),
        },
        value: Err(PointFault::ValueMissing),
        level: Ok(None),
        tags: Ok(()),
    };
    reader.map(|reader, key| {
        match key.as_deref() {
            Some("metric") => draft.name = name(reader.value()?),
            Some("timestamp") if dialect.times != PointTimes::Shared => {
                draft.time = time(&reader.value()?).map(Some);
            }
            Some("value") => draft.value = value(&reader.value()?, dialect.quoted_values),
            Some("telemetry_level") => draft.level = level(&reader.value()?),
            Some("tags") => {
                labels.truncate(first_label);
                draft.tags = tags(reader, labels)?;
            }
            _ => drop(reader.value()?),
        }
        Ok(())
    })?;
    Ok(draft)
}

impl<'a> PointDraft<'a> {
    fn finish(self) -> Result<ParsedPoint<'a>, PointFault> {
        let mut point = ParsedPoint::new(self.name?, self.time?, self.value?, (0, 0));
        point.level = self.level?;
        self.tags.map(|()| point)
    }
}

fn name(value: JsonValue<'_>) -> Result<Cow<'_, str>, PointFault> {
    match value {
        JsonValue::Text(Some(text)) => reject_control_characters(text),
        JsonValue::Text(None) => Err(PointFault::Utf8),
        JsonValue::Null => Err(PointFault::NameMissing),
        _ => Err(PointFault::NameNotText),
    }
}

/// Reads a time in JSON; quoted times are common.
pub(crate) fn time(value: &JsonValue<'_>) -> Result<Millis, PointFault> {
    match value {
        JsonValue::Number(text) => parse_time(text),
        JsonValue::Text(Some(text)) => parse_time(text),
        JsonValue::Null => Err(PointFault::TimeMissing),
        _ => Err(PointFault::Time),
    }
}

/// Parses a time: up to ten digits are seconds, more are milliseconds; both may have a fraction.
pub(crate) fn parse_time(text: &str) -> Result<Millis, PointFault> {
    const SECONDS_END: f64 = 1e10;
    if text.len() <= 15 && text.bytes().all(|b| b.is_ascii_digit()) {
        let number: Millis = text.parse().map_err(|_| PointFault::Time)?;
        return Ok(if text.len() <= 10 {
            number * 1000
        } else {
            number
        });
    }
    let number = DecimalNumber::parse(text.as_bytes()).map_err(|_| PointFault::Time)?;
    match number.value {
        seconds if (0.0..SECONDS_END).contains(&seconds) => {
            Ok((seconds * 1000.0).round() as Millis)
        }
        // 16 digits of milliseconds are the year 300000.
        millis if (SECONDS_END..1e16).contains(&millis) => Ok(millis as Millis),
        _ => Err(PointFault::Time),
    }
}

/// Parses the text of a JSON number.
pub(crate) fn parse_json_number(text: &str) -> Result<f64, PointFault> {
    Ok(DecimalNumber::parse(text.as_bytes())?.value)
}

fn value(value: &JsonValue<'_>, quoted: bool) -> Result<f64, PointFault> {
    let text = match value {
        JsonValue::Number(text) => text,
        JsonValue::Text(Some(text)) if quoted => &**text,
        JsonValue::Null => return Err(PointFault::ValueMissing),
        _ => return Err(NumberFault::NotANumber.into()),
    };
    parse_json_number(text)
}

fn level(value: &JsonValue<'_>) -> Result<Option<Level>, PointFault> {
    match value {
        JsonValue::Null => Ok(None),
        JsonValue::Number(text) => text.parse().map(Some).map_err(|_| PointFault::Level),
        _ => Err(PointFault::Level),
    }
}

/// Reads the tags. Null tags are ignored; values other than strings are kept as written.
fn tags<'a>(
    reader: &mut JsonReader<'a>,
    labels: &mut Vec<PointLabel<'a>>,
) -> Result<Result<(), PointFault>, JsonSyntaxError> {
    if reader.peek() != Some(b'{') {
        return Ok(match reader.value()? {
            JsonValue::Null => Ok(()),
            _ => Err(PointFault::Tags),
        });
    }
    let mut found = Ok(());
    reader.map(|reader, key| {
        let value = match reader.value()? {
            JsonValue::Text(text) => text.ok_or(PointFault::Utf8),
            JsonValue::Number(text) => Ok(Cow::Borrowed(text)),
            JsonValue::Bool(is_true) => Ok(Cow::Borrowed(if is_true { "true" } else { "false" })),
            JsonValue::Null => return Ok(()),
            JsonValue::List | JsonValue::Map => Err(PointFault::Tags),
        };
        let label = key
            .ok_or(PointFault::Utf8)
            .and_then(|key| Ok((key, value?)));
        match label.and_then(check_label) {
            Ok(label) => labels.push(label),
            Err(fault) => found = Err(fault),
        }
        Ok(())
    })?;
    Ok(found)
}

fn check_label((key, value): PointLabel<'_>) -> Result<PointLabel<'_>, PointFault> {
    Ok((key, reject_control_characters(value)?))
}

fn reject_control_characters(text: Cow<'_, str>) -> Result<Cow<'_, str>, PointFault> {
    if text.chars().any(char::is_control) {
        Err(PointFault::Control)
    } else {
        Ok(text)
    }
}

/// Adds a point from a line to the batch.
pub(crate) fn add_point<'a>(
    batch: &mut PointBatch<'a>,
    name: &'a str,
    time: Millis,
    value: f64,
    tags: impl Iterator<Item = Result<(&'a str, &'a str), PointFault>>,
) -> Result<(), PointFault> {
    let first = batch.labels.len();
    let name = reject_control_characters(name.into())?;
    for tag in tags {
        let label = tag.and_then(|(key, value)| check_label((key.into(), value.into())));
        match label {
            Ok(label) if batch.labels.len() - first < pegel_metric::LABELS_MAX => {
                batch.labels.push(label);
            }
            other => {
                batch.labels.truncate(first);
                return Err(other.err().unwrap_or(PointFault::TooManyTags));
            }
        }
    }
    let range = (first, batch.labels.len());
    let point = ParsedPoint::new(name, Some(time), value, range);
    batch.push((0, 0), Ok(point));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_milliseconds_by_their_length() {
        for (text, millis) in [
            ("1713379493", 1_713_379_493_000),
            ("1713379493250", 1_713_379_493_250),
            ("1713379493.25", 1_713_379_493_250),
            ("1713379493.123456", 1_713_379_493_123),
            ("1713379493250.75", 1_713_379_493_250),
            ("1.713379493e9", 1_713_379_493_000),
            ("0", 0),
            ("9999999999", 9_999_999_999_000),
            ("10000000000", 10_000_000_000),
        ] {
            assert_eq!(parse_time(text), Ok(millis), "{text}");
        }
        for text in [
            "",
            "-1",
            "now",
            "1e300",
            "NaN",
            "99999999999999999999",
            "1 2",
        ] {
            assert_eq!(parse_time(text), Err(PointFault::Time), "{text}");
        }
    }
}
