//! YAML. Strings are written as JSON strings, which are valid YAML.

use super::json::string;
use super::number::exact;
use crate::api_values::{SeriesInfo, SeriesValue};

pub(super) fn list(listed: &[SeriesInfo]) -> String {
    let item = |item: &SeriesInfo| {
        let (name, doc, kind) = (string(&item.name), string(&item.doc), &item.kind);
        format!("- name: {name}\n  doc: {doc}\n  type: {kind}\n")
    };
    or_empty(listed.iter().map(item).collect())
}

pub(super) fn values(readings: &[SeriesValue]) -> String {
    let item = |reading: &SeriesValue| {
        format!(
            "- name: {}\n  ts: {}\n  value: {}\n",
            string(&reading.name),
            number(reading.ts),
            number(reading.value)
        )
    };
    or_empty(readings.iter().map(item).collect())
}

/// Formats one step as an inner list.
pub(super) fn track_step(readings: &[SeriesValue]) -> String {
    let mut out = String::new();
    for (index, reading) in readings.iter().enumerate() {
        out.push_str(&format!(
            "{} - name: {}\n    ts: {}\n    value: {}\n",
            if index == 0 { "-" } else { " " },
            string(&reading.name),
            number(reading.ts),
            number(reading.value)
        ));
    }
    out
}

/// Formats a number; YAML has literals for NaN and infinity.
fn number(value: f64) -> String {
    if value.is_nan() {
        ".nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { ".inf" } else { "-.inf" }.to_owned()
    } else {
        exact(value)
    }
}

fn or_empty(text: String) -> String {
    if text.is_empty() {
        "[]\n".to_owned()
    } else {
        text
    }
}
