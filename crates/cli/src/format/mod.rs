//! The formats of `list`, `values`, `get` and `track`. Pure functions from values to text.

mod csv;
pub mod json;
pub mod number;
mod plain;
pub mod table;
mod yaml;

use std::path::Path;

use crate::answer::{Listed, Reading};

/// `-f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// for people
    Md,
    /// one array
    Json,
    Yaml,
    /// one line each, blanks between
    Txt,
    Csv,
    /// one JSON object per line
    Ndjson,
}

impl Format {
    /// What the ending of a file's name asks for.
    pub fn of_path(path: &Path) -> Option<Format> {
        Some(
            match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
                "md" => Format::Md,
                "json" => Format::Json,
                "yaml" | "yml" => Format::Yaml,
                "txt" => Format::Txt,
                "csv" => Format::Csv,
                "ndjson" | "jsonl" => Format::Ndjson,
                _ => return None,
            },
        )
    }

    /// What was asked for, else what the file's name asks for, else the default.
    pub fn choose(given: Option<Format>, output: Option<&Path>, default: Format) -> Format {
        given
            .or_else(|| output.and_then(Format::of_path))
            .unwrap_or(default)
    }
}

/// What only the formats for people need to know.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// The time now, in seconds.
    pub now: f64,
    /// The width of the terminal; without it lines are as long as they need to be.
    pub width: Option<usize>,
}

pub fn list(format: Format, listed: &[Listed], title: &str) -> String {
    match format {
        Format::Md => table::list(listed, title),
        Format::Json => json::list(listed),
        Format::Yaml => yaml::list(listed),
        Format::Txt => plain::list(listed),
        Format::Csv => csv::list(listed),
        Format::Ndjson => json::list_lines(listed),
    }
}

pub fn values(format: Format, readings: &[Reading], page: Page) -> String {
    match format {
        Format::Md => table::values(readings, page),
        Format::Json => json::values(readings),
        Format::Yaml => yaml::values(readings),
        Format::Txt => plain::values(readings),
        Format::Csv => csv::values(readings),
        Format::Ndjson => json::value_lines(readings),
    }
}

/// The start of what `track` writes.
pub fn track_head(format: Format) -> &'static str {
    match format {
        Format::Md => table::TRACK_HEAD,
        Format::Json => "[",
        Format::Yaml | Format::Ndjson => "",
        Format::Txt => plain::VALUES_HEAD,
        Format::Csv => csv::VALUES_HEAD,
    }
}

/// What changed in one step of `track`.
pub fn track_step(format: Format, readings: &[Reading], is_first: bool) -> String {
    match format {
        Format::Md => table::track_step(readings),
        Format::Json => json::track_step(readings, is_first),
        Format::Yaml => yaml::track_step(readings),
        Format::Txt => plain::value_lines(readings),
        Format::Csv => csv::value_lines(readings),
        Format::Ndjson => json::value_lines(readings),
    }
}

/// The end of what `track` writes.
pub fn track_tail(format: Format, is_empty: bool) -> &'static str {
    match (format, is_empty) {
        (Format::Json, _) => "\n]\n",
        (Format::Yaml, true) => "[]\n",
        _ => "",
    }
}
