//! CSV: the columns of the Parquet files as text, with the time in milliseconds. A value is
//! written as the shortest text that parses to the same bits; the payload of a NaN is lost.

use std::fmt::Write;

use pegel_metric::{Millis, Series};

use crate::labels::labels_json;

const HEAD: &str = "time,name,labels,value,kind,input\n";

#[derive(Debug)]
pub(crate) struct CsvWriter {
    text: String,
}

impl CsvWriter {
    pub(crate) fn new() -> CsvWriter {
        CsvWriter {
            text: HEAD.to_owned(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Adds rows; ends with the first one that exceeds `bytes_max`.
    pub(crate) fn add(&mut self, series: &Series, points: &[(Millis, f64)], bytes_max: usize) {
        let (name, labels) = (quoted(series.name()), quoted(&labels_json(series)));
        let family = series.family();
        let (kind, input) = (family.kind.as_str(), family.input.as_str());
        for (time, value) in points {
            if self.text.len() > bytes_max {
                return;
            }
            // Writing to a String does not fail.
            let _ = writeln!(
                self.text,
                "{time},{name},{labels},{},{kind},{input}",
                number(*value)
            );
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}

/// Returns a value as pandas and DuckDB read it.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        value => format!("{value:?}"),
    }
}

fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
