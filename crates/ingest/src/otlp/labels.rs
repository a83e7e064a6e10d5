//! Labels of OpenTelemetry's metrics: attributes of the resource, of the scope and of the point,
//! under names that Prometheus accepts.

use pegel_metric::glob_matches;
use pegel_wire::otlp::names::label_name;
use pegel_wire::otlp::{Attribute, Scope};

use super::settings::OtlpInputSettings;

/// The labels of the scope.
const SCOPE_NAME: &str = "otel_scope_name";
const SCOPE_VERSION: &str = "otel_scope_version";
const SCOPE_PREFIX: &str = "otel_scope_";
/// The prefix of a resource's label whose key a point or a scope uses as well.
const RESOURCE_PREFIX: &str = "resource_";
/// The prefix of a point's label whose key the series itself needs: `le`, `quantile`.
const EXPORTED_PREFIX: &str = "exported_";
/// The key of attributes whose name has no character that a label may have.
const UNNAMED: &str = "key";

/// Keys and values, sorted by key, each key once. Lists are merged in one pass: a short request can
/// have many points, and attributes whose long keys differ only at their ends.
pub(super) type OtlpLabels = Vec<(String, String)>;

/// Sorts labels. Values of the same key are joined by `;` in their order, as the specification
/// requires.
fn sort_and_join(mut labels: Vec<(String, String)>) -> OtlpLabels {
    labels.sort_by(|(a, _), (b, _)| a.cmp(b));
    labels.dedup_by(|(key, value), (known, values)| {
        let is_same = key == known;
        if is_same {
            values.push(';');
            values.push_str(value);
        }
        is_same
    });
    labels
}

/// Merges two lists. The values of a key that both have are joined.
fn merge(first: OtlpLabels, second: OtlpLabels) -> OtlpLabels {
    if second.is_empty() {
        return first;
    }
    let mut merged = OtlpLabels::with_capacity(first.len() + second.len());
    let mut second = second.into_iter().peekable();
    for (key, mut value) in first {
        while let Some(label) = second.next_if(|(other, _)| *other < key) {
            merged.push(label);
        }
        if let Some((_, other)) = second.next_if(|(other, _)| *other == key) {
            value.push(';');
            value.push_str(&other);
        }
        merged.push((key, value));
    }
    merged.extend(second);
    merged
}

fn key_of(attribute: &Attribute<'_>) -> String {
    label_name(&attribute.key).unwrap_or_else(|| UNNAMED.to_owned())
}

/// Returns the attributes sorted by key: values of one label are joined in this order.
fn sorted<'r, 'a>(attributes: &'r [Attribute<'a>]) -> Vec<&'r Attribute<'a>> {
    let mut sorted: Vec<&Attribute<'a>> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    sorted
}

/// Returns the labels of a resource.
pub(super) fn resource_labels(
    attributes: &[Attribute<'_>],
    settings: &OtlpInputSettings,
) -> OtlpLabels {
    let matches = |patterns: &[String], key: &str| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| glob_matches(pattern, key))
    };
    let is_chosen = |attribute: &&Attribute<'_>| {
        let key = &*attribute.key;
        matches(&settings.resource_attributes, key) && !matches(&settings.ignored_attributes, key)
    };
    let chosen = sorted(attributes).into_iter().filter(is_chosen);
    let labels = chosen.map(|attribute| (key_of(attribute), attribute.value.to_string()));
    sort_and_join(labels.collect())
}

/// Returns the labels of a scope.
pub(super) fn scope_labels(scope: &Scope<'_>) -> OtlpLabels {
    let mut labels = OtlpLabels::new();
    for (key, value) in [(SCOPE_NAME, &scope.name), (SCOPE_VERSION, &scope.version)] {
        if !value.is_empty() {
            labels.push((key.to_owned(), value.to_string()));
        }
    }
    for attribute in sorted(&scope.attributes) {
        let key = format!("{SCOPE_PREFIX}{}", key_of(attribute));
        labels.push((key, attribute.value.to_string()));
    }
    sort_and_join(labels)
}

/// Returns the number of bytes of all keys and values.
pub(super) fn text_bytes(labels: &OtlpLabels) -> usize {
    let labels = labels.iter();
    labels.map(|(key, value)| key.len() + value.len()).sum()
}

/// Returns the labels of a point's own attributes. `reserved` is the key that its series use: `le`
/// or `quantile`.
pub(super) fn own_labels(attributes: &[Attribute<'_>], reserved: Option<&str>) -> OtlpLabels {
    let labels = sorted(attributes).into_iter().map(|attribute| {
        let mut key = key_of(attribute);
        if reserved == Some(key.as_str()) {
            key.insert_str(0, EXPORTED_PREFIX);
        }
        (key, attribute.value.to_string())
    });
    sort_and_join(labels.collect())
}

/// Returns all labels of a point: its own, those of the scope, and those of the resource, which get
/// a prefix if their key is taken.
pub(super) fn point_labels(
    resource: &OtlpLabels,
    scope: &OtlpLabels,
    own: &OtlpLabels,
    reserved: Option<&str>,
) -> OtlpLabels {
    let labels = merge(own.clone(), scope.clone());
    let (mut free, mut renamed) = (OtlpLabels::with_capacity(resource.len()), OtlpLabels::new());
    let mut keys = labels.iter().map(|(key, _)| key).peekable();
    for (key, value) in resource {
        while keys.next_if(|taken| *taken < key).is_some() {}
        let is_taken = keys.peek().is_some_and(|taken| *taken == key);
        if is_taken || reserved == Some(key.as_str()) {
            renamed.push((format!("{RESOURCE_PREFIX}{key}"), value.clone()));
        } else {
            free.push((key.clone(), value.clone()));
        }
    }
    // Sorted as well: all have the same prefix.
    merge(merge(labels, free), renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&'static str, &'static str)]) -> Vec<Attribute<'static>> {
        let pairs = pairs.iter().map(|(key, value)| Attribute {
            key: (*key).into(),
            value: (*value).into(),
        });
        pairs.collect()
    }

    fn text(labels: &OtlpLabels) -> String {
        let mut pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.sort();
        pairs.join(",")
    }

    #[test]
    fn nothing_is_lost_where_keys_collide() {
        let settings = OtlpInputSettings::default();
        let resource = attributes(&[
            ("service.name", "app"),
            ("telemetry.sdk.name", "x"),
            ("process.command_args", "--password=1"),
            ("process.pid", "7"),
            ("le", "r"),
            ("zone", "north"),
        ]);
        let resource = resource_labels(&resource, &settings);
        assert_eq!(
            text(&resource),
            "le=r,process_pid=7,service_name=app,zone=north"
        );
        let scope = scope_labels(&Scope {
            name: "lib".into(),
            version: "".into(),
            attributes: attributes(&[("a.b", "1")]),
        });
        assert_eq!(text(&scope), "otel_scope_a_b=1,otel_scope_name=lib");
        let point = attributes(&[("b_c", "2"), ("b.c", "1"), ("le", "x"), ("zone", "south")]);
        let own = own_labels(&point, Some("le"));
        let labels = point_labels(&resource, &scope, &own, Some("le"));
        assert!(labels.is_sorted(), "{labels:?}");
        assert_eq!(
            text(&labels),
            "b_c=1;2,exported_le=x,otel_scope_a_b=1,otel_scope_name=lib,process_pid=7,\
             resource_le=r,resource_zone=north,service_name=app,zone=south"
        );
    }

    #[test]
    fn keys_that_collide_after_their_prefix_are_joined() {
        let list = |pairs: &[(&str, &str)]| -> OtlpLabels {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            sort_and_join(pairs.collect())
        };
        let resource = list(&[("a", "r"), ("resource_a", "s"), ("z", "t"), ("a", "q")]);
        assert_eq!(text(&resource), "a=r;q,resource_a=s,z=t");
        let labels = point_labels(&resource, &list(&[("b", "c")]), &list(&[("a", "p")]), None);
        assert_eq!(text(&labels), "a=p,b=c,resource_a=s;r;q,z=t");
    }
}
