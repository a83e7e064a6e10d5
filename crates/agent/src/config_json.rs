//! The configuration in force, key by key, for `GET /api/v1/config` and the page. Secrets are
//! redacted by their type, so they cannot appear here.

use pegel_config::{ConfigOrigin, Setting};
use serde_json::{Value, json};

use crate::config_sources::LoadedConfig;

/// Returns `[{"key","value","place"}]`; the keys of a section are joined with dots.
pub(crate) fn config_as_json(loaded: &LoadedConfig) -> Value {
    let mut rows = Vec::new();
    loaded.config.to_value().visit_leaves(&mut |path, value| {
        rows.push(json!({
            "value": value.to_inline(),
            "place": loaded.origin_of(path).unwrap_or(&ConfigOrigin::Default).to_string(),
            "key": path,
        }));
    });
    Value::Array(rows)
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
