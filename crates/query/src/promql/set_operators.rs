//! The set operators between vectors: `and`, `or`, `unless`.

use super::error::PromqlError;
use super::evaluator::{Evaluator, join_same_labels};
use super::labels::LabelSet;
use super::node::Operator;
use super::steps::Steps;
use super::value::{ABSENT, StepSeries, is_absent};
use super::vector_match::MatchGroup;

/// Evaluates `and`, `or` or `unless`.
pub(crate) fn set_operation(
    evaluator: &mut Evaluator<'_>,
    operator: Operator,
    groups: &[(LabelSet, MatchGroup)],
    (left, right): (&[StepSeries], &[StepSeries]),
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    // Results in the order of the input: those of the left side, then those of the right side.
    let mut kept_left: Vec<Option<StepSeries>> = Vec::new();
    kept_left.resize_with(left.len(), || None);
    let mut kept_right: Vec<Option<StepSeries>> = Vec::new();
    kept_right.resize_with(right.len(), || None);
    for (_, group) in groups {
        let (filtered, from, mask_of, keeps_present) = match operator {
            Operator::And => (
                &mut kept_left,
                (left, &group.left),
                (right, &group.right),
                true,
            ),
            Operator::Unless => (
                &mut kept_left,
                (left, &group.left),
                (right, &group.right),
                false,
            ),
            _ => (
                &mut kept_right,
                (right, &group.right),
                (left, &group.left),
                false,
            ),
        };
        let mut is_present = vec![false; steps.count];
        for index in mask_of.1 {
            evaluator.budget.spend(steps.count)?;
            for (present, value) in is_present.iter_mut().zip(&mask_of.0[*index].values) {
                *present |= !is_absent(*value);
            }
        }
        for index in from.1 {
            evaluator.reserve_series(1, steps)?;
            let one = &from.0[*index];
            let pairs = one.values.iter().zip(&is_present);
            let keep = |(value, present): (&f64, &bool)| {
                if *present == keeps_present {
                    *value
                } else {
                    ABSENT
                }
            };
            filtered[*index] = Some(StepSeries {
                labels: one.labels.clone(),
                values: pairs.map(keep).collect(),
            });
        }
    }
    if operator == Operator::Or {
        evaluator.reserve_series(left.len(), steps)?;
        kept_left = left.iter().cloned().map(Some).collect();
    }
    let all = kept_left.into_iter().chain(kept_right).flatten();
    join_same_labels(all.filter(|series| !series.is_empty()).collect())
}
