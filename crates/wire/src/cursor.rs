//! The cursor over a line, and the tokens that both text formats share: names, numbers, times and quoted values.

use pegel_metric::Millis;

use crate::exposition::ExpositionParseError;
use crate::exposition_parser::ExpositionDialect;

/// An error in a line, and its byte position.
pub(crate) struct LineParseError<'a> {
    pub line: &'a str,
    pub at: usize,
    pub expected: &'static str,
}

impl<'a> LineParseError<'a> {
    pub fn new(line: &'a str, at: usize, expected: &'static str) -> LineParseError<'a> {
        LineParseError { line, at, expected }
    }

    pub fn with_line_number(self, number: usize) -> ExpositionParseError {
        let found = match self.line[self.at..].chars().next() {
            Some(c) => format!("{c:?}"),
            None => "the end of the line".to_owned(),
        };
        let column = self.line[..self.at].chars().count() + 1;
        ExpositionParseError {
            line: number,
            column,
            expected: self.expected,
            found,
        }
    }
}

/// A position in a line.
pub(crate) struct Cursor<'a> {
    pub line: &'a str,
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    pub fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub fn error_at(&self, expected: &'static str) -> LineParseError<'a> {
        LineParseError::new(self.line, self.at, expected)
    }

    pub fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    pub fn skip_blanks(&mut self) {
        self.at = self.line.len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    /// Reads up to the next blank.
    pub fn next_word(&mut self) -> &'a str {
        let rest = self.rest();
        let word = &rest[..rest.find([' ', '\t']).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// Reads a metric name or a label key; `also` is accepted in addition to letters, digits and `_`.
    pub fn name(&mut self, also: char) -> Result<&'a str, LineParseError<'a>> {
        let rest = self.rest();
        let accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == also;
        let name = &rest[..rest.find(|c| !accepted(c)).unwrap_or(rest.len())];
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.error_at("a metric name"));
        }
        self.at += name.len();
        Ok(name)
    }

    pub fn number(&mut self, expected: &'static str) -> Result<f64, LineParseError<'a>> {
        let at = self.at;
        let word = self.next_word();
        let fault = |expected| LineParseError::new(self.line, at, expected);
        let value: f64 = word.parse().map_err(|_| fault(expected))?;
        // `1e400` would silently become infinite.
        if value.is_infinite() && word.contains(|c: char| c.is_ascii_digit()) {
            return Err(fault("a number that fits a double"));
        }
        Ok(value)
    }

    pub fn time(&mut self, dialect: ExpositionDialect) -> Result<Millis, LineParseError<'a>> {
        let at = self.at;
        let fault = |line, expected| LineParseError::new(line, at, expected);
        match dialect {
            ExpositionDialect::Text => {
                let parsed = self.next_word().parse();
                parsed.map_err(|_| fault(self.line, "a time in whole milliseconds"))
            }
            ExpositionDialect::OpenMetrics => {
                let millis = self.number("a time in seconds")? * 1000.0;
                // Beyond 2^53 a double no longer holds every millisecond.
                if millis.is_nan() || millis.abs() > 9_007_199_254_740_992.0 {
                    return Err(fault(self.line, "a time in seconds"));
                }
                Ok(millis.round() as Millis)
            }
        }
    }

    /// Reads a value in double quotes with the escapes `\\`, `\"` and `\n`.
    pub fn quoted(&mut self) -> Result<String, LineParseError<'a>> {
        if !self.take('"') {
            return Err(self.error_at("a label value in double quotes"));
        }
        let mut value = String::new();
        let start = self.at;
        let mut chars = self.rest().char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + at + 1;
                    return Ok(value);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => value.push(c),
                    _ => {
                        let expected = "one of the escapes \\\\, \\\" and \\n";
                        return Err(LineParseError::new(self.line, start + at, expected));
                    }
                },
                c => value.push(c),
            }
        }
        Err(LineParseError::new(
            self.line,
            self.line.len(),
            "a closing quote",
        ))
    }
}
