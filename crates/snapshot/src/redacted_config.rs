//! The effective configuration, with secrets redacted. It is rendered from the parsed values, so comments in the file
//! are never shown.

use std::path::{Path, PathBuf};

use pegel_config::YamlValue;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::redact;

/// The effective configuration of the agent.
#[derive(Debug, Clone, serde::Serialize)]
pub struct RedactedConfig {
    /// The configuration file, if one was read.
    pub file: Option<PathBuf>,
    pub values: RedactedValue,
}

/// A value without secrets; keys have the order of the default file.
#[derive(Debug, Clone)]
pub struct RedactedValue(YamlValue);

impl RedactedConfig {
    pub fn new(file: Option<&Path>, values: &YamlValue) -> RedactedConfig {
        RedactedConfig {
            file: file.map(Path::to_owned),
            values: RedactedValue(without_secrets("", values)),
        }
    }
}

impl RedactedValue {
    /// Returns one pair per key, with sections joined by dots: `keep.memory`, `5m`.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        flatten("", &self.0, &mut lines);
        lines
    }
}

fn flatten(path: &str, value: &YamlValue, lines: &mut Vec<(String, String)>) {
    match value {
        YamlValue::Map(entries) => {
            for (key, value) in entries {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{key}"), value, lines);
            }
        }
        YamlValue::Null => {}
        value => lines.push((path.to_owned(), value.to_inline())),
    }
}

fn without_secrets(key: &str, value: &YamlValue) -> YamlValue {
    match value {
        YamlValue::Null => YamlValue::Null,
        YamlValue::Scalar(_) if redact::is_secret_name(key) => {
            YamlValue::Scalar(redact::placeholder())
        }
        YamlValue::Scalar(text) => {
            YamlValue::Scalar(if text.contains("//") || text.contains('@') {
                redact::redact_address(text)
            } else if redact::looks_like_secret(text) {
                redact::placeholder()
            } else {
                text.clone()
            })
        }
        YamlValue::List(items) => YamlValue::List(
            items
                .iter()
                .map(|item| without_secrets(key, item))
                .collect(),
        ),
        YamlValue::Map(entries) => {
            let pairs = entries.iter();
            YamlValue::Map(
                pairs
                    .map(|(key, value)| (key.clone(), without_secrets(key, value)))
                    .collect(),
            )
        }
    }
}

impl Serialize for RedactedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            YamlValue::Null => serializer.serialize_none(),
            YamlValue::Scalar(text) => serializer.serialize_str(text),
            YamlValue::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&RedactedValue(item.clone()))?;
                }
                list.end()
            }
            YamlValue::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &RedactedValue(value.clone()))?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_at_every_level() {
        let scalar = |text: &str| YamlValue::Scalar(text.to_owned());
        let map = |pairs: &[(&str, YamlValue)]| {
            YamlValue::Map(
                pairs
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), v.clone()))
                    .collect(),
            )
        };
        let values = map(&[
            ("node", scalar("n1")),
            ("auth_key", scalar("PLANTED")),
            ("token_file", scalar("/etc/token")),
            (
                "session",
                map(&[("to", scalar("https://a.example/c?sig=PLANTED"))]),
            ),
            ("passwords", YamlValue::List(vec![scalar("PLANTED")])),
            (
                "parents",
                YamlValue::List(vec![
                    scalar("u:PLANTED@h:1"),
                    scalar("x;AccountKey=PLANTED"),
                ]),
            ),
        ]);
        let shown = RedactedConfig::new(None, &values);
        let text = serde_json::to_string(&shown).expect("JSON");
        assert!(!text.contains("PLANTED"), "{text}");
        assert_eq!(
            text,
            "{\"file\":null,\"values\":{\"node\":\"n1\",\"auth_key\":\"[hidden]\",\"token_file\":\"/etc/token\",\
             \"session\":{\"to\":\"https://a.example/c\"},\"passwords\":[\"[hidden]\"],\
             \"parents\":[\"h:1\",\"[hidden]\"]}}"
        );
        let lines = shown.values.lines();
        assert_eq!(
            lines[3],
            (
                "session.to".to_owned(),
                "\"https://a.example/c\"".to_owned()
            )
        );
    }
}
