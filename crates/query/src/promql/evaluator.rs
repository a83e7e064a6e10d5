//! Evaluates the nodes of an expression, each for all steps at once.
//!
//! Memory is reserved for every value before it is computed and released when the value has been
//! consumed. Every loop spends work from the budget, which checks the deadline.

use pegel_metric::Millis;

use super::aggregate;
use super::annotations::{QueryAnnotation, QueryAnnotations};
use super::binary;
use super::error::PromqlError;
use super::functions;
use super::labels::LabelSet;
use super::limits::{EvaluationBudget, PromqlLimits};
use super::node::{ExprNode, ValueType};
use super::source::SeriesSource;
use super::steps::Steps;
use super::value::{
    MatrixSeries, NodeValue, QueryOutcome, QueryValue, StepSeries, VectorSample, is_absent,
};

/// The state of one query.
pub(crate) struct Evaluator<'a> {
    pub source: &'a dyn SeriesSource,
    pub expression: &'a str,
    pub budget: EvaluationBudget,
    pub lookback: Millis,
    /// The steps of the whole query, not of a subquery, and its end.
    pub query_steps: Steps,
    pub query_end: Millis,
    annotations: QueryAnnotations,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(
        source: &'a dyn SeriesSource,
        expression: &'a str,
        (query_steps, query_end): (Steps, Millis),
        limits: &PromqlLimits,
    ) -> Evaluator<'a> {
        Evaluator {
            source,
            expression,
            budget: EvaluationBudget::new(limits),
            lookback: Millis::try_from(limits.lookback.as_millis()).unwrap_or(Millis::MAX),
            query_steps,
            query_end,
            annotations: QueryAnnotations::default(),
        }
    }

    /// Evaluates an expression at the single step of an instant query.
    pub(crate) fn instant(&mut self, node: &ExprNode) -> Result<QueryValue, PromqlError> {
        let steps = self.query_steps;
        let time = steps.start;
        if let ExprNode::Range(range) = node.unwrap_constant() {
            return Ok(QueryValue::Matrix(self.matrix(range, time)?));
        }
        Ok(match self.eval(node, &steps)? {
            NodeValue::Scalar(values) => QueryValue::Scalar(time, values[0]),
            NodeValue::Text(text) => QueryValue::Text(time, text),
            NodeValue::Vector(series) => {
                let samples = series.into_iter().map(|series| VectorSample {
                    labels: series.labels,
                    value: series.values[0],
                });
                QueryValue::Vector(time, samples.filter(|one| !is_absent(one.value)).collect())
            }
        })
    }

    /// Evaluates an expression at all steps. The result is sorted by labels.
    pub(crate) fn range(&mut self, node: &ExprNode) -> Result<QueryValue, PromqlError> {
        let steps = self.query_steps;
        let columns = match self.eval(node, &steps)? {
            NodeValue::Vector(series) => series,
            NodeValue::Scalar(values) => vec![StepSeries {
                labels: LabelSet::empty(),
                values,
            }],
            NodeValue::Text(_) => Vec::new(),
        };
        let mut result = Vec::with_capacity(columns.len());
        for series in columns {
            self.budget.spend(steps.count)?;
            let present = series.values.iter().filter(|value| !is_absent(**value));
            let count = present.count();
            if count == 0 {
                continue;
            }
            self.budget.reserve(count * size_of::<(Millis, f64)>())?;
            let points = steps.times().zip(series.values);
            result.push(MatrixSeries {
                labels: series.labels,
                points: points.filter(|(_, value)| !is_absent(*value)).collect(),
            });
        }
        result.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(QueryValue::Matrix(result))
    }

    pub(crate) fn outcome(self, value: QueryValue) -> QueryOutcome {
        QueryOutcome {
            value,
            samples: self.budget.samples_read(),
            warnings: self.annotations.warnings.finish("warning"),
            infos: self.annotations.infos.finish("info"),
        }
    }

    pub(crate) fn eval(
        &mut self,
        node: &ExprNode,
        steps: &Steps,
    ) -> Result<NodeValue, PromqlError> {
        match node {
            ExprNode::Number(number) => self.scalar(*number, steps),
            ExprNode::Text(text) => Ok(NodeValue::Text(text.clone())),
            ExprNode::Selector(selector) => Ok(NodeValue::Vector(self.select(selector, steps)?)),
            ExprNode::Range(_) => Err(PromqlError::bad_data(format!(
                "unexpected {} in expression",
                ValueType::Matrix.name()
            ))),
            ExprNode::Call(call) => functions::call(self, call, steps),
            ExprNode::Aggregate(node) => {
                Ok(NodeValue::Vector(aggregate::aggregate(self, node, steps)?))
            }
            ExprNode::Binary(node) => binary::binary(self, node, steps),
            ExprNode::Negate(inner) => {
                let value = self.eval(inner, steps)?;
                self.negate(value)
            }
            ExprNode::Constant(inner) => {
                let once = self.eval(inner, &Steps::single(steps.start))?;
                self.repeat(once, steps)
            }
        }
    }

    pub(crate) fn eval_vector(
        &mut self,
        node: &ExprNode,
        steps: &Steps,
    ) -> Result<Vec<StepSeries>, PromqlError> {
        match self.eval(node, steps)? {
            NodeValue::Vector(series) => Ok(series),
            _ => Err(PromqlError::bad_data("expected an instant vector")),
        }
    }

    pub(crate) fn eval_scalar(
        &mut self,
        node: &ExprNode,
        steps: &Steps,
    ) -> Result<Vec<f64>, PromqlError> {
        match self.eval(node, steps)? {
            NodeValue::Scalar(values) => Ok(values),
            _ => Err(PromqlError::bad_data("expected a scalar")),
        }
    }

    /// Returns a scalar that is the same at all steps.
    pub(crate) fn scalar(&mut self, value: f64, steps: &Steps) -> Result<NodeValue, PromqlError> {
        self.budget
            .reserve(steps.count.saturating_mul(size_of::<f64>()))?;
        Ok(NodeValue::Scalar(vec![value; steps.count]))
    }

    /// Reserves memory for new series, before they are built.
    pub(crate) fn reserve_series(
        &mut self,
        count: usize,
        steps: &Steps,
    ) -> Result<(), PromqlError> {
        let bytes = StepSeries::bytes(steps.count).saturating_mul(count);
        self.budget.reserve(bytes)?;
        self.budget.spend(count.saturating_mul(steps.count))
    }

    /// Reserves memory for labels that a function has made longer. It is not released before the
    /// end of the query.
    pub(crate) fn reserve_labels(&mut self, labels: &LabelSet) -> Result<(), PromqlError> {
        self.budget.reserve(labels.bytes())?;
        self.budget.spend(labels.bytes())
    }

    /// Releases the memory of series that were consumed.
    pub(crate) fn release_series(&mut self, series: &[StepSeries]) {
        let bytes = series.iter().map(|one| StepSeries::bytes(one.values.len()));
        self.budget.release(bytes.sum());
    }

    /// Adds an annotation at a byte offset of the expression.
    pub(crate) fn annotate(&mut self, annotation: &QueryAnnotation<'_>, offset: usize) {
        self.annotations.add(annotation, self.expression, offset);
    }

    fn negate(&mut self, value: NodeValue) -> Result<NodeValue, PromqlError> {
        Ok(match value {
            NodeValue::Scalar(values) => {
                NodeValue::Scalar(values.into_iter().map(|value| -value).collect())
            }
            NodeValue::Vector(mut series) => {
                for one in &mut series {
                    one.labels = one.labels.without_name();
                    self.budget.spend(one.values.len())?;
                    for value in one.values.iter_mut().filter(|value| !is_absent(**value)) {
                        *value = -*value;
                    }
                }
                refuse_same_labels(&series)?;
                NodeValue::Vector(series)
            }
            text => text,
        })
    }

    /// Repeats a value that was evaluated once at all steps.
    fn repeat(&mut self, once: NodeValue, steps: &Steps) -> Result<NodeValue, PromqlError> {
        self.budget.release(once.bytes());
        Ok(match once {
            NodeValue::Scalar(values) => self.scalar(values[0], steps)?,
            NodeValue::Vector(series) => {
                self.reserve_series(series.len(), steps)?;
                let repeat = |one: StepSeries| StepSeries {
                    labels: one.labels,
                    values: vec![one.values[0]; steps.count],
                };
                NodeValue::Vector(series.into_iter().map(repeat).collect())
            }
            text => text,
        })
    }
}

/// Fails if two series have the same labels.
pub(crate) fn refuse_same_labels(series: &[StepSeries]) -> Result<(), PromqlError> {
    let mut seen = std::collections::HashSet::with_capacity(series.len());
    if series.iter().all(|one| seen.insert(&one.labels)) {
        return Ok(());
    }
    Err(PromqlError::same_labels())
}

/// Joins series with the same labels; fails if two of them have a value at the same step.
pub(crate) fn join_same_labels(series: Vec<StepSeries>) -> Result<Vec<StepSeries>, PromqlError> {
    if refuse_same_labels(&series).is_ok() {
        return Ok(series);
    }
    let mut joined: Vec<StepSeries> = Vec::with_capacity(series.len());
    let mut places: std::collections::HashMap<LabelSet, usize> = std::collections::HashMap::new();
    for one in series {
        let place = *places.entry(one.labels.clone()).or_insert(joined.len());
        if place == joined.len() {
            joined.push(one);
            continue;
        }
        for (value, other) in joined[place].values.iter_mut().zip(&one.values) {
            match (is_absent(*value), is_absent(*other)) {
                (_, true) => {}
                (true, false) => *value = *other,
                (false, false) => return Err(PromqlError::same_labels()),
            }
        }
    }
    Ok(joined)
}
