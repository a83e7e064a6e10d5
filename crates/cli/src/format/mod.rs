//! The formats of `list`, `values`, `get` and `track`. Pure functions from values to text.

mod csv;
pub(crate) mod json;
pub(crate) mod number;
mod plain;
pub(crate) mod table;
mod text_table;
mod yaml;

use std::path::Path;

use crate::api_values::{SeriesInfo, SeriesValue};
use crate::counter_rates::CounterRates;
pub(crate) use csv::{VALUES_HEAD as CSV_VALUES_HEAD, field as csv_field};
use number::exact;
pub(crate) use text_table::text_table;

/// The output format, option `-f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// Human-readable text
    Md,
    /// One JSON array
    Json,
    /// YAML
    Yaml,
    /// One line per series, separated by blanks
    Txt,
    /// CSV
    Csv,
    /// One JSON object per line
    Ndjson,
}

impl OutputFormat {
    /// Returns the format for a file's extension.
    pub(crate) fn from_path(path: &Path) -> Option<OutputFormat> {
        Some(
            match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
                "md" => OutputFormat::Md,
                "json" => OutputFormat::Json,
                "yaml" | "yml" => OutputFormat::Yaml,
                "txt" => OutputFormat::Txt,
                "csv" => OutputFormat::Csv,
                "ndjson" | "jsonl" => OutputFormat::Ndjson,
                _ => return None,
            },
        )
    }

    /// Returns the given format, else the one of the file's extension, else the default.
    pub(crate) fn choose(
        given: Option<OutputFormat>,
        output: Option<&Path>,
        default: OutputFormat,
    ) -> OutputFormat {
        given
            .or_else(|| output.and_then(OutputFormat::from_path))
            .unwrap_or(default)
    }
}

/// Context of the human-readable formats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DisplayContext {
    /// The current time in seconds since 1970.
    pub now: f64,
    /// The width of the terminal; `None` for lines of any length.
    pub width: Option<usize>,
}

pub(crate) fn list(format: OutputFormat, listed: &[SeriesInfo], title: &str) -> String {
    match format {
        OutputFormat::Md => table::list(listed, title),
        OutputFormat::Json => json::list(listed),
        OutputFormat::Yaml => yaml::list(listed),
        OutputFormat::Txt => plain::list(listed),
        OutputFormat::Csv => csv::list(listed),
        OutputFormat::Ndjson => json::list_lines(listed),
    }
}

pub(crate) fn values(
    format: OutputFormat,
    readings: &[SeriesValue],
    context: DisplayContext,
) -> String {
    match format {
        OutputFormat::Md => table::values(readings, &CounterRates::new(), context),
        OutputFormat::Json => json::values(readings),
        OutputFormat::Yaml => yaml::values(readings),
        OutputFormat::Txt => format!("{}{}", plain::VALUES_HEAD, plain::value_lines(readings)),
        OutputFormat::Csv => format!("{}{}", csv::VALUES_HEAD, csv::value_lines(readings)),
        OutputFormat::Ndjson => json::value_lines(readings),
    }
}

/// Formats values for people, with a column for the rates of counters if there are any.
pub(crate) fn values_with_rates(
    readings: &[SeriesValue],
    rates: &CounterRates,
    context: DisplayContext,
) -> String {
    table::values(readings, rates, context)
}

/// Formats values of nodes for people, with a column for the node in place of the label `host`.
pub(crate) fn values_per_node(
    readings: &[SeriesValue],
    rates: &CounterRates,
    context: DisplayContext,
) -> String {
    table::values_per_node(readings, rates, context)
}

/// Formats one line per value: name, time and value with a separator. `name` quotes the name.
fn value_lines(readings: &[SeriesValue], separator: &str, name: impl Fn(&str) -> String) -> String {
    let line = |reading: &SeriesValue| {
        let fields = [name(&reading.name), exact(reading.ts), exact(reading.value)];
        fields.join(separator) + "\n"
    };
    readings.iter().map(line).collect()
}

/// Returns the start of the output of `track`.
pub(crate) fn track_head(format: OutputFormat) -> &'static str {
    match format {
        OutputFormat::Md => table::TRACK_HEAD,
        OutputFormat::Json => "[",
        OutputFormat::Yaml | OutputFormat::Ndjson => "",
        OutputFormat::Txt => plain::VALUES_HEAD,
        OutputFormat::Csv => csv::VALUES_HEAD,
    }
}

/// Formats the changes of one step of `track`.
pub(crate) fn track_step(format: OutputFormat, readings: &[SeriesValue], is_first: bool) -> String {
    match format {
        OutputFormat::Md => table::track_step(readings),
        OutputFormat::Json => json::track_step(readings, is_first),
        OutputFormat::Yaml => yaml::track_step(readings),
        OutputFormat::Txt => plain::value_lines(readings),
        OutputFormat::Csv => csv::value_lines(readings),
        OutputFormat::Ndjson => json::value_lines(readings),
    }
}

/// Returns the end of the output of `track`.
pub(crate) fn track_tail(format: OutputFormat, is_empty: bool) -> &'static str {
    match (format, is_empty) {
        (OutputFormat::Json, _) => "\n]\n",
        (OutputFormat::Yaml, true) => "[]\n",
        _ => "",
    }
}
