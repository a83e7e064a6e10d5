//! The list of nodes for programs. Every format has the same fields; unknown ones are null, `.nan`
//! is never written, and empty fields of CSV and plain text are empty and `-`.

use serde_json::{Map, Value, json};

use crate::format::{OutputFormat, csv_field};
use crate::listed_node::{ListedNode, OutlierFigure};

/// The fields in the order of the columns.
const FIELDS: [&str; 15] = [
    "node",
    "state",
    "lag_ms",
    "clock_offset_ms",
    "parent",
    "busy",
    "memory",
    "pressure",
    "gpu",
    "network",
    "temperature",
    "load",
    "version",
    "outliers",
    "problem",
];

/// Formats the nodes. The table for people is written elsewhere.
pub(super) fn write(format: OutputFormat, nodes: &[&ListedNode]) -> String {
    let nodes: Vec<Vec<Value>> = nodes.iter().map(|node| fields(node)).collect();
    match format {
        OutputFormat::Json | OutputFormat::Md => {
            let objects: Vec<Value> = nodes.into_iter().map(object).collect();
            format!("{:#}\n", Value::Array(objects))
        }
        OutputFormat::Ndjson => nodes
            .into_iter()
            .map(|node| format!("{}\n", object(node)))
            .collect(),
        OutputFormat::Yaml if nodes.is_empty() => "[]\n".to_owned(),
        OutputFormat::Yaml => nodes.iter().map(|node| yaml(node)).collect(),
        OutputFormat::Csv => {
            let line = |node: &Vec<Value>| {
                let cells: Vec<String> = node.iter().map(|v| csv_field(&cell(v))).collect();
                format!("{}\n", cells.join(","))
            };
            let lines: String = nodes.iter().map(line).collect();
            format!("{}\n{lines}", FIELDS.join(","))
        }
        OutputFormat::Txt => {
            let line = |node: &Vec<Value>| {
                let cells: Vec<String> = node.iter().map(|v| word(&cell(v))).collect();
                format!("{}\n", cells.join(" "))
            };
            let lines: String = nodes.iter().map(line).collect();
            format!("# {}\n{lines}", FIELDS.join(" "))
        }
    }
}

/// Returns the values of [`FIELDS`].
fn fields(node: &ListedNode) -> Vec<Value> {
    let outlier = |outlier: &OutlierFigure| json!({"figure": outlier.figure, "value": outlier.value, "median": outlier.median});
    vec![
        json!(node.node),
        json!(node.state),
        json!(node.lag_ms),
        json!(node.clock_offset_ms),
        json!(node.parent),
        json!(node.busy),
        json!(node.memory),
        json!(node.pressure),
        json!(node.gpu),
        json!(node.network),
        json!(node.temperature),
        json!(node.load),
        json!(node.version),
        Value::Array(node.outliers.iter().map(outlier).collect()),
        json!(node.problem),
    ]
}

fn object(fields: Vec<Value>) -> Value {
    let pairs = FIELDS.iter().map(|field| (*field).to_owned()).zip(fields);
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// Formats one item of a list. JSON values are valid YAML.
fn yaml(fields: &[Value]) -> String {
    let lines = FIELDS.iter().zip(fields).enumerate();
    lines
        .map(|(index, (field, value))| {
            let start = if index == 0 { "- " } else { "  " };
            format!("{start}{field}: {value}\n")
        })
        .collect()
}

/// Formats a value for a cell: outliers by the names of their figures.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(outliers) => {
            let figures = outliers.iter().filter_map(|item| item["figure"].as_str());
            figures.collect::<Vec<_>>().join(";")
        }
        value => value.to_string(),
    }
}

/// Returns a cell as one word.
fn word(cell: &str) -> String {
    match cell {
        "" => "-".to_owned(),
        cell if cell.contains(|c: char| c.is_whitespace() || c == '"') => {
            crate::format::json::string(cell)
        }
        cell => cell.to_owned(),
    }
}
