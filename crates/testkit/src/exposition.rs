//! Parses the Prometheus text format 0.0.4 and OpenMetrics 1.0.0. The parser is strict, because
//! tests check the output of the agent with it: the first malformed line is an error.

use std::collections::BTreeMap;

use pegel_metric::Millis;

/// The samples and metadata of an exporter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    pub samples: Vec<ExpositionSample>,
    /// By name. In OpenMetrics the name of a counter's family lacks the `_total`.
    pub families: BTreeMap<String, FamilyMetadata>,
}

type LabelPairs = Vec<(String, String)>;

#[derive(Debug, Clone, PartialEq)]
pub struct ExpositionSample {
    pub name: String,
    /// In the order of the line; keys are unique.
    pub labels: LabelPairs,
    pub value: f64,
    pub time: Option<Millis>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FamilyMetadata {
    pub kind: Option<MetricType>,
    pub help: Option<String>,
    /// OpenMetrics only.
    pub unit: Option<String>,
}

/// The metric types of both formats. Pegel itself writes the first three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    /// `unknown` in OpenMetrics, `untyped` in the text format.
    Unknown,
    Histogram,
    Summary,
    GaugeHistogram,
    Info,
    StateSet,
}

impl MetricType {
    fn parse(word: &str) -> Option<MetricType> {
        Some(match word {
            "counter" => MetricType::Counter,
            "gauge" => MetricType::Gauge,
            "unknown" | "untyped" => MetricType::Unknown,
            "histogram" => MetricType::Histogram,
            "summary" => MetricType::Summary,
            "gaugehistogram" => MetricType::GaugeHistogram,
            "info" => MetricType::Info,
            "stateset" => MetricType::StateSet,
            _ => return None,
        })
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

impl Exposition {
    /// Parses the text format: times are milliseconds.
    pub fn parse_prometheus(text: &str) -> Result<Exposition, String> {
        let mut exposition = Exposition::default();
        exposition.parse_lines(text, false)?;
        Ok(exposition)
    }

    /// Parses OpenMetrics, which must end with `# EOF`: times are seconds; exemplars are skipped.
    pub fn parse_openmetrics(text: &str) -> Result<Exposition, String> {
        let body = text.strip_suffix('\n').unwrap_or(text);
        let body = body
            .strip_suffix("# EOF")
            .ok_or("expected # EOF at the end")?;
        let mut exposition = Exposition::default();
        exposition.parse_lines(body, true)?;
        Ok(exposition)
    }

    fn parse_lines(&mut self, text: &str, is_openmetrics: bool) -> Result<(), String> {
        for (index, line) in text.lines().enumerate() {
            self.parse_line(line.trim_start_matches(BLANKS), is_openmetrics)
                .map_err(|expected| format!("line {}: expected {expected}: {line:?}", index + 1))?;
        }
        Ok(())
    }

    fn parse_line(&mut self, line: &str, is_openmetrics: bool) -> Result<(), &'static str> {
        if line.contains('\0') {
            return Err("no NUL");
        }
        if line.is_empty() {
            return Ok(());
        }
        if let Some(comment) = line.strip_prefix('#') {
            return self.parse_comment(comment.trim_start_matches(BLANKS), is_openmetrics);
        }
        self.samples.push(parse_sample(line, is_openmetrics)?);
        Ok(())
    }

    /// Parses a comment: lines with a keyword are metadata, all others are skipped.
    fn parse_comment(&mut self, text: &str, is_openmetrics: bool) -> Result<(), &'static str> {
        let (keyword, rest) = text.split_once(BLANKS).unwrap_or((text, ""));
        match keyword {
            "EOF" if is_openmetrics => return Err("nothing after # EOF"),
            "HELP" | "TYPE" => {}
            "UNIT" if is_openmetrics => {}
            _ => return Ok(()),
        }
        let (name, rest) = take_name(rest.trim_start_matches(BLANKS), ':')?;
        if !rest.is_empty() && !rest.starts_with(BLANKS) {
            return Err("a blank after the metric name");
        }
        let text = rest.trim_start_matches(BLANKS);
        let family = self.families.entry(name.to_owned()).or_default();
        let is_repeated = match keyword {
            "HELP" => {
                let help = unescape_help(text, is_openmetrics);
                family.help.replace(help).is_some()
            }
            "UNIT" => family.unit.replace(text.trim_end().to_owned()).is_some(),
            _ => {
                let kind = MetricType::parse(text.trim_end()).ok_or("a metric type")?;
                family.kind.replace(kind).is_some()
            }
        };
        if is_repeated {
            return Err("only one such line for a metric");
        }
        Ok(())
    }
}

/// Parses `name{key="value",…} value [time]`.
fn parse_sample(line: &str, is_openmetrics: bool) -> Result<ExpositionSample, &'static str> {
    let (name, rest) = take_name(line, ':')?;
    let rest = rest.trim_start_matches(BLANKS);
    let (labels, mut rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Vec::new(), rest),
    };
    if is_openmetrics {
        rest = rest.split('#').next().unwrap_or(rest);
    }
    let mut words = rest.split(BLANKS).filter(|word| !word.is_empty());
    let value = parse_number(words.next().ok_or("a value")?)?;
    let time = match words.next() {
        Some(word) if is_openmetrics => Some(parse_seconds(word)?),
        Some(word) => Some(word.parse().map_err(|_| "a time in whole milliseconds")?),
        None => None,
    };
    if words.next().is_some() {
        return Err("the end of the line");
    }
    Ok(ExpositionSample {
        name: name.to_owned(),
        labels,
        value,
        time,
    })
}

/// Parses the labels after the opening brace, including the closing one. A trailing comma is
/// accepted.
fn parse_labels(text: &str) -> Result<(LabelPairs, &str), &'static str> {
    let mut labels = LabelPairs::new();
    let mut rest = text.trim_start_matches(BLANKS);
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        let (key, after) = take_name(rest, '_').map_err(|_| "a label key or '}'")?;
        if labels.iter().any(|(known, _)| known == key) {
            return Err("each label key only once");
        }
        let after = after.trim_start_matches(BLANKS).strip_prefix('=');
        let after = after.ok_or("'=' after a label key")?;
        let (value, after) = take_quoted(after.trim_start_matches(BLANKS))?;
        labels.push((key.to_owned(), value));
        let after = after.trim_start_matches(BLANKS);
        rest = match after.strip_prefix(',') {
            Some(after) => after.trim_start_matches(BLANKS),
            None if after.starts_with('}') => after,
            None => return Err("',' or '}' after a label value"),
        };
    }
}

/// Splits off a metric name or a label key; `also` is accepted in addition to letters, digits and
/// `_`.
fn take_name(text: &str, also: char) -> Result<(&str, &str), &'static str> {
    let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == also);
    let (name, rest) = text.split_at(text.find(is_other).unwrap_or(text.len()));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("a metric name");
    }
    Ok((name, rest))
}

/// Splits off a value in double quotes with the escapes `\\`, `\"` and `\n`.
fn take_quoted(text: &str) -> Result<(String, &str), &'static str> {
    let text = text
        .strip_prefix('"')
        .ok_or("a label value in double quotes")?;
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next().ok_or("a closing quote")? {
            '"' => return Ok((value, chars.as_str())),
            '\\' => match chars.next() {
                Some('n') => value.push('\n'),
                Some(c @ ('\\' | '"')) => value.push(c),
                _ => return Err("one of the escapes \\\\, \\\" and \\n"),
            },
            c => value.push(c),
        }
    }
}

fn parse_number(word: &str) -> Result<f64, &'static str> {
    let value: f64 = word.parse().map_err(|_| "a value")?;
    // `1e400` would silently become infinite.
    if value.is_infinite() && word.contains(|c: char| c.is_ascii_digit()) {
        return Err("a number that fits a double");
    }
    Ok(value)
}

fn parse_seconds(word: &str) -> Result<Millis, &'static str> {
    let millis = parse_number(word)? * 1000.0;
    // Beyond 2^53 a double no longer holds every millisecond.
    if millis.is_nan() || millis.abs() > 9_007_199_254_740_992.0 {
        return Err("a time in seconds");
    }
    Ok(millis.round() as Millis)
}

/// Unescapes help text. Unknown escapes are kept: help is only for display.
fn unescape_help(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = match (c, chars.peek()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('\\')) => Some('\\'),
            ('\\', Some('"')) if quotes => Some('"'),
            _ => None,
        };
        if escaped.is_some() {
            chars.next();
        }
        out.push(escaped.unwrap_or(c));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines_are_refused() {
        for (text, expected) in [
            ("a", "a value"),
            ("a x", "a value"),
            ("a 1e400", "a number that fits a double"),
            ("a 0x10", "a value"),
            ("a 1 x", "a time in whole milliseconds"),
            ("a 1 1.5", "a time in whole milliseconds"),
            ("a 1 2 3", "the end of the line"),
            ("{b=\"1\"} 1", "a metric name"),
            ("1a 1", "a metric name"),
            ("ä 1", "a metric name"),
            ("a.b 1", "a value"),
            ("a{=\"1\"} 1", "a label key or '}'"),
            ("a{b:c=\"1\"} 1", "'=' after a label key"),
            ("a{b} 1", "'=' after a label key"),
            ("a{b=1} 1", "a label value in double quotes"),
            ("a{b=\"1} 1", "a closing quote"),
            ("a{b=\"ü\\x\"} 1", "one of the escapes \\\\, \\\" and \\n"),
            ("a{b=\"1\"c=\"2\"} 1", "',' or '}' after a label value"),
            ("a{b=\"1\",b=\"2\"} 1", "each label key only once"),
            ("a{b=\"1\",,} 1", "a label key or '}'"),
            ("a{b=\"1\"", "',' or '}' after a label value"),
            ("a{b=\"1\0\"} 1", "no NUL"),
            ("# TYPE", "a metric name"),
            ("# TYPE a-b gauge", "a blank after the metric name"),
            ("# TYPE a meter", "a metric type"),
            ("# HELP a b\n# HELP a b", "only one such line for a metric"),
        ] {
            let number = text.lines().count();
            let last = text.lines().last().unwrap_or_default();
            assert_eq!(
                Exposition::parse_prometheus(text),
                Err(format!("line {number}: expected {expected}: {last:?}"))
            );
        }
    }

    #[test]
    fn openmetrics_must_end() {
        for text in [
            "",
            "a 1\n",
            "# EOF\na 1\n",
            "# EOF\n\n",
            "# EOF\n# EOF\n",
            "a 1 NaN\n# EOF\n",
            "a 1 1e300\n# EOF\n",
        ] {
            assert!(Exposition::parse_openmetrics(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn reads_the_output_of_other_exporters() {
        let text = "# a comment\n\n#HELP spaced  out \n\tx { a = \"1\" , b=\"2\", }  1.5e3\t1700000000000\r\nb -Inf\n# EOF\n";
        let parsed = Exposition::parse_prometheus(text).expect("valid");
        let sample = ExpositionSample {
            name: "x".into(),
            labels: vec![("a".into(), "1".into()), ("b".into(), "2".into())],
            value: 1500.0,
            time: Some(1_700_000_000_000),
        };
        assert_eq!(parsed.samples[0], sample);
        assert_eq!(parsed.samples[1].value, f64::NEG_INFINITY);
        assert_eq!(parsed.families["spaced"].help.as_deref(), Some("out "));
        let text = "# UNIT a_seconds seconds\na_total 1 1700000000.25 # {id=\"x\"} 1 1.5\nb 2 # {} 1\n# EOF";
        let parsed = Exposition::parse_openmetrics(text).expect("valid");
        assert_eq!(parsed.samples[0].time, Some(1_700_000_000_250));
        assert_eq!(parsed.samples[1].time, None);
        assert_eq!(
            parsed.families["a_seconds"].unit.as_deref(),
            Some("seconds")
        );
    }
}
