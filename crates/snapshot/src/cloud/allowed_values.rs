//! Extraction of listed values from a metadata document. Everything else is dropped: the same
//! documents contain user data, tags, keys and tokens.

use std::collections::BTreeMap;

use serde_json::Value;

use pegel_machine::redact;

const VALUE_CHARS_MAX: usize = 256;

/// Facts about an instance: names to values.
pub type CloudFacts = BTreeMap<String, String>;

/// Extracts values by their paths, such as `compute.vmSize`, and stores them under the given names.
pub(crate) fn extract_values(document: &Value, wanted: &[(&str, &str)]) -> CloudFacts {
    let mut facts = CloudFacts::new();
    for (path, name) in wanted {
        let value = path
            .split('.')
            .try_fold(document, |value, key| value.get(key));
        if let Some(text) = value.and_then(value_text) {
            facts.insert((*name).to_owned(), text);
        }
    }
    facts
}

/// Returns a single value as text; `None` if it is empty or looks like a secret.
pub(crate) fn value_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => sanitize_value(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        _ => return None,
    };
    (!text.is_empty() && !redact::looks_like_secret(&text)).then_some(text)
}

/// Removes control characters and bounds the length.
pub(crate) fn sanitize_value(text: &str) -> String {
    let text = text.trim().chars().filter(|c| !c.is_control());
    text.take(VALUE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_listed_values_are_extracted() {
        let document = json!({
            "a": {"b": " x\n", "secret": "PLANTED", "n": 3, "is": true, "empty": "", "list": ["PLANTED"]},
            "c": "https://x/?sig=PLANTED",
        });
        let wanted = [
            ("a.b", "b"),
            ("a.n", "n"),
            ("a.is", "is"),
            ("a.empty", "e"),
            ("a.list", "l"),
            ("c", "c"),
            ("x.y", "y"),
        ];
        let facts = extract_values(&document, &wanted);
        let expected = [("b", "x"), ("is", "true"), ("n", "3")];
        assert!(
            facts
                .iter()
                .map(|(k, v)| (k.as_str(), v.as_str()))
                .eq(expected),
            "{facts:?}"
        );
        assert!(extract_values(&Value::Null, &wanted).is_empty());
    }
}
