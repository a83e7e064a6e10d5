//! The effective configuration, with secrets redacted. It is rendered from the parsed values, so
//! comments in the file are never shown.

use std::path::{Path, PathBuf};

use pegel_config::ConfigValue;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use pegel_machine::redact;

/// The effective configuration of the agent.
#[derive(Debug, Clone, serde::Serialize)]
pub struct RedactedConfig {
    /// The configuration file, if one was read.
    pub file: Option<PathBuf>,
    pub values: RedactedValue,
}

/// A value without secrets; keys have the order of the default file.
#[derive(Debug, Clone)]
pub struct RedactedValue(ConfigValue);

impl RedactedConfig {
    pub fn new(file: Option<&Path>, values: &ConfigValue) -> RedactedConfig {
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
        self.0.visit_leaves(&mut |path, value| {
            if !matches!(value, ConfigValue::Null | ConfigValue::Map(_)) {
                lines.push((path.to_owned(), value.to_inline()));
            }
        });
        lines
    }
}

fn without_secrets(key: &str, value: &ConfigValue) -> ConfigValue {
    match value {
        ConfigValue::Null => ConfigValue::Null,
        ConfigValue::Scalar(_) if redact::is_secret_name(key) => {
            ConfigValue::Scalar(redact::placeholder())
        }
        ConfigValue::Scalar(text) => {
            ConfigValue::Scalar(if text.contains("//") || text.contains('@') {
                redact::redact_address(text)
            } else if redact::looks_like_secret(text) {
                redact::placeholder()
            } else {
                text.clone()
            })
        }
        ConfigValue::List(items) => ConfigValue::List(
            items
                .iter()
                .map(|item| without_secrets(key, &item.value).into())
                .collect(),
        ),
        ConfigValue::Map(entries) => ConfigValue::map(entries.iter().map(|entry| {
            let value = without_secrets(&entry.key, &entry.value.value);
            (entry.key.clone(), value)
        })),
    }
}

impl Serialize for RedactedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            ConfigValue::Null => serializer.serialize_none(),
            ConfigValue::Scalar(text) => serializer.serialize_str(text),
            ConfigValue::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&RedactedValue(item.value.clone()))?;
                }
                list.end()
            }
            ConfigValue::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for entry in entries {
                    let value = RedactedValue(entry.value.value.clone());
                    map.serialize_entry(&entry.key, &value)?;
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
        let scalar = |text: &str| ConfigValue::Scalar(text.to_owned());
        let map = |pairs: &[(&str, ConfigValue)]| {
            ConfigValue::map(pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())))
        };
        let list = |texts: &[&str]| {
            ConfigValue::List(texts.iter().map(|text| scalar(text).into()).collect())
        };
        let values = map(&[
            ("node", scalar("n1")),
            ("auth_key", scalar("PLANTED")),
            ("token_file", scalar("/etc/token")),
            (
                "session",
                map(&[("to", scalar("https://a.example/c?sig=PLANTED"))]),
            ),
            ("passwords", list(&["PLANTED"])),
            ("parents", list(&["u:PLANTED@h:1", "x;AccountKey=PLANTED"])),
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
