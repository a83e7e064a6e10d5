//! Labels of OpenTelemetry's metrics: attributes of the resource, of the scope and of the point,
//! under names that Prometheus accepts.

use std::borrow::Cow;

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

/// Keys and values.
pub(super) type OtlpLabels = Vec<(String, String)>;

/// Adds a label. Values of the same key are joined by `;`, as the specification requires.
fn push_label(labels: &mut OtlpLabels, key: String, value: Cow<'_, str>) {
    match labels.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => {
            known.push(';');
            known.push_str(&value);
        }
        None => labels.push((key, value.into_owned())),
    }
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
    let mut labels = OtlpLabels::new();
    for attribute in sorted(attributes) {
        let key = &*attribute.key;
        let is_chosen = matches(&settings.resource_attributes, key)
            && !matches(&settings.ignored_attributes, key);
        if is_chosen {
            push_label(
                &mut labels,
                key_of(attribute),
                Cow::Borrowed(&attribute.value),
            );
        }
    }
    labels
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
        push_label(&mut labels, key, Cow::Borrowed(&attribute.value));
    }
    labels
}

/// Returns the number of bytes of all keys and values.
pub(super) fn text_bytes(labels: &OtlpLabels) -> usize {
    let labels = labels.iter();
    labels.map(|(key, value)| key.len() + value.len()).sum()
}

/// Returns all labels of a point. `reserved` is the key that its series use: `le` or `quantile`.
pub(super) fn point_labels(
    resource: &OtlpLabels,
    scope: &OtlpLabels,
    attributes: &[Attribute<'_>],
    reserved: Option<&str>,
) -> OtlpLabels {
    let mut labels = OtlpLabels::with_capacity(resource.len() + scope.len() + attributes.len() + 1);
    for attribute in sorted(attributes) {
        let mut key = key_of(attribute);
        if reserved == Some(key.as_str()) {
            key.insert_str(0, EXPORTED_PREFIX);
        }
        push_label(&mut labels, key, Cow::Borrowed(&attribute.value));
    }
    for (of_resource, (key, value)) in { scope.iter().map(|label| (false, label)) }
        .chain(resource.iter().map(|label| (true, label)))
    {
        let is_taken = |key: &str| labels.iter().any(|(known, _)| known == key);
        let mut key = Cow::Borrowed(key.as_str());
        if of_resource && (is_taken(&key) || reserved == Some(&key)) {
            key = Cow::Owned(format!("{RESOURCE_PREFIX}{key}"));
        }
        push_label(&mut labels, key.into_owned(), Cow::Borrowed(value));
    }
    labels
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
        let labels = point_labels(&resource, &scope, &point, Some("le"));
        assert_eq!(
            text(&labels),
            "b_c=1;2,exported_le=x,otel_scope_a_b=1,otel_scope_name=lib,process_pid=7,\
             resource_le=r,resource_zone=north,service_name=app,zone=south"
        );
    }
}
