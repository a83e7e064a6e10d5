//! Estimates how expensive a regular expression is to compile.
//!
//! The PromQL parser compiles the expressions of matchers itself, before any limit of the query
//! applies. A repetition multiplies what it repeats, so a few bytes can take a second to compile.

use super::error::PromqlError;

/// The cost of all texts of one query. A character costs 1: alternatives of many kilobytes are
/// accepted, and nested repetitions of a Unicode class are not.
const COST_MAX: u64 = 200_000;

/// The cost of a class that contains many ranges of Unicode.
const UNICODE_CLASS_COST: u64 = 500;

/// Fails if the texts together are too expensive to compile.
pub(crate) fn check_cost<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<(), PromqlError> {
    let costs = texts.into_iter().map(compile_cost);
    if costs.fold(0, u64::saturating_add) <= COST_MAX {
        return Ok(());
    }
    Err(PromqlError::bad_data(
        "parse error: regular expressions are too expensive; use fewer or smaller repetitions",
    ))
}

/// Returns the cost of an expression: its characters, times the repetitions around them.
fn compile_cost(text: &str) -> u64 {
    // The sums of the open groups, that of the innermost last.
    let mut groups: Vec<u64> = Vec::new();
    let mut sum: u64 = 0;
    // The last element, which a repetition can follow.
    let mut last: u64 = 0;
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        let repeated = if next == '{' { repetition(rest) } else { None };
        match (next, repeated) {
            (_, Some((most, repetition))) => {
                last = last.saturating_mul(most.max(1));
                length = repetition;
            }
            ('(', _) => {
                groups.push(sum.saturating_add(last));
                (sum, last) = (0, 0);
            }
            (')', _) => {
                last = sum.saturating_add(last);
                sum = groups.pop().unwrap_or(0);
            }
            _ => {
                sum = sum.saturating_add(last);
                (last, length) = element(rest);
            }
        }
        rest = &rest[length..];
    }
    let open = groups.into_iter().fold(0, u64::saturating_add);
    open.saturating_add(sum).saturating_add(last)
}

/// Returns the largest count and the length of `{2}`, `{2,}` or `{2,3}`.
fn repetition(text: &str) -> Option<(u64, usize)> {
    let end = text.find('}')?;
    let (low, high) = match text[1..end].split_once(',') {
        Some((low, high)) => (low, high),
        None => (&text[1..end], ""),
    };
    let low: u64 = low.parse().ok()?;
    let high: u64 = if high.is_empty() {
        low
    } else {
        high.parse().ok()?
    };
    Some((low.max(high), end + 1))
}

/// Returns the cost and the length of a character, an escape or a class.
fn element(text: &str) -> (u64, usize) {
    let mut characters = text.chars();
    match characters.next() {
        Some('\\') => match characters.next() {
            Some(escaped) => (escape_cost(escaped), escape_length(text, escaped)),
            None => (1, 1),
        },
        Some('[') => class(text),
        Some(other) => (if other == '.' { 8 } else { 1 }, other.len_utf8()),
        None => (0, 0),
    }
}

fn escape_cost(escaped: char) -> u64 {
    if "pPdDwWsSbB".contains(escaped) {
        return UNICODE_CLASS_COST;
    }
    1
}

/// Returns the length of an escape; `\pL` and `\p{Greek}` have a name.
fn escape_length(text: &str, escaped: char) -> usize {
    let length = 1 + escaped.len_utf8();
    if !matches!(escaped, 'p' | 'P') {
        return length;
    }
    match text[length..].chars().next() {
        Some('{') => text.find('}').map_or(text.len(), |end| end + 1),
        Some(name) => length + name.len_utf8(),
        None => length,
    }
}

fn class(text: &str) -> (u64, usize) {
    // A negated class matches most of Unicode.
    let mut cost = 16;
    let mut is_escaped = false;
    for (at, next) in text.char_indices().skip(1) {
        match next {
            _ if is_escaped => {
                is_escaped = false;
                cost += escape_cost(next);
            }
            '\\' => is_escaped = true,
            ']' if at > 1 => return (cost, at + 1),
            _ => cost += 1,
        }
    }
    (cost, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_multiply() {
        assert_eq!(compile_cost("abc"), 3);
        assert_eq!(compile_cost("a{10}b"), 11);
        assert_eq!(compile_cost("(ab){2,10}"), 20);
        assert_eq!(compile_cost("((a{10}b){10}){10}"), 1_100);
        assert_eq!(compile_cost("a{b}"), 4, "no repetition");
        assert_eq!(compile_cost("\\w{2}"), 1_000);
        assert_eq!(compile_cost("\\pL{2}\\P{Greek}{3}"), 2_500);
        assert_eq!(compile_cost("[]a]{2}"), 36);
        assert_eq!(
            compile_cost("a{99999999999}{99999999999}{99999999999}"),
            u64::MAX
        );
        // Unbalanced texts are no expressions, but have a cost.
        for text in ["(((a", ")))a", "[a", "{", "a\\"] {
            assert!(compile_cost(text) < 100, "{text}");
        }
    }

    #[test]
    fn ordinary_expressions_are_accepted() {
        let hosts: Vec<String> = (0..2_000)
            .map(|number| format!("node{number:04}"))
            .collect();
        assert!(check_cost([hosts.join("|").as_str(), ".*", "[a-z]{1,63}"]).is_ok());
        assert!(check_cost(["(\\pL{100}){100}"]).is_err());
        assert!(check_cost(["\\w{300}"; 3]).is_err());
    }
}
