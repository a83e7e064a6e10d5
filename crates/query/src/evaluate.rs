//! Works out the lines of one sub-query: samples from the store, series by series, into groups.

mod budget;
mod chosen;
mod group;
mod line;
mod merge;
mod shape;

use std::collections::BTreeMap;
use std::time::Instant;

use pegel_metric::Millis;
use pegel_store::{Question, Step};

use crate::aggregator::Aggregator;
use crate::downsample::{Buckets, Downsample, Span};
use crate::engine::Engine;
use crate::problem::Problem;
use crate::request::{Request, SubQuery};

use budget::Budget;
use chosen::Chosen;
use group::Group;
pub(crate) use line::{Line, Visit};
use shape::Shaper;

/// How a sub-query reads the store, and what it does to each series.
struct Plan<'a> {
    query: &'a SubQuery,
    /// Which times may be part of the answer.
    start: Millis,
    end: Millis,
    downsample: Option<(&'a Downsample, Buckets)>,
    wants_tsuids: bool,
    deadline: Instant,
}

/// Calls `visit` for each line, and returns how many points came from the store.
pub(crate) fn evaluate(
    engine: &Engine,
    request: &Request,
    query: &SubQuery,
    wants_tsuids: bool,
    deadline: Instant,
    visit: &mut Visit<'_>,
) -> Result<u64, Problem> {
    let Some(chosen) = Chosen::new(engine, request, query, deadline)? else {
        return Ok(0);
    };
    let Some(mut plan) = plan(engine, request, query, deadline)? else {
        return Ok(0);
    };
    plan.wants_tsuids = wants_tsuids;
    let mut budget = Budget::new(engine.limits.bytes_max);
    let mut shaper = Shaper::new(&plan, &mut budget)?;
    match query.aggregator {
        Aggregator::None => alone(engine, &plan, &chosen, &mut shaper, visit),
        _ => grouped(engine, &plan, &chosen, &mut shaper, &mut budget, visit),
    }
}

/// Nothing where no time is left to ask about.
fn plan<'a>(
    engine: &Engine,
    request: &Request,
    query: &'a SubQuery,
    deadline: Instant,
) -> Result<Option<Plan<'a>>, Problem> {
    let (mut start, mut end) = (request.start, request.end);
    let given = query.downsample.as_ref();
    let is_filled = given.is_some_and(|downsample| downsample.fill.value().is_some());
    let step = match given.map(|downsample| downsample.span) {
        None => Some(0),
        Some(Span::Fixed(step)) => Some(step),
        Some(Span::All | Span::Calendar(..)) => None,
    };
    // Years without samples need no buckets, unless these are to be filled. The bucket of the first sample may
    // begin before it.
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
        match Buckets::of(given.span, start, end, &request.zone)? {
            Some(buckets) => downsample = Some((given, buckets)),
            None => return Ok(None),
        }
    }
    Ok(Some(Plan {
        query,
        start,
        end,
        downsample,
        wants_tsuids: false,
        deadline,
    }))
}

impl Plan<'_> {
    /// What the store is asked for. It folds samples into even buckets by itself where it knows how.
    fn question(&self, chosen: &Chosen, bytes_max: usize) -> Question {
        let ((start, end), step) = match &self.downsample {
            None => ((self.start, self.end), None),
            Some((downsample, buckets)) => {
                let millis = match buckets {
                    // One bucket for all times from 1970 on.
                    Buckets::One { .. } => Some(Millis::MAX),
                    Buckets::Even { step, .. } => Some(*step),
                    Buckets::Uneven(_) => None,
                };
                let fold = downsample.function.fold();
                let step = millis.zip(fold).map(|(millis, fold)| Step {
                    millis,
                    fold: Some(fold),
                });
                (buckets.range(), step)
            }
        };
        Question {
            selector: chosen.selector.clone(),
            start,
            end,
            step,
            bytes_max,
            deadline: self.deadline,
        }
    }
}

/// Every series is a line of its own, and leaves as soon as it is worked out.
fn alone(
    engine: &Engine,
    plan: &Plan<'_>,
    chosen: &Chosen,
    shaper: &mut Shaper<'_>,
    visit: &mut Visit<'_>,
) -> Result<u64, Problem> {
    let question = plan.question(chosen, engine.limits.bytes_max);
    let mut count = 0;
    let mut result = Ok(());
    engine.store.range(&question, &mut |series, samples| {
        // The store cannot be told to stop; after the first failure the rest is passed over.
        if result.is_ok() {
            count += samples.len() as u64;
            let mut group = Group::alone(series, plan, &engine.node);
            let points = shaper.shape(samples);
            result = visit(&group.line(series.name(), plan.query, points));
        }
    })?;
    result.map(|()| count)
}

fn grouped(
    engine: &Engine,
    plan: &Plan<'_>,
    chosen: &Chosen,
    shaper: &mut Shaper<'_>,
    budget: &mut Budget,
    visit: &mut Visit<'_>,
) -> Result<u64, Problem> {
    let question = plan.question(chosen, engine.limits.bytes_max);
    let mut groups: BTreeMap<Vec<Option<String>>, Group> = BTreeMap::new();
    let mut count = 0;
    let mut result = Ok(());
    engine.store.range(&question, &mut |series, samples| {
        if result.is_ok() {
            count += samples.len() as u64;
            let key = chosen.group_of(series, &engine.node);
            result = add(&mut groups, key, plan, budget, |group, budget| {
                group.join(series, plan, &engine.node, budget)?;
                group.add(plan, shaper.shape(samples), budget)
            });
        }
    })?;
    result?;
    while let Some((_, group)) = groups.pop_first() {
        let points = group.finish(plan, budget)?;
        visit(&points.line(&chosen.metric, plan.query))?;
    }
    Ok(count)
}

fn add(
    groups: &mut BTreeMap<Vec<Option<String>>, Group>,
    key: Vec<Option<String>>,
    plan: &Plan<'_>,
    budget: &mut Budget,
    into: impl FnOnce(&mut Group, &mut Budget) -> Result<(), Problem>,
) -> Result<(), Problem> {
    if let Some(group) = groups.get_mut(&key) {
        return into(group, budget);
    }
    let mut group = Group::new(plan, budget)?;
    into(&mut group, budget)?;
    groups.insert(key, group);
    Ok(())
}
