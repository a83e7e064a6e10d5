//! Which operands a node can evaluate by itself, and how they are written for it.
//!
//! An operand is local to a node if each of its values comes from one series: one selector, under
//! functions of single series and operators with scalars. Labels are not changed, except that the
//! name is dropped, so that series of two nodes, which differ in `host`, stay apart.

use std::fmt::Write;

use pegel_metric::Millis;

use super::super::error::PromqlError;
use super::super::evaluator::Evaluator;
use super::super::functions::{Body, warn_of_name, warn_of_quantiles};
use super::super::labels::NAME;
use super::super::limits::PromqlLimits;
use super::super::matcher::{LabelMatcher, MatchKind};
use super::super::node::{CallNode, ExprNode, RangeInput, ValueType};
use super::super::parse;
use super::super::steps::{Steps, TimeShift};
use super::HOST;

/// The selector of an operand that is local to a node.
#[derive(Debug)]
pub(super) struct LocalOperand<'n> {
    pub matchers: &'n [LabelMatcher],
    /// Whether the order of the series, by which equal values are ranked, is that of their final
    /// labels. They are sorted before the name is dropped, which changes their order if there are
    /// several names. One name does not matter, because every series has a later label, `host`.
    pub has_known_order: bool,
}

impl LocalOperand<'_> {
    /// Returns what is known of an instant vector; `None` if it is not local to a node.
    pub(super) fn find(node: &ExprNode) -> Option<LocalOperand<'_>> {
        if node.value_type() != ValueType::Vector {
            return None;
        }
        let matchers = find_selector(node)?;
        let keeps_name = matches!(node.unwrap_constant(), ExprNode::Selector(_));
        Some(LocalOperand {
            matchers,
            has_known_order: keeps_name || fixed_name(matchers).is_some(),
        })
    }
}

/// Returns the name of the only metric that matches.
fn fixed_name(matchers: &[LabelMatcher]) -> Option<&str> {
    let mut names = matchers.iter().filter(|matcher| matcher.name == NAME);
    let name = names.find(|matcher| matches!(matcher.kind, MatchKind::Equal))?;
    Some(&name.value)
}

fn find_selector(node: &ExprNode) -> Option<&[LabelMatcher]> {
    match node {
        ExprNode::Selector(selector) => Some(&selector.matchers),
        ExprNode::Negate(inner) | ExprNode::Constant(inner) => find_selector(inner),
        ExprNode::Binary(binary) => find_only([&binary.left, &binary.right].into_iter()),
        ExprNode::Range(range) => match &range.input {
            RangeInput::Selector(matchers) => Some(matchers),
            RangeInput::Subquery { expression, .. } => find_selector(expression),
        },
        ExprNode::Call(call) => {
            let is_of_each = match call.function.body {
                Body::Each(_) | Body::EachWith(_) | Body::Date(_) | Body::Window(_) => true,
                Body::Whole(_) => call.function.name == "timestamp",
                Body::Scalar(_) => false,
            };
            let arguments = call.arguments.iter().filter(|_| is_of_each);
            find_only(arguments)
        }
        ExprNode::Number(_) | ExprNode::Text(_) | ExprNode::Aggregate(_) => None,
    }
}

/// Returns the selector of the only part that has series.
fn find_only<'n>(parts: impl Iterator<Item = &'n ExprNode>) -> Option<&'n [LabelMatcher]> {
    let mut with_series = parts.filter(|part| !is_series_free(part));
    match (with_series.next(), with_series.next()) {
        (Some(only), None) => find_selector(only),
        _ => None,
    }
}

/// Returns whether a node is a scalar that does not depend on any series.
pub(super) fn is_series_free(node: &ExprNode) -> bool {
    match node {
        ExprNode::Number(_) => true,
        ExprNode::Negate(inner) | ExprNode::Constant(inner) => is_series_free(inner),
        ExprNode::Binary(binary) => is_series_free(&binary.left) && is_series_free(&binary.right),
        ExprNode::Call(call) => {
            let is_scalar = matches!(call.function.body, Body::Scalar(_)) || is_query_time(call);
            is_scalar && call.arguments.iter().all(is_series_free)
        }
        _ => false,
    }
}

/// Returns whether a call returns a time of the whole query.
fn is_query_time(call: &CallNode) -> bool {
    ["start", "end", "range", "step"].contains(&call.function.name)
}

/// Writes an operand that is local to a node, without the matchers of `host`. Returns `None` if
/// the text does not mean the same: for example, the parser does not read every duration.
pub(super) fn text(evaluator: &mut Evaluator<'_>, node: &ExprNode) -> Option<String> {
    let written = OperandWriter::write(evaluator, node)?;
    let read = parse::plan(&written, 0, 0, &PromqlLimits::default()).ok()?;
    let again = OperandWriter::write(evaluator, &read)?;
    (again == written).then_some(written)
}

struct OperandWriter<'e, 'a> {
    evaluator: &'e mut Evaluator<'a>,
    out: String,
}

impl<'e, 'a> OperandWriter<'e, 'a> {
    fn write(evaluator: &'e mut Evaluator<'a>, node: &ExprNode) -> Option<String> {
        let out = String::new();
        let mut writer = OperandWriter { evaluator, out };
        writer.node(node)?;
        Some(writer.out)
    }

    fn node(&mut self, node: &ExprNode) -> Option<()> {
        match node {
            ExprNode::Number(number) => self.number(*number),
            ExprNode::Selector(selector) => {
                self.matchers(&selector.matchers);
                self.shift(selector.shift);
            }
            ExprNode::Range(range) => {
                match &range.input {
                    RangeInput::Selector(matchers) => {
                        self.matchers(matchers);
                        self.out.push('[');
                        self.duration(range.range);
                    }
                    RangeInput::Subquery { expression, step } => {
                        self.parenthesised(|writer| writer.node(expression))?;
                        self.out.push('[');
                        self.duration(range.range);
                        self.out.push(':');
                        self.duration(*step);
                    }
                }
                self.out.push(']');
                self.shift(range.shift);
            }
            ExprNode::Call(call) => {
                self.out.push_str(call.function.name);
                self.parenthesised(|writer| {
                    for (index, argument) in call.arguments.iter().enumerate() {
                        writer.out.push_str(if index > 0 { ", " } else { "" });
                        writer.node(argument)?;
                    }
                    Some(())
                })?;
            }
            ExprNode::Binary(binary) => self.parenthesised(|writer| {
                writer.node(&binary.left)?;
                let modifier = if binary.returns_bool { " bool" } else { "" };
                writer.push(format_args!(" {}{modifier} ", binary.operator.symbol()));
                writer.node(&binary.right)
            })?,
            ExprNode::Negate(inner) => self.parenthesised(|writer| {
                writer.out.push('-');
                writer.node(inner)
            })?,
            // Computed here: it may depend on the times of the whole query.
            ExprNode::Constant(inner) if inner.value_type() == ValueType::Scalar => {
                let once = Steps::single(self.evaluator.query_steps.start);
                let values = self.evaluator.eval_scalar(inner, &once).ok()?;
                self.number(values[0]);
            }
            ExprNode::Constant(inner) => self.node(inner)?,
            ExprNode::Text(_) | ExprNode::Aggregate(_) => return None,
        }
        Some(())
    }

    fn parenthesised(&mut self, inside: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.out.push('(');
        inside(self)?;
        self.out.push(')');
        Some(())
    }

    /// Appends text. Writing to a String cannot fail.
    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }

    fn number(&mut self, number: f64) {
        let is_negative = number.is_sign_negative() && !number.is_nan();
        let digits = match number.abs() {
            number if number.is_nan() => "NaN".to_owned(),
            number if number.is_infinite() => "Inf".to_owned(),
            number => format!("{number:?}"),
        };
        match is_negative {
            true => self.push(format_args!("(-{digits})")),
            false => self.out.push_str(&digits),
        }
    }

    fn matchers(&mut self, matchers: &[LabelMatcher]) {
        let kept = || matchers.iter().filter(|matcher| matcher.name != HOST);
        self.out.push('{');
        if kept().all(|matcher| matcher.accepts("")) {
            // A selector needs a condition that not every label fulfils; every series has a name.
            self.push(format_args!("\"{NAME}\"!=\"\","));
        }
        for matcher in kept() {
            let operator = match matcher.kind {
                MatchKind::Equal => "=",
                MatchKind::NotEqual => "!=",
                MatchKind::Regex(_) => "=~",
                MatchKind::NotRegex(_) => "!~",
            };
            self.quoted(&matcher.name);
            self.out.push_str(operator);
            self.quoted(&matcher.value);
            self.out.push(',');
        }
        self.out.push('}');
    }

    fn quoted(&mut self, text: &str) {
        self.out.push('"');
        for next in text.chars() {
            match next {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                other => self.out.push(other),
            }
        }
        self.out.push('"');
    }

    fn shift(&mut self, shift: TimeShift) {
        if let Some(at) = shift.at {
            let sign = if at < 0 { "-" } else { "" };
            let at = at.unsigned_abs();
            self.push(format_args!(" @ {sign}{}.{:03}", at / 1_000, at % 1_000));
        }
        if shift.offset != 0 {
            self.out.push_str(" offset ");
            self.out.push_str(if shift.offset < 0 { "-" } else { "" });
            self.duration(shift.offset.saturating_abs());
        }
    }

    fn duration(&mut self, duration: Millis) {
        // The parser holds each part in 32 bits.
        let (seconds, millis) = (duration / 1_000, duration % 1_000);
        let (days, seconds) = (seconds / 86_400, seconds % 86_400);
        for (part, unit) in [(days, "d"), (seconds, "s"), (millis, "ms")] {
            if part != 0 {
                self.push(format_args!("{part}{unit}"));
            }
        }
    }
}

/// Adds the annotations that the evaluation of an operand would add, as far as they follow from
/// its text.
pub(super) fn annotate(
    evaluator: &mut Evaluator<'_>,
    node: &ExprNode,
    is_empty: bool,
    steps: &Steps,
) -> Result<(), PromqlError> {
    match node {
        ExprNode::Negate(inner) | ExprNode::Constant(inner) => {
            annotate(evaluator, inner, is_empty, steps)
        }
        ExprNode::Binary(binary) => {
            annotate(evaluator, &binary.left, is_empty, steps)?;
            annotate(evaluator, &binary.right, is_empty, steps)
        }
        ExprNode::Range(range) => match &range.input {
            RangeInput::Subquery { expression, .. } => {
                annotate(evaluator, expression, is_empty, steps)
            }
            RangeInput::Selector(_) => Ok(()),
        },
        ExprNode::Call(call) => {
            if call.function.name == "quantile_over_time" {
                let quantiles = evaluator.eval_scalar(&call.arguments[0], steps)?;
                warn_of_quantiles(evaluator, &quantiles, call.position.argument(0));
            }
            let expects_counter =
                matches!(&call.function.body, Body::Window(body) if body.is_counter);
            for (index, argument) in call.arguments.iter().enumerate() {
                if expects_counter
                    && !is_empty
                    && let ExprNode::Range(range) = argument
                    && let RangeInput::Selector(matchers) = &range.input
                    && let Some(name) = fixed_name(matchers)
                {
                    warn_of_name(evaluator, name, call.position.argument(index));
                }
                annotate(evaluator, argument, is_empty, steps)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
