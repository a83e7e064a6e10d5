//! Binary operators between two vectors: series with the same values of the matching labels are
//! combined.
//!
//! Series are matched once for all steps. Whether a match is unique is decided at each step, among
//! the series that have a value there, as if every step were a query of its own.

use std::collections::HashMap;

use super::binary::element_result;
use super::error::PromqlError;
use super::evaluator::{Evaluator, join_same_labels, refuse_same_labels};
use super::labels::{LabelSet, NAME};
use super::node::{BinaryNode, Cardinality, Grouping, VectorMatching};
use super::set_operators::set_operation;
use super::steps::Steps;
use super::value::{ABSENT, StepSeries, is_absent};

/// The series of both sides that have the same matching labels, as indexes.
#[derive(Default)]
pub(crate) struct MatchGroup {
    pub left: Vec<usize>,
    pub right: Vec<usize>,
}

/// Evaluates a binary operator between vectors.
pub(crate) fn combine(
    evaluator: &mut Evaluator<'_>,
    node: &BinaryNode,
    (left, right): (&[StepSeries], &[StepSeries]),
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    let groups = match_groups(evaluator, &node.matching, left, right)?;
    if node.operator.is_set_operator() {
        return set_operation(evaluator, node.operator, &groups, (left, right), steps);
    }
    let mut result = Vec::new();
    for (labels, group) in &groups {
        let (left, right) = ((left, &group.left[..]), (right, &group.right[..]));
        let (include, is_swapped) = match &node.matching.cardinality {
            Cardinality::OneToMany(include) => (&include[..], true),
            Cardinality::ManyToOne(include) => (&include[..], false),
            Cardinality::OneToOne => (&[][..], false),
        };
        let (many, one) = if is_swapped {
            (right, left)
        } else {
            (left, right)
        };
        let sided = SidedGroup {
            node,
            matched: labels,
            many,
            one,
            include,
            is_swapped,
        };
        sided.combine(evaluator, steps, &mut result)?;
    }
    join_same_labels(result)
}

/// Groups the series of both sides by their matching labels, in the order of the series.
fn match_groups(
    evaluator: &mut Evaluator<'_>,
    matching: &VectorMatching,
    left: &[StepSeries],
    right: &[StepSeries],
) -> Result<Vec<(LabelSet, MatchGroup)>, PromqlError> {
    let mut groups: Vec<(LabelSet, MatchGroup)> = Vec::new();
    let mut places: HashMap<LabelSet, usize> = HashMap::new();
    let sides = [(left, true), (right, false)];
    for (series, is_left) in sides {
        for (index, one) in series.iter().enumerate() {
            evaluator.budget.spend(64)?;
            let labels = matching_labels(&matching.labels, &one.labels);
            let place = *places.entry(labels.clone()).or_insert(groups.len());
            if place == groups.len() {
                groups.push((labels, MatchGroup::default()));
            }
            let group = &mut groups[place].1;
            if is_left {
                group.left.push(index);
            } else {
                group.right.push(index);
            }
        }
    }
    Ok(groups)
}

fn matching_labels(grouping: &Grouping, labels: &LabelSet) -> LabelSet {
    match grouping {
        Grouping::By(names) => labels.retain(|name| names.iter().any(|kept| kept == name)),
        Grouping::Without(names) => {
            labels.retain(|name| name != NAME && names.iter().all(|dropped| dropped != name))
        }
    }
}

/// A group whose sides are ordered: one series of the *one* side for any number of the *many* side.
struct SidedGroup<'a> {
    node: &'a BinaryNode,
    matched: &'a LabelSet,
    many: (&'a [StepSeries], &'a [usize]),
    one: (&'a [StepSeries], &'a [usize]),
    include: &'a [String],
    /// Whether the *many* side is the right one.
    is_swapped: bool,
}

impl SidedGroup<'_> {
    fn combine(
        &self,
        evaluator: &mut Evaluator<'_>,
        steps: &Steps,
        result: &mut Vec<StepSeries>,
    ) -> Result<(), PromqlError> {
        let matching = &self.node.matching;
        let (fill_many, fill_one) = match self.is_swapped {
            true => (matching.fill_right, matching.fill_left),
            false => (matching.fill_left, matching.fill_right),
        };
        if (self.many.1.is_empty() && fill_many.is_none())
            || (self.one.1.is_empty() && fill_one.is_none())
        {
            // Duplicates on the *one* side are an error even without a match.
            if self.one.1.len() > 1 {
                self.partners(evaluator, steps)?;
            }
            return Ok(());
        }
        let partners = self.partners(evaluator, steps)?;
        let mut columns: Vec<StepSeries> = Vec::new();
        for many in self.many.1 {
            let many = &self.many.0[*many];
            self.combine_series(evaluator, many, &partners, (fill_one, steps), &mut columns)?;
        }
        if let Some(fill) = fill_many {
            self.fill_missing(evaluator, fill, (&partners, steps), &mut columns)?;
        }
        self.check_unique(evaluator, &columns)?;
        result.append(&mut columns);
        Ok(())
    }

    /// Returns the index of the series of the *one* side that has a value at each step. Fails if
    /// there are two.
    fn partners(
        &self,
        evaluator: &mut Evaluator<'_>,
        steps: &Steps,
    ) -> Result<Vec<Option<usize>>, PromqlError> {
        let mut partners: Vec<Option<usize>> = vec![None; steps.count];
        for index in self.one.1 {
            evaluator.budget.spend(steps.count)?;
            for (step, value) in self.one.0[*index].values.iter().enumerate() {
                if is_absent(*value) {
                    continue;
                }
                match partners[step] {
                    Some(other) if self.has_many(step) => {
                        return Err(self.duplicate(*index, other));
                    }
                    _ => partners[step] = Some(*index),
                }
            }
        }
        Ok(partners)
    }

    /// Returns whether any series of the *many* side has a value at a step, in this group or not:
    /// an empty vector is combined with anything.
    fn has_many(&self, step: usize) -> bool {
        self.many.0.iter().any(|one| !is_absent(one.values[step]))
    }

    fn duplicate(&self, index: usize, other: usize) -> PromqlError {
        let side = if self.is_swapped { "left" } else { "right" };
        PromqlError::execution(format!(
            "found duplicate series for the match group {} on the {side} hand-side of the \
             operation: [{}, {}];many-to-many matching not allowed: matching labels must be unique \
             on one side",
            self.matched, self.one.0[index].labels, self.one.0[other].labels
        ))
    }

    /// Combines a series of the *many* side. Its labels can depend on its partner, which can change
    /// from step to step.
    fn combine_series(
        &self,
        evaluator: &mut Evaluator<'_>,
        many: &StepSeries,
        partners: &[Option<usize>],
        (fill_one, steps): (Option<f64>, &Steps),
        columns: &mut Vec<StepSeries>,
    ) -> Result<(), PromqlError> {
        let mut current: Option<(Option<usize>, StepSeries)> = None;
        evaluator.budget.spend(steps.count)?;
        for (step, value) in many.values.iter().enumerate() {
            if is_absent(*value) {
                continue;
            }
            let other = match (partners[step], fill_one) {
                (Some(partner), _) => self.one.0[partner].values[step],
                (None, Some(fill)) => fill,
                (None, None) => continue,
            };
            let Some(found) = self.element(*value, other) else {
                continue;
            };
            let is_current = current
                .as_ref()
                .is_some_and(|(partner, _)| *partner == partners[step]);
            if !is_current {
                columns.extend(current.take().map(|(_, column)| column));
                evaluator.reserve_series(1, steps)?;
                let one = partners[step].map(|partner| &self.one.0[partner].labels);
                let labels = self.result_labels(&many.labels, one);
                evaluator.reserve_labels(&labels)?;
                let values = vec![ABSENT; steps.count];
                current = Some((partners[step], StepSeries { labels, values }));
            }
            if let Some((_, column)) = &mut current {
                column.values[step] = found;
            }
        }
        columns.extend(current.map(|(_, column)| column));
        Ok(())
    }

    /// Adds results for the steps at which only the *one* side has a value.
    fn fill_missing(
        &self,
        evaluator: &mut Evaluator<'_>,
        fill: f64,
        (partners, steps): (&[Option<usize>], &Steps),
        columns: &mut Vec<StepSeries>,
    ) -> Result<(), PromqlError> {
        for index in self.one.1 {
            evaluator.reserve_series(1, steps)?;
            let one = &self.one.0[*index];
            let mut values = vec![ABSENT; steps.count];
            for (step, value) in values.iter_mut().enumerate() {
                evaluator.budget.spend(self.many.1.len())?;
                let mut many = self
                    .many
                    .1
                    .iter()
                    .map(|many| self.many.0[*many].values[step]);
                if partners[step] == Some(*index) && many.all(is_absent) {
                    let found = self.element(fill, one.values[step]);
                    *value = found.unwrap_or(ABSENT);
                }
            }
            let labels = self.result_labels(self.matched, Some(&one.labels));
            evaluator.reserve_labels(&labels)?;
            columns.push(StepSeries { labels, values });
        }
        columns.retain(|column| !column.is_empty());
        Ok(())
    }

    /// Combines a value of the *many* side with one of the *one* side.
    fn element(&self, many: f64, one: f64) -> Option<f64> {
        let (left, right) = if self.is_swapped {
            (one, many)
        } else {
            (many, one)
        };
        let operation = (self.node.operator, self.node.returns_bool);
        element_result(operation, left, right, left)
    }

    fn result_labels(&self, many: &LabelSet, one: Option<&LabelSet>) -> LabelSet {
        let drops_name = !self.node.operator.is_comparison() || self.node.returns_bool;
        let mut labels = if drops_name {
            many.without_name()
        } else {
            many.clone()
        };
        if matches!(self.node.matching.cardinality, Cardinality::OneToOne) {
            labels = match &self.node.matching.labels {
                Grouping::By(names) => labels.retain(|name| names.iter().any(|kept| kept == name)),
                Grouping::Without(names) => {
                    labels.retain(|name| names.iter().all(|dropped| dropped != name))
                }
            };
        }
        for name in self.include {
            labels = labels.with(name, one.map_or("", |one| one.get(name)));
        }
        labels
    }

    /// Fails if two results of one group coincide at a step: in one-to-one matching any two, in
    /// grouped matching those with the same labels.
    fn check_unique(
        &self,
        evaluator: &mut Evaluator<'_>,
        columns: &[StepSeries],
    ) -> Result<(), PromqlError> {
        let is_grouped = !matches!(self.node.matching.cardinality, Cardinality::OneToOne);
        if columns.len() < 2 || (is_grouped && refuse_same_labels(columns).is_ok()) {
            return Ok(());
        }
        let mut taken: HashMap<Option<&LabelSet>, Vec<bool>> = HashMap::new();
        for column in columns {
            evaluator.budget.spend(column.values.len())?;
            let key = is_grouped.then_some(&column.labels);
            let steps = taken
                .entry(key)
                .or_insert_with(|| vec![false; column.values.len()]);
            for (is_taken, value) in steps.iter_mut().zip(&column.values) {
                if is_absent(*value) {
                    continue;
                }
                if std::mem::replace(is_taken, true) {
                    return Err(PromqlError::execution(if is_grouped {
                        "multiple matches for labels: grouping labels must ensure unique matches"
                    } else {
                        "multiple matches for labels: many-to-one matching must be explicit \
                         (group_left/group_right)"
                    }));
                }
            }
        }
        Ok(())
    }
}
