use std::collections::BTreeMap;

use pegel_metric::Millis;

use crate::error::OpentsdbError;
use crate::request::SubQuery;

/// One line of a chart.
#[derive(Debug, Clone)]
pub(crate) struct ResultSeries<'a> {
    pub query: &'a SubQuery,
    pub metric: &'a str,
    /// What all its series have, with one value.
    pub tags: BTreeMap<String, String>,
    /// What all its series have, with different values.
    pub aggregate_tags: Vec<String>,
    /// Sorted; empty unless they were asked for.
    pub tsuids: Vec<String>,
    pub points: &'a [(Millis, f64)],
}

pub(crate) type ResultVisitor<'a> = dyn FnMut(&ResultSeries<'_>) -> Result<(), OpentsdbError> + 'a;
