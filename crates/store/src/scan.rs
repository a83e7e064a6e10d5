//! Range queries over head and blocks.
//!
//! A query runs in three steps. `head_search.rs` and `fragments.rs` collect, for every matching
//! series, its *fragments*: the places where its samples are stored, in order of precedence (blocks
//! by id, then frozen heads, then the active head). The fragments of each series are then decoded
//! and, where their times overlap, merged, so that of two samples of one time the one with the
//! highest precedence remains. Finally `points_builder.rs` aggregates the samples into steps, or
//! `column_builder.rs` collects all of them. Series are produced one by one. Filters of readers are
//! looked up once per series; only a series with a range of values pays for them
//! (`filtered_builder.rs`).
//!
//! Called by `Store::query_range` and `Store::query_columns`. Memory and time are bounded by the
//! query. No lock is held while a selector runs or a block is read; a damaged fragment is logged
//! and left out, and the rest is returned.

mod column_builder;
mod filtered_builder;
mod fragments;
mod group_runs;
mod head_search;
mod held_values;
mod points_builder;
mod sample_builder;
mod series_list;

use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::{Input, Millis, Series, is_stale};

use crate::context::StoreContext;
use crate::hidden_ranges::{self, HiddenRange};
use crate::range_query::{
    ColumnVisitor, QueryError, RangeQuery, SeriesChoice, SeriesVisitor, StepAggregation,
    TickCompletion, TimeLimit,
};
use crate::read_filters::{ReadFilter, ShownValues, shown_values};

use column_builder::ColumnBuilder;
use filtered_builder::{FilteredBuilder, mark_hidden};
use fragments::{SampleFragment, SeriesFragments, SeriesWithFragments, gather_fragments};
use held_values::{IDLE_ROW_MAX, repeat_held};
use points_builder::PointsBuilder;
pub use points_builder::{aggregate_samples, bucket_of};
use sample_builder::SampleBuilder;
pub(crate) use series_list::list_series;

/// Runs a query and visits the matching series one by one, sorted by text.
pub(crate) fn query_range(
    shared: &StoreContext,
    query: &RangeQuery,
    filters: &[ReadFilter],
    visit: &mut SeriesVisitor<'_>,
) -> Result<(), QueryError> {
    if query.step.is_some_and(|step| step.millis < 1) {
        return Err(QueryError::Step);
    }
    let query = RangeQuery {
        ticks: None,
        ..query.clone()
    };
    let Some(mut scan) = SeriesScan::begin(shared, query, filters)? else {
        return Ok(());
    };
    let mut builder = PointsBuilder::new(&scan.query);
    let mut bytes_left = scan.query.bytes_max;
    while let Some((series, mut fragments)) = scan.next_series()? {
        let aggregation = scan.query.step.and_then(|step| step.aggregation);
        let aggregation =
            aggregation.unwrap_or_else(|| StepAggregation::default_for(series.family().kind));
        let range = (scan.shown_from(&series, scan.query.start), scan.query.end);
        if range.0 > range.1 {
            continue;
        }
        if builder.begin_series(aggregation, range) {
            scan.found.reader.forget_times();
        }
        match shown_values(filters, &series) {
            ShownValues::Within(range) => {
                let mut filtered = FilteredBuilder {
                    builder: &mut builder,
                    range,
                };
                scan.read(&mut fragments, bytes_left, &mut filtered)?;
            }
            _ => scan.read(&mut fragments, bytes_left, &mut builder)?,
        }
        let points = builder.finish();
        if points.is_empty() {
            continue;
        }
        bytes_left = bytes_left
            .checked_sub(size_of_val(points))
            .ok_or(QueryError::TooLarge(scan.query.bytes_max))?;
        visit(&series, points);
    }
    Ok(())
}

/// Runs a query without a step and visits the columns of the matching series one by one, sorted by
/// text.
pub(crate) fn query_columns(
    shared: &StoreContext,
    query: &RangeQuery,
    filters: &[ReadFilter],
    visit: &mut ColumnVisitor<'_>,
) -> Result<(), QueryError> {
    let query = RangeQuery {
        step: None,
        ..query.clone()
    };
    let Some(mut scan) = SeriesScan::begin(shared, query, filters)? else {
        return Ok(());
    };
    let now = shared.now();
    let (start, end) = (scan.query.start, scan.query.end);
    let bytes_max = scan.query.bytes_max;
    let mut builder = ColumnBuilder::default();
    while let Some((series, mut fragments)) = scan.next_series()? {
        let held = scan
            .query
            .ticks
            .filter(|ticks| is_held(*ticks, &series, &fragments));
        // Rows before and after the range tell for how long values of programs hold.
        let margin = held.map_or(0, |_| IDLE_ROW_MAX);
        let range = (
            scan.shown_from(&series, start.saturating_sub(margin)),
            end.saturating_add(margin),
        );
        if range.0 > end {
            continue;
        }
        if builder.begin_series(range) {
            scan.found.reader.forget_times();
        }
        scan.read(&mut fragments, bytes_max, &mut builder)?;
        if let Some(ticks) = held {
            let count_max = bytes_max / size_of::<(Millis, f64)>();
            let samples = builder.samples();
            let repeated = repeat_held(&samples, ticks.interval, (start, end), now, count_max)
                .ok_or(QueryError::TooLarge(bytes_max))?;
            builder.replace(&repeated);
        }
        // After repeating, so that a shown value is not repeated in place of a hidden one.
        if let ShownValues::Within(range) = shown_values(filters, &series) {
            builder.replace(&mark_hidden(builder.samples(), range));
        }
        let column = builder.finish();
        if column.values.iter().all(|value| is_stale(*value)) {
            continue;
        }
        visit(&series, column);
    }
    Ok(())
}

/// Removes the series that are not chosen.
fn leave_out(SeriesChoice(choose): &SeriesChoice, matching: &mut Vec<SeriesWithFragments>) {
    let mut chosen: Vec<Arc<Series>> = matching.iter().map(|(series, _)| series.clone()).collect();
    choose(&mut chosen);
    if chosen.len() < matching.len() {
        let chosen: HashSet<Arc<Series>> = chosen.into_iter().collect();
        matching.retain(|(series, _)| chosen.contains(series));
    }
}

/// Removes the series that filters hide. Fails after the deadline: each series is compared with
/// every filter.
fn leave_out_hidden(
    matching: Vec<SeriesWithFragments>,
    filters: &[ReadFilter],
    limit: &mut TimeLimit,
) -> Result<Vec<SeriesWithFragments>, QueryError> {
    let mut shown = Vec::with_capacity(matching.len());
    for (series, fragments) in matching {
        limit.spend_on(&series)?;
        if shown_values(filters, &series) != ShownValues::None {
            shown.push((series, fragments));
        }
    }
    Ok(shown)
}

/// Returns whether values hold between the rows of a series: it is one of a program, in a group.
fn is_held(ticks: TickCompletion, series: &Series, fragments: &[SampleFragment]) -> bool {
    ticks.interval > 0
        && series.family().input != Input::Collect
        && fragments.iter().all(SampleFragment::is_grouped)
}

/// A running query: the series that are left, and the reader of their fragments.
struct SeriesScan {
    /// The range begins within the retention.
    query: RangeQuery,
    limit: TimeLimit,
    found: SeriesFragments,
    matching: std::vec::IntoIter<SeriesWithFragments>,
    hidden_ranges: Arc<Vec<HiddenRange>>,
}

impl SeriesScan {
    /// Collects the fragments of all matching series that no filter hides; `None` if the range is
    /// before the retention.
    fn begin(
        shared: &StoreContext,
        mut query: RangeQuery,
        filters: &[ReadFilter],
    ) -> Result<Option<SeriesScan>, QueryError> {
        if query.start > query.end {
            return Err(QueryError::Reversed);
        }
        // Expired samples may still exist, but not everything that replaced them: never show them.
        query.start = query.start.max(shared.retention_start());
        if query.start > query.end {
            return Ok(None);
        }
        let mut limit = TimeLimit::of(&query);
        let mut scanned = query.clone();
        if query.ticks.is_some() {
            scanned.start = query.start.saturating_sub(IDLE_ROW_MAX);
            scanned.end = query.end.saturating_add(IDLE_ROW_MAX);
        }
        let mut found = gather_fragments(shared, &scanned, &mut limit)?;
        let mut matching = std::mem::take(&mut found.series).into_sorted();
        limit.count_filters(filters);
        if !filters.is_empty() {
            matching = leave_out_hidden(matching, filters, &mut limit)?;
        }
        if let Some(choice) = &query.choice {
            leave_out(choice, &mut matching);
        }
        Ok(Some(SeriesScan {
            hidden_ranges: shared.hidden_ranges.ranges(),
            matching: matching.into_iter(),
            query,
            limit,
            found,
        }))
    }

    fn next_series(&mut self) -> Result<Option<SeriesWithFragments>, QueryError> {
        let next = self.matching.next();
        if let Some((series, _)) = &next {
            self.limit.spend_on(series)?;
        }
        Ok(next)
    }

    /// Returns the time from which on the samples of a series are shown, `start` at the earliest.
    fn shown_from(&self, series: &Series, start: Millis) -> Millis {
        hidden_ranges::hidden_before(&self.hidden_ranges, series.family().input)
            .map_or(start, |before| before.max(start))
    }

    fn read(
        &mut self,
        fragments: &mut [SampleFragment],
        bytes_max: usize,
        builder: &mut impl SampleBuilder,
    ) -> Result<(), QueryError> {
        let SeriesFragments { reader, groups, .. } = &mut self.found;
        let (query, limit) = (&self.query, &mut self.limit);
        reader.read_series(fragments, groups, query, limit, bytes_max, builder)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use pegel_metric::{Family, MetricKind};

    use super::*;
    use crate::range_query::QueryCancellation;
    use crate::read_filters::READ_FILTERS_MAX;

    fn series(label: usize) -> Arc<Series> {
        let family = Arc::new(Family::new("", MetricKind::Gauge, "", 1, ""));
        let label = label.to_string();
        Arc::new(Series::named(family, "m", &[("a", label.as_str())]).expect("valid"))
    }

    fn filters(count: usize) -> Vec<ReadFilter> {
        let filter = ReadFilter::new("f", "debug_*", None, None).expect("valid");
        vec![filter; count]
    }

    #[test]
    fn filters_are_not_tried_after_the_deadline() {
        let matching = (0..100_000).map(|label| (series(label), Vec::new()));
        let matching = matching.collect();
        let mut limit = TimeLimit::new(Some(Instant::now() - Duration::from_millis(1)));
        let shown = leave_out_hidden(matching, &filters(1), &mut limit);
        assert!(matches!(shown, Err(QueryError::TooLong)));
    }

    #[test]
    fn the_clock_is_read_for_every_series_if_there_are_many_filters() {
        let cancellation = QueryCancellation::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut limit = TimeLimit::until(deadline, cancellation.clone());
        limit.count_filters(&filters(READ_FILTERS_MAX));
        limit.spend_on(&series(0)).expect("in time");
        cancellation.cancel();
        let result = limit.spend_on(&series(1));
        assert!(matches!(result, Err(QueryError::Canceled)), "{result:?}");
    }
}
