//! The series of a metric or of an expression, and the join of several of them by tags.

use std::collections::{BTreeMap, BTreeSet};

use pegel_metric::Millis;

use super::{ExpressionMetric, NamedExpression};
use crate::error::OpentsdbError;
use crate::evaluate::{ResultSeries, common_tags};
use crate::memory_budget::QueryMemoryBudget;

/// How the series of several operands are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Join {
    /// Includes series that are missing in some operands.
    pub is_union: bool,
    /// Compares only the tags that the filters name.
    pub uses_query_tags: bool,
    /// Also compares the keys whose values differ.
    pub uses_aggregated_keys: bool,
}

impl Default for Join {
    fn default() -> Join {
        Join {
            is_union: true,
            uses_query_tags: false,
            uses_aggregated_keys: true,
        }
    }
}

#[derive(Debug)]
pub(super) struct Operand {
    pub series: Vec<OperandSeries>,
    /// Replaces a missing value.
    pub fill: f64,
    /// The keys that the filters name.
    keys: Vec<String>,
}

#[derive(Debug)]
pub(super) struct OperandSeries {
    /// The names of the metrics that it is computed from.
    pub metrics: BTreeSet<String>,
    pub result: ResultSeries,
}

impl Operand {
    pub(super) fn of_metric(lines: Vec<ResultSeries>, metric: &ExpressionMetric) -> Operand {
        let member = |line: ResultSeries| OperandSeries {
            metrics: BTreeSet::from([line.metric.clone()]),
            result: line,
        };
        Operand {
            series: lines.into_iter().map(member).collect(),
            fill: metric.fill,
            keys: metric.keys.clone(),
        }
    }

    /// Returns the times of all series.
    pub(super) fn times(&self) -> BTreeSet<Millis> {
        let points = self.series.iter().flat_map(|member| &member.result.points);
        points.map(|point| point.0).collect()
    }

    /// Indexes the series by their join key.
    fn by_join_key(&self, join: Join) -> BTreeMap<String, &OperandSeries> {
        let key = |member: &OperandSeries| {
            let is_wanted = |key: &String| !join.uses_query_tags || self.keys.contains(key);
            let tags = member.result.tags.iter().filter(|(key, _)| is_wanted(key));
            let mut text: String = tags
                .map(|(key, value)| format!("{key}\u{0}{value}\u{0}"))
                .collect();
            if join.uses_aggregated_keys {
                let keys = member
                    .result
                    .aggregate_tags
                    .iter()
                    .filter(|key| is_wanted(key));
                text.extend(keys.map(|key| format!("{key}\u{1}")));
            }
            text
        };
        self.series
            .iter()
            .map(|member| (key(member), member))
            .collect()
    }
}

impl OperandSeries {
    pub(super) fn value(&self, time: Millis) -> Option<f64> {
        let points = &self.result.points;
        let at = points.binary_search_by_key(&time, |point| point.0).ok()?;
        Some(points[at].1)
    }
}

pub(super) fn evaluate_expression(
    expression: &NamedExpression,
    sets: &BTreeMap<&str, Operand>,
    budget: &mut QueryMemoryBudget,
) -> Result<Operand, OpentsdbError> {
    let names = expression.term.variables();
    let used: Vec<&Operand> = names.iter().filter_map(|name| sets.get(name)).collect();
    let mut series = Vec::new();
    for members in join_series(&used, expression.join) {
        series.push(combine(expression, &names, &used, &members, budget)?);
    }
    if series.is_empty() && !expression.join.is_union {
        return Err(OpentsdbError::bad_request(format!(
            "No intersections found between the series of {}",
            expression.id
        )));
    }
    Ok(Operand {
        series,
        fill: expression.fill,
        keys: used.iter().flat_map(|set| set.keys.clone()).collect(),
    })
}

/// Joins the series of the operands: one of each, or `None` if an operand has no match.
fn join_series<'a>(sets: &[&'a Operand], join: Join) -> Vec<Vec<Option<&'a OperandSeries>>> {
    if sets.iter().all(|set| set.series.len() == 1) {
        return vec![sets.iter().map(|set| set.series.first()).collect()];
    }
    let keyed: Vec<BTreeMap<String, &OperandSeries>> =
        sets.iter().map(|set| set.by_join_key(join)).collect();
    let keys: BTreeSet<&String> = keyed.iter().flat_map(|set| set.keys()).collect();
    keys.into_iter()
        .map(|key| {
            keyed
                .iter()
                .map(|set| set.get(key).copied())
                .collect::<Vec<_>>()
        })
        .filter(|members| join.is_union || members.iter().all(Option::is_some))
        .collect()
}

fn combine(
    expression: &NamedExpression,
    names: &[&str],
    sets: &[&Operand],
    members: &[Option<&OperandSeries>],
    budget: &mut QueryMemoryBudget,
) -> Result<OperandSeries, OpentsdbError> {
    let there: Vec<&OperandSeries> = members.iter().flatten().copied().collect();
    let times: BTreeSet<Millis> = there
        .iter()
        .flat_map(|member| member.result.points.iter().map(|point| point.0))
        .collect();
    budget.reserve_points(times.len())?;
    let value = |time: Millis| {
        let of = |name: &str| {
            let at = names.iter().position(|known| *known == name);
            at.map_or(f64::NAN, |at| {
                let own = members[at].and_then(|member| member.value(time));
                own.unwrap_or(sets[at].fill)
            })
        };
        (time, expression.term.value(&of))
    };
    let lines: Vec<&ResultSeries> = there.iter().map(|member| &member.result).collect();
    let (tags, aggregate_tags) = common_tags(&lines);
    Ok(OperandSeries {
        metrics: there
            .iter()
            .flat_map(|member| member.metrics.clone())
            .collect(),
        result: ResultSeries {
            metric: expression.id.clone(),
            tags,
            aggregate_tags,
            tsuids: Vec::new(),
            points: times.into_iter().map(value).collect(),
        },
    })
}
