//! The functions of PromQL: one table with the types of their arguments and their code.
//!
//! | family | file |
//! |---|---|
//! | of each value of a vector | `math.rs`, `date.rs` |
//! | over the samples of a window | `extrapolation.rs`, `over_time.rs`, `rate.rs`, `regression.rs` |
//! | over whole vectors | `histogram.rs`, `info.rs`, `label.rs`, `sort.rs`, `whole.rs` |

mod date;
mod extrapolation;
mod histogram;
mod histogram_buckets;
mod info;
mod label;
mod math;
pub(crate) mod over_time;
mod rate;
mod regression;
mod sort;
mod table;
mod whole;
mod window;

use super::error::PromqlError;
use super::evaluator::{Evaluator, join_same_labels};
use super::node::{CallNode, ExprNode, ValueType};
use super::parse::expect_type;
use super::steps::Steps;
use super::value::{ABSENT, NodeValue, StepSeries, is_absent};

use extrapolation::ExtrapolatedChange;
pub(crate) use table::find;
pub(crate) use window::{Window, warn_of_name, warn_of_quantiles};

/// A function: the types of its arguments and its code.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: &'static str,
    pub arguments: &'static [ValueType],
    pub arity: Arity,
    pub returns: ValueType,
    /// Whether the value depends on the time of evaluation even if the arguments do not.
    pub depends_on_time: bool,
    pub body: Body,
}

/// How many of the declared arguments a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arity {
    Exact,
    /// The last argument may be left out.
    LastOptional,
    /// The last argument may be left out or repeated, up to this many in all.
    LastRepeated(usize),
}

/// The value of a function over whole vectors.
type WholeResult = Result<NodeValue, PromqlError>;

/// The value of a function over a window; `None` if the window has too few samples.
type WindowResult = Result<Option<f64>, PromqlError>;

type WholeBody = fn(&mut Evaluator<'_>, &CallNode, &Steps) -> WholeResult;

/// The code of a function.
#[derive(Debug)]
pub(crate) enum Body {
    /// Computes each value of a vector by itself.
    Each(fn(f64) -> f64),
    /// Computes each value of a vector with the scalar arguments of its step.
    EachWith(fn(f64, &[f64]) -> Option<f64>),
    /// Computes a part of the date from each value, or from the time of evaluation.
    Date(fn(i128) -> f64),
    /// Computes a value from the samples of a window.
    Window(WindowBody),
    /// Computes a scalar from scalars and the time of a step in seconds.
    Scalar(fn(&[f64], f64) -> f64),
    /// Evaluates its arguments itself.
    Whole(WholeBody),
}

/// The code of a function over the samples of a window.
#[derive(Debug)]
pub(crate) struct WindowBody {
    function: WindowFunction,
    pub keeps_name: bool,
    /// Whether the function expects a counter.
    pub is_counter: bool,
}

#[derive(Debug, Clone, Copy)]
enum WindowFunction {
    /// Reads the samples of each window.
    Each(fn(&Window<'_>, &[f64]) -> WindowResult),
    /// Reads the ends of each window.
    Extrapolated(ExtrapolatedChange),
}

impl Function {
    /// Checks the number and the types of arguments.
    pub(crate) fn check_arguments(&self, arguments: &[ExprNode]) -> Result<(), PromqlError> {
        let declared = self.arguments.len();
        let (least, most) = match self.arity {
            Arity::Exact => (declared, declared),
            Arity::LastOptional => (declared - 1, declared),
            Arity::LastRepeated(most) => (declared - 1, most),
        };
        let name = self.name;
        let found = arguments.len();
        let wrong = |count: &str, limit: usize| {
            PromqlError::bad_data(format!(
                "parse error: expected {count}{limit} argument(s) in call to {name:?}, got {found}"
            ))
        };
        if found < least {
            return Err(wrong(if least == most { "" } else { "at least " }, least));
        }
        if found > most {
            return Err(wrong(if least == most { "" } else { "at most " }, most));
        }
        for (index, argument) in arguments.iter().enumerate() {
            let expected = self.arguments[index.min(declared - 1)];
            expect_type(argument, expected, &format!("call to function {name:?}"))?;
        }
        Ok(())
    }
}

/// Evaluates a call.
pub(crate) fn call(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> Result<NodeValue, PromqlError> {
    match &node.function.body {
        Body::Each(function) => {
            let series = evaluator.eval_vector(&node.arguments[0], steps)?;
            each(evaluator, series, |_, value| Some(function(value)))
        }
        Body::EachWith(function) => {
            let series = evaluator.eval_vector(&node.arguments[0], steps)?;
            let parameters = scalar_parameters(evaluator, &node.arguments[1..], steps)?;
            let mut at_step = vec![0.0; node.arguments.len() - 1];
            each(evaluator, series, |step, value| {
                parameters.fill(step, &mut at_step);
                function(value, &at_step)
            })
        }
        Body::Date(function) => {
            let series = match node.arguments.first() {
                Some(argument) => evaluator.eval_vector(argument, steps)?,
                None => whole::time_vector(evaluator, steps)?,
            };
            each(evaluator, series, |_, value| {
                Some(function(date::seconds(value)))
            })
        }
        Body::Window(body) => window::call(evaluator, node, body, steps),
        Body::Scalar(function) => {
            let parameters = scalar_parameters(evaluator, &node.arguments, steps)?;
            let mut at_step = vec![0.0; node.arguments.len()];
            let NodeValue::Scalar(mut values) = evaluator.scalar(0.0, steps)? else {
                return Err(PromqlError::internal("a scalar is not a scalar"));
            };
            for (step, value) in values.iter_mut().enumerate() {
                parameters.fill(step, &mut at_step);
                *value = function(&at_step, steps.time(step) as f64 / 1_000.0);
            }
            Ok(NodeValue::Scalar(values))
        }
        Body::Whole(function) => function(evaluator, node, steps),
    }
}

/// Replaces every value of a vector and drops the names of its series.
fn each(
    evaluator: &mut Evaluator<'_>,
    mut series: Vec<StepSeries>,
    mut function: impl FnMut(usize, f64) -> Option<f64>,
) -> Result<NodeValue, PromqlError> {
    for one in &mut series {
        one.labels = one.labels.without_name();
        evaluator.budget.spend(one.values.len())?;
        for (step, value) in one.values.iter_mut().enumerate() {
            if !is_absent(*value) {
                *value = function(step, *value).unwrap_or(ABSENT);
            }
        }
    }
    Ok(NodeValue::Vector(join_same_labels(series)?))
}

/// The scalar arguments of a call at all steps.
pub(crate) struct ScalarParameters {
    pub columns: Vec<Vec<f64>>,
}

impl ScalarParameters {
    fn fill(&self, step: usize, at_step: &mut [f64]) {
        for (value, column) in at_step.iter_mut().zip(&self.columns) {
            *value = column[step];
        }
    }
}

fn scalar_parameters<'n>(
    evaluator: &mut Evaluator<'_>,
    arguments: impl IntoIterator<Item = &'n ExprNode>,
    steps: &Steps,
) -> Result<ScalarParameters, PromqlError> {
    let columns = arguments
        .into_iter()
        .map(|argument| evaluator.eval_scalar(argument, steps));
    Ok(ScalarParameters {
        columns: columns.collect::<Result<_, _>>()?,
    })
}
