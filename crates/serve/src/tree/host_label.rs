//! The label `host`, by which readers of a parent tell nodes apart. The parent sets it; a node that
//! has a label of this name in its own series cannot pretend to be another one.

use pegel_metric::{Input, Series};
use pegel_query::promql::LabelSet;

use super::node_index::NodeIndex;

pub(crate) const HOST: &str = "host";
/// The name under which a node's own label `host` appears.
pub(super) const EXPORTED_HOST: &str = "exported_host";
/// Labels that a node has under another name, or not at all.
pub(super) const ADDED_LABELS: [&str; 2] = [HOST, EXPORTED_HOST];

/// Returns a series with the label `host`. `None` if it exceeds the limits of a series.
pub(super) fn with_host(series: &Series, host: &str) -> Option<Series> {
    let labels: Vec<_> = series.labels().collect();
    let has_exported = labels.iter().any(|(key, _)| *key == EXPORTED_HOST);
    let mut shown: Vec<(&str, &str)> = Vec::with_capacity(labels.len() + 1);
    for (key, value) in &labels {
        match *key {
            HOST if has_exported => {}
            HOST => shown.push((EXPORTED_HOST, value)),
            key => shown.push((key, value)),
        }
    }
    shown.push((HOST, host));
    Series::named(series.family().clone(), series.name(), &shown).ok()
}

/// Returns a series of this agent as readers see it. Its own label `host` remains, unless it names
/// another node of the tree: points may be written to a parent on behalf of other machines. What a
/// rule of this agent made of the series of a node has the label of that node.
pub(super) fn own_with_host(series: &Series, nodes: &NodeIndex) -> Option<Series> {
    let is_of_rule = series.family().input == Input::Rules;
    match series.label(HOST) {
        Some(host) if is_of_rule || !nodes.contains(&host) => {
            let labels: Vec<_> = series.labels().collect();
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(key, value)| (*key, &**value)).collect();
            Series::named(series.family().clone(), series.name(), &labels).ok()
        }
        _ => with_host(series, &nodes.own),
    }
}

/// Returns labels of this agent's series as readers see them.
pub(super) fn own_labels_with_host(
    labels: LabelSet,
    is_of_rule: bool,
    nodes: &NodeIndex,
) -> LabelSet {
    let host = labels.get(HOST);
    if host.is_empty() {
        return labels.with(HOST, &nodes.own);
    }
    if is_of_rule || !nodes.contains(host) {
        return labels;
    }
    let exported = match labels.get(EXPORTED_HOST) {
        "" => host,
        exported => exported,
    };
    labels.with(EXPORTED_HOST, exported).with(HOST, &nodes.own)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pegel_metric::{Family, MetricKind};

    use super::*;

    fn shown(text: &str) -> String {
        let family = Arc::new(Family::new("", MetricKind::Gauge, "", 1, ""));
        let series = Series::parse(text, |_| family).expect("valid");
        with_host(&series, "n1").expect("short").text().to_owned()
    }

    #[test]
    fn a_node_cannot_name_another_host() {
        assert_eq!(shown("load"), r#"load{host="n1"}"#);
        assert_eq!(
            shown(r#"load{z="1",a="x\"y"}"#),
            r#"load{a="x\"y",host="n1",z="1"}"#
        );
        assert_eq!(
            shown(r#"load{host="head"}"#),
            r#"load{exported_host="head",host="n1"}"#
        );
        let both = shown(r#"load{exported_host="a",host="b"}"#);
        assert_eq!(both, r#"load{exported_host="a",host="n1"}"#);
    }

    #[test]
    fn own_series_keep_hosts_outside_of_the_tree() {
        let nodes = NodeIndex::new("head", &[]);
        let of = |pairs: &[(&str, &str)]| {
            own_labels_with_host(LabelSet::new(pairs.iter().copied()), false, &nodes).to_string()
        };
        assert_eq!(of(&[("a", "1")]), r#"{a="1", host="head"}"#);
        assert_eq!(of(&[("host", "printer")]), r#"{host="printer"}"#);
        assert_eq!(
            of(&[("host", "head")]),
            r#"{exported_host="head", host="head"}"#
        );
        let recorded = LabelSet::new([("host", "head")]);
        let recorded = own_labels_with_host(recorded, true, &nodes);
        assert_eq!(recorded.to_string(), r#"{host="head"}"#);
    }
}
