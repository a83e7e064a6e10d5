//! Evaluates one sub-query: reads samples from the store series by series, transforms each series (downsampling,
//! rate), and merges the series of each group into one result series.
//!
//! Called by the response writer and by the expression endpoints. Memory is bounded by [`EvaluationBudget`], time
//! by the deadline of the request. With the aggregator `none` each result is passed on at once; otherwise only the
//! groups are held in memory.

mod budget;
mod group;
mod merge;
mod result_series;
mod selection;
mod transform;

use std::collections::BTreeMap;
use std::time::Instant;

use pegel_metric::Millis;
use pegel_store::{QueryStep, RangeQuery};

use crate::aggregator::Aggregator;
use crate::downsample::{Buckets, Downsample, DownsampleInterval};
use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::request::{QueryRequest, SubQuery};

use budget::EvaluationBudget;
use group::SeriesGroup;
pub(crate) use result_series::{ResultSeries, ResultVisitor};
use selection::SeriesSelection;
use transform::SeriesTransform;

/// How a sub-query reads the store and transforms each series.
struct SubQueryPlan<'a> {
    query: &'a SubQuery,
    /// The time range of the result, both ends included.
    start: Millis,
    end: Millis,
    downsample: Option<(&'a Downsample, Buckets)>,
    wants_tsuids: bool,
    deadline: Instant,
}

/// Calls `visit` for each result series and returns the number of points read from the store.
pub(crate) fn evaluate(
    engine: &QueryEngine,
    request: &QueryRequest,
    query: &SubQuery,
    wants_tsuids: bool,
    deadline: Instant,
    visit: &mut ResultVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    let Some(selection) = SeriesSelection::new(engine, request, query, deadline)? else {
        return Ok(0);
    };
    let Some(mut plan) = plan_sub_query(engine, request, query, deadline)? else {
        return Ok(0);
    };
    plan.wants_tsuids = wants_tsuids;
    let mut budget = EvaluationBudget::new(engine.limits.bytes_max);
    let mut transform = SeriesTransform::new(&plan, &mut budget)?;
    match query.aggregator {
        Aggregator::None => evaluate_each(engine, &plan, &selection, &mut transform, visit),
        _ => evaluate_grouped(
            engine,
            &plan,
            &selection,
            &mut transform,
            &mut budget,
            visit,
        ),
    }
}

/// Plans a sub-query; `None` if its time range is empty.
fn plan_sub_query<'a>(
    engine: &QueryEngine,
    request: &QueryRequest,
    query: &'a SubQuery,
    deadline: Instant,
) -> Result<Option<SubQueryPlan<'a>>, OpentsdbError> {
    let (mut start, mut end) = (request.start, request.end);
    let given = query.downsample.as_ref();
    let is_filled = given.is_some_and(|downsample| downsample.fill.value().is_some());
    let step = match given.map(|downsample| downsample.interval) {
        None => Some(0),
        Some(DownsampleInterval::Fixed(step)) => Some(step),
        Some(DownsampleInterval::All | DownsampleInterval::Calendar(..)) => None,
    };
    // Clip the range to the samples in the store, unless empty buckets are to be filled. The bucket of the first
    // sample may begin before it.
    if let (false, Some(step)) = (is_filled, step) {
        let status = engine.store.status();
        let oldest = status.oldest.unwrap_or(start).saturating_sub(step);
        start = start.max(oldest);
        end = end.min(status.newest.unwrap_or(end));
    }
    if start > end {
        return Ok(None);
    }
    let mut downsample = None;
    if let Some(given) = given {
        match Buckets::for_range(given.interval, start, end, &request.zone)? {
            Some(buckets) => downsample = Some((given, buckets)),
            None => return Ok(None),
        }
    }
    Ok(Some(SubQueryPlan {
        query,
        start,
        end,
        downsample,
        wants_tsuids: false,
        deadline,
    }))
}

impl SubQueryPlan<'_> {
    /// Builds the query for the store. The store folds samples into even buckets itself if it supports the function.
    fn store_query(&self, selection: &SeriesSelection, bytes_max: usize) -> RangeQuery {
        let ((start, end), step) = match &self.downsample {
            None => ((self.start, self.end), None),
            Some((downsample, buckets)) => {
                let millis = match buckets {
                    // One bucket for all times since 1970.
                    Buckets::One { .. } => Some(Millis::MAX),
                    Buckets::Even { step, .. } => Some(*step),
                    Buckets::Uneven(_) => None,
                };
                let fold = downsample.function.fold();
                let step = millis.zip(fold).map(|(millis, fold)| QueryStep {
                    millis,
                    aggregation: Some(fold),
                });
                (buckets.range(), step)
            }
        };
        RangeQuery {
            selector: selection.selector.clone(),
            start,
            end,
            step,
            bytes_max,
            deadline: self.deadline,
        }
    }
}

/// Makes each series a result of its own, passed on as soon as it is complete.
fn evaluate_each(
    engine: &QueryEngine,
    plan: &SubQueryPlan<'_>,
    selection: &SeriesSelection,
    transform: &mut SeriesTransform<'_>,
    visit: &mut ResultVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    let range_query = plan.store_query(selection, engine.limits.bytes_max);
    let mut count = 0;
    let mut result = Ok(());
    engine
        .store
        .query_range(&range_query, &mut |series, samples| {
            // The store does not support cancellation; after the first failure the rest is skipped.
            if result.is_ok() {
                count += samples.len() as u64;
                let mut group = SeriesGroup::single(series, plan, &engine.node);
                let points = transform.apply(samples);
                result = visit(&group.take_result(series.name(), plan.query, points));
            }
        })?;
    result.map(|()| count)
}

fn evaluate_grouped(
    engine: &QueryEngine,
    plan: &SubQueryPlan<'_>,
    selection: &SeriesSelection,
    transform: &mut SeriesTransform<'_>,
    budget: &mut EvaluationBudget,
    visit: &mut ResultVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    let range_query = plan.store_query(selection, engine.limits.bytes_max);
    let mut groups: BTreeMap<Vec<Option<String>>, SeriesGroup> = BTreeMap::new();
    let mut count = 0;
    let mut result = Ok(());
    engine
        .store
        .query_range(&range_query, &mut |series, samples| {
            if result.is_ok() {
                count += samples.len() as u64;
                let key = selection.group_key(series, &engine.node);
                result = add_to_group(&mut groups, key, plan, budget, |group, budget| {
                    group.add_series(series, plan, &engine.node, budget)?;
                    group.add_points(plan, transform.apply(samples), budget)
                });
            }
        })?;
    result?;
    while let Some((_, group)) = groups.pop_first() {
        let points = group.finish(plan, budget)?;
        visit(&points.as_result(&selection.metric, plan.query))?;
    }
    Ok(count)
}

fn add_to_group(
    groups: &mut BTreeMap<Vec<Option<String>>, SeriesGroup>,
    key: Vec<Option<String>>,
    plan: &SubQueryPlan<'_>,
    budget: &mut EvaluationBudget,
    into: impl FnOnce(&mut SeriesGroup, &mut EvaluationBudget) -> Result<(), OpentsdbError>,
) -> Result<(), OpentsdbError> {
    if let Some(group) = groups.get_mut(&key) {
        return into(group, budget);
    }
    let mut group = SeriesGroup::new(plan, budget)?;
    into(&mut group, budget)?;
    groups.insert(key, group);
    Ok(())
}
