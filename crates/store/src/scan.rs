//! Range queries over head and blocks.
//!
//! A query runs in three steps. `head_search.rs` and `fragments.rs` collect, for every matching series, its
//! *fragments*: the places where its samples are stored, in order of precedence (blocks by id, then frozen heads, then
//! the active head). The fragments of each series are then decoded and, where their times overlap, merged, so that of
//! two samples of one time the one with the highest precedence remains. Finally `points_builder.rs` aggregates the
//! samples into steps. Series are produced one by one.
//!
//! Called by `Store::query_range`. Memory and time are bounded by the query. No lock is held while a selector runs or a
//! block is read; a damaged fragment is logged and left out, and the rest is returned.

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

pub(crate) fn query_range(
    shared: &StoreContext,
    question: &RangeQuery,
    visit: &mut SeriesVisitor<'_>,
) -> Result<(), QueryError> {
    if question.start > question.end {
        return Err(QueryError::Reversed);
    }
    if question.step.is_some_and(|step| step.millis < 1) {
        return Err(QueryError::Step);
    }
    // Expired samples may still exist, but not everything that replaced them: never show them.
    let mut question = question.clone();
    question.start = question.start.max(shared.retention_start());
    if question.start > question.end {
        return Ok(());
    }
    let question = &question;
    let mut limit = TimeLimit::new(Some(question.deadline));
    let SeriesFragments {
        mut series,
        mut reader,
    } = gather_fragments(shared, question, &mut limit)?;
    let mut names: Vec<Arc<Series>> = series.keys().cloned().collect();
    names.sort_unstable();
    let mut answer = PointsBuilder::new(question);
    let mut bytes_left = question.bytes_max;
    let hidden_ranges = shared.hidden_ranges.ranges();
    for name in names {
        limit.check_now()?;
        let mut pieces = series.remove(&name).unwrap_or_default();
        let fold = question
            .step
            .and_then(|step| step.aggregation)
            .unwrap_or_else(|| StepAggregation::default_for(name.family().kind));
        let shown_from = hidden_ranges::hidden_before(&hidden_ranges, name.family().input)
            .map_or(question.start, |before| before.max(question.start));
        if shown_from > question.end {
            continue;
        }
        if answer.begin_series(fold, shown_from) {
            reader.forget_times();
        }
        reader.read_series(&mut pieces, question, &mut limit, bytes_left, &mut answer)?;
        let points = answer.finish();
        if points.is_empty() {
            continue;
        }
        bytes_left = bytes_left
            .checked_sub(size_of_val(points))
            .ok_or(QueryError::TooLarge(question.bytes_max))?;
        visit(&name, points);
    }
    Ok(())
}
