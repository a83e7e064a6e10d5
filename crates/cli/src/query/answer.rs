//! Parses the agent's answer to a query, and shows it as a table.

use anyhow::Context;
use serde_json::Value;

use crate::agent_query::series_text;
use crate::api_values::SeriesValue;
use crate::format::number::human_readable;
use crate::format::{DisplayContext, table};

/// The result of an expression, and the agent's notes about it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct QueryAnswer {
    pub series: Vec<AnswerSeries>,
    /// Warnings and information.
    pub notes: Vec<String>,
}

/// A series of the result. A scalar or a string has an empty name.
#[derive(Debug, PartialEq)]
pub(super) struct AnswerSeries {
    pub name: String,
    /// Times in seconds since 1970, and values.
    pub points: Vec<(f64, f64)>,
    /// The text, if the expression is a string.
    pub text: Option<String>,
}

impl QueryAnswer {
    /// Returns all samples, series by series.
    pub(super) fn samples(&self) -> Vec<SeriesValue> {
        let of_series = |series: &AnswerSeries| {
            let sample = |(ts, value): &(f64, f64)| SeriesValue {
                name: series.name.clone(),
                ts: *ts,
                value: *value,
            };
            series.points.iter().map(sample).collect::<Vec<_>>()
        };
        self.series.iter().flat_map(of_series).collect()
    }
}

pub(super) fn parse_answer(json: &Value) -> anyhow::Result<QueryAnswer> {
    let data = &json["data"];
    let series = match data["resultType"].as_str() {
        Some("vector") => each(&data["result"], |item| {
            Ok(AnswerSeries {
                name: name_of(&item["metric"]),
                points: vec![point(&item["value"])?],
                text: None,
            })
        })?,
        Some("matrix") => each(&data["result"], |item| {
            Ok(AnswerSeries {
                name: name_of(&item["metric"]),
                points: each(&item["values"], point)?,
                text: None,
            })
        })?,
        Some("scalar") => vec![AnswerSeries {
            name: String::new(),
            points: vec![point(&data["result"])?],
            text: None,
        }],
        Some("string") => vec![AnswerSeries {
            name: String::new(),
            points: Vec::new(),
            text: data["result"][1].as_str().map(str::to_owned),
        }],
        _ => anyhow::bail!("malformed response: no result"),
    };
    let notes = ["warnings", "infos"].iter().flat_map(|key| {
        let notes = json[*key].as_array().into_iter().flatten();
        notes.filter_map(Value::as_str).map(str::to_owned)
    });
    Ok(QueryAnswer {
        series,
        notes: notes.collect(),
    })
}

fn each<T>(list: &Value, parse: impl Fn(&Value) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    let list = list.as_array().context("malformed response: no list")?;
    list.iter().map(parse).collect()
}

/// Parses `[seconds, "value"]`.
fn point(json: &Value) -> anyhow::Result<(f64, f64)> {
    let value = json[1].as_str().and_then(|text| text.parse().ok());
    json[0]
        .as_f64()
        .zip(value)
        .with_context(|| format!("malformed response: {json} is not a sample"))
}

/// Returns `name{label="value"}`, or `{}` for a series without labels.
fn name_of(metric: &Value) -> String {
    let labels = metric.as_object().into_iter().flatten();
    let labels: Vec<(&str, &str)> = labels
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    let is_name = |(key, _): &&(&str, &str)| *key == "__name__";
    let name = labels.iter().find(is_name).map(|(_, name)| *name);
    let others: Vec<(&str, &str)> = labels.iter().filter(|l| !is_name(l)).copied().collect();
    // Labels are written by the same code with and without a name.
    let text = match name {
        Some(name) => series_text(name, &others),
        None => series_text("_", &others).map(|text| text[1..].to_owned()),
    };
    match text {
        Some(text) if text.is_empty() => "{}".to_owned(),
        Some(text) => text,
        None => metric.to_string(),
    }
}

/// Shows the values at one time, one line per series. A scalar and a string are shown alone.
pub(super) fn table(answer: &QueryAnswer, context: DisplayContext) -> String {
    match answer.series.as_slice() {
        [] => String::new(),
        [
            AnswerSeries {
                text: Some(text), ..
            },
        ] => format!("{text}\n"),
        [AnswerSeries { name, points, .. }] if name.is_empty() => {
            let values = points
                .iter()
                .map(|(_, value)| human_readable(*value) + "\n");
            values.collect()
        }
        _ => table::samples(&answer.samples(), context),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_of_result_is_read() {
        let vector = json!({"status": "success", "infos": ["a note"], "data": {
            "resultType": "vector",
            "result": [{"metric": {"__name__": "up", "b": "x\"y"}, "value": [12.5, "NaN"]},
                       {"metric": {}, "value": [12.5, "+Inf"]}]}});
        let answer = parse_answer(&vector).expect("read");
        assert_eq!(answer.notes, ["a note"]);
        assert_eq!(answer.series[0].name, r#"up{b="x\"y"}"#);
        assert!(answer.series[0].points[0].1.is_nan());
        assert_eq!(answer.series[1].name, "{}");
        assert_eq!(answer.series[1].points, [(12.5, f64::INFINITY)]);
        let matrix = json!({"data": {"resultType": "matrix", "result": [
            {"metric": {"a": "b"}, "values": [[1, "2"], [2, "3"]]}]}});
        let answer = parse_answer(&matrix).expect("read");
        assert_eq!(answer.series[0].name, r#"{a="b"}"#);
        assert_eq!(answer.series[0].points, [(1.0, 2.0), (2.0, 3.0)]);
        assert_eq!(answer.samples().len(), 2);
        let scalar = json!({"data": {"resultType": "scalar", "result": [1, "2"]}});
        assert_eq!(parse_answer(&scalar).expect("read").samples()[0].value, 2.0);
        let string = json!({"data": {"resultType": "string", "result": [1, "text"]}});
        let text = parse_answer(&string).expect("read").series[0].text.clone();
        assert_eq!(text.as_deref(), Some("text"));
        for wrong in [
            json!({}),
            json!({"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}}),
        ] {
            assert!(parse_answer(&wrong).is_err(), "{wrong}");
        }
    }
}
