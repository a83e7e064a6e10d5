//! Label matchers.

use std::fmt;

use regex::Regex;

use super::error::PromqlError;
use super::labels::LabelSet;
use super::re2;
use super::regex_cost::check_cost;

/// How a matcher compares.
#[derive(Debug, Clone)]
pub enum MatchKind {
    Equal,
    NotEqual,
    /// The expression matches the whole value.
    Regex(Regex),
    NotRegex(Regex),
}

/// A condition on one label. A label that a series does not have is empty.
#[derive(Debug, Clone)]
pub struct LabelMatcher {
    pub name: String,
    /// As it was written.
    pub value: String,
    pub kind: MatchKind,
}

impl LabelMatcher {
    /// Creates a matcher; `operator` is `=`, `!=`, `=~` or `!~`.
    pub fn new(name: &str, operator: &str, value: &str) -> Result<LabelMatcher, PromqlError> {
        let kind = match operator {
            "=" => MatchKind::Equal,
            "!=" => MatchKind::NotEqual,
            "=~" => MatchKind::Regex(re2::compile_anchored(value)?),
            "!~" => MatchKind::NotRegex(re2::compile_anchored(value)?),
            _ => {
                return Err(PromqlError::bad_data(format!(
                    "unknown matching operator {operator:?}"
                )));
            }
        };
        Ok(LabelMatcher {
            name: name.to_owned(),
            value: value.to_owned(),
            kind,
        })
    }

    /// Creates the matchers of one selection from names, operators and values. Fails if their
    /// regular expressions together are too expensive to compile.
    pub fn list(conditions: &[(&str, &str, &str)]) -> Result<Vec<LabelMatcher>, PromqlError> {
        let expressions = conditions
            .iter()
            .filter(|(_, operator, _)| operator.ends_with('~'));
        check_cost(expressions.map(|(_, _, value)| *value))?;
        let matchers = conditions.iter();
        let matchers =
            matchers.map(|(name, operator, value)| LabelMatcher::new(name, operator, value));
        matchers.collect()
    }

    /// Returns whether it accepts a value of its label; an absent label is empty.
    pub fn accepts(&self, value: &str) -> bool {
        match &self.kind {
            MatchKind::Equal => self.value == value,
            MatchKind::NotEqual => self.value != value,
            MatchKind::Regex(expression) => expression.is_match(value),
            MatchKind::NotRegex(expression) => !expression.is_match(value),
        }
    }

    pub fn matches(&self, labels: &LabelSet) -> bool {
        self.accepts(labels.get(&self.name))
    }
}

impl fmt::Display for LabelMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.kind {
            MatchKind::Equal => "=",
            MatchKind::NotEqual => "!=",
            MatchKind::Regex(_) => "=~",
            MatchKind::NotRegex(_) => "!~",
        };
        write!(f, "{}{operator}{:?}", self.name, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(operator: &str, value: &str, found: &str) -> bool {
        LabelMatcher::new("l", operator, value)
            .expect("valid")
            .accepts(found)
    }

    #[test]
    fn expressions_match_the_whole_value() {
        assert!(accepts("=", "a", "a") && !accepts("=", "a", ""));
        assert!(accepts("!=", "a", "") && !accepts("!=", "a", "a"));
        assert!(accepts("=~", "a|b", "b") && !accepts("=~", "a|b", "ab"));
        assert!(accepts("=~", ".*", "") && accepts("!~", ".+", ""));
        assert!(accepts("=~", "a.b", "a\nb"), "a dot matches a newline");
        assert!(!accepts("=~", "a", "a\n"));
        assert!(LabelMatcher::new("l", "=~", "a(").is_err());
        assert!(LabelMatcher::new("l", "~", "a").is_err());
    }
}
