//! The configuration in force, key by key, for `GET /api/v1/config` and the page. Secrets do not know how to be
//! written, so that they cannot be shown here.

use pegel_config::{Setting, Written};
use serde_json::{Value, json};

use crate::sources::Loaded;

/// `[{"key","value","place"}]`; a section's keys are written with dots.
pub(crate) fn shown(loaded: &Loaded) -> Value {
    let mut rows = Vec::new();
    if let Written::Map(entries) = loaded.config.written() {
        for (key, value) in &entries {
            add(loaded, key.clone(), value, &mut rows);
        }
    }
    Value::Array(rows)
}

fn add(loaded: &Loaded, path: String, value: &Written, rows: &mut Vec<Value>) {
    match value {
        Written::Map(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                add(loaded, format!("{path}.{key}"), value, rows);
            }
        }
        value => {
            let place = loaded.place_of(&path).map(ToString::to_string);
            rows.push(json!({
                "value": value.inline(),
                "place": place.unwrap_or_else(|| "default".to_owned()),
                "key": path,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{Argument, load};

    #[test]
    fn every_key_is_shown_with_its_place() {
        let argument = Argument {
            key: "level",
            flag: "--level",
            texts: vec!["2".to_owned()],
        };
        let loaded = load(None, &[argument], &|_| None).expect("valid");
        let Value::Array(rows) = shown(&loaded) else {
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
