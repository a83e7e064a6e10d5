//! Determines the labels with which series are sent, and which series are sent (`keep`, `drop`).

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_metric::Series;
use pegel_query::promql::{LabelSet, NodeLabels};

use super::settings::SeriesSelector;

/// The labels and the selection of series for one target.
#[derive(Debug)]
pub(super) struct SeriesLabels {
    pub node: Arc<NodeLabels>,
    /// Added to series that do not have them.
    pub external: BTreeMap<String, String>,
    /// Selectors of series to send; all are sent if it is empty.
    pub keep: Vec<SeriesSelector>,
    /// Selectors of series not to send.
    pub drop: Vec<SeriesSelector>,
}

impl SeriesLabels {
    /// Returns the labels of a series, as PromQL shows it and with the external labels; `None` if
    /// it is not selected.
    pub(super) fn of(&self, series: &Series) -> Option<LabelSet> {
        let mut labels = self.node.labels_of(series);
        if !self.external.is_empty() {
            let external = self.external.iter();
            let external = external.map(|(name, value)| (name.as_str(), value.as_str()));
            // If two labels have one name, the first is kept.
            labels = LabelSet::new(labels.iter().chain(external));
        }
        let is_of = |selectors: &[SeriesSelector]| {
            selectors.iter().any(|selector| selector.matches(&labels))
        };
        let is_chosen = (self.keep.is_empty() || is_of(&self.keep)) && !is_of(&self.drop);
        is_chosen.then_some(labels)
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Family, Input, MetricKind};

    use super::*;

    fn labels(keep: &[&str], drop: &[&str]) -> SeriesLabels {
        let selectors = |texts: &[&str]| {
            let texts = texts.iter();
            texts.map(|text| text.parse().expect("valid")).collect()
        };
        let node = NodeLabels {
            job: "node".into(),
            instance: "n1:1337".into(),
        };
        SeriesLabels {
            node: Arc::new(node),
            external: BTreeMap::from([
                ("cluster".to_owned(), "hpc1".to_owned()),
                ("job".to_owned(), "hidden".to_owned()),
            ]),
            keep: selectors(keep),
            drop: selectors(drop),
        }
    }

    fn text(labels: &SeriesLabels, series: &str) -> Option<String> {
        let family = |_: &str| {
            let family = Family::new("", MetricKind::Gauge, "", 1, "");
            Arc::new(family.of_input(Input::Push))
        };
        let series = Series::parse(series, family).expect("valid");
        Some(labels.of(&series)?.to_string())
    }

    #[test]
    fn series_have_the_labels_of_promql_and_those_of_the_target() {
        let expected =
            r#"{__name__="queue_depth", a_b="1", cluster="hpc1", instance="n1:1337", job="node"}"#;
        let all = labels(&[], &[]);
        let found = text(&all, r#"queue.depth{a.b="1"}"#);
        assert_eq!(found.as_deref(), Some(expected));
        let own = text(&all, r#"x{cluster="mine"}"#).expect("sent");
        assert!(own.contains("cluster=\"mine\"") && !own.contains("hpc1"));
    }

    #[test]
    fn rules_choose_by_the_labels_that_are_sent() {
        let rules = labels(
            &["{__name__=~\"node_.*\"}", "up{cluster=\"hpc1\"}"],
            &["node_load15", "{mode=\"idle\"}"],
        );
        let is_sent = |series: &str| text(&rules, series).is_some();
        assert!(is_sent("node_load1") && is_sent("up"));
        assert!(!is_sent("app_steps") && !is_sent("node_load15"));
        assert!(!is_sent(r#"node_cpu{mode="idle"}"#) && is_sent(r#"node_cpu{mode="user"}"#));
    }
}
