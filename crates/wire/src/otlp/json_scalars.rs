//! Parses values in OTLP's JSON: parts of a body with their positions, and the scalars of
//! protobuf's JSON mapping. 64-bit numbers may be strings, `null` is an absent field, and NaN and
//! infinities are strings.

use std::borrow::Cow;

use super::OtlpError;
use crate::json::{JsonReader, JsonSyntaxError, JsonValue};

/// One value of a body, not parsed yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct JsonSpan<'a> {
    bytes: &'a [u8],
    /// Its position in the body.
    at: usize,
}

impl<'a> JsonSpan<'a> {
    /// Returns a whole body after checking its syntax.
    pub(super) fn of_body(body: &'a [u8]) -> Result<JsonSpan<'a>, JsonSyntaxError> {
        let mut reader = JsonReader::new(body);
        let at = reader.at();
        reader.value()?;
        let end = reader.end_of_last();
        reader.end()?;
        Ok(JsonSpan {
            bytes: &body[at..end],
            at,
        })
    }

    /// Reads the next value of a reader over this span as a span.
    fn next(&self, reader: &mut JsonReader<'a>) -> Result<JsonSpan<'a>, JsonSyntaxError> {
        let start = reader.at();
        reader.value()?;
        Ok(JsonSpan {
            bytes: &self.bytes[start..reader.end_of_last()],
            at: self.at + start,
        })
    }

    pub(super) fn is_null(&self) -> bool {
        self.bytes == b"null"
    }

    pub(super) fn error(&self, field: &'static str, expected: &'static str) -> OtlpError {
        OtlpError::JsonValue {
            at: self.at,
            field,
            expected,
        }
    }

    /// Calls `each` for the fields of an object that are not `null`. Keys that are not UTF-8 are
    /// unknown fields.
    pub(super) fn fields(
        &self,
        what: &'static str,
        mut each: impl FnMut(&str, JsonSpan<'a>) -> Result<(), OtlpError>,
    ) -> Result<(), OtlpError> {
        if self.is_null() {
            return Ok(());
        }
        if self.bytes.first() != Some(&b'{') {
            return Err(self.error(what, "an object"));
        }
        let mut failure = Ok(());
        JsonReader::new(self.bytes).map(|reader, key| {
            let value = self.next(reader)?;
            let key = key.as_deref().unwrap_or_default();
            if failure.is_ok() && !value.is_null() {
                failure = each(key, value);
            }
            Ok(())
        })?;
        failure
    }

    /// Calls `each` for the items of a list.
    pub(super) fn items(
        &self,
        what: &'static str,
        mut each: impl FnMut(JsonSpan<'a>) -> Result<(), OtlpError>,
    ) -> Result<(), OtlpError> {
        if self.is_null() {
            return Ok(());
        }
        if self.bytes.first() != Some(&b'[') {
            return Err(self.error(what, "a list"));
        }
        let mut failure = Ok(());
        JsonReader::new(self.bytes).list(|reader| {
            let value = self.next(reader)?;
            if failure.is_ok() {
                failure = each(value);
            }
            Ok(())
        })?;
        failure
    }

    fn value(&self) -> Result<JsonValue<'a>, OtlpError> {
        Ok(JsonReader::new(self.bytes).value()?)
    }

    pub(super) fn text(&self, field: &'static str) -> Result<Cow<'a, str>, OtlpError> {
        match self.value()? {
            JsonValue::Text(text) => text.ok_or(OtlpError::Utf8),
            _ => Err(self.error(field, "a string")),
        }
    }

    pub(super) fn bool(&self, field: &'static str) -> Result<bool, OtlpError> {
        match self.value()? {
            JsonValue::Bool(value) => Ok(value),
            _ => Err(self.error(field, "true or false")),
        }
    }

    /// Returns the text of a number, which may be quoted.
    fn digits(&self, field: &'static str) -> Result<Cow<'a, str>, OtlpError> {
        match self.value()? {
            JsonValue::Number(digits) => Ok(Cow::Borrowed(digits)),
            JsonValue::Text(Some(digits)) => Ok(digits),
            _ => Err(self.error(field, "a number")),
        }
    }

    pub(super) fn double(&self, field: &'static str) -> Result<f64, OtlpError> {
        let digits = self.digits(field)?;
        match &*digits {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            digits => {
                let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let value = digits.parse().ok().filter(|value: &f64| value.is_finite());
                let value = value.filter(|_| is_number);
                value.ok_or_else(|| self.error(field, "a number"))
            }
        }
    }

    pub(super) fn int64(&self, field: &'static str) -> Result<i64, OtlpError> {
        self.whole(field, i64::MIN as f64, i64::MAX as f64)
    }

    pub(super) fn uint64(&self, field: &'static str) -> Result<u64, OtlpError> {
        self.whole(field, 0.0, u64::MAX as f64)
    }

    pub(super) fn int32(&self, field: &'static str) -> Result<i32, OtlpError> {
        let number = self.int64(field)?;
        i32::try_from(number).map_err(|_| self.error(field, "a whole number of 32 bits"))
    }

    /// Reads a whole number. Writers may use an exponent or a fraction of zeros.
    fn whole<T>(&self, field: &'static str, min: f64, max: f64) -> Result<T, OtlpError>
    where
        T: std::str::FromStr + FromDouble,
    {
        let digits = self.digits(field)?;
        if let Ok(number) = digits.parse() {
            return Ok(number);
        }
        let number: Option<f64> = digits.parse().ok();
        let number = number.filter(|n| n.fract() == 0.0 && (min..max).contains(n));
        let number = number.ok_or_else(|| self.error(field, "a whole number of 64 bits"))?;
        Ok(T::from_double(number))
    }
}

/// Conversion of a whole number that is in range.
trait FromDouble {
    fn from_double(number: f64) -> Self;
}

impl FromDouble for i64 {
    fn from_double(number: f64) -> i64 {
        number as i64
    }
}

impl FromDouble for u64 {
    fn from_double(number: f64) -> u64 {
        number as u64
    }
}
