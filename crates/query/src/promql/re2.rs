//! Regular expressions with the syntax and the meaning of RE2, which Prometheus uses.
//!
//! The `regex` crate matches in linear time, as RE2 does, but differs in a few places: its Perl
//! classes contain all of Unicode, brackets nest inside a class, and a brace that begins no
//! repetition is an error. The translation rewrites these places.

use regex::{Regex, RegexBuilder};

use super::error::PromqlError;

/// The memory of one compiled expression.
const SIZE_MAX: usize = 4 << 20;

/// The memory in which it keeps what it has matched before.
const CACHE_MAX: usize = 1 << 20;

/// The length of one expression.
const LENGTH_MAX: usize = 64 << 10;

/// Compiles an expression that must match a whole value. A dot matches every character.
pub(crate) fn compile_anchored(text: &str) -> Result<Regex, PromqlError> {
    let wrong = |why: &str| {
        let first_line = why.lines().last().unwrap_or(why).trim();
        PromqlError::bad_data(format!("error parsing regexp: {first_line}: `{text}`"))
    };
    if text.len() > LENGTH_MAX {
        return Err(wrong(&format!("expression exceeds {LENGTH_MAX} bytes")));
    }
    RegexBuilder::new(&format!("^(?s:{})$", translate(text)))
        .size_limit(SIZE_MAX)
        .dfa_size_limit(CACHE_MAX)
        .build()
        .map_err(|error| wrong(&error.to_string()))
}

/// Rewrites an expression of RE2 for the `regex` crate.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = next.len_utf8();
        match next {
            '\\' => rest = translate_escape(rest, &mut out, false),
            '[' => rest = translate_class(rest, &mut out),
            '{' if !begins_repetition(rest) => {
                out.push_str("\\{");
                rest = &rest[length..];
            }
            _ => {
                out.push(next);
                rest = &rest[length..];
            }
        }
    }
    out
}

/// Returns whether the text begins with `{2}`, `{2,}` or `{2,3}`.
fn begins_repetition(text: &str) -> bool {
    let Some(end) = text.find('}') else {
        return false;
    };
    let (low, high) = match text[1..end].split_once(',') {
        Some((low, high)) => (low, high),
        None => (&text[1..end], ""),
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !low.is_empty() && is_number(low) && is_number(high)
}

/// Translates the escape at the beginning of `text` and returns what follows it.
fn translate_escape<'a>(text: &'a str, out: &mut String, in_class: bool) -> &'a str {
    let Some(escaped) = text[1..].chars().next() else {
        out.push('\\');
        return "";
    };
    let rest = &text[1 + escaped.len_utf8()..];
    let (inside, negated) = match escaped {
        'd' | 'D' => ("0-9", escaped == 'D'),
        'w' | 'W' => ("0-9A-Za-z_", escaped == 'W'),
        's' | 'S' => ("\\t\\n\\f\\r ", escaped == 'S'),
        'Q' if !in_class => {
            let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(quoted));
            return rest;
        }
        'b' | 'B' if !in_class => {
            out.push_str(if escaped == 'b' {
                "(?-u:\\b)"
            } else {
                "(?-u:\\B)"
            });
            return rest;
        }
        _ => {
            out.push('\\');
            out.push(escaped);
            return rest;
        }
    };
    match (in_class, negated) {
        (true, false) => out.push_str(inside),
        (_, true) => {
            out.push_str("[^");
            out.push_str(inside);
            out.push(']');
        }
        (false, false) => {
            out.push('[');
            out.push_str(inside);
            out.push(']');
        }
    }
    rest
}

/// Translates the class in brackets at the beginning of `text` and returns what follows it.
fn translate_class<'a>(text: &'a str, out: &mut String) -> &'a str {
    out.push('[');
    let mut rest = &text[1..];
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    // A bracket at the beginning is an element.
    if let Some(after) = rest.strip_prefix(']') {
        out.push_str("\\]");
        rest = after;
    }
    while let Some(next) = rest.chars().next() {
        match next {
            ']' => {
                out.push(']');
                return &rest[1..];
            }
            '\\' => rest = translate_escape(rest, out, true),
            '[' => match rest.find(":]") {
                Some(end) if rest.starts_with("[:") => {
                    out.push_str(&rest[..end + 2]);
                    rest = &rest[end + 2..];
                }
                _ => {
                    out.push_str("\\[");
                    rest = &rest[1..];
                }
            },
            // `&&`, `--` and `~~` are operations on classes in the `regex` crate.
            '&' | '~' => {
                out.push('\\');
                out.push(next);
                rest = &rest[1..];
            }
            _ => {
                out.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(expression: &str, text: &str) -> bool {
        compile_anchored(expression)
            .expect(expression)
            .is_match(text)
    }

    #[test]
    fn classes_are_those_of_ascii() {
        assert!(is_match("\\d+", "12") && !is_match("\\d", "٣"));
        assert!(is_match("\\w+", "aB_9") && !is_match("\\w", "ä"));
        assert!(is_match("\\D", "٣") && is_match("[^\\d]", "٣") && is_match("[\\D]", "x"));
        assert!(is_match("\\s\\S", " x") && !is_match("\\s", "\u{a0}"));
        assert!(is_match("a\\b.b", "a b") && is_match("[[:alpha:]]+", "ab"));
    }

    #[test]
    fn braces_and_brackets_that_mean_nothing_are_characters() {
        assert!(is_match("a{b}c", "a{b}c") && is_match("a{2}", "aa") && is_match("a{1,}", "aaa"));
        assert!(is_match("{,2}", "{,2}"));
        assert!(is_match("[[]x", "[x") && is_match("[]a]+", "]a") && is_match("[a&&b]+", "a&b"));
        assert!(is_match("\\Qa.b\\E+", "a.b") && !is_match("\\Qa.b\\E", "axb"));
    }

    #[test]
    fn expensive_expressions_are_refused() {
        assert!(compile_anchored("((a{100}){100}){100}").is_err());
        assert!(compile_anchored(&"a".repeat(LENGTH_MAX + 1)).is_err());
        for wrong in ["a(", "a)", "*", "[a", "\\", "(?<"] {
            assert!(compile_anchored(wrong).is_err(), "{wrong}");
        }
    }
}
