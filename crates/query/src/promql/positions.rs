//! Scans the text of an expression: bounds its nesting before it is parsed, and finds the positions
//! that Prometheus' annotations mention, which the parser does not report.

use std::collections::HashMap;

use super::error::PromqlError;
use super::regex_cost::check_cost;

/// The length of an expression.
const LENGTH_MAX: usize = 64 << 10;

/// The maximum number of operators, calls and parentheses. The parser and the evaluator recurse
/// once for each at most, so this bounds the stack.
const NESTING_MAX: usize = 400;

/// The positions of the arguments of a call, as byte offsets.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallPosition {
    arguments: Vec<usize>,
}

impl CallPosition {
    /// Returns the offset of an argument, or 0.
    pub(crate) fn argument(&self, index: usize) -> usize {
        self.arguments.get(index).copied().unwrap_or(0)
    }
}

/// The calls in an expression by function name, in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct CallPositions {
    calls: HashMap<String, std::collections::VecDeque<CallPosition>>,
}

impl CallPositions {
    /// Scans an expression; fails if it is too long or nested too deeply.
    pub(crate) fn scan(text: &str) -> Result<CallPositions, PromqlError> {
        if text.len() > LENGTH_MAX {
            return Err(PromqlError::bad_data(format!(
                "the expression has {} bytes; at most {LENGTH_MAX} are accepted",
                text.len()
            )));
        }
        let tokens = tokens(text);
        let texts: Vec<String> = tokens
            .iter()
            .filter_map(|token| unquote(token, text))
            .collect();
        check_cost(texts.iter().map(String::as_str))?;
        let nesting = count_nesting(&tokens, text);
        if nesting > NESTING_MAX {
            return Err(PromqlError::bad_data(format!(
                "the expression has {nesting} operators and parentheses; at most {NESTING_MAX} \
                 are accepted"
            )));
        }
        let mut calls = CallPositions::default();
        for index in 0..tokens.len() {
            let token = &tokens[index];
            if token.kind != TokenKind::Word {
                continue;
            }
            if let Some(open) = opening(&tokens, text, index) {
                let name = text[token.start..token.end].to_ascii_lowercase();
                let position = CallPosition {
                    arguments: arguments(&tokens, text, open),
                };
                calls.calls.entry(name).or_default().push_back(position);
            }
        }
        Ok(calls)
    }

    /// Returns the next call of a function. Must be called in the order of the text.
    pub(crate) fn next(&mut self, name: &str) -> CallPosition {
        let calls = self.calls.get_mut(name);
        calls
            .and_then(|calls| calls.pop_front())
            .unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Word,
    Text,
    Symbol,
}

#[derive(Debug)]
struct TextToken {
    kind: TokenKind,
    start: usize,
    end: usize,
}

/// Returns the content of a quoted text, any of which can be a regular expression.
fn unquote(token: &TextToken, text: &str) -> Option<String> {
    if token.kind != TokenKind::Text {
        return None;
    }
    let quoted = &text[token.start..token.end];
    let inside = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or("");
    if quoted.starts_with('`') {
        return Some(inside.to_owned());
    }
    Some(inside.replace("\\\\", "\\"))
}

/// Counts what can nest: operators, calls and parentheses, but not the matchers of selectors.
fn count_nesting(tokens: &[TextToken], text: &str) -> usize {
    let mut count = 0;
    let mut is_selector = false;
    for token in tokens {
        let word = &text[token.start..token.end];
        match (token.kind, word) {
            (TokenKind::Text, _) => {}
            (TokenKind::Symbol, "{") => is_selector = true,
            (TokenKind::Symbol, "}") => is_selector = false,
            _ if is_selector => {}
            (TokenKind::Symbol, _) => {
                count += usize::from("([+-*/%^<>=!@".contains(word));
            }
            (TokenKind::Word, _) => {
                let word = word.to_ascii_lowercase();
                let nests = ["and", "or", "unless", "atan2", "offset"].contains(&&*word);
                count += usize::from(nests);
            }
        }
    }
    count
}

/// Splits an expression into words, quoted texts and single symbols.
fn tokens(text: &str) -> Vec<TextToken> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let kind = match byte {
            b'#' => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                continue;
            }
            b'"' | b'\'' | b'`' => {
                at += 1;
                while at < bytes.len() && bytes[at] != byte {
                    at += if bytes[at] == b'\\' && byte != b'`' {
                        2
                    } else {
                        1
                    };
                }
                at = (at + 1).min(bytes.len());
                TokenKind::Text
            }
            _ if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            _ if is_word(byte) => {
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
                TokenKind::Word
            }
            _ => {
                at += 1;
                TokenKind::Symbol
            }
        };
        tokens.push(TextToken {
            kind,
            start,
            end: at,
        });
    }
    tokens
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'.') || byte >= 0x80
}

fn is_symbol(tokens: &[TextToken], text: &str, index: usize, symbol: &str) -> bool {
    tokens.get(index).is_some_and(|token| {
        token.kind == TokenKind::Symbol && &text[token.start..token.end] == symbol
    })
}

/// Returns the index of the parenthesis that opens the arguments of the call at `word`; skips the
/// grouping of an aggregation.
fn opening(tokens: &[TextToken], text: &str, word: usize) -> Option<usize> {
    if is_symbol(tokens, text, word + 1, "(") {
        return Some(word + 1);
    }
    let next = tokens.get(word + 1)?;
    let grouping = text[next.start..next.end].to_ascii_lowercase();
    if next.kind != TokenKind::Word || !matches!(grouping.as_str(), "by" | "without") {
        return None;
    }
    let close = (word + 2..tokens.len()).find(|index| is_symbol(tokens, text, *index, ")"))?;
    is_symbol(tokens, text, close + 1, "(").then_some(close + 1)
}

/// Returns the offsets of the arguments after the opening parenthesis.
fn arguments(tokens: &[TextToken], text: &str, open: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut depth = 0usize;
    let mut is_next = true;
    for token in &tokens[open..] {
        let symbol = match token.kind {
            TokenKind::Symbol => &text[token.start..token.end],
            _ => "",
        };
        let is_end = depth == 1 && symbol == ")";
        if depth > 0 && !is_end && std::mem::take(&mut is_next) {
            found.push(token.start);
        }
        match symbol {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            "," if depth == 1 => is_next = true,
            _ => {}
        }
    }
    found
}

/// Returns an offset as `line:column`, both counted from 1.
pub(crate) fn line_and_column(text: &str, offset: usize) -> String {
    let before = &text[..offset.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
    format!("{line}:{column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(text: &str, name: &str) -> Vec<Vec<usize>> {
        let mut calls = CallPositions::scan(text).expect("short");
        let calls = std::iter::from_fn(|| calls.calls.get_mut(name)?.pop_front());
        calls.map(|call| call.arguments).collect()
    }

    #[test]
    fn arguments_are_found_in_the_order_of_the_text() {
        assert_eq!(
            positions("rate(a[5m]) + rate( b[5m])", "rate"),
            [vec![5], vec![20]]
        );
        assert_eq!(
            positions(
                "histogram_quantile(0.9, sum by (le) (rate(x{a=\"(,\"}[1m])))",
                "histogram_quantile"
            ),
            [vec![19, 24]]
        );
        assert_eq!(
            positions("quantile by (a, b) (2, x)", "quantile"),
            [vec![20, 23]]
        );
        assert_eq!(positions("sum(x) by (a)", "sum"), [vec![4]]);
        assert_eq!(positions("time()", "time"), [vec![5; 0]]);
        assert_eq!(line_and_column("a +\n  rate(b)", 11), "2:8");
    }

    #[test]
    fn deep_and_long_expressions_are_refused() {
        let refused = |text: String| CallPositions::scan(&text).is_err();
        assert!(refused("(".repeat(500)) && refused("-".repeat(500)));
        assert!(refused("1+".repeat(500)) && refused("a or ".repeat(500)));
        assert!(refused(format!("x{{l=\"{}\"}}", "a".repeat(LENGTH_MAX))));
        assert!(
            !refused(format!("x{{l=\"{}\"}}", "(".repeat(1_000))),
            "inside of a text"
        );
        assert!(!refused("1 + ".repeat(200) + "1"));
    }
}
