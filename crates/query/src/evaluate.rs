//! Evaluates one sub-query: reads samples from the store series by series, transforms each series
//! (downsampling, rate), and merges the series of each group into one result series.
//!
//! Called by the response writer and by the expression endpoints. Memory is bounded by
//! [`QueryMemoryBudget`], time by the deadline of the request. With the aggregator `none` each
//! result is passed on at once; otherwise only the groups are held in memory.

mod group;
mod merge;
mod result_series;
mod selection;
mod transform;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Millis, Series};
use pegel_store::{QueryStep, RangeQuery};

use crate::aggregator::Aggregator;
use crate::downsample::{Buckets, Downsample, DownsampleInterval};
use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::memory_budget::QueryMemoryBudget;
use crate::request::{QueryRequest, QueryTarget, SubQuery};
use crate::tags::owned_tags;
use crate::tsuid::tsuid;

use group::SeriesGroup;
use result_series::ResultVisitor;
pub(crate) use result_series::{ResultSeries, common_tags};
use selection::SeriesSelection;
pub(crate) use selection::host_condition;
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
/// Without any result, a metric that does not exist is an error.
pub(crate) fn evaluate(
    engine: &QueryEngine,
    request: &QueryRequest,
    query: &SubQuery,
    deadline: Instant,
    visit: &mut ResultVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    let mut has_results = false;
    let visit = &mut |line: ResultSeries| {
        has_results = true;
        visit(line)
    };
    let count = evaluate_known(engine, request, query, deadline, visit)?;
    if let (false, QueryTarget::Metric(name), false) =
        (has_results, &query.target, engine.dragon_compat)
    {
        engine.check_metric_exists(name, deadline)?;
    }
    Ok(count)
}

/// Evaluates one sub-query and returns all its result series, for the endpoints that compute on
/// results.
pub(crate) fn collect_results(
    engine: &QueryEngine,
    request: &QueryRequest,
    query: &SubQuery,
    deadline: Instant,
    budget: &mut QueryMemoryBudget,
) -> Result<Vec<ResultSeries>, OpentsdbError> {
    let mut lines = Vec::new();
    evaluate(engine, request, query, deadline, &mut |line| {
        budget.reserve_points(line.points.len())?;
        lines.push(line);
        Ok(())
    })?;
    Ok(lines)
}

fn evaluate_known(
    engine: &QueryEngine,
    request: &QueryRequest,
    query: &SubQuery,
    deadline: Instant,
    visit: &mut ResultVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    let Some(selection) = SeriesSelection::new(engine, request, query, deadline)? else {
        return Ok(0);
    };
    let Some(plan) = plan_sub_query(engine, request, query, deadline)? else {
        return Ok(0);
    };
    let mut budget = QueryMemoryBudget::new(engine.limits.bytes_max);
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
    // Clip the range to the samples in the store, unless empty buckets are to be filled. The bucket
    // of the first sample may begin before it.
    if let (false, Some(step)) = (is_filled, step) {
        let (oldest, newest) = engine.source.time_bounds();
        let oldest = oldest.unwrap_or(start).saturating_sub(step);
        start = start.max(oldest);
        end = end.min(newest.unwrap_or(end));
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
        wants_tsuids: engine.wants_tsuids(request),
        deadline,
    }))
}

impl SubQueryPlan<'_> {
    /// Builds the query for the store. The store folds samples into even buckets itself if it
    /// supports the function.
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
            bytes_max,
            deadline: self.deadline,
            ..RangeQuery::new(selection.selector.clone(), start, end, step)
        }
    }
}

type SampleVisitor<'a> = dyn FnMut(&Series, &[(Millis, f64)]) -> Result<(), OpentsdbError> + 'a;

/// Reads the selected series one by one and returns the number of points. The store does not
/// support cancellation: after the first failure of `each` the rest is skipped.
fn read_selected(
    engine: &QueryEngine,
    plan: &SubQueryPlan<'_>,
    selection: &SeriesSelection,
    each: &mut SampleVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    let range_query = plan.store_query(selection, engine.limits.bytes_max);
    let mut count = 0;
    let mut result = Ok(());
    let visit = &mut |series: &Arc<Series>, samples: &[(Millis, f64)]| {
        if result.is_ok() {
            count += samples.len() as u64;
            result = each(series, samples);
        }
    };
    engine.source.query_range(&range_query, visit)?;
    result.map(|()| count)
}

/// Makes each series a result of its own, passed on as soon as it is complete.
fn evaluate_each(
    engine: &QueryEngine,
    plan: &SubQueryPlan<'_>,
    selection: &SeriesSelection,
    transform: &mut SeriesTransform<'_>,
    visit: &mut ResultVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    read_selected(engine, plan, selection, &mut |series, samples| {
        let tsuid = plan.wants_tsuids.then(|| tsuid(series, &engine.node));
        visit(ResultSeries {
            metric: series.name().to_owned(),
            tags: owned_tags(series, &engine.node),
            aggregate_tags: Vec::new(),
            tsuids: tsuid.into_iter().collect(),
            points: transform.apply(samples).to_vec(),
        })
    })
}

fn evaluate_grouped(
    engine: &QueryEngine,
    plan: &SubQueryPlan<'_>,
    selection: &SeriesSelection,
    transform: &mut SeriesTransform<'_>,
    budget: &mut QueryMemoryBudget,
    visit: &mut ResultVisitor<'_>,
) -> Result<u64, OpentsdbError> {
    let mut groups: BTreeMap<Vec<Option<String>>, SeriesGroup> = BTreeMap::new();
    let count = read_selected(engine, plan, selection, &mut |series, samples| {
        let key = selection.group_key(series, &engine.node);
        let group = find_group(&mut groups, key, plan, budget)?;
        group.add_series(series, plan, &engine.node, budget)?;
        group.add_points(plan, transform.apply(samples), budget)
    })?;
    while let Some((_, group)) = groups.pop_first() {
        visit(group.finish(&selection.metric, plan, budget)?)?;
    }
    Ok(count)
}

fn find_group<'a>(
    groups: &'a mut BTreeMap<Vec<Option<String>>, SeriesGroup>,
    key: Vec<Option<String>>,
    plan: &SubQueryPlan<'_>,
    budget: &mut QueryMemoryBudget,
) -> Result<&'a mut SeriesGroup, OpentsdbError> {
    Ok(match groups.entry(key) {
        Entry::Occupied(group) => group.into_mut(),
        Entry::Vacant(place) => place.insert(SeriesGroup::new(plan, budget)?),
    })
}
