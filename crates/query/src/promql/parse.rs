//! Parses an expression and checks it.
//!
//! The grammar is that of the crate `promql-parser`. This module bounds the text before it is
//! parsed, rejects what the crate accepts beyond PromQL (`or` between matchers), checks the types
//! that it leaves unchecked, and resolves `@ start()`, `@ end()` and functions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use pegel_metric::Millis;
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{
    self, AggregateExpr, AtModifier, BinaryExpr, Call, Expr, LabelModifier, MatrixSelector, Offset,
    SubqueryExpr, VectorMatchCardinality, VectorSelector as ParsedSelector,
};

use super::MILLIS_MAX;
use super::constant::mark_constant;
use super::error::PromqlError;
use super::functions;
use super::labels::NAME;
use super::limits::PromqlLimits;
use super::matcher::LabelMatcher;
use super::node::{
    AggregateNode, AggregateOperation, BinaryNode, CallNode, Cardinality, ExprNode, Grouping,
    Operator, RangeInput, RangeNode, ValueType, VectorMatching, VectorSelector,
};
use super::positions::CallPositions;
use super::steps::TimeShift;
use super::syntax_tree::syntax_tree;

/// Parses an expression for a query from `start` to `end`.
pub(crate) fn plan(
    text: &str,
    start: Millis,
    end: Millis,
    limits: &PromqlLimits,
) -> Result<ExprNode, PromqlError> {
    let positions = CallPositions::scan(text)?;
    let parsed = parse(text)?;
    let mut planner = Planner {
        start,
        end,
        subquery_step: millis(limits.subquery_step)?.max(1),
        positions,
    };
    let node = planner.node(&parsed)?;
    Ok(mark_constant(node))
}

/// Parses an expression and writes it in one form.
pub(crate) fn format(text: &str) -> Result<String, PromqlError> {
    CallPositions::scan(text)?;
    Ok(parse(text)?.prettify())
}

/// Parses an expression and returns its syntax tree.
pub(crate) fn tree(text: &str) -> Result<serde_json::Value, PromqlError> {
    CallPositions::scan(text)?;
    Ok(syntax_tree(&parse(text)?))
}

/// Parses a selector without range and modifiers.
pub(crate) fn selector(text: &str) -> Result<Vec<LabelMatcher>, PromqlError> {
    CallPositions::scan(text)?;
    match parse(text)? {
        Expr::VectorSelector(selector) if selector.offset.is_none() && selector.at.is_none() => {
            matchers(&selector)
        }
        _ => Err(PromqlError::bad_data(format!(
            "parse error: {text:?} is not a series selector"
        ))),
    }
}

fn parse(text: &str) -> Result<Expr, PromqlError> {
    // The parser panics on durations that overflow, such as `[1e300]`. It holds no state, so
    // unwinding out of it is safe.
    match catch_unwind(AssertUnwindSafe(|| parser::parse(text))) {
        Ok(Ok(parsed)) => Ok(parsed),
        Ok(Err(message)) => Err(PromqlError::bad_data(format!(
            "parse error: {}",
            prometheus_wording(&message)
        ))),
        Err(_) => Err(PromqlError::bad_data("parse error: number out of range")),
    }
}

/// Replaces the parser's names of types by those of Prometheus' messages.
fn prometheus_wording(message: &str) -> String {
    let mut text = message.to_owned();
    for before in ["type ", "got ", "got: "] {
        for (theirs, ours) in [("matrix", "range vector"), ("vector", "instant vector")] {
            text = text.replace(&format!("{before}{theirs}"), &format!("{before}{ours}"));
        }
    }
    text
}

fn millis(duration: Duration) -> Result<Millis, PromqlError> {
    Millis::try_from(duration.as_millis())
        .ok()
        .filter(|millis| *millis <= MILLIS_MAX)
        .ok_or_else(|| PromqlError::bad_data("parse error: duration out of range"))
}

struct Planner {
    start: Millis,
    end: Millis,
    subquery_step: Millis,
    positions: CallPositions,
}

impl Planner {
    /// Converts a node. Children are visited in the order of the text, see [`CallPositions`].
    fn node(&mut self, parsed: &Expr) -> Result<ExprNode, PromqlError> {
        Ok(match parsed {
            Expr::NumberLiteral(number) => ExprNode::Number(number.val),
            Expr::StringLiteral(text) => ExprNode::Text(text.val.clone()),
            Expr::Paren(inner) => self.node(&inner.expr)?,
            Expr::Unary(inner) => ExprNode::Negate(Box::new(self.node(&inner.expr)?)),
            Expr::VectorSelector(selector) => ExprNode::Selector(VectorSelector {
                matchers: matchers(selector)?,
                shift: self.shift(selector.at.as_ref(), selector.offset.as_ref())?,
            }),
            Expr::MatrixSelector(selector) => ExprNode::Range(self.range(selector)?),
            Expr::Subquery(subquery) => ExprNode::Range(self.subquery(subquery)?),
            Expr::Call(call) => ExprNode::Call(self.call(call)?),
            Expr::Aggregate(aggregate) => ExprNode::Aggregate(self.aggregate(aggregate)?),
            Expr::Binary(binary) => ExprNode::Binary(Box::new(self.binary(binary)?)),
            Expr::Extension(_) => return Err(PromqlError::bad_data("parse error: unsupported")),
        })
    }

    fn shift(
        &self,
        at: Option<&AtModifier>,
        offset: Option<&Offset>,
    ) -> Result<TimeShift, PromqlError> {
        let at = match at {
            None => None,
            Some(AtModifier::Start) => Some(self.start),
            Some(AtModifier::End) => Some(self.end),
            Some(AtModifier::At(time)) => Some(match time.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(since) => millis(since)?,
                Err(before) => -millis(before.duration())?,
            }),
        };
        let offset = match offset {
            None => 0,
            Some(Offset::Pos(duration)) => millis(*duration)?,
            Some(Offset::Neg(duration)) => -millis(*duration)?,
        };
        Ok(TimeShift { at, offset })
    }

    fn range(&self, selector: &MatrixSelector) -> Result<RangeNode, PromqlError> {
        Ok(RangeNode {
            input: RangeInput::Selector(matchers(&selector.vs)?),
            range: positive(selector.range)?,
            shift: self.shift(selector.vs.at.as_ref(), selector.vs.offset.as_ref())?,
        })
    }

    fn subquery(&mut self, subquery: &SubqueryExpr) -> Result<RangeNode, PromqlError> {
        let expression = mark_constant(self.node(&subquery.expr)?);
        Ok(RangeNode {
            input: RangeInput::Subquery {
                expression: Box::new(expression),
                step: match subquery.step {
                    Some(step) => positive(step)?,
                    None => self.subquery_step,
                },
            },
            range: positive(subquery.range)?,
            shift: self.shift(subquery.at.as_ref(), subquery.offset.as_ref())?,
        })
    }

    fn call(&mut self, call: &Call) -> Result<CallNode, PromqlError> {
        let function = functions::find(call.func.name).ok_or_else(|| {
            PromqlError::bad_data(format!(
                "parse error: unknown function with name {:?}",
                call.func.name
            ))
        })?;
        let position = self.positions.next(function.name);
        let arguments = call.args.args.iter().map(|argument| self.node(argument));
        let arguments: Vec<ExprNode> = arguments.collect::<Result<_, _>>()?;
        function.check_arguments(&arguments)?;
        Ok(CallNode {
            function,
            arguments: arguments.into_iter().map(mark_constant).collect(),
            position,
        })
    }

    fn aggregate(&mut self, parsed: &AggregateExpr) -> Result<AggregateNode, PromqlError> {
        let name = parsed.op.to_string();
        let operation =
            AggregateOperation::parse(&name).ok_or_else(|| unknown("aggregation", &name))?;
        let position = self.positions.next(&name);
        let parameter = parsed
            .param
            .as_ref()
            .map(|node| self.node(node))
            .transpose()?;
        if let Some(parameter) = &parameter {
            let expected = match operation {
                AggregateOperation::CountValues => ValueType::Text,
                _ => ValueType::Scalar,
            };
            expect_type(parameter, expected, "aggregation parameter")?;
        }
        let expression = self.node(&parsed.expr)?;
        expect_type(&expression, ValueType::Vector, "aggregation expression")?;
        Ok(AggregateNode {
            operation,
            parameter: parameter.map(|node| Box::new(mark_constant(node))),
            expression: Box::new(mark_constant(expression)),
            grouping: grouping(parsed.modifier.as_ref(), Grouping::By(Vec::new())),
            position,
        })
    }

    fn binary(&mut self, parsed: &BinaryExpr) -> Result<BinaryNode, PromqlError> {
        let symbol = parsed.op.to_string();
        let operator = Operator::parse(&symbol).ok_or_else(|| unknown("operator", &symbol))?;
        let left = self.node(&parsed.lhs)?;
        let right = self.node(&parsed.rhs)?;
        let modifier = parsed.modifier.as_ref();
        let cardinality = match modifier.map(|modifier| &modifier.card) {
            Some(VectorMatchCardinality::ManyToOne(include)) => {
                Cardinality::ManyToOne(include.labels.clone())
            }
            Some(VectorMatchCardinality::OneToMany(include)) => {
                Cardinality::OneToMany(include.labels.clone())
            }
            _ => Cardinality::OneToOne,
        };
        let matching = VectorMatching {
            labels: grouping(
                modifier.and_then(|modifier| modifier.matching.as_ref()),
                Grouping::Without(Vec::new()),
            ),
            cardinality,
            fill_left: modifier.and_then(|modifier| modifier.fill_values.lhs),
            fill_right: modifier.and_then(|modifier| modifier.fill_values.rhs),
        };
        let has_fill = matching.fill_left.is_some() || matching.fill_right.is_some();
        if has_fill && operator.is_set_operator() {
            return Err(PromqlError::bad_data(
                "parse error: filling in missing series not allowed for set operators",
            ));
        }
        let left = mark_constant(left);
        let right = mark_constant(right);
        Ok(BinaryNode {
            operator,
            left,
            right,
            returns_bool: modifier.is_some_and(|modifier| modifier.return_bool),
            matching,
        })
    }
}

fn positive(duration: Duration) -> Result<Millis, PromqlError> {
    match millis(duration)? {
        0 => Err(PromqlError::bad_data(
            "parse error: duration must be greater than 0",
        )),
        positive => Ok(positive),
    }
}

pub(crate) fn expect_type(
    node: &ExprNode,
    expected: ValueType,
    context: &str,
) -> Result<(), PromqlError> {
    let found = node.value_type();
    if found == expected {
        return Ok(());
    }
    Err(PromqlError::bad_data(format!(
        "parse error: expected type {} in {context}, got {}",
        expected.name(),
        found.name()
    )))
}

fn grouping(modifier: Option<&LabelModifier>, default: Grouping) -> Grouping {
    match modifier {
        None => default,
        Some(LabelModifier::Include(labels)) => Grouping::By(labels.labels.clone()),
        Some(LabelModifier::Exclude(labels)) => Grouping::Without(labels.labels.clone()),
    }
}

fn matchers(selector: &ParsedSelector) -> Result<Vec<LabelMatcher>, PromqlError> {
    if !selector.matchers.or_matchers.is_empty() {
        return Err(PromqlError::bad_data(
            "parse error: unexpected <op:or> in label matching, expected \",\" or \"}\"",
        ));
    }
    let convert = |matcher: &Matcher| {
        let operator = match matcher.op {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Re(_) => "=~",
            MatchOp::NotRe(_) => "!~",
        };
        LabelMatcher::new(&matcher.name, operator, &matcher.value)
    };
    let name = selector
        .name
        .iter()
        .map(|name| LabelMatcher::new(NAME, "=", name));
    let labels = selector.matchers.matchers.iter().map(convert);
    let matchers: Vec<LabelMatcher> = name.chain(labels).collect::<Result<_, _>>()?;
    if matchers.iter().all(|matcher| matcher.accepts("")) {
        return Err(PromqlError::bad_data(
            "parse error: vector selector must contain at least one non-empty matcher",
        ));
    }
    Ok(matchers)
}

fn unknown(kind: &str, name: &str) -> PromqlError {
    PromqlError::bad_data(format!("parse error: unknown {kind} {name:?}"))
}
