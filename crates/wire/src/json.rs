//! A JSON parser for points: one pass, and only strings with escapes are copied.
//!
//! Numbers outside the range of f64, the words `NaN` and `Infinity` that some writers use, and
//! strings that are not UTF-8 are left to the caller: they invalidate one point of a batch, not the
//! thousand beside it. A syntax error ends parsing and is reported with its position.

use std::borrow::Cow;

/// The deepest nesting accepted; no supported request needs more.
const DEPTH_MAX: usize = 32;

/// A syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: byte {at}: expected {expected}")]
pub struct JsonSyntaxError {
    pub at: usize,
    pub expected: &'static str,
}

/// A string; `None` if it is not UTF-8 or has an unpaired surrogate.
pub(crate) type JsonText<'a> = Option<Cow<'a, str>>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum JsonValue<'a> {
    Null,
    Bool(bool),
    /// The text of the number, not parsed yet.
    Number(&'a str),
    Text(JsonText<'a>),
    /// Skipped.
    List,
    /// Skipped.
    Map,
}

#[derive(Debug)]
pub(crate) struct JsonReader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> JsonReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> JsonReader<'a> {
        // Some writers begin with a byte order mark.
        let at = if bytes.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            0
        };
        JsonReader {
            bytes,
            at,
            depth: 0,
        }
    }

    /// Returns the first byte of the next token.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Returns the position of the next token.
    pub(crate) fn at(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// Returns the end of the last value.
    pub(crate) fn end_of_last(&self) -> usize {
        self.at
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, JsonSyntaxError> {
        Err(JsonSyntaxError {
            at: self.at,
            expected,
        })
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    pub(crate) fn end(&mut self) -> Result<(), JsonSyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.expected("the end"),
        }
    }

    /// Walks a list; `each` reads one value.
    pub(crate) fn list(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), JsonSyntaxError>,
    ) -> Result<(), JsonSyntaxError> {
        if !self.take(b'[') {
            return self.expected("a list");
        }
        self.descend()?;
        let mut is_done = self.take(b']');
        while !is_done {
            each(self)?;
            is_done = self.ends_or_continues(b']', "a comma or ]")?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Walks an object; `each` reads the value of the key it receives.
    pub(crate) fn map(
        &mut self,
        mut each: impl FnMut(&mut Self, JsonText<'a>) -> Result<(), JsonSyntaxError>,
    ) -> Result<(), JsonSyntaxError> {
        if !self.take(b'{') {
            return self.expected("an object");
        }
        self.descend()?;
        let mut is_done = self.take(b'}');
        while !is_done {
            if self.peek() != Some(b'"') {
                return self.expected("a key in quotes");
            }
            let key = self.string()?;
            if !self.take(b':') {
                return self.expected("a colon");
            }
            each(self, key)?;
            is_done = self.ends_or_continues(b'}', "a comma or }")?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn descend(&mut self) -> Result<(), JsonSyntaxError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.expected("fewer nested lists and objects")
        } else {
            Ok(())
        }
    }

    /// Reads a comma or the end; returns whether it was the end.
    fn ends_or_continues(
        &mut self,
        end: u8,
        expected: &'static str,
    ) -> Result<bool, JsonSyntaxError> {
        if self.take(b',') {
            return Ok(false);
        }
        if self.take(end) {
            Ok(true)
        } else {
            self.expected(expected)
        }
    }

    pub(crate) fn value(&mut self) -> Result<JsonValue<'a>, JsonSyntaxError> {
        match self.peek() {
            Some(b'"') => Ok(JsonValue::Text(self.string()?)),
            Some(b'[') => {
                self.list(|inner| inner.value().map(drop))?;
                Ok(JsonValue::List)
            }
            Some(b'{') => {
                self.map(|inner, _| inner.value().map(drop))?;
                Ok(JsonValue::Map)
            }
            _ => self.word(),
        }
    }

    /// Reads a number, valid or not, or one of the literals.
    fn word(&mut self) -> Result<JsonValue<'a>, JsonSyntaxError> {
        let rest = &self.bytes[self.at..];
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.' | b'_');
        let end = rest.iter().position(|b| !is_part(b)).unwrap_or(rest.len());
        // The bytes are ASCII.
        let word = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        let value = match word {
            "null" => JsonValue::Null,
            "true" => JsonValue::Bool(true),
            "false" => JsonValue::Bool(false),
            "NaN" | "Infinity" => JsonValue::Number(word),
            _ if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                JsonValue::Number(word)
            }
            _ => return self.expected("a value"),
        };
        self.at += end;
        Ok(value)
    }

    fn string(&mut self) -> Result<JsonText<'a>, JsonSyntaxError> {
        let start = self.at + 1;
        let rest = &self.bytes[start..];
        let Some(end) = memchr::memchr2(b'"', b'\\', rest) else {
            self.at = self.bytes.len();
            return self.expected("the closing quote");
        };
        if rest[end] == b'"' {
            self.at = start + end + 1;
            return Ok(std::str::from_utf8(&rest[..end]).ok().map(Cow::Borrowed));
        }
        self.at = start;
        self.escaped()
    }

    /// Reads a string with escapes, after its opening quote.
    fn escaped(&mut self) -> Result<JsonText<'a>, JsonSyntaxError> {
        let mut bytes = Vec::new();
        let mut is_text = true;
        loop {
            let rest = &self.bytes[self.at..];
            let Some(end) = memchr::memchr2(b'"', b'\\', rest) else {
                self.at = self.bytes.len();
                return self.expected("the closing quote");
            };
            bytes.extend_from_slice(&rest[..end]);
            self.at += end + 1;
            if rest[end] == b'"' {
                let text = String::from_utf8(bytes).ok().filter(|_| is_text);
                return Ok(text.map(Cow::Owned));
            }
            match self.escape()? {
                Some(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                None => is_text = false,
            }
        }
    }

    /// Reads the escape after a backslash; `None` for an unpaired surrogate.
    fn escape(&mut self) -> Result<Option<char>, JsonSyntaxError> {
        let Some(&letter) = self.bytes.get(self.at) else {
            return self.expected("an escape");
        };
        self.at += 1;
        Ok(Some(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => {
                self.at -= 1;
                return self.expected("an escape");
            }
        }))
    }

    fn unicode(&mut self) -> Result<Option<char>, JsonSyntaxError> {
        let high = self.hex_code()?;
        if !(0xd800..0xdc00).contains(&high) {
            return Ok(char::from_u32(high));
        }
        if !self.bytes[self.at..].starts_with(b"\\u") {
            return Ok(None);
        }
        self.at += 2;
        let low = self.hex_code()?;
        if !(0xdc00..0xe000).contains(&low) {
            return Ok(None);
        }
        Ok(char::from_u32(
            0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00),
        ))
    }

    fn hex_code(&mut self) -> Result<u32, JsonSyntaxError> {
        let digits = self.bytes.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match text.and_then(|text| u32::from_str_radix(text, 16).ok()) {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => self.expected("four hexadecimal digits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &[u8]) -> Result<JsonValue<'_>, JsonSyntaxError> {
        let mut reader = JsonReader::new(text);
        let value = reader.value()?;
        reader.end()?;
        Ok(value)
    }

    fn text(text: &str) -> JsonValue<'_> {
        JsonValue::Text(Some(Cow::Borrowed(text)))
    }

    #[test]
    fn values_are_what_they_look_like() {
        for (json, value) in [
            ("null", JsonValue::Null),
            (" true\n", JsonValue::Bool(true)),
            ("-1.5e3", JsonValue::Number("-1.5e3")),
            ("1e400", JsonValue::Number("1e400")),
            ("NaN", JsonValue::Number("NaN")),
            ("-Infinity", JsonValue::Number("-Infinity")),
            (r#""a/b""#, text("a/b")),
            (r#""\"\\\/\b\f\n\r\tA""#, text("\"\\/\u{8}\u{c}\n\r\tA")),
            (r#""\u00e4\ud83d\ude00""#, text("ä😀")),
            (r#"[1,[2,{"a":[]}],"x"]"#, JsonValue::List),
            (r#"{"a":{"b":[null]}}"#, JsonValue::Map),
        ] {
            assert_eq!(one(json.as_bytes()), Ok(value), "{json}");
        }
        assert_eq!(one(b"\xef\xbb\xbf1"), Ok(JsonValue::Number("1")));
    }

    #[test]
    fn what_is_no_text_is_known_as_such() {
        for json in [
            &b"\"\xff\""[..],
            br#""\ud83d""#,
            br#""\ud83dx""#,
            br#""\udc00""#,
            b"\"\\n\xff\"",
        ] {
            assert_eq!(one(json), Ok(JsonValue::Text(None)), "{json:?}");
        }
    }

    #[test]
    fn broken_structure_is_named_with_its_place() {
        for (json, at, expected) in [
            ("", 0, "a value"),
            ("[1,]", 3, "a value"),
            ("[1 2]", 3, "a comma or ]"),
            ("{a:1}", 1, "a key in quotes"),
            (r#"{"a" 1}"#, 5, "a colon"),
            (r#"{"a":1"#, 6, "a comma or }"),
            (r#""abc"#, 4, "the closing quote"),
            (r#""a\x""#, 3, "an escape"),
            (r#""\u12g4""#, 3, "four hexadecimal digits"),
            ("1 1", 2, "the end"),
            ("nul", 0, "a value"),
        ] {
            assert_eq!(
                one(json.as_bytes()),
                Err(JsonSyntaxError { at, expected }),
                "{json}"
            );
        }
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(one(nested(DEPTH_MAX).as_bytes()), Ok(JsonValue::List));
        assert!(one(nested(DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(one("[".repeat(1_000_000).as_bytes()).is_err());
    }
}
