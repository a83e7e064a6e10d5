//! Which series there are, without reading their samples.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::Series;

use crate::block::{BlockReader, ReadError};
use crate::head::Head;
use crate::question::{QueryError, Question};
use crate::shared::Shared;

/// Visits the series that match and have a sample in the range, sorted by text. A series whose samples end
/// within the same few hundred rows as the range begins may be visited too.
pub(crate) fn series(
    shared: &Shared,
    question: &Question,
    visit: &mut dyn FnMut(&Arc<Series>),
) -> Result<(), QueryError> {
    if question.start > question.end {
        return Err(QueryError::Reversed);
    }
    let mut question = question.clone();
    question.start = question.start.max(shared.oldest_kept());
    let mut found = Found {
        series: HashSet::new(),
        count_max: question.bytes_max / (2 * size_of::<Arc<Series>>()),
        question: &question,
    };
    let blocks: Vec<_> = {
        let state = shared.read();
        for frozen in &state.frozen {
            found.add_head(&frozen.head)?;
        }
        found.add_head(&state.head)?;
        state
            .blocks
            .iter()
            .filter(|block| block.overlaps(question.start, question.end))
            .cloned()
            .collect()
    };
    for block in blocks {
        match BlockReader::open(&block, &shared.indexes) {
            Ok(reader) => found.add_block(&reader)?,
            Err(ReadError::Io(source)) => {
                let path = block.path.clone();
                return Err(QueryError::Read { path, source });
            }
            // The question that reads its samples says so.
            Err(_) => {}
        }
        if Instant::now() > question.deadline {
            return Err(QueryError::TooLong);
        }
    }
    let mut series: Vec<Arc<Series>> = found.series.into_iter().collect();
    series.sort_unstable();
    series.iter().for_each(visit);
    Ok(())
}

struct Found<'a> {
    series: HashSet<Arc<Series>>,
    count_max: usize,
    question: &'a Question,
}

impl Found<'_> {
    fn overlaps(&self, min: i64, max: i64) -> bool {
        min <= self.question.end && self.question.start <= max
    }

    /// Whether it matches and was not found before.
    fn wants(&self, series: &Arc<Series>) -> bool {
        self.question.selector.matches(series) && !self.series.contains(series)
    }

    fn add(&mut self, series: &Arc<Series>) -> Result<(), QueryError> {
        if self.wants(series) {
            self.series.insert(series.clone());
        }
        match self.series.len() > self.count_max {
            true => Err(QueryError::TooLarge(self.question.bytes_max)),
            false => Ok(()),
        }
    }

    fn add_head(&mut self, head: &Head) -> Result<(), QueryError> {
        if !head.span.is_some_and(|(min, max)| self.overlaps(min, max)) {
            return Ok(());
        }
        for group in &head.groups {
            for run in group.closed() {
                if !self.overlaps(run.min, run.max) {
                    continue;
                }
                for column in &run.columns {
                    self.add(&run.owner.series()[column.member as usize])?;
                }
            }
            let times = group.tail_times();
            let ends = times.first().zip(times.last());
            if ends.is_some_and(|(min, max)| self.overlaps(*min, *max)) {
                for (member, series) in group.members().series.iter().enumerate() {
                    if self.wants(series) && group.tail_samples(member).next().is_some() {
                        self.add(series)?;
                    }
                }
            }
        }
        for (series, loose) in &head.loose {
            // Looking at its tail is dear.
            if !self.wants(series) {
                continue;
            }
            let in_runs = loose
                .closed()
                .iter()
                .any(|run| self.overlaps(run.min, run.max));
            let has_samples = in_runs
                || loose
                    .tail()
                    .iter()
                    .any(|(time, _)| self.overlaps(*time, *time));
            if has_samples {
                self.add(series)?;
            }
        }
        Ok(())
    }

    fn add_block(&mut self, reader: &BlockReader) -> Result<(), QueryError> {
        let index = &reader.index;
        for number in index.matching(&self.question.selector) {
            let overlaps = index.places(number).iter().any(|(run, _)| {
                let entry = &index.runs[*run as usize];
                self.overlaps(entry.min, entry.max)
            });
            if overlaps {
                self.add(&index.series[number as usize])?;
            }
        }
        Ok(())
    }
}
