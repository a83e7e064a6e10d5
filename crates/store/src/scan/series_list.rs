//! Lists the series that have samples in a range, without reading the samples.

use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::Series;

use crate::block::{BlockReadError, BlockReader};
use crate::context::StoreContext;
use crate::range_query::{QueryError, RangeQuery, TimeLimit};
use crate::read_filters::{ReadFilter, ShownValues, shown_values};

use super::head_search;

/// Visits the matching series that have a sample in the range and that no filter hides, sorted by
/// text. A series whose samples end within the same few hundred rows in which the range begins may
/// be visited too.
pub(crate) fn list_series(
    shared: &StoreContext,
    query: &RangeQuery,
    filters: &[ReadFilter],
    visit: &mut dyn FnMut(&Arc<Series>),
) -> Result<(), QueryError> {
    if query.start > query.end {
        return Err(QueryError::Reversed);
    }
    let mut query = query.clone();
    query.start = query.start.max(shared.retention_start());
    let mut limit = TimeLimit::of(&query);
    let mut found = MatchingSeries {
        series: HashSet::new(),
        count_max: query.bytes_max / (2 * size_of::<Arc<Series>>()),
        question: &query,
    };
    head_search::find_in_memory(shared, &query, 1, &mut limit, &mut |series, _| {
        found.add(series)
    })?;
    // Blocks are searched after memory, so that samples that moved to a block meanwhile are found
    // there.
    for block in shared.overlapping_blocks(query.start, query.end) {
        limit.check_now()?;
        match BlockReader::open(&block, &shared.indexes) {
            Ok(reader) => found.add_block(&reader, &mut limit)?,
            Err(BlockReadError::Io(source)) => {
                let path = block.path.clone();
                return Err(QueryError::Read { path, source });
            }
            // Reported by the query that reads the samples.
            Err(_) => {}
        }
    }
    let mut series: Vec<Arc<Series>> = found.series.into_iter().collect();
    series.sort_unstable();
    limit.count_filters(filters);
    for series in &series {
        limit.spend_on(series)?;
        if shown_values(filters, series) != ShownValues::None {
            visit(series);
        }
    }
    Ok(())
}

struct MatchingSeries<'a> {
    series: HashSet<Arc<Series>>,
    count_max: usize,
    question: &'a RangeQuery,
}

impl MatchingSeries<'_> {
    fn add(&mut self, series: &Arc<Series>) -> Result<(), QueryError> {
        if !self.series.contains(series) {
            self.series.insert(series.clone());
        }
        if self.series.len() > self.count_max {
            Err(QueryError::TooLarge(self.question.bytes_max))
        } else {
            Ok(())
        }
    }

    fn add_block(&mut self, reader: &BlockReader, limit: &mut TimeLimit) -> Result<(), QueryError> {
        let (index, query) = (&reader.index, self.question);
        let candidates = index.candidates(&query.selector);
        for at in candidates.into_iter().flatten() {
            let series = &index.series[at];
            limit.spend_on(series)?;
            let overlaps = || {
                index.locations_of(at as u32).iter().any(|(run, _)| {
                    let entry = &index.runs[*run as usize];
                    entry.min <= query.end && query.start <= entry.max
                })
            };
            if query.selector.matches(series) && overlaps() {
                self.add(series)?;
            }
        }
        Ok(())
    }
}
