//! Values that clients write with or without quotes: `true` or `"true"`, `5` or `"5"`.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// A boolean, possibly in quotes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LenientBool(pub bool);

/// A number or a string, as a string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LenientString(pub String);

/// Returns the text of an optional field.
pub(crate) fn text_of(field: &Option<LenientString>) -> Option<&str> {
    field.as_ref().map(|text| text.0.as_str())
}

/// A whole number, possibly in quotes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LenientInt(pub i64);

impl<'de> Deserialize<'de> for LenientString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LenientString, D::Error> {
        deserializer
            .deserialize_any(LenientVisitor)
            .map(LenientString)
    }
}

impl<'de> Deserialize<'de> for LenientBool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LenientBool, D::Error> {
        let text = deserializer.deserialize_any(LenientVisitor)?;
        match text.trim() {
            "true" | "1" => Ok(LenientBool(true)),
            "false" | "0" | "" => Ok(LenientBool(false)),
            other => Err(D::Error::invalid_value(
                Unexpected::Str(other),
                &"true or false",
            )),
        }
    }
}

impl<'de> Deserialize<'de> for LenientInt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LenientInt, D::Error> {
        let text = deserializer.deserialize_any(LenientVisitor)?;
        let text = text.trim();
        let float = || text.parse::<f64>().ok().filter(|number| number.is_finite());
        match text.parse::<i64>() {
            Ok(number) => Ok(LenientInt(number)),
            // 1e9, 65535.0, or out of range: saturates.
            Err(_) => match float() {
                Some(number) => Ok(LenientInt(number as i64)),
                None => Err(D::Error::invalid_value(
                    Unexpected::Str(text),
                    &"a whole number",
                )),
            },
        }
    }
}

struct LenientVisitor;

impl Visitor<'_> for LenientVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a boolean")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bool<E>(self, flag: bool) -> Result<String, E> {
        Ok(flag.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_do_not_matter() {
        let flags: Vec<LenientBool> =
            serde_json::from_str(r#"[true,"true",false,"false",1,0]"#).expect("valid");
        let flags: Vec<bool> = flags.iter().map(|flag| flag.0).collect();
        assert_eq!(flags, [true, true, false, false, true, false]);
        let numbers: Vec<LenientInt> =
            serde_json::from_str(r#"[5,"5",-1,65535.0,18446744073709551615]"#).expect("valid");
        let numbers: Vec<i64> = numbers.iter().map(|number| number.0).collect();
        assert_eq!(numbers, [5, 5, -1, 65_535, i64::MAX]);
        let texts: Vec<LenientString> =
            serde_json::from_str(r#"["a",1700000000000,1700000000.5,true]"#).expect("valid");
        let texts: Vec<&str> = texts.iter().map(|text| text.0.as_str()).collect();
        assert_eq!(texts, ["a", "1700000000000", "1700000000.5", "true"]);
    }

    #[test]
    fn other_things_are_refused() {
        assert!(serde_json::from_str::<LenientBool>("\"yes\"").is_err());
        assert!(serde_json::from_str::<LenientInt>("\"many\"").is_err());
        assert!(serde_json::from_str::<LenientInt>("\"inf\"").is_err());
        assert!(serde_json::from_str::<LenientString>("[1]").is_err());
        assert!(serde_json::from_str::<LenientString>("null").is_err());
    }
}
