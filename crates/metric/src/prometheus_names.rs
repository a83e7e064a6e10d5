//! Conversion of names to the characters that Prometheus accepts, for `/metrics` and PromQL.
//! Everywhere else a name keeps its original form.

use std::borrow::Cow;

use crate::{Input, Series};

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

/// Returns whether [`metric_name`] leaves a name as it is.
pub fn is_metric_name(name: &str) -> bool {
    matches!(metric_name(name), Cow::Borrowed(_))
}

/// The rank of series that any local user may send. None of them hides another: where their kinds
/// differ, the family is declared without a kind.
pub const UNTRUSTED_RANK: u8 = 3;

/// The rank of series of other systems: they hide no series of this node.
const REMOTE_RANK: u8 = UNTRUSTED_RANK + 1;

/// Ranks series: of two that collide under Prometheus' names, the one with the lower rank is shown.
/// Values of users other than the agent's, and points that any local user may send, must not
/// replace or hide those of the node or of the agent's user.
pub fn collision_rank(series: &Series) -> u8 {
    match series.family().input {
        Input::Collect => 0,
        Input::RemoteWrite => REMOTE_RANK,
        Input::Statsd => UNTRUSTED_RANK,
        _ if has_user(series) => UNTRUSTED_RANK,
        Input::Lane | Input::Programs => 1,
        Input::Push
        | Input::Http
        | Input::Put
        | Input::Rules
        | Input::Pull
        | Input::Influx
        | Input::Pushgateway
        | Input::Tree
        | Input::Otlp => 2,
    }
}

/// Whether the series has the label `user`, which the agent adds to series of users other than its
/// own. Quotes in values are escaped, so that no value matches.
fn has_user(series: &Series) -> bool {
    let labels = series.labels_text();
    labels.contains("{user=\"") || labels.contains(",user=\"")
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
