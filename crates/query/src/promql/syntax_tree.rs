//! The syntax tree of an expression in the form of Prometheus' `parse_query`.

use std::time::{Duration, SystemTime};

use promql_parser::label::{Matcher, Matchers};
use promql_parser::parser::value::ValueType as ParsedType;
use promql_parser::parser::{
    AtModifier, BinaryExpr, Call, Expr, LabelModifier, Offset, VectorMatchCardinality,
    VectorSelector,
};
use serde_json::{Value, json};

use super::functions::{self, Arity};
use super::labels::NAME;
use super::node::ValueType;
use super::value::plain_number;

/// Converts a parsed expression.
pub(crate) fn syntax_tree(parsed: &Expr) -> Value {
    match parsed {
        Expr::NumberLiteral(number) => {
            json!({"type": "numberLiteral", "val": plain_number(number.val)})
        }
        Expr::StringLiteral(text) => json!({"type": "stringLiteral", "val": text.val}),
        Expr::Paren(inner) => json!({"type": "parenExpr", "expr": syntax_tree(&inner.expr)}),
        Expr::Unary(inner) => {
            json!({"type": "unaryExpr", "op": "-", "expr": syntax_tree(&inner.expr)})
        }
        Expr::VectorSelector(selector) => selector_tree("vectorSelector", selector),
        Expr::MatrixSelector(selector) => {
            let mut tree = selector_tree("matrixSelector", &selector.vs);
            tree["range"] = millis(selector.range).into();
            tree
        }
        Expr::Subquery(subquery) => {
            let mut tree = json!({
                "type": "subquery",
                "expr": syntax_tree(&subquery.expr),
                "range": millis(subquery.range),
                "step": subquery.step.map_or(0, millis),
            });
            add_shift(&mut tree, subquery.offset.as_ref(), subquery.at.as_ref());
            tree
        }
        Expr::Aggregate(aggregate) => {
            let (grouping, is_without) = match &aggregate.modifier {
                None => (Vec::new(), false),
                Some(LabelModifier::Include(labels)) => (labels.labels.clone(), false),
                Some(LabelModifier::Exclude(labels)) => (labels.labels.clone(), true),
            };
            json!({
                "type": "aggregation",
                "op": aggregate.op.to_string(),
                "expr": syntax_tree(&aggregate.expr),
                "param": aggregate.param.as_ref().map(|param| syntax_tree(param)),
                "grouping": grouping,
                "without": is_without,
            })
        }
        Expr::Call(call) => call_tree(call),
        Expr::Binary(binary) => binary_tree(binary),
        Expr::Extension(_) => Value::Null,
    }
}

fn selector_tree(kind: &str, selector: &VectorSelector) -> Value {
    let Matchers { matchers, .. } = &selector.matchers;
    let name = selector.name.iter();
    let name = name.map(|name| json!({"name": NAME, "type": "=", "value": name}));
    let matcher = |matcher: &Matcher| json!({"name": matcher.name, "type": matcher.op.to_string(), "value": matcher.value});
    // Prometheus lists the matcher of the name last.
    let matchers: Vec<Value> = matchers.iter().map(matcher).chain(name).collect();
    let mut tree = json!({
        "type": kind,
        "name": selector.name.clone().unwrap_or_default(),
        "matchers": matchers,
    });
    add_shift(&mut tree, selector.offset.as_ref(), selector.at.as_ref());
    tree
}

fn add_shift(tree: &mut Value, offset: Option<&Offset>, at: Option<&AtModifier>) {
    tree["offset"] = match offset {
        None => 0,
        Some(Offset::Pos(duration)) => millis(*duration),
        Some(Offset::Neg(duration)) => -millis(*duration),
    }
    .into();
    let (time, end) = match at {
        None => (Value::Null, Value::Null),
        Some(AtModifier::Start) => (Value::Null, "start".into()),
        Some(AtModifier::End) => (Value::Null, "end".into()),
        Some(AtModifier::At(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => (millis(since).into(), Value::Null),
            Err(before) => ((-millis(before.duration())).into(), Value::Null),
        },
    };
    tree["timestamp"] = time;
    tree["startOrEnd"] = end;
}

fn call_tree(call: &Call) -> Value {
    let function = functions::find(call.func.name);
    let types =
        |types: &[ValueType]| -> Vec<&str> { types.iter().map(|one| type_name(*one)).collect() };
    let variadic = match function.map(|function| function.arity) {
        None | Some(Arity::Exact) => 0,
        Some(Arity::LastOptional) => 1,
        Some(Arity::LastRepeated(_)) => -1,
    };
    let arguments: Vec<Value> = call.args.args.iter().map(|one| syntax_tree(one)).collect();
    json!({
        "type": "call",
        "func": {
            "name": call.func.name,
            "argTypes": function.map(|function| types(function.arguments)).unwrap_or_default(),
            "variadic": variadic,
            "returnType": function.map(|function| type_name(function.returns)),
        },
        "args": arguments,
    })
}

fn binary_tree(binary: &BinaryExpr) -> Value {
    let modifier = binary.modifier.as_ref();
    let is_vector = |side: &Expr| side.value_type() == ParsedType::Vector;
    let matching = (is_vector(&binary.lhs) && is_vector(&binary.rhs)).then(|| {
        let is_set = binary.op.is_set_operator();
        let none = Vec::new();
        let (card, include) = match modifier.map(|modifier| &modifier.card) {
            Some(VectorMatchCardinality::ManyToOne(labels)) => ("many-to-one", &labels.labels),
            Some(VectorMatchCardinality::OneToMany(labels)) => ("one-to-many", &labels.labels),
            Some(VectorMatchCardinality::ManyToMany) => ("many-to-many", &none),
            _ if is_set => ("many-to-many", &none),
            _ => ("one-to-one", &none),
        };
        let (labels, is_on) = match modifier.and_then(|modifier| modifier.matching.as_ref()) {
            None => (Vec::new(), false),
            Some(LabelModifier::Include(labels)) => (labels.labels.clone(), true),
            Some(LabelModifier::Exclude(labels)) => (labels.labels.clone(), false),
        };
        json!({"card": card, "labels": labels, "on": is_on, "include": include})
    });
    json!({
        "type": "binaryExpr",
        "op": binary.op.to_string(),
        "lhs": syntax_tree(&binary.lhs),
        "rhs": syntax_tree(&binary.rhs),
        "matching": matching,
        "bool": modifier.is_some_and(|modifier| modifier.return_bool),
    })
}

fn type_name(kind: ValueType) -> &'static str {
    match kind {
        ValueType::Scalar => "scalar",
        ValueType::Vector => "vector",
        ValueType::Matrix => "matrix",
        ValueType::Text => "string",
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
