//! Merges the partial results of nodes.

use std::collections::HashMap;

use super::super::aggregate::{choose_ranked, group};
use super::super::error::PromqlError;
use super::super::labels::LabelSet;
use super::super::limits::{EvaluationBudget, PromqlLimits};
use super::super::value::{ABSENT, StepSeries, is_absent};
use super::evaluate::ranking;
use super::{PushedOperator, PushedRequest, PushedSeries};

/// Merges partial results, one after the other and in any order. The result is a partial result
/// too: every level of a tree merges what the level below it sent.
#[derive(Debug)]
pub struct PushedMerger<'a> {
    request: &'a PushedRequest,
    steps: usize,
    budget: EvaluationBudget,
    series: Vec<PushedSeries>,
    places: HashMap<LabelSet, usize>,
}

impl<'a> PushedMerger<'a> {
    pub fn new(
        request: &'a PushedRequest,
        limits: &PromqlLimits,
    ) -> Result<PushedMerger<'a>, PromqlError> {
        Ok(PushedMerger {
            request,
            steps: request.steps.steps()?.count,
            budget: EvaluationBudget::new(limits),
            series: Vec::new(),
            places: HashMap::new(),
        })
    }

    /// Adds the result of a node, or the merged result of several.
    pub fn add(&mut self, part: Vec<PushedSeries>) -> Result<(), PromqlError> {
        let operator = self.request.operator;
        for series in part {
            series.check(operator, self.steps)?;
            self.budget.spend(self.steps)?;
            let free = self.series.len();
            let place = match operator.keeps_series() {
                true => free,
                false => *self.places.entry(series.labels.clone()).or_insert(free),
            };
            match self.series.get_mut(place) {
                Some(known) => combine(known, series, operator),
                None => {
                    self.budget.reserve(series.bytes())?;
                    self.series.push(series);
                }
            }
        }
        Ok(())
    }

    /// Returns the merged result. Groups are sorted by their labels; series that `topk` or
    /// `bottomk` chose at a single step are sorted by rank within each group.
    pub fn finish(mut self) -> Result<Vec<PushedSeries>, PromqlError> {
        // Equal values are ranked by labels, see `LocalOperand::has_known_order`.
        self.series.sort_by(|a, b| a.labels.cmp(&b.labels));
        let (PushedOperator::TopK(count) | PushedOperator::BottomK(count)) = self.request.operator
        else {
            return Ok(self.series);
        };
        let input = self.series.into_iter().map(|series| StepSeries {
            labels: series.labels,
            values: series.values,
        });
        let input: Vec<StepSeries> = input.collect();
        let groups = group(&mut self.budget, &self.request.grouping, &input)?;
        let counts = vec![f64::from(count); self.steps];
        let order = ranking(self.request.operator);
        let chosen = choose_ranked(&mut self.budget, order, &counts, (&groups, &input))?;
        Ok(chosen.into_iter().map(PushedSeries::of_column).collect())
    }
}

/// Merges the results of all nodes.
pub fn merge_pushed(
    request: &PushedRequest,
    parts: Vec<Vec<PushedSeries>>,
    limits: &PromqlLimits,
) -> Result<Vec<PushedSeries>, PromqlError> {
    let mut merger = PushedMerger::new(request, limits)?;
    for part in parts {
        merger.add(part)?;
    }
    merger.finish()
}

/// Returns the values of a complete result.
pub(super) fn column(mut series: PushedSeries, operator: PushedOperator) -> StepSeries {
    for step in 0..series.values.len() {
        if is_absent(series.values[step]) {
            continue;
        }
        series.values[step] = match operator {
            PushedOperator::Sum => series.sum(step).total(),
            PushedOperator::Avg => series.mean(step),
            _ => break,
        };
    }
    StepSeries {
        labels: series.labels,
        values: series.values,
    }
}

fn combine(known: &mut PushedSeries, other: PushedSeries, operator: PushedOperator) {
    match operator {
        PushedOperator::Sum => add_sums(known, &other),
        PushedOperator::Avg => add_means(known, other),
        PushedOperator::Count => combine_values(known, &other, |a, b| a + b),
        PushedOperator::Min => combine_values(known, &other, f64::min),
        PushedOperator::Max => combine_values(known, &other, f64::max),
        PushedOperator::Group | PushedOperator::TopK(_) | PushedOperator::BottomK(_) => {
            combine_values(known, &other, |a, _| a);
        }
    }
}

fn combine_values(known: &mut PushedSeries, other: &PushedSeries, merged: fn(f64, f64) -> f64) {
    for (value, other) in known.values.iter_mut().zip(&other.values) {
        match (is_absent(*value), is_absent(*other)) {
            (_, true) => {}
            (true, false) => *value = *other,
            (false, false) => *value = merged(*value, *other),
        }
    }
}

fn add_sums(known: &mut PushedSeries, other: &PushedSeries) {
    for step in 0..known.values.len() {
        if is_absent(other.values[step]) {
            continue;
        }
        let mut sum = other.sum(step);
        if !is_absent(known.values[step]) {
            sum = known.sum(step);
            sum.add(other.values[step]);
            sum.add(other.compensation(step));
        }
        known.values[step] = sum.sum;
        if sum.compensation != 0.0 && known.compensations.is_empty() {
            known.compensations = vec![0.0; known.values.len()];
        }
        if let Some(compensation) = known.compensations.get_mut(step) {
            *compensation = sum.compensation;
        }
    }
}

fn add_means(known: &mut PushedSeries, mut other: PushedSeries) {
    let overflows = |(a, b): (&f64, &f64)| a.is_finite() && b.is_finite() && (a + b).is_infinite();
    let is_sum = !known.are_means && !other.are_means;
    if is_sum && !known.values.iter().zip(&other.values).any(overflows) {
        add_sums(known, &other);
    } else {
        use_means(known);
        use_means(&mut other);
        for step in 0..known.values.len() {
            let [first, second] = [&*known, &other].map(|one| one.counts[step] as f64);
            let value = &mut known.values[step];
            *value = match (is_absent(*value), is_absent(other.values[step])) {
                (_, true) => *value,
                (true, false) => other.values[step],
                (false, false) => {
                    let total = first + second;
                    *value * (first / total) + other.values[step] * (second / total)
                }
            };
        }
    }
    for (count, other) in known.counts.iter_mut().zip(&other.counts) {
        *count = count.saturating_add(*other);
    }
}

/// Replaces the sums of an average by means.
fn use_means(series: &mut PushedSeries) {
    if series.are_means {
        return;
    }
    for step in 0..series.values.len() {
        let is_present = !is_absent(series.values[step]);
        series.values[step] = if is_present {
            series.mean(step)
        } else {
            ABSENT
        };
    }
    series.compensations = Vec::new();
    series.are_means = true;
}

impl PushedSeries {
    /// Returns the size in memory.
    pub(super) fn bytes(&self) -> usize {
        let numbers = self.values.len() + self.compensations.len() + self.counts.len();
        size_of::<PushedSeries>() + self.labels.bytes() + numbers * size_of::<f64>()
    }
}
