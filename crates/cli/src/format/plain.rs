//! Plain text: a line with the column names, then one line per series.

use super::json::string;
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

pub(super) fn value_lines(readings: &[SeriesValue]) -> String {
    super::value_lines(readings, " ", str::to_owned)
}
