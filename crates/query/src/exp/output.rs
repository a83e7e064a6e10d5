use std::collections::BTreeMap;
use std::io::Write;

use pegel_metric::format_value;
use serde::Serialize;
use serde_json::{Value, json};

use super::set::{Member, Set};
use super::{Expressions, Output};
use crate::problem::Problem;

pub(super) fn write(
    asked: &Expressions,
    sets: &BTreeMap<&str, Set>,
    out: &mut dyn Write,
) -> Result<(), Problem> {
    text(out, "{\"outputs\":[")?;
    for (number, output) in asked.outputs.iter().enumerate() {
        if number > 0 {
            text(out, ",")?;
        }
        if let Some(set) = sets.get(output.id.as_str()) {
            one(output, set, out)?;
        }
    }
    text(out, "]}")
}

fn one(output: &Output, set: &Set, out: &mut dyn Write) -> Result<(), Problem> {
    text(out, "{\"id\":")?;
    field(out, &output.id)?;
    if let Some(alias) = &output.alias {
        text(out, ",\"alias\":")?;
        field(out, alias)?;
    }
    text(out, ",\"dps\":[")?;
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
        text(out, &row)?;
    }
    text(out, "],\"dpsMeta\":")?;
    field(
        out,
        &json!({
            "firstTimestamp": times.first(),
            "lastTimestamp": times.last(),
            "setCount": times.len(),
            "series": set.series.len(),
        }),
    )?;
    text(out, ",\"meta\":")?;
    let mut meta = vec![json!({"index": 0, "metrics": ["timestamp"]})];
    meta.extend(set.series.iter().enumerate().map(about));
    field(out, &meta)?;
    text(out, "}")
}

fn about((number, member): (usize, &Member)) -> Value {
    json!({
        "index": number + 1,
        "metrics": member.metrics,
        "commonTags": member.line.tags,
        "aggregatedTags": member.line.aggregate_tags,
    })
}

fn text(out: &mut dyn Write, text: &str) -> Result<(), Problem> {
    out.write_all(text.as_bytes()).map_err(Problem::Write)
}

fn field(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Problem> {
    serde_json::to_writer(out, value).map_err(|error| Problem::Write(error.into()))
}
