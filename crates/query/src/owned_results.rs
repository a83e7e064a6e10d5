//! Owned result series, for the endpoints that compute on results. All results of a request share one memory limit.

use std::collections::BTreeMap;
use std::time::Instant;

use pegel_metric::Millis;
use pegel_store::QueryError;

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::evaluate::{ResultSeries, evaluate};
use crate::request::{QueryRequest, QueryTarget, SubQuery};

/// A result series that owns its data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OwnedResultSeries {
    pub metric: String,
    pub tags: BTreeMap<String, String>,
    pub aggregate_tags: Vec<String>,
    pub tsuids: Vec<String>,
    pub points: Vec<(Millis, f64)>,
}

impl OwnedResultSeries {
    pub fn as_result<'a>(&'a self, query: &'a SubQuery) -> ResultSeries<'a> {
        ResultSeries {
            query,
            metric: &self.metric,
            tags: self.tags.clone(),
            aggregate_tags: self.aggregate_tags.clone(),
            tsuids: self.tsuids.clone(),
            points: &self.points,
        }
    }
}

/// The memory limit for all result series of a request.
#[derive(Debug)]
pub(crate) struct ResultBudget {
    left: usize,
    max: usize,
}

impl ResultBudget {
    pub fn new(engine: &QueryEngine) -> ResultBudget {
        let max = engine.limits.bytes_max;
        ResultBudget { left: max, max }
    }

    pub fn reserve_points(&mut self, count: usize) -> Result<(), OpentsdbError> {
        let bytes = count
            .saturating_mul(size_of::<(Millis, f64)>())
            .saturating_add(512);
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(QueryError::TooLarge(self.max).into()),
        }
        Ok(())
    }
}

/// Evaluates one sub-query and returns all its result series.
pub(crate) fn collect_results(
    engine: &QueryEngine,
    request: &QueryRequest,
    query: &SubQuery,
    deadline: Instant,
    budget: &mut ResultBudget,
) -> Result<Vec<OwnedResultSeries>, OpentsdbError> {
    let mut lines = Vec::new();
    let visit = &mut |line: &ResultSeries<'_>| {
        budget.reserve_points(line.points.len())?;
        lines.push(OwnedResultSeries {
            metric: line.metric.to_owned(),
            tags: line.tags.clone(),
            aggregate_tags: line.aggregate_tags.clone(),
            tsuids: line.tsuids.clone(),
            points: line.points.to_vec(),
        });
        Ok(())
    };
    let wants_tsuids = engine.wants_tsuids(request);
    evaluate(engine, request, query, wants_tsuids, deadline, visit)?;
    if let (true, QueryTarget::Metric(name), false) =
        (lines.is_empty(), &query.target, engine.dragon_compat)
    {
        engine.check_metric_exists(name, deadline)?;
    }
    Ok(lines)
}

/// Returns the common tags of result series: tags with one value, and keys with several.
pub(crate) fn common_tags(lines: &[&OwnedResultSeries]) -> (BTreeMap<String, String>, Vec<String>) {
    let Some((first, rest)) = lines.split_first() else {
        return (BTreeMap::new(), Vec::new());
    };
    let mut tags = first.tags.clone();
    let mut aggregated = first.aggregate_tags.clone();
    for line in rest {
        for (key, value) in std::mem::take(&mut tags) {
            match line.tags.get(&key) {
                Some(other) if *other == value => drop(tags.insert(key, value)),
                Some(_) => aggregated.push(key),
                None if line.aggregate_tags.contains(&key) => aggregated.push(key),
                None => {}
            }
        }
        aggregated.retain(|key| line.tags.contains_key(key) || line.aggregate_tags.contains(key));
    }
    aggregated.sort_unstable();
    aggregated.dedup();
    (tags, aggregated)
}
