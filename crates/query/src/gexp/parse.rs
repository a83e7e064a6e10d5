//! Parses gexp expressions.

use super::GexpExpression;
use super::function::GexpFunction;
use crate::error::OpentsdbError;

/// The maximum nesting depth of functions.
const DEPTH_MAX: usize = 32;

/// Parses an expression and appends its sub-queries to `queries`.
pub(super) fn parse(
    text: &str,
    queries: &mut Vec<String>,
) -> Result<GexpExpression, OpentsdbError> {
    parse_deep(text.trim(), queries, 0)
}

fn parse_deep(
    text: &str,
    queries: &mut Vec<String>,
    depth: usize,
) -> Result<GexpExpression, OpentsdbError> {
    let wrong =
        |why: &str| OpentsdbError::bad_request(format!("Invalid expression: {text:.200}: {why}"));
    if depth > DEPTH_MAX {
        return Err(wrong("functions are nested too deeply"));
    }
    let Some((name, inner)) = split_call(text) else {
        queries.push(text.to_owned());
        return Ok(GexpExpression::Query(queries.len() - 1));
    };
    let inner = inner
        .strip_suffix(')')
        .ok_or_else(|| wrong("unclosed parenthesis"))?;
    let arguments = split_arguments(inner).ok_or_else(|| wrong("unbalanced parentheses"))?;
    let (mut series, mut parameters) = (Vec::new(), Vec::new());
    for argument in arguments {
        // A sub-query has a colon after its aggregator, a function its parenthesis.
        let is_parameter = argument.starts_with(['\'', '"']) || !argument.contains([':', '(']);
        if is_parameter {
            parameters.push(argument.trim_matches(['\'', '"']));
        } else {
            series.push(parse_deep(argument, queries, depth + 1)?);
        }
    }
    Ok(GexpExpression::Call {
        function: GexpFunction::new(name, series.len(), &parameters)?,
        text: text.to_owned(),
        series,
    })
}

/// Splits `name(…` at the parenthesis; `None` if the text is a sub-query.
fn split_call(text: &str) -> Option<(&str, &str)> {
    let (name, inner) = text.split_once('(')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then_some((name, inner))
}

/// Splits at commas outside of parentheses and braces; `None` if these are unbalanced.
fn split_arguments(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    (depth == 0).then_some(parts)
}
