//! Parses the agent's JSON responses: the list of series and their values.

use anyhow::Context;
use serde_json::Value;

/// One entry of `/api/v1/list`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeriesInfo {
    pub name: String,
    pub doc: String,
    pub kind: String,
    pub unit: String,
}

/// One current value; `ts` is the time of its last change, in seconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeriesValue {
    pub name: String,
    pub ts: f64,
    pub value: f64,
}

pub(crate) fn parse_series_list(json: &Value) -> anyhow::Result<Vec<SeriesInfo>> {
    let items = json
        .as_array()
        .context("malformed response: the series list is not an array")?;
    items
        .iter()
        .map(|item| {
            let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
            let name = item["name"]
                .as_str()
                .context("malformed response: series without \"name\"")?;
            Ok(SeriesInfo {
                name: name.to_owned(),
                doc: text("doc"),
                kind: text("type"),
                unit: text("unit"),
            })
        })
        .collect()
}

pub(crate) fn parse_values(json: &Value) -> anyhow::Result<Vec<SeriesValue>> {
    let items = json
        .as_array()
        .context("malformed response: the values are not an array")?;
    items
        .iter()
        .map(|item| {
            let name = item["name"]
                .as_str()
                .context("malformed response: value without \"name\"")?;
            let ts = parse_number(&item["ts"])
                .with_context(|| format!("malformed response: {name} has no \"ts\""))?;
            let value = parse_number(&item["value"])
                .with_context(|| format!("malformed response: {name} has no \"value\""))?;
            Ok(SeriesValue {
                name: name.to_owned(),
                ts,
                value,
            })
        })
        .collect()
}

/// Parses a number. JSON cannot express NaN and infinity: the agent sends them as a string or as
/// null.
fn parse_number(json: &Value) -> Option<f64> {
    match json {
        Value::Null => Some(f64::NAN),
        Value::String(text) => text.parse().ok(),
        json => json.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_infinite_or_nan() {
        let json = serde_json::json!([
            {"name": "a", "ts": 1.5, "value": 2},
            {"name": "b", "ts": 1.5, "value": "+Inf"},
            {"name": "c", "ts": 1.5, "value": null},
        ]);
        let read = parse_values(&json).expect("valid");
        assert_eq!((read[0].value, read[1].value), (2.0, f64::INFINITY));
        assert!(read[2].value.is_nan());
        assert!(parse_values(&serde_json::json!([{"ts": 1}])).is_err());
        assert!(parse_values(&serde_json::json!({})).is_err());
    }
}
