//! Plain text: a line with the column names, then one line per series.

use super::json::string;
use super::number::exact;
use crate::api_values::{SeriesInfo, SeriesValue};

pub(super) const VALUES_HEAD: &str = "# name ts value\n";

pub(super) fn list(listed: &[SeriesInfo]) -> String {
    let lines = listed
        .iter()
        .map(|item| format!("{} {} {}\n", item.name, string(&item.doc), item.kind));
    std::iter::once("# name doc type\n".to_owned())
        .chain(lines)
        .collect()
}

pub(super) fn values(readings: &[SeriesValue]) -> String {
    format!("{VALUES_HEAD}{}", value_lines(readings))
}

pub(super) fn value_lines(readings: &[SeriesValue]) -> String {
    let line = |reading: &SeriesValue| {
        format!(
            "{} {} {}\n",
            reading.name,
            exact(reading.ts),
            exact(reading.value)
        )
    };
    readings.iter().map(line).collect()
}
