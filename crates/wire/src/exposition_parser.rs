//! The line parser of both text formats. The first malformed line fails the whole exposition, with its line and column.

use std::collections::HashMap;

use pegel_metric::LABELS_MAX;

use crate::cursor::{Cursor, LineParseError};
use crate::exposition::{
    Exposition, ExpositionParseError, ExpositionSample, FamilyMetadata, LINE_BYTES_MAX, MetricType,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionDialect {
    Text,
    OpenMetrics,
}

pub(crate) fn parse_lines(
    bytes: &[u8],
    dialect: ExpositionDialect,
) -> Result<Exposition, ExpositionParseError> {
    let mut reader = ExpositionParser {
        dialect,
        families: HashMap::new(),
        result: Exposition::default(),
    };
    let mut ended = false;
    let mut count = 0;
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    for (index, line) in body.split(|&byte| byte == b'\n').enumerate() {
        count = index + 1;
        let at_line = |fault: LineParseError<'_>| fault.with_line_number(count);
        let text = checked_line(line).map_err(at_line)?;
        if ended {
            return Err(at_line(LineParseError::new(text, 0, "nothing after # EOF")));
        }
        if dialect == ExpositionDialect::OpenMetrics && text == "# EOF" {
            ended = true;
        } else {
            reader.line(text).map_err(at_line)?;
        }
    }
    if dialect == ExpositionDialect::OpenMetrics && !ended {
        return Err(LineParseError::new("", 0, "# EOF at the end").with_line_number(count + 1));
    }
    Ok(reader.result)
}

fn checked_line(line: &[u8]) -> Result<&str, LineParseError<'_>> {
    let valid = |bytes| match std::str::from_utf8(bytes) {
        Ok(text) => (text, true),
        Err(error) => {
            let good = &bytes[..error.valid_up_to()];
            (std::str::from_utf8(good).unwrap_or_default(), false)
        }
    };
    if line.len() > LINE_BYTES_MAX {
        let (text, _) = valid(&line[..LINE_BYTES_MAX]);
        return Err(LineParseError::new(
            text,
            text.len(),
            "a line of at most 65536 bytes",
        ));
    }
    let (text, whole) = valid(line);
    if !whole {
        return Err(LineParseError::new(text, text.len(), "UTF-8"));
    }
    if let Some(at) = text.find('\0') {
        return Err(LineParseError::new(text, at, "no NUL"));
    }
    Ok(text.strip_suffix('\r').unwrap_or(text))
}

struct ExpositionParser {
    dialect: ExpositionDialect,
    /// The index of a name's metadata in the result.
    families: HashMap<String, usize>,
    result: Exposition,
}

impl ExpositionParser {
    fn line<'a>(&mut self, line: &'a str) -> Result<(), LineParseError<'a>> {
        let mut cursor = Cursor { line, at: 0 };
        cursor.skip_blanks();
        match cursor.peek() {
            None => Ok(()),
            Some('#') => self.comment(cursor),
            Some(_) => {
                let sample = parse_sample(&mut cursor, self.dialect)?;
                self.result.samples.push(sample);
                Ok(())
            }
        }
    }

    /// Parses a comment: lines with a keyword are metadata, all others are skipped.
    fn comment<'a>(&mut self, mut cursor: Cursor<'a>) -> Result<(), LineParseError<'a>> {
        cursor.at += 1;
        cursor.skip_blanks();
        let keyword = cursor.next_word();
        match (keyword, self.dialect) {
            ("HELP" | "TYPE", _) | ("UNIT", ExpositionDialect::OpenMetrics) => {}
            _ => return Ok(()),
        }
        cursor.skip_blanks();
        let name_at = cursor.at;
        let name = cursor.name(':')?;
        if !matches!(cursor.peek(), None | Some(' ' | '\t')) {
            return Err(cursor.error_at("a blank after the metric name"));
        }
        cursor.skip_blanks();
        let said_twice =
            LineParseError::new(cursor.line, name_at, "only one such line for a metric");
        let quotes = self.dialect == ExpositionDialect::OpenMetrics;
        let family = self.family(name);
        let again = match keyword {
            "HELP" => family
                .help
                .replace(unescaped_help(cursor.rest(), quotes))
                .is_some(),
            "UNIT" => family
                .unit
                .replace(cursor.rest().trim_end().to_owned())
                .is_some(),
            _ => match MetricType::parse(cursor.rest().trim_end()) {
                Some(kind) => family.kind.replace(kind).is_some(),
                None => {
                    return Err(cursor.error_at("a metric type such as counter, gauge or unknown"));
                }
            },
        };
        if again { Err(said_twice) } else { Ok(()) }
    }

    fn family(&mut self, name: &str) -> &mut FamilyMetadata {
        let families = &mut self.result.families;
        let index = match self.families.get(name) {
            Some(&index) => index,
            None => {
                families.push(FamilyMetadata {
                    name: name.to_owned(),
                    ..FamilyMetadata::default()
                });
                self.families.insert(name.to_owned(), families.len() - 1);
                families.len() - 1
            }
        };
        &mut families[index]
    }
}

/// Parses `name{key="value",…} value [time]`.
fn parse_sample<'a>(
    cursor: &mut Cursor<'a>,
    dialect: ExpositionDialect,
) -> Result<ExpositionSample, LineParseError<'a>> {
    let name = cursor.name(':')?.to_owned();
    cursor.skip_blanks();
    let labels = if cursor.take('{') {
        parse_labels(cursor)?
    } else {
        Vec::new()
    };
    cursor.skip_blanks();
    let value = cursor.number("a value")?;
    cursor.skip_blanks();
    let exemplar = |cursor: &Cursor<'_>| {
        dialect == ExpositionDialect::OpenMetrics && cursor.peek() == Some('#')
    };
    let mut time = None;
    if cursor.peek().is_some() && !exemplar(cursor) {
        time = Some(cursor.time(dialect)?);
        cursor.skip_blanks();
    }
    if cursor.peek().is_some() && !exemplar(cursor) {
        return Err(cursor.error_at("the end of the line"));
    }
    Ok(ExpositionSample {
        name,
        labels,
        value,
        time,
    })
}

/// Parses the labels after the opening brace, including the closing one. A trailing comma is accepted.
fn parse_labels<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<(String, String)>, LineParseError<'a>> {
    let mut labels: Vec<(String, String)> = Vec::new();
    loop {
        cursor.skip_blanks();
        if cursor.take('}') {
            return Ok(labels);
        }
        let key_at = cursor.at;
        let key = cursor.name('_').map_err(|fault| LineParseError {
            expected: "a label key or '}'",
            ..fault
        })?;
        // No series may have more labels, and searching for duplicates would take too long.
        if labels.len() == LABELS_MAX {
            return Err(LineParseError::new(
                cursor.line,
                key_at,
                "at most 64 labels",
            ));
        }
        if labels.iter().any(|(known, _)| known == key) {
            return Err(LineParseError::new(
                cursor.line,
                key_at,
                "each label key only once",
            ));
        }
        cursor.skip_blanks();
        if !cursor.take('=') {
            return Err(cursor.error_at("'=' after a label key"));
        }
        cursor.skip_blanks();
        let value = cursor.quoted()?;
        labels.push((key.to_owned(), value));
        cursor.skip_blanks();
        if !cursor.take(',') && cursor.peek() != Some('}') {
            return Err(cursor.error_at("',' or '}' after a label value"));
        }
    }
}

/// Unescapes help text. Unknown escapes are kept: help is only for display.
fn unescaped_help(text: &str, quotes: bool) -> String {
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

    fn error(bytes: &[u8], dialect: ExpositionDialect) -> String {
        parse_lines(bytes, dialect)
            .expect_err("malformed")
            .to_string()
    }

    const MALFORMED: &[(&str, &str)] = &[
        (
            "a",
            "line 1, column 2: expected a value, found the end of the line",
        ),
        ("a x", "line 1, column 3: expected a value, found 'x'"),
        (
            "a 1e400",
            "line 1, column 3: expected a number that fits a double, found '1'",
        ),
        ("a 0x10", "line 1, column 3: expected a value, found '0'"),
        (
            "a 1 x",
            "line 1, column 5: expected a time in whole milliseconds, found 'x'",
        ),
        (
            "a 1 1.5",
            "line 1, column 5: expected a time in whole milliseconds, found '1'",
        ),
        (
            "a 1 2 3",
            "line 1, column 7: expected the end of the line, found '3'",
        ),
        (
            "a 1\n{b=\"1\"} 1",
            "line 2, column 1: expected a metric name, found '{'",
        ),
        (
            "1a 1",
            "line 1, column 1: expected a metric name, found '1'",
        ),
        ("ä 1", "line 1, column 1: expected a metric name, found 'ä'"),
        ("a.b 1", "line 1, column 2: expected a value, found '.'"),
        (
            "a{=\"1\"} 1",
            "line 1, column 3: expected a label key or '}', found '='",
        ),
        (
            "a{b:c=\"1\"} 1",
            "line 1, column 4: expected '=' after a label key, found ':'",
        ),
        (
            "a{b} 1",
            "line 1, column 4: expected '=' after a label key, found '}'",
        ),
        (
            "a{b=1} 1",
            "line 1, column 5: expected a label value in double quotes, found '1'",
        ),
        (
            "a{b=\"1} 1",
            "line 1, column 10: expected a closing quote, found the end of the line",
        ),
        (
            "a{b=\"ü\\x\"} 1",
            "line 1, column 7: expected one of the escapes \\\\, \\\" and \\n, found '\\\\'",
        ),
        (
            "a{b=\"1\"c=\"2\"} 1",
            "line 1, column 8: expected ',' or '}' after a label value, found 'c'",
        ),
        (
            "a{b=\"1\",b=\"2\"} 1",
            "line 1, column 9: expected each label key only once, found 'b'",
        ),
        (
            "a{b=\"1\",,} 1",
            "line 1, column 9: expected a label key or '}', found ','",
        ),
        (
            "a{b=\"1\"",
            "line 1, column 8: expected ',' or '}' after a label value, found the end of the line",
        ),
        (
            "a{b=\"1\0\"} 1",
            "line 1, column 7: expected no NUL, found '\\0'",
        ),
        (
            "# TYPE",
            "line 1, column 7: expected a metric name, found the end of the line",
        ),
        (
            "# TYPE a-b gauge",
            "line 1, column 9: expected a blank after the metric name, found '-'",
        ),
        (
            "# TYPE a meter",
            "line 1, column 10: expected a metric type such as counter, gauge or unknown, found 'm'",
        ),
        (
            "# TYPE a gauge\n# TYPE a gauge",
            "line 2, column 8: expected only one such line for a metric, found 'a'",
        ),
        (
            "# HELP a b\n# HELP a b",
            "line 2, column 8: expected only one such line for a metric, found 'a'",
        ),
    ];

    #[test]
    fn says_where_and_what_was_expected() {
        for (text, expected) in MALFORMED {
            assert_eq!(
                error(text.as_bytes(), ExpositionDialect::Text),
                *expected,
                "{text}"
            );
        }
    }

    #[test]
    fn openmetrics_must_end() {
        for (text, expected) in [
            (
                "",
                "line 2, column 1: expected # EOF at the end, found the end of the line",
            ),
            (
                "a 1\n",
                "line 2, column 1: expected # EOF at the end, found the end of the line",
            ),
            (
                "# EOF\na 1\n",
                "line 2, column 1: expected nothing after # EOF, found 'a'",
            ),
            (
                "# EOF\n\n",
                "line 2, column 1: expected nothing after # EOF, found the end of the line",
            ),
            (
                "a 1 NaN\n# EOF\n",
                "line 1, column 5: expected a time in seconds, found 'N'",
            ),
            (
                "a 1 1e300\n# EOF\n",
                "line 1, column 5: expected a time in seconds, found '1'",
            ),
        ] {
            assert_eq!(
                error(text.as_bytes(), ExpositionDialect::OpenMetrics),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let expected = "line 2, column 6: expected UTF-8, found the end of the line";
        assert_eq!(
            error(b"a 1\nb{c=\"\xff\"} 1", ExpositionDialect::Text),
            expected
        );
    }

    #[test]
    fn a_line_has_a_longest_length() {
        let line = |bytes: usize| format!("a{{b=\"{}\"}} 1", "x".repeat(bytes - 9));
        assert!(parse_lines(line(LINE_BYTES_MAX).as_bytes(), ExpositionDialect::Text).is_ok());
        let long = error(line(LINE_BYTES_MAX + 1).as_bytes(), ExpositionDialect::Text);
        assert!(
            long.starts_with("line 1, column 65537: expected a line of at most 65536 bytes"),
            "{long}"
        );
    }

    #[test]
    fn values_that_are_not_finite_are_read() {
        let text = "a NaN\nb +Inf\nc -Inf\nd inf\ne nan\n";
        let values: Vec<f64> = parse_lines(text.as_bytes(), ExpositionDialect::Text)
            .expect("valid")
            .samples
            .iter()
            .map(|sample| sample.value)
            .collect();
        assert!(values[0].is_nan() && values[4].is_nan());
        assert_eq!(
            values[1..4],
            [f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY]
        );
    }

    #[test]
    fn cut_anywhere_it_never_panics() {
        let text =
            "# HELP a b\\n\n# TYPE a gauge\na{b=\"ü\\\\\",c=\"\"} 1.5e3 17\n# EOF\n".as_bytes();
        for end in 0..text.len() {
            let _ = parse_lines(&text[..end], ExpositionDialect::Text);
            assert!(
                parse_lines(&text[..end], ExpositionDialect::OpenMetrics).is_err()
                    || end >= text.len() - 1
            );
        }
    }

    #[test]
    fn labels_are_bounded() {
        let line = |count: usize| {
            let labels: Vec<String> = (0..count).map(|n| format!("k{n}=\"\"")).collect();
            format!("a{{{}}} 1", labels.join(","))
        };
        assert!(parse_lines(line(LABELS_MAX).as_bytes(), ExpositionDialect::Text).is_ok());
        let error = error(line(LABELS_MAX + 1).as_bytes(), ExpositionDialect::Text);
        assert!(
            error.contains("expected at most 64 labels, found 'k'"),
            "{error}"
        );
    }
}
