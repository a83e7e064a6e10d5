//! What rules read and write: the node's store, or series in memory in unit tests.

use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, Point, Series};
use pegel_query::promql::{LabelSet, SeriesSource};
use pegel_store::Store;

/// A sample that a rule produced. The name is the label `__name__`.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSample {
    pub labels: LabelSet,
    pub time: Millis,
    pub value: f64,
}

/// A node whose series an evaluation could not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingNode {
    pub name: String,
    /// It is connected, and did not answer in time.
    pub is_connected: bool,
}

/// The series of all nodes of a tree, for one evaluation of a group.
pub trait RuleNodeSource: SeriesSource {
    /// Returns the nodes that did not answer so far.
    fn missing(&self) -> Vec<MissingNode>;
}

/// The series that rules read, and the place of those that they produce.
pub trait RuleStorage: Send + Sync {
    /// The series of this node.
    fn source(&self) -> &dyn SeriesSource;

    /// The series of all nodes with the label `host`, if this node is a parent in a tree.
    fn nodes(&self) -> Option<Box<dyn RuleNodeSource + '_>> {
        None
    }

    /// Writes samples. When this returns, they survive a crash of the process.
    fn append(&self, samples: &[RuleSample]) -> Result<(), String>;
}

/// The store of the node.
pub struct StoreStorage {
    source: Box<dyn SeriesSource + Send + Sync>,
    store: Store,
    family: Arc<Family>,
}

impl std::fmt::Debug for StoreStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreStorage").finish_non_exhaustive()
    }
}

impl StoreStorage {
    /// `source` presents the series of `store` to PromQL.
    pub fn new(source: Box<dyn SeriesSource + Send + Sync>, store: Store) -> StoreStorage {
        let family = Family::new("", MetricKind::Gauge, "", 0, "").of_input(Input::Rules);
        StoreStorage {
            source,
            store,
            family: Arc::new(family),
        }
    }

    fn point(&self, sample: &RuleSample) -> Result<Point, String> {
        let labels: Vec<(&str, &str)> = sample
            .labels
            .iter()
            .filter(|(name, _)| *name != "__name__")
            .collect();
        let name = sample.labels.metric_name();
        let series = Series::named(self.family.clone(), name, &labels)
            .map_err(|error| format!("cannot store {}: {error}", sample.labels))?;
        Ok(Point {
            series: Arc::new(series),
            time: sample.time,
            value: sample.value,
        })
    }
}

impl RuleStorage for StoreStorage {
    fn source(&self) -> &dyn SeriesSource {
        &*self.source
    }

    fn append(&self, samples: &[RuleSample]) -> Result<(), String> {
        if samples.is_empty() {
            return Ok(());
        }
        let points: Result<Vec<Point>, String> =
            samples.iter().map(|sample| self.point(sample)).collect();
        let pushed = self.store.push(Input::Rules, points?);
        let result = pushed.map_err(|error| format!("cannot store the result: {error}"))?;
        match result.refused.first() {
            None => Ok(()),
            Some((_, reason)) => Err(format!(
                "the store refused {} of {} samples: {}",
                result.refused.len(),
                samples.len(),
                reason.as_str()
            )),
        }
    }
}
