//! CSV as in RFC 4180, except that lines end with LF.

use crate::api_values::{SeriesInfo, SeriesValue};

pub(crate) const VALUES_HEAD: &str = "name,ts,value\n";

pub(super) fn list(listed: &[SeriesInfo]) -> String {
    let line =
        |item: &SeriesInfo| format!("{},{},{}\n", field(&item.name), field(&item.doc), item.kind);
    std::iter::once("name,doc,type\n".to_owned())
        .chain(listed.iter().map(line))
        .collect()
}

pub(super) fn value_lines(readings: &[SeriesValue]) -> String {
    super::value_lines(readings, ",", field)
}

/// Quotes a field where the format requires it.
pub(crate) fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
