//! Conversion of names to the characters that Prometheus accepts. Everywhere else a name keeps its
//! original form.

use std::borrow::Cow;

/// Returns a valid metric name, `[a-zA-Z_:][a-zA-Z0-9_:]*`: every other character becomes `_`.
pub fn metric_name(name: &str) -> Cow<'_, str> {
    replace_invalid(name, |c| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | ':')
    })
}

/// Returns a valid label key, `[a-zA-Z_][a-zA-Z0-9_]*`: every other character becomes `_`.
pub fn label_key(key: &str) -> Cow<'_, str> {
    match key {
        // Prometheus stores the metric name under this key and rejects a scrape that sets it.
        "__name__" => Cow::Borrowed("_name"),
        _ => replace_invalid(key, |c| c.is_ascii_alphanumeric() || c == '_'),
    }
}

/// Replaces invalid characters. A leading digit gets a `_` before it rather than being replaced, so
/// that `1st` and `2nd` differ.
fn replace_invalid(text: &str, accepted: impl Fn(char) -> bool) -> Cow<'_, str> {
    let leading_digit = text.starts_with(|c: char| c.is_ascii_digit());
    if !leading_digit && text.chars().all(&accepted) {
        return Cow::Borrowed(text);
    }
    let lead = leading_digit.then_some('_');
    let rest = text.chars().map(|c| if accepted(c) { c } else { '_' });
    Cow::Owned(lead.into_iter().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_characters_become_underscores() {
        for (name, expected) in [
            ("node_load1", "node_load1"),
            ("a:b", "a:b"),
            ("queue.depth", "queue_depth"),
            ("1st", "_1st"),
            ("größe", "gr__e"),
            ("a b", "a_b"),
        ] {
            assert_eq!(metric_name(name), expected);
        }
        for (key, expected) in [
            ("a:b", "a_b"),
            ("0", "_0"),
            ("a-b", "a_b"),
            ("__name__", "_name"),
        ] {
            assert_eq!(label_key(key), expected);
        }
    }

    #[test]
    fn a_good_name_is_not_copied() {
        assert!(matches!(metric_name("node_load1"), Cow::Borrowed(_)));
        assert!(matches!(label_key("cpu"), Cow::Borrowed(_)));
    }
}
