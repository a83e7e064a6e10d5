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
mod head_search;
mod points_builder;
mod series_list;

use std::sync::Arc;

use pegel_metric::Series;

use crate::context::StoreContext;
use crate::hidden_ranges;
use crate::range_query::{QueryError, RangeQuery, SeriesVisitor, StepAggregation, TimeLimit};

use fragments::{SeriesFragments, gather_fragments};
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
    let mut limit = TimeLimit::of(query);
    let SeriesFragments {
        mut series,
        mut reader,
    } = gather_fragments(shared, query, &mut limit)?;
    let mut matching: Vec<Arc<Series>> = series.keys().cloned().collect();
    matching.sort_unstable();
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
        let shown_from = hidden_ranges::hidden_before(&hidden_ranges, name.family().input)
            .map_or(query.start, |before| before.max(query.start));
        if shown_from > query.end {
            continue;
        }
        if builder.begin_series(aggregation, shown_from) {
            reader.forget_times();
        }
        reader.read_series(&mut fragments, query, &mut limit, bytes_left, &mut builder)?;
        let points = builder.finish();
        if points.is_empty() {
            continue;
        }
        bytes_left = bytes_left
            .checked_sub(size_of_val(points))
            .ok_or(QueryError::TooLarge(query.bytes_max))?;
        visit(&name, points);
    }
    Ok(())
}
