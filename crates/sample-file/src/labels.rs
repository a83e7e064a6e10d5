//! The text of the column `labels`.

use pegel_metric::Series;

/// Returns the labels of a series as a JSON object with sorted keys.
pub(crate) fn labels_json(series: &Series) -> String {
    let mut text = String::from("{");
    for (key, value) in series.labels() {
        if text.len() > 1 {
            text.push(',');
        }
        push_string(&mut text, key);
        text.push(':');
        push_string(&mut text, &value);
    }
    text.push('}');
    text
}

fn push_string(text: &mut String, string: &str) {
    // Writing a string to memory does not fail.
    text.push_str(&serde_json::to_string(string).unwrap_or_default());
}
