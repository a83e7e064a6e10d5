//! CSV as in RFC 4180, except that lines end with LF.

use super::number::exact;
use crate::api_values::{SeriesInfo, SeriesValue};

pub(super) const VALUES_HEAD: &str = "name,ts,value\n";

pub(super) fn list(listed: &[SeriesInfo]) -> String {
    let line =
        |item: &SeriesInfo| format!("{},{},{}\n", field(&item.name), field(&item.doc), item.kind);
    std::iter::once("name,doc,type\n".to_owned())
        .chain(listed.iter().map(line))
        .collect()
}

pub(super) fn values(readings: &[SeriesValue]) -> String {
    format!("{VALUES_HEAD}{}", value_lines(readings))
}

pub(super) fn value_lines(readings: &[SeriesValue]) -> String {
    let line = |reading: &SeriesValue| {
        format!(
            "{},{},{}\n",
            field(&reading.name),
            exact(reading.ts),
            exact(reading.value)
        )
    };
    readings.iter().map(line).collect()
}

fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
