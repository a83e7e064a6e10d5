//! Answers questions: finds the pieces of each series in memory and in blocks, joins them, and folds
//! them into steps. Bounded in memory and time.

mod fold;
mod list;
mod memory;
mod pieces;

use std::sync::Arc;

use pegel_metric::Series;

use crate::hidden;
use crate::question::{Fold, QueryError, Question, TimeLimit, Visit};
use crate::shared::Shared;

use fold::Answer;
pub(crate) use list::series;
use pieces::{Pieces, gather};

pub(crate) fn range(
    shared: &Shared,
    question: &Question,
    visit: &mut Visit<'_>,
) -> Result<(), QueryError> {
    if question.start > question.end {
        return Err(QueryError::Reversed);
    }
    if question.step.is_some_and(|step| step.millis < 1) {
        return Err(QueryError::Step);
    }
    // What is beyond its age may be there still, but not everything that replaced it.
    let mut question = question.clone();
    question.start = question.start.max(shared.oldest_kept());
    if question.start > question.end {
        return Ok(());
    }
    let question = &question;
    let mut limit = TimeLimit::new(Some(question.deadline));
    let Pieces {
        mut series,
        mut reader,
    } = gather(shared, question, &mut limit)?;
    let mut names: Vec<Arc<Series>> = series.keys().cloned().collect();
    names.sort_unstable();
    let mut answer = Answer::new(question);
    let mut bytes_left = question.bytes_max;
    let hidden_ranges = shared.hidden.all();
    for name in names {
        limit.check_now()?;
        let mut pieces = series.remove(&name).unwrap_or_default();
        let fold = question
            .step
            .and_then(|step| step.fold)
            .unwrap_or_else(|| Fold::suiting(name.family().kind));
        let shown_from = hidden::before(&hidden_ranges, name.family().input)
            .map_or(question.start, |before| before.max(question.start));
        if shown_from > question.end {
            continue;
        }
        if answer.begin(fold, shown_from) {
            reader.forget_times();
        }
        reader.feed(&mut pieces, question, &mut limit, bytes_left, &mut answer)?;
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
