//! Reserved names and labels: those that programs may not use.
//!
//! A program's series must not appear in a family of the node or of the agent, in any output.
//! `/metrics` maps many names to one (`node.load1` is shown as `node_load1`), so names are compared
//! in the form that `/metrics` shows; so are the keys of labels. A program's label that has the key
//! of one that the agent adds is renamed, as Prometheus does it: `user` becomes `exported_user`.
//! Called by [`crate::admission`] for every new series.

use std::borrow::Cow;
use std::collections::HashSet;

use pegel_metric::prometheus_names::{label_key, metric_name};

use crate::name_owners::INPUT_LABEL;

/// Families of collectors and of the agent begin with the first two. Prometheus adds series with
/// the third on each scrape.
const PREFIXES: [&str; 3] = ["node_", "pegel_", "scrape_"];
const SCRAPE_HEALTH_METRIC: &str = "up";
/// Suffixes that exposition formats append to a family's name.
const SUFFIXES: [&str; 6] = ["_total", "_sum", "_count", "_bucket", "_created", "_info"];

/// The label of series of users other than the agent's.
pub const USER_LABEL: &str = "user";
/// The label of a statsd metric whose plain name has another type.
pub const STATSD_TYPE_LABEL: &str = "statsd_type";
/// The label of a lane's series whose plain name has another kind.
pub const LANE_TYPE_LABEL: &str = "lane_type";
const IDENTITY_LABELS: [&str; 4] = [USER_LABEL, INPUT_LABEL, STATSD_TYPE_LABEL, LANE_TYPE_LABEL];
/// The tag that OpenTSDB responses have for every series: the node's name, unless the series has
/// its own.
const HOST_LABEL: &str = "host";
/// The label that tells scraped systems apart.
const INSTANCE_LABEL: &str = "instance";

/// Returns whether the agent sets this label itself, in any spelling.
pub(crate) fn is_identity_label(key: &str) -> bool {
    IDENTITY_LABELS.contains(&&*label_key(key))
}

/// Returns a program's labels, renaming those whose key the agent uses itself.
pub(crate) fn exported<'a>(labels: &[(&'a str, &'a str)]) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
    let rename = |&(key, value): &(&'a str, &'a str)| {
        let mut key = Cow::Borrowed(key);
        if is_identity_label(&key) {
            key = Cow::Owned(format!("exported_{key}"));
            while labels.iter().any(|(other, _)| *other == key) {
                key = Cow::Owned(format!("exported_{key}"));
            }
        }
        (key, Cow::Borrowed(value))
    };
    labels.iter().map(rename).collect()
}

/// The names of the node and of the agent.
#[derive(Debug, Default)]
pub struct ReservedNames {
    node: Box<str>,
    /// The label `instance` of this node's series in PromQL.
    instances: Vec<Box<str>>,
    /// Families without one of the prefixes.
    families: HashSet<&'static str>,
}

impl ReservedNames {
    pub fn new(families: impl IntoIterator<Item = &'static str>) -> ReservedNames {
        let families = families.into_iter();
        ReservedNames {
            node: "".into(),
            instances: Vec::new(),
            families: families.filter(|name| !has_prefix(name)).collect(),
        }
    }

    /// Sets the node's name.
    pub fn of_node(mut self, node: &str) -> ReservedNames {
        self.node = node.into();
        self
    }

    /// Sets the values that the label `instance` of this node's series has in PromQL.
    pub fn of_instances(mut self, instances: impl IntoIterator<Item = String>) -> ReservedNames {
        let instances = instances.into_iter().map(String::into_boxed_str);
        self.instances = instances.collect();
        self
    }

    /// Returns whether labels name another system than this node: they have an `instance` that is
    /// not one of this node's.
    pub(crate) fn is_of_other_instance(&self, labels: &[(&str, &str)]) -> bool {
        let instance = labels.iter().find(|(key, _)| *key == INSTANCE_LABEL);
        let is_own =
            |value: &str| *value == *self.node || self.instances.iter().any(|own| **own == *value);
        instance.is_some_and(|(_, value)| !value.is_empty() && !is_own(value))
    }

    /// Returns whether a label carries no information: Prometheus treats an empty value as absent,
    /// and OpenTSDB responses add the node's name to series without a `host`. A series with such a
    /// label would look the same as the one without.
    pub fn is_implied(&self, key: &str, value: &str) -> bool {
        value.is_empty() || (key == HOST_LABEL && *value == *self.node)
    }

    /// Returns whether a series of this name would be shown in a family of the node, of the agent
    /// or of a scrape.
    pub fn contains(&self, name: &str) -> bool {
        let shown = metric_name(name);
        let is_family = |name: &str| name == SCRAPE_HEALTH_METRIC || self.families.contains(name);
        let mut stems = SUFFIXES.iter().filter_map(|end| shown.strip_suffix(end));
        has_prefix(&shown) || is_family(&shown) || stems.any(is_family)
    }
}

fn has_prefix(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_agent_are_renamed_in_every_spelling() {
        let labels = [
            ("user", "alice"),
            ("exported_user", "bob"),
            ("statsd.type", "c"),
            ("users", "2"),
        ];
        let renamed = exported(&labels);
        let keys: Vec<&str> = renamed.iter().map(|(key, _)| &**key).collect();
        assert_eq!(
            keys,
            [
                "exported_exported_user",
                "exported_user",
                "exported_statsd.type",
                "users"
            ]
        );
    }

    #[test]
    fn labels_that_every_series_has_are_implied() {
        let reserved = ReservedNames::default().of_node("nid1");
        assert!(reserved.is_implied("host", "nid1"));
        assert!(reserved.is_implied("phase", ""));
        assert!(!reserved.is_implied("host", "nid2"));
        assert!(!reserved.is_implied("phase", "nid1"));
    }

    #[test]
    fn another_instance_is_not_this_node() {
        let reserved = ReservedNames::default().of_node("nid1");
        let reserved = reserved.of_instances(["nid1:1337".to_owned()]);
        for (instance, expected) in [
            ("nid1", false),
            ("nid1:1337", false),
            ("", false),
            ("nid1:9100", true),
            ("localhost:9100", true),
        ] {
            let labels = [("a", "b"), ("instance", instance)];
            assert_eq!(
                reserved.is_of_other_instance(&labels),
                expected,
                "{instance}"
            );
        }
        assert!(!reserved.is_of_other_instance(&[("a", "b")]));
    }

    #[test]
    fn every_spelling_of_a_reserved_name_is_reserved() {
        let reserved = ReservedNames::new(["node_load1", "load_average"]);
        for name in [
            "node_load1",
            "node.load1",
            "node-load1",
            "node load1",
            "node\u{e4}load1",
            "node.filesystem.avail.bytes",
            "node_not_known_yet",
            "pegel.received.total",
            "up",
            "up_total",
            "scrape.duration.seconds",
            "load_average",
            "load.average",
            "load.average.sum",
            "load_average_bucket",
        ] {
            assert!(reserved.contains(name), "{name}");
        }
        for name in [
            "nodes",
            "node",
            "nodejs.heap",
            "my.node_load1",
            "node:load1",
            "pegelstand",
            "uptime",
            "upload",
            "load_averages",
            "total",
            "_total",
        ] {
            assert!(!reserved.contains(name), "{name}");
        }
    }
}
