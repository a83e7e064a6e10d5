//! Range queries over head and blocks.
//!
//! A query runs in three steps. `head_search.rs` and `fragments.rs` collect, for every matching
//! series, its *fragments*: the places where its samples are stored, in order of precedence (blocks
//! by id, then frozen heads, then the active head). The fragments of each series are then decoded
//! and, where their times overlap, merged, so that of two samples of one time the one with the
//! highest precedence remains. Finally `points_builder.rs` aggregates the samples into steps.
//! Series are produced one by one.
//!
//! Called by `Store::query_range`. Memory and time are bounded by the query. No lock is held while
//! a selector runs or a block is read; a damaged fragment is logged and left out, and the rest is
//! returned.

mod fragments;
mod group_runs;
mod head_search;
mod held_values;
mod points_builder;
mod series_list;

use std::sync::Arc;

use pegel_metric::{Input, Millis, Series, is_stale};

use crate::context::StoreContext;
use crate::hidden_ranges;
use crate::range_query::{
    QueryError, RangeQuery, SeriesChoice, SeriesVisitor, StepAggregation, TickCompletion, TimeLimit,
};

use fragments::{SampleFragment, SeriesFragments, gather_fragments};
use held_values::{IDLE_ROW_MAX, repeat_held};
use points_builder::PointsBuilder;
pub(crate) use series_list::list_series;

/// Runs a query and visits the matching series one by one, sorted by text.
pub(crate) fn query_range(
    shared: &StoreContext,
    query: &RangeQuery,
    visit: &mut SeriesVisitor<'_>,
) -> Result<(), QueryError> {
    if query.start > query.end {
        return Err(QueryError::Reversed);
    }
    if query.step.is_some_and(|step| step.millis < 1) {
        return Err(QueryError::Step);
    }
    // Expired samples may still exist, but not everything that replaced them: never show them.
    let mut query = query.clone();
    query.start = query.start.max(shared.retention_start());
    if query.start > query.end {
        return Ok(());
    }
    let query = &query;
    // Rows before and after the range tell for how long values of programs hold.
    let mut scanned = query.clone();
    if query.ticks.is_some() {
        scanned.start = query.start.saturating_sub(IDLE_ROW_MAX);
        scanned.end = query.end.saturating_add(IDLE_ROW_MAX);
    }
    let now = shared.now();
    let mut limit = TimeLimit::of(query);
    let SeriesFragments {
        mut series,
        mut reader,
        groups,
    } = gather_fragments(shared, &scanned, &mut limit)?;
    let mut matching: Vec<Arc<Series>> = series.keys().cloned().collect();
    matching.sort_unstable();
    if let Some(SeriesChoice(choose)) = &query.choice {
        choose(&mut matching);
    }
    let mut builder = PointsBuilder::new(query);
    let mut bytes_left = query.bytes_max;
    let hidden_ranges = shared.hidden_ranges.ranges();
    for name in matching {
        limit.check_now()?;
        let mut fragments = series.remove(&name).unwrap_or_default();
        let aggregation = query
            .step
            .and_then(|step| step.aggregation)
            .unwrap_or_else(|| StepAggregation::default_for(name.family().kind));
        let is_held = |ticks: &TickCompletion| {
            let is_grouped = fragments.iter().all(SampleFragment::is_grouped);
            ticks.interval > 0 && is_grouped && name.family().input != Input::Collect
        };
        let held = query.ticks.filter(is_held);
        let range = if held.is_some() { &scanned } else { query };
        let shown_from = hidden_ranges::hidden_before(&hidden_ranges, name.family().input)
            .map_or(range.start, |before| before.max(range.start));
        if shown_from > query.end {
            continue;
        }
        if builder.begin_series(aggregation, (shown_from, range.end)) {
            reader.forget_times();
        }
        let (fragments, limit) = (&mut fragments, &mut limit);
        reader.read_series(fragments, &groups, query, limit, bytes_left, &mut builder)?;
        let mut points = builder.finish();
        let repeated;
        if let Some(ticks) = held {
            let count_max = bytes_left / size_of::<(Millis, f64)>();
            let ends = (query.start, query.end);
            repeated = repeat_held(points, ticks.interval, ends, now, count_max)
                .ok_or(QueryError::TooLarge(query.bytes_max))?;
            points = &repeated;
        }
        if query.ticks.is_some() && points.iter().all(|(_, value)| is_stale(*value)) {
            continue;
        }
        if points.is_empty() {
            continue;
        }
        // The reader of completed ticks counts what it keeps.
        if query.ticks.is_none() {
            bytes_left = bytes_left
                .checked_sub(size_of_val(points))
                .ok_or(QueryError::TooLarge(query.bytes_max))?;
        }
        visit(&name, points);
    }
    Ok(())
}
