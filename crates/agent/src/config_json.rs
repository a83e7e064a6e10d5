//! The configuration in force, key by key, for `GET /api/v1/config` and the page. Secrets are
//! redacted by their type, so they cannot appear here.

use pegel_config::{Setting, YamlValue};
use serde_json::{Value, json};

use crate::config_sources::LoadedConfig;

/// Returns `[{"key","value","place"}]`; the keys of a section are joined with dots.
pub(crate) fn config_as_json(loaded: &LoadedConfig) -> Value {
    let mut rows = Vec::new();
    if let YamlValue::Map(entries) = loaded.config.to_yaml() {
        for (key, value) in &entries {
            add_rows(loaded, key.clone(), value, &mut rows);
        }
    }
    Value::Array(rows)
}

fn add_rows(loaded: &LoadedConfig, path: String, value: &YamlValue, rows: &mut Vec<Value>) {
    match value {
        YamlValue::Map(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                add_rows(loaded, format!("{path}.{key}"), value, rows);
            }
        }
        value => {
            let place = loaded.origin_of(&path).map(ToString::to_string);
            rows.push(json!({
                "value": value.to_inline(),
                "place": place.unwrap_or_else(|| "default".to_owned()),
                "key": path,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_sources::{ConfigArgument, load_config};

    #[test]
    fn every_key_is_shown_with_its_place() {
        let argument = ConfigArgument {
            key: "level",
            flag: "--level",
            texts: vec!["2".to_owned()],
        };
        let loaded = load_config(None, &[argument], &|_| None).expect("valid");
        let Value::Array(rows) = config_as_json(&loaded) else {
            panic!("not a list");
        };
        let row = |key: &str| rows.iter().find(|row| row["key"] == key).expect("shown");
        assert_eq!(
            *row("level"),
            json!({"key": "level", "value": "2", "place": "--level"})
        );
        assert_eq!(
            *row("keep.disk"),
            json!({"key": "keep.disk", "value": "2d", "place": "default"})
        );
    }
}
