//! JSON: arrays with the fields and layout of TAU's client, which existing scripts parse, and one
//! object per line.

use super::number::{json_float, json_number};
use crate::api_values::{SeriesInfo, SeriesValue};

/// Encodes text as a JSON string.
pub(crate) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(crate) fn list(listed: &[SeriesInfo]) -> String {
    array(listed.iter().map(|item| {
        format!(
            "    {{\n        \"name\": {},\n        \"doc\": {},\n        \"type\": {}\n    }}",
            string(&item.name),
            string(&item.doc),
            string(&item.kind)
        )
    }))
}

pub(crate) fn values(readings: &[SeriesValue]) -> String {
    array(readings.iter().map(|reading| {
        format!(
            "    {{\n        \"name\": {},\n        \"ts\": {},\n        \"value\": {}\n    }}",
            string(&reading.name),
            json_float(reading.ts),
            json_float(reading.value)
        )
    }))
}

fn array(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return "[]\n".to_owned();
    }
    format!("[\n{}\n]\n", items.join(",\n"))
}

/// Formats one step as an inner array. The separating comma precedes it, so that the file can end
/// after any step.
pub(crate) fn track_step(readings: &[SeriesValue], is_first: bool) -> String {
    let items: Vec<String> = readings
        .iter()
        .map(|reading| {
            format!(
                "    {{\n      \"name\": {},\n      \"ts\": {},\n      \"value\": {}\n    }}",
                string(&reading.name),
                json_float(reading.ts),
                json_number(reading.value)
            )
        })
        .collect();
    let comma = if is_first { "" } else { "," };
    format!("{comma}\n  [\n{}\n  ]", items.join(",\n"))
}

pub(crate) fn list_lines(listed: &[SeriesInfo]) -> String {
    let line = |item: &SeriesInfo| {
        let (name, doc, kind) = (string(&item.name), string(&item.doc), string(&item.kind));
        format!("{{\"name\":{name},\"doc\":{doc},\"type\":{kind}}}\n")
    };
    listed.iter().map(line).collect()
}

pub(crate) fn value_lines(readings: &[SeriesValue]) -> String {
    let line = |reading: &SeriesValue| {
        let (ts, value) = (json_float(reading.ts), json_number(reading.value));
        format!(
            "{{\"name\":{},\"ts\":{ts},\"value\":{value}}}\n",
            string(&reading.name)
        )
    };
    readings.iter().map(line).collect()
}

/// Formats the output of `version --json`.
pub(crate) fn version(version: &str) -> String {
    let (version, arch) = (string(version), string(std::env::consts::ARCH));
    format!("{{\"name\":\"pegel\",\"version\":{version},\"arch\":{arch}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracked_file_parses_after_every_step() {
        let reading = SeriesValue {
            name: "a{b=\"c\"}".into(),
            ts: 1.5,
            value: 3.0,
        };
        let mut text = String::from("[");
        for step in 0..3 {
            text.push_str(&track_step(std::slice::from_ref(&reading), step == 0));
            let whole = format!("{text}\n]\n");
            let json: serde_json::Value = serde_json::from_str(&whole).expect("valid JSON");
            assert_eq!(json.as_array().map(Vec::len), Some(step + 1));
        }
        assert!(
            text.starts_with(
                "[\n  [\n    {\n      \"name\": \"a{b=\\\"c\\\"}\",\n      \"ts\": 1.5,"
            )
        );
    }
}
