//! Parses what Prometheus scrapes: its text format 0.0.4 and OpenMetrics 1.0, also with names in
//! quotes as Prometheus 3 writes them.
//!
//! As in Prometheus, a body is accepted or refused as a whole: a syntax error means that it is
//! something else, such as a page of HTML, or truncated. OpenMetrics must end with `# EOF`. Types
//! and help texts apply to the samples that follow them. Exemplars are skipped.

use std::borrow::Cow;

use pegel_metric::{MetricKind, Millis};

use crate::point::{LabelRange, ParsedPoint, PointBatch, PointLabel};

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// The text format 0.0.4: times are milliseconds.
    Prometheus,
    /// OpenMetrics 1.0: times are seconds.
    OpenMetrics,
}

impl TextFormat {
    /// Returns the format that a `Content-Type` names. Servers without one send the text format.
    pub fn from_content_type(content_type: &str) -> TextFormat {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/openmetrics-text") {
            TextFormat::OpenMetrics
        } else {
            TextFormat::Prometheus
        }
    }
}

/// Why a body is not in its format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ExpositionError {
    /// Counted from 1.
    pub line: usize,
    pub problem: ExpositionProblem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionProblem {
    #[error("not UTF-8")]
    Utf8,
    #[error("expected a metric name, found {0:?}")]
    Name(String),
    #[error("malformed labels")]
    Labels,
    #[error("expected a value, found {0:?}")]
    Value(String),
    #[error("expected a timestamp, found {0:?}")]
    Time(String),
    #[error("text after the sample")]
    TrailingText,
    #[error("no # EOF at the end: the response is truncated")]
    Truncated,
    #[error("text after # EOF")]
    AfterEnd,
    #[error("more than {} samples", crate::POINTS_MAX)]
    TooManySamples,
}

/// Parses a body. Points have the time `None` where the body has none.
pub fn parse(body: &[u8], format: TextFormat) -> Result<PointBatch<'_>, ExpositionError> {
    let mut batch = PointBatch::default();
    let mut family = CurrentFamily::default();
    let mut labels = Vec::new();
    let (mut start, mut line_number, mut has_ended) = (0, 0, false);
    while start < body.len() {
        let rest = &body[start..];
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let (span, number) = ((start, start + length), line_number + 1);
        (start, line_number) = (start + length + 1, number);
        let error = |problem| ExpositionError {
            line: number,
            problem,
        };
        let line = std::str::from_utf8(&rest[..length]);
        let line = line.map_err(|_| error(ExpositionProblem::Utf8))?;
        let line = line.trim_matches([' ', '\t', '\r']);
        if line.is_empty() {
            continue;
        }
        if has_ended {
            return Err(error(ExpositionProblem::AfterEnd));
        }
        if let Some(comment) = line.strip_prefix('#') {
            has_ended = format == TextFormat::OpenMetrics && comment.trim() == "EOF";
            family.read_comment(comment);
            continue;
        }
        if batch.is_full() {
            return Err(error(ExpositionProblem::TooManySamples));
        }
        labels.clear();
        let sample = read_sample(line, format, &mut labels).map_err(error)?;
        let point = batch
            .push_labels(labels.drain(..))
            .map(|labels| family.point(sample, labels, &mut batch));
        batch.push(span, point);
    }
    if format == TextFormat::OpenMetrics && !has_ended {
        return Err(ExpositionError {
            line: line_number,
            problem: ExpositionProblem::Truncated,
        });
    }
    Ok(batch)
}

/// A sample line, apart from its labels.
struct SampleLine<'a> {
    name: Cow<'a, str>,
    value: f64,
    time: Option<Millis>,
}

/// Reads `NAME{KEY="VALUE",…} VALUE [TIME] [# EXEMPLAR]`, or `{"NAME",KEY="VALUE",…} …`.
fn read_sample<'a>(
    line: &'a str,
    format: TextFormat,
    labels: &mut Vec<PointLabel<'a>>,
) -> Result<SampleLine<'a>, ExpositionProblem> {
    let end = line
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(line.len());
    let (plain, mut rest) = line.split_at(end);
    let mut name = Cow::Borrowed(plain);
    rest = rest.trim_start_matches([' ', '\t']);
    if let Some(inside) = rest.strip_prefix('{') {
        let quoted_name = read_labels(inside, labels, &mut rest)?;
        match quoted_name {
            Some(quoted) if plain.is_empty() => name = quoted,
            Some(_) => return Err(ExpositionProblem::Labels),
            None => {}
        }
    }
    if name.is_empty() || plain.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(ExpositionProblem::Name(shorten(line)));
    }
    let (values, _exemplar) = match rest.split_once('#') {
        Some((values, exemplar)) if format == TextFormat::OpenMetrics => (values, exemplar),
        _ => (rest, ""),
    };
    let mut words = values.split_ascii_whitespace();
    let value = words.next().unwrap_or_default();
    let value = parse_value(value).ok_or_else(|| ExpositionProblem::Value(shorten(value)))?;
    let time = words
        .next()
        .map(|time| parse_time(time, format).ok_or_else(|| ExpositionProblem::Time(shorten(time))));
    if words.next().is_some() {
        return Err(ExpositionProblem::TrailingText);
    }
    Ok(SampleLine {
        name,
        value,
        time: time.transpose()?,
    })
}

/// Reads labels after the opening brace, up to the closing one; sets `rest` to what follows.
/// Returns a name that stands among them in quotes.
fn read_labels<'a>(
    mut text: &'a str,
    labels: &mut Vec<PointLabel<'a>>,
    rest: &mut &'a str,
) -> Result<Option<Cow<'a, str>>, ExpositionProblem> {
    let mut name = None;
    loop {
        text = text.trim_start_matches([' ', '\t']);
        if let Some(after) = text.strip_prefix('}') {
            *rest = after;
            return Ok(name);
        }
        let key = if text.starts_with('"') {
            read_quoted(&mut text)?
        } else {
            let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let (key, after) = text.split_at(end.ok_or(ExpositionProblem::Labels)?);
            text = after;
            Cow::Borrowed(key)
        };
        text = text.trim_start_matches([' ', '\t']);
        if let Some(after) = text.strip_prefix('=') {
            text = after.trim_start_matches([' ', '\t']);
            let value = read_quoted(&mut text)?;
            if key.is_empty() {
                return Err(ExpositionProblem::Labels);
            }
            labels.push((key, value));
        } else if name.is_none() && matches!(text.as_bytes().first(), Some(b',' | b'}')) {
            name = Some(key).filter(|name| !name.is_empty());
        } else {
            return Err(ExpositionProblem::Labels);
        }
        text = text.trim_start_matches([' ', '\t']);
        match text.strip_prefix(',') {
            Some(after) => text = after,
            None if text.starts_with('}') => {}
            None => return Err(ExpositionProblem::Labels),
        }
    }
}

/// Removes a text in quotes from the front, with the escapes `\\`, `\"` and `\n`.
fn read_quoted<'a>(text: &mut &'a str) -> Result<Cow<'a, str>, ExpositionProblem> {
    let inside = text.strip_prefix('"').ok_or(ExpositionProblem::Labels)?;
    let mut is_escaped = false;
    let mut bytes = inside.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                *text = &inside[at + 1..];
                let value = &inside[..at];
                return Ok(match is_escaped {
                    false => value.into(),
                    true => unescape(value).into(),
                });
            }
            b'\\' => {
                is_escaped = true;
                bytes.next();
            }
            _ => {}
        }
    }
    Err(ExpositionProblem::Labels)
}

/// Replaces escapes; an unknown one stands for its characters, as in Prometheus.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(c @ ('\\' | '"')) => out.push(c),
                Some(c) => out.extend(['\\', c]),
                None => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    out
}

fn parse_value(text: &str) -> Option<f64> {
    // `parse` also accepts NaN, Inf and their other spellings.
    text.parse().ok()
}

fn parse_time(text: &str, format: TextFormat) -> Option<Millis> {
    match format {
        TextFormat::Prometheus => text.parse().ok(),
        TextFormat::OpenMetrics => {
            let seconds: f64 = text.parse().ok()?;
            let millis = (seconds * 1000.0).round();
            // Times beyond the year 287396 are not times.
            (millis.abs() < 9e15).then_some(millis as Millis)
        }
    }
}

/// Returns the beginning of a text for a message.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The family whose metadata were read last.
#[derive(Default)]
struct CurrentFamily<'a> {
    name: &'a str,
    declared: FamilyType,
    help: CurrentHelp<'a>,
}

/// The help text of a family. It may be long, and its samples many: they share it.
#[derive(Default)]
enum CurrentHelp<'a> {
    #[default]
    None,
    /// No sample has it yet.
    Read(Cow<'a, str>),
    /// At this place of the batch.
    Shared(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FamilyType {
    Counter,
    Gauge,
    /// Its sums, counts and buckets only grow.
    Histogram,
    Summary,
    #[default]
    Unknown,
}

impl<'a> CurrentFamily<'a> {
    /// Reads `HELP NAME TEXT` and `TYPE NAME TYPE`; other comments have no meaning here.
    fn read_comment(&mut self, comment: &'a str) {
        let mut words = comment.trim_start().splitn(3, [' ', '\t']);
        let (Some(keyword), Some(name)) = (words.next(), words.next()) else {
            return;
        };
        let text = words.next().unwrap_or_default();
        let name = name.trim_matches('"');
        if !matches!(keyword, "HELP" | "TYPE" | "UNIT") {
            return;
        }
        if name != self.name {
            *self = CurrentFamily {
                name,
                ..CurrentFamily::default()
            };
        }
        match keyword {
            "HELP" if text.is_empty() => self.help = CurrentHelp::None,
            "HELP" if text.contains('\\') => self.help = CurrentHelp::Read(unescape(text).into()),
            "HELP" => self.help = CurrentHelp::Read(text.into()),
            "TYPE" => {
                self.declared = match text.trim() {
                    "counter" => FamilyType::Counter,
                    "gauge" | "gaugehistogram" | "info" | "stateset" => FamilyType::Gauge,
                    "histogram" => FamilyType::Histogram,
                    "summary" => FamilyType::Summary,
                    _ => FamilyType::Unknown,
                }
            }
            _ => {}
        }
    }

    fn point(
        &mut self,
        sample: SampleLine<'a>,
        labels: LabelRange,
        batch: &mut PointBatch<'a>,
    ) -> ParsedPoint<'a> {
        let mut point = ParsedPoint::new(sample.name, sample.time, sample.value, labels);
        let suffix = match point.name.strip_prefix(self.name) {
            Some(suffix) if !self.name.is_empty() => suffix,
            _ => return point,
        };
        let is_running_total = matches!(suffix, "_bucket" | "_count" | "_sum");
        point.kind = match (self.declared, suffix) {
            (FamilyType::Unknown, "") => MetricKind::Unknown,
            (FamilyType::Counter, "" | "_total") => MetricKind::Counter,
            (FamilyType::Gauge, "" | "_info" | "_bucket" | "_gcount" | "_gsum") => {
                MetricKind::Gauge
            }
            (FamilyType::Histogram | FamilyType::Summary, _) if is_running_total => {
                MetricKind::Counter
            }
            (FamilyType::Summary, "") => MetricKind::Gauge,
            (FamilyType::Counter | FamilyType::Histogram | FamilyType::Summary, "_created") => {
                MetricKind::Gauge
            }
            // A metric of another family whose name begins with this one.
            _ => return point,
        };
        point.help = match std::mem::take(&mut self.help) {
            CurrentHelp::None => None,
            CurrentHelp::Read(help) => Some(batch.push_help(help)),
            CurrentHelp::Shared(place) => Some(place),
        };
        self.help = point.help.map_or(CurrentHelp::None, CurrentHelp::Shared);
        point.family_length = self.name.len();
        point
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PointFault;

    fn show(text: &str, format: TextFormat) -> Result<Vec<String>, String> {
        let batch = parse(text.as_bytes(), format).map_err(|error| error.to_string())?;
        let shown = batch.points.iter().map(|point| match point {
            Ok(point) => {
                let labels = &batch.labels()[batch.labels_of(point)];
                let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
                let time = point.time.map(|time| time.to_string()).unwrap_or_default();
                format!(
                    "{} {}|{}|{time}|{}|{}",
                    point.kind.as_str(),
                    point.name,
                    labels.join(","),
                    point.value,
                    batch.help_of(point)
                )
            }
            Err(fault) => fault.to_string(),
        });
        Ok(shown.collect())
    }

    #[test]
    fn the_text_format_has_types_help_and_times() {
        let text = "\
# HELP http_requests_total The total number of\\nHTTP \\\\ requests.
# TYPE http_requests_total counter
http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000
http_requests_total{method=\"post\",code=\"400\",}    3

# A comment.
msdos_file_access_time_seconds{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot find file:\\n\\\"FILE.TXT\\\"\"} 1.458255915e9
metric_without_timestamp_and_labels 12.47
something_weird{problem=\"division by zero\"} +Inf -3982045
# HELP http_request_duration_seconds A histogram.
# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{le=\"+Inf\"} 144320
http_request_duration_seconds_sum 53423
http_request_duration_seconds_count 144320
# TYPE rpc_duration_seconds summary
rpc_duration_seconds{quantile=\"0.01\"} NaN
rpc_duration_seconds_sum 1.7560473e+07
";
        assert_eq!(
            show(text, TextFormat::Prometheus).expect("valid"),
            [
                "counter http_requests_total|method=post,code=200|1395066363000|1027|The total number of\nHTTP \\ requests.",
                "counter http_requests_total|method=post,code=400||3|The total number of\nHTTP \\ requests.",
                "unknown msdos_file_access_time_seconds|path=C:\\DIR\\FILE.TXT,error=Cannot find file:\n\"FILE.TXT\"||1458255915|",
                "unknown metric_without_timestamp_and_labels|||12.47|",
                "unknown something_weird|problem=division by zero|-3982045|inf|",
                "counter http_request_duration_seconds_bucket|le=+Inf||144320|A histogram.",
                "counter http_request_duration_seconds_sum|||53423|A histogram.",
                "counter http_request_duration_seconds_count|||144320|A histogram.",
                "gauge rpc_duration_seconds|quantile=0.01||NaN|",
                "counter rpc_duration_seconds_sum|||17560473|",
            ]
        );
    }

    #[test]
    fn openmetrics_has_suffixes_exemplars_and_an_end() {
        let text = "\
# TYPE foo counter
# UNIT foo seconds
# HELP foo Help.
foo_total{a=\"b\"} 17.0 1520879607.789 # {trace_id=\"KOO5S4vxi0o\"} 0.67
foo_created{a=\"b\"} 1520430000.123
# TYPE build info
build_info{version=\"1\"} 1
# TYPE temperature gauge
temperature{\"place.name\"=\"x\"} 21.5
{\"my.metric\", a=\"b\"} 1
# EOF
";
        assert_eq!(
            show(text, TextFormat::OpenMetrics).expect("valid"),
            [
                "counter foo_total|a=b|1520879607789|17|Help.",
                "gauge foo_created|a=b||1520430000.123|Help.",
                "gauge build_info|version=1||1|",
                "gauge temperature|place.name=x||21.5|",
                "unknown my.metric|a=b||1|",
            ]
        );
        let truncated = text.replace("# EOF\n", "");
        assert_eq!(
            show(&truncated, TextFormat::OpenMetrics),
            Err("line 10: no # EOF at the end: the response is truncated".to_owned())
        );
        let more = format!("{text}a 1\n");
        assert_eq!(
            show(&more, TextFormat::OpenMetrics),
            Err("line 12: text after # EOF".to_owned())
        );
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        for (text, message) in [
            ("<html>", "expected a metric name, found \"<html>\""),
            ("{\"error\": 1}", "malformed labels"),
            ("1a 2", "expected a metric name, found \"1a 2\""),
            ("a", "expected a value, found \"\""),
            ("a b", "expected a value, found \"b\""),
            ("a{b=\"c\"", "malformed labels"),
            ("a{b=c} 1", "malformed labels"),
            ("a{b=\"c\" d=\"e\"} 1", "malformed labels"),
            ("a{=\"c\"} 1", "malformed labels"),
            ("a{\"b\"} 1", "malformed labels"),
            ("a{b=\"\\", "malformed labels"),
            ("a 1 x", "expected a timestamp, found \"x\""),
            ("a 1 2.5", "expected a timestamp, found \"2.5\""),
            ("a 1 2 3", "text after the sample"),
            ("{} 1", "expected a metric name, found \"{} 1\""),
        ] {
            let text = format!("up 1\n{text}\n");
            let expected = Err(format!("line 2: {message}"));
            assert_eq!(show(&text, TextFormat::Prometheus), expected, "{text}");
        }
        let binary = parse(b"a 1\n\xff\xfe\0", TextFormat::Prometheus);
        assert_eq!(binary.expect_err("binary").to_string(), "line 2: not UTF-8");
        let many = "a 1\n".repeat(crate::POINTS_MAX + 1);
        let many = show(&many, TextFormat::Prometheus).expect_err("too many");
        assert!(many.ends_with("more than 50000 samples"), "{many}");
    }

    #[test]
    fn samples_share_the_help_text_of_their_family() {
        // With an escape, so that it is not a part of the body.
        let help = format!("\\\\{}", "h".repeat(500_000));
        let samples: String = (0..crate::POINTS_MAX - 1)
            .map(|at| format!("m{{a=\"{at}\"}} 1\n"))
            .collect();
        let text = format!("# HELP m {help}\n# TYPE m gauge\n{samples}# HELP n {help}\nn 1\n");
        let batch = parse(text.as_bytes(), TextFormat::Prometheus).expect("valid");
        assert_eq!(batch.len(), crate::POINTS_MAX);
        let kept: usize = batch.helps.iter().map(|help| help.len()).sum();
        assert_eq!(kept, 2 * 500_001, "once for each family");
        let points = batch.points.iter().flatten();
        let mut helps = points.map(|point| batch.help_of(point));
        assert!(helps.all(|help| help.len() == 500_001 && help.starts_with("\\h")));
    }

    #[test]
    fn too_many_labels_cost_their_sample() {
        let labels: Vec<String> = (0..65).map(|at| format!("l{at}=\"1\"")).collect();
        let text = format!("a{{{}}} 1\nb 2\n", labels.join(","));
        let batch = parse(text.as_bytes(), TextFormat::Prometheus).expect("valid");
        assert!(matches!(batch.points[0], Err(PointFault::TooManyTags)));
        assert!(batch.points[1].is_ok());
    }

    #[test]
    fn a_content_type_names_the_format() {
        for (text, format) in [
            (
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                TextFormat::OpenMetrics,
            ),
            ("text/plain; version=0.0.4", TextFormat::Prometheus),
            ("", TextFormat::Prometheus),
        ] {
            assert_eq!(TextFormat::from_content_type(text), format, "{text}");
        }
    }
}
