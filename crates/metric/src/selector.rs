//! Which series a question is about: `--match` on the command line, `match=` over HTTP.

use regex_lite::Regex;

use crate::Series;
use crate::glob::glob_matches;
use crate::series::quoted;

/// A pattern over series.
///
/// - `node_load1`, `node_cpu*`: a glob; it matches a series whose name or whole text it fits.
/// - `node_cpu_seconds_total{mode!="idle",cpu=~"[0-3]"}`: a glob for the name, then matchers as in
///   Prometheus (`=`, `!=`, `=~`, `!~`; an expression must match the whole value; a missing label
///   has the empty value).
/// - `*{*mode="idle"*}`: braces that hold no matchers are part of a glob over the whole text.
#[derive(Debug, Clone)]
pub struct Selector {
    pattern: String,
    matchers: Option<Vec<Matcher>>,
}

#[derive(Debug, Clone)]
struct Matcher {
    key: String,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    Equal(String),
    Differ(String),
    Fit(Regex),
    Unfit(Regex),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the expression {0:?} is not valid: {1}")]
    Expression(String, String),
}

impl Selector {
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        if text.is_empty() {
            return Err(SelectorError::Empty);
        }
        if let Some((name, matchers)) = split_matchers(text) {
            let matchers = matchers
                .into_iter()
                .map(|(key, op, value)| {
                    let test = match op {
                        "=" => Test::Equal(value),
                        "!=" => Test::Differ(value),
                        "=~" => Test::Fit(whole(&value)?),
                        _ => Test::Unfit(whole(&value)?),
                    };
                    Ok(Matcher { key: key.to_owned(), test })
                })
                .collect::<Result<_, _>>()?;
            let pattern = if name.is_empty() { "*" } else { name };
            return Ok(Selector { pattern: pattern.to_owned(), matchers: Some(matchers) });
        }
        Ok(Selector { pattern: text.to_owned(), matchers: None })
    }

    /// Everything.
    pub fn all() -> Selector {
        Selector { pattern: "*".to_owned(), matchers: None }
    }

    /// All series of exactly this name.
    pub fn name(name: &str) -> Selector {
        Selector { pattern: name.to_owned(), matchers: Some(Vec::new()) }
    }

    pub fn matches(&self, series: &Series) -> bool {
        match &self.matchers {
            None => {
                self.pattern == "*"
                    || glob_matches(&self.pattern, series.name())
                    || glob_matches(&self.pattern, series.text())
            }
            Some(matchers) => {
                glob_matches(&self.pattern, series.name())
                    && matchers.iter().all(|matcher| matcher.matches(series))
            }
        }
    }

    /// The one name that can match, where the pattern holds no wildcard: lets an index skip the rest.
    pub fn exact_name(&self) -> Option<&str> {
        let plain = !self.pattern.contains(['*', '?', '{']);
        plain.then_some(self.pattern.as_str())
    }
}

impl Matcher {
    fn matches(&self, series: &Series) -> bool {
        let value = series.label(&self.key).unwrap_or_default();
        match &self.test {
            Test::Equal(wanted) => value == wanted.as_str(),
            Test::Differ(unwanted) => value != unwanted.as_str(),
            Test::Fit(expression) => expression.is_match(&value),
            Test::Unfit(expression) => !expression.is_match(&value),
        }
    }
}

fn whole(expression: &str) -> Result<Regex, SelectorError> {
    Regex::new(&format!("^(?s:{expression})$"))
        .map_err(|error| SelectorError::Expression(expression.to_owned(), error.to_string()))
}

/// Reads `name{key op "value",…}`; `None` when the text has another shape.
fn split_matchers(text: &str) -> Option<(&str, Vec<(&str, &str, String)>)> {
    let (name, body) = text.split_once('{')?;
    let mut rest = body.strip_suffix('}')?.trim();
    let mut matchers = Vec::new();
    while !rest.is_empty() {
        let key_end = rest.find(['=', '!'])?;
        let key = rest[..key_end].trim();
        rest = &rest[key_end..];
        let op = ["=~", "!~", "!=", "="].into_iter().find(|op| rest.starts_with(op))?;
        let (value, after) = quoted(rest[op.len()..].trim_start()).ok()?;
        if key.is_empty() || key.contains(['*', '?', '"', ',']) {
            return None;
        }
        matchers.push((key, op, value.into_owned()));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some((name, matchers))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::*;
    use crate::{Family, Kind};

    fn series(text: &str) -> Series {
        Series::parse(text, |name| {
            Arc::new(Family {
                name: Cow::Owned(name.to_owned()),
                kind: Kind::Gauge,
                help: "".into(),
                unit: "".into(),
                level: 1,
            })
        })
        .expect("a valid series")
    }

    #[test]
    fn matches_names_texts_and_labels() {
        let idle = series(r#"node_cpu_seconds_total{cpu="0",mode="idle"}"#);
        for (pattern, expected) in [
            ("node_cpu_seconds_total", true),
            ("node_cpu*", true),
            ("*idle*", true),
            ("node_load1", false),
            (r#"node_cpu_seconds_total{mode="idle"}"#, true),
            (r#"node_cpu_seconds_total{ mode = "idle" , cpu =~ "0|1" }"#, true),
            (r#"node_cpu_seconds_total{mode=~"id"}"#, false),
            (r#"node_*{mode!="idle"}"#, false),
            (r#"{mode!~"u.*"}"#, true),
            (r#"{device=""}"#, true),
            (r#"*{*mode="idle"*}"#, true),
            (r#"*{cpu="0",*}"#, true),
        ] {
            let selector = Selector::parse(pattern).expect("a valid pattern");
            assert_eq!(selector.matches(&idle), expected, "{pattern}");
        }
    }

    #[test]
    fn knows_when_only_one_name_can_match() {
        let exact = |text: &str| Selector::parse(text).expect("valid").exact_name().map(str::to_owned);
        assert_eq!(exact("node_load1"), Some("node_load1".into()));
        assert_eq!(exact(r#"m{a="*"}"#), Some("m".into()));
        assert_eq!(exact("node_*"), None);
    }

    #[test]
    fn says_what_is_wrong_with_an_expression() {
        assert!(matches!(Selector::parse(r#"m{a=~"("}"#), Err(SelectorError::Expression(..))));
        assert!(matches!(Selector::parse(""), Err(SelectorError::Empty)));
    }
}
