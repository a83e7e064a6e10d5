//! Current values of all nodes: one by one, or reduced over the nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{MetricKind, Selector, Series};
use pegel_store::{LatestValue, QueryError};

use crate::tree::{NodeLatest, TreeSource};

/// How long the nodes may take to return current values.
pub(super) const NODE_VALUES_TIME: Duration = Duration::from_secs(5);

/// Series with their current values, sorted by text.
pub(super) type CurrentSeries = Vec<(Arc<Series>, LatestValue)>;

/// Returns the current values of every node, with the label `host`. Blocks.
pub(super) fn values_of_each(
    source: &TreeSource,
    selector: &Selector,
) -> Result<CurrentSeries, QueryError> {
    let found = source.latest_of_nodes(Instant::now() + NODE_VALUES_TIME, selector)?;
    let found = found.into_iter().map(|found| (found.shown, found.latest));
    let mut found: CurrentSeries = found.collect();
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// Returns one value per series text: the sum of counters over the nodes, the average of anything
/// else. `own` is the name of this agent. Blocks.
pub(super) fn values_over_nodes(
    source: &TreeSource,
    selector: &Selector,
    own: &str,
) -> Result<CurrentSeries, QueryError> {
    let found = source.latest_of_nodes(Instant::now() + NODE_VALUES_TIME, selector)?;
    Ok(reduce(found, own))
}

#[derive(Debug, Default)]
struct ReducedValue {
    sum: f64,
    count: usize,
    last_changed: i64,
    last_sampled: i64,
}

fn reduce(found: Vec<NodeLatest>, own: &str) -> CurrentSeries {
    let mut reduced: HashMap<Arc<Series>, ReducedValue> = HashMap::new();
    for NodeLatest {
        host,
        stored,
        latest,
        ..
    } in found
    {
        // Names with a colon are results of reductions and rules: those of this agent cover the
        // others already.
        if stored.name().contains(':') && host != own {
            continue;
        }
        let reduced = reduced.entry(stored).or_default();
        reduced.sum += latest.value;
        reduced.count += 1;
        reduced.last_changed = reduced.last_changed.max(latest.last_changed);
        reduced.last_sampled = reduced.last_sampled.max(latest.last_sampled);
    }
    let value = |(series, reduced): (Arc<Series>, ReducedValue)| {
        let value = match series.family().kind {
            MetricKind::Counter => reduced.sum,
            MetricKind::Gauge | MetricKind::Unknown => reduced.sum / reduced.count as f64,
        };
        let latest = LatestValue {
            value,
            last_changed: reduced.last_changed,
            last_sampled: reduced.last_sampled,
        };
        (series, latest)
    };
    let mut values: CurrentSeries = reduced.into_iter().map(value).collect();
    values.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    values
}

#[cfg(test)]
mod tests {
    use pegel_metric::Family;

    use super::*;

    fn found(host: &str, kind: MetricKind, text: &str, value: f64) -> NodeLatest {
        let family = Arc::new(Family::new("", kind, "", 1, ""));
        let series = Arc::new(Series::parse(text, |_| family).expect("valid"));
        NodeLatest {
            host: host.into(),
            shown: series.clone(),
            stored: series,
            latest: LatestValue {
                value,
                last_changed: value as i64,
                last_sampled: 9,
            },
        }
    }

    #[test]
    fn counters_are_summed_and_gauges_averaged() {
        let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
        let values = reduce(
            vec![
                found("head", counter, "hits_total", 7.0),
                found("n1", counter, "hits_total", 1_000.0),
                found("n2", counter, "hits_total", 500.0),
                found("n1", gauge, "load", 1.0),
                found("n2", gauge, "load", 2.0),
                found("head", gauge, "load:sum", 3.0),
                found("n1", gauge, "load:sum", 9.0),
            ],
            "head",
        );
        let values: Vec<(&str, f64, i64)> = { values.iter() }
            .map(|(series, latest)| (series.text(), latest.value, latest.last_changed))
            .collect();
        let expected = [
            ("hits_total", 1_507.0, 1_000),
            ("load", 1.5, 2),
            ("load:sum", 3.0, 3),
        ];
        assert_eq!(values, expected);
    }
}
