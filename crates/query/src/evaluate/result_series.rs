//! The result of a sub-query.

use std::collections::BTreeMap;

use pegel_metric::Millis;

use crate::error::OpentsdbError;
use crate::request::SubQuery;

/// One series of a result, as a chart shows it.
#[derive(Debug, Clone)]
pub(crate) struct ResultSeries<'a> {
    pub query: &'a SubQuery,
    pub metric: &'a str,
    /// The tags that all its series have with the same value.
    pub tags: BTreeMap<String, String>,
    /// The tags that all its series have with different values.
    pub aggregate_tags: Vec<String>,
    /// Sorted; empty unless requested.
    pub tsuids: Vec<String>,
    pub points: &'a [(Millis, f64)],
}

pub(crate) type ResultVisitor<'a> = dyn FnMut(&ResultSeries<'_>) -> Result<(), OpentsdbError> + 'a;
