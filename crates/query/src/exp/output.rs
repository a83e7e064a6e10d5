//! Writes the response of `/api/query/exp`.

use std::collections::BTreeMap;
use std::io::Write;

use pegel_metric::format_value;
use serde::Serialize;
use serde_json::{Value, json};

use super::operand::{Operand, OperandSeries};
use super::{ExpressionOutput, ExpressionRequest};
use crate::error::OpentsdbError;

pub(super) fn write(
    exp_request: &ExpressionRequest,
    sets: &BTreeMap<&str, Operand>,
    out: &mut dyn Write,
) -> Result<(), OpentsdbError> {
    write_text(out, "{\"outputs\":[")?;
    for (number, output) in exp_request.outputs.iter().enumerate() {
        if number > 0 {
            write_text(out, ",")?;
        }
        if let Some(set) = sets.get(output.id.as_str()) {
            write_output(output, set, out)?;
        }
    }
    write_text(out, "]}")
}

fn write_output(
    output: &ExpressionOutput,
    set: &Operand,
    out: &mut dyn Write,
) -> Result<(), OpentsdbError> {
    write_text(out, "{\"id\":")?;
    write_json(out, &output.id)?;
    if let Some(alias) = &output.alias {
        write_text(out, ",\"alias\":")?;
        write_json(out, alias)?;
    }
    write_text(out, ",\"dps\":[")?;
    let times = set.times();
    let mut row = String::new();
    for (number, time) in times.iter().enumerate() {
        row.clear();
        row.push_str(if number > 0 { ",[" } else { "[" });
        row.push_str(&time.to_string());
        for member in &set.series {
            row.push(',');
            match member.value(*time).unwrap_or(set.fill) {
                value if value.is_finite() => format_value(&mut row, value),
                _ => row.push_str("\"NaN\""),
            }
        }
        row.push(']');
        write_text(out, &row)?;
    }
    write_text(out, "],\"dpsMeta\":")?;
    write_json(
        out,
        &json!({
            "firstTimestamp": times.first(),
            "lastTimestamp": times.last(),
            "setCount": times.len(),
            "series": set.series.len(),
        }),
    )?;
    write_text(out, ",\"meta\":")?;
    let mut meta = vec![json!({"index": 0, "metrics": ["timestamp"]})];
    meta.extend(set.series.iter().enumerate().map(series_meta));
    write_json(out, &meta)?;
    write_text(out, "}")
}

fn series_meta((number, member): (usize, &OperandSeries)) -> Value {
    json!({
        "index": number + 1,
        "metrics": member.metrics,
        "commonTags": member.result.tags,
        "aggregatedTags": member.result.aggregate_tags,
    })
}

fn write_text(out: &mut dyn Write, text: &str) -> Result<(), OpentsdbError> {
    out.write_all(text.as_bytes()).map_err(OpentsdbError::Write)
}

fn write_json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), OpentsdbError> {
    serde_json::to_writer(out, value).map_err(|error| OpentsdbError::Write(error.into()))
}
