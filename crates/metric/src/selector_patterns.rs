//! Selectors over the series of other nodes. A node has its series without the label that names the
//! node; the reader sees them with it. A selector is therefore sent as patterns that cover it, and
//! is applied again by the reader.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::selector::{ANCHOR_END, ANCHOR_START, MatchOp, Matcher, SelectorKind};
use crate::series::escape;
use crate::{Selector, Series};

/// A condition that the value of a label meets in every series that a selector accepts.
#[derive(Clone)]
pub(crate) struct LabelCondition {
    key: Box<str>,
    accepts: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl fmt::Debug for LabelCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LabelCondition({})", self.key)
    }
}

impl Selector {
    /// States a condition that the value of a label meets in every series that is accepted: a
    /// reader of several nodes leaves out nodes by it. The selector itself does not check it.
    pub fn with_label_condition(
        mut self,
        key: &str,
        accepts: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Selector {
        self.label_condition = Some(LabelCondition {
            key: key.into(),
            accepts: Arc::new(accepts),
        });
        self
    }

    /// Returns whether a series whose label `key` has this value may be accepted.
    pub fn may_match_label(&self, key: &str, value: &str) -> bool {
        let condition = self.label_condition.as_ref();
        let mut conditions = condition.iter().filter(|condition| *condition.key == *key);
        if !conditions.all(|condition| (condition.accepts)(value)) {
            return false;
        }
        match &self.kind {
            SelectorKind::Matchers(_, matchers) => {
                let mut of_key = matchers.iter().filter(|matcher| matcher.key == key);
                of_key.all(|matcher| matcher.accepts(value))
            }
            SelectorKind::Any(selectors) => {
                let mut selectors = selectors.iter();
                selectors.any(|selector| selector.may_match_label(key, value))
            }
            _ => true,
        }
    }

    /// Returns patterns in the syntax of [`Selector::parse`] such that every series that this
    /// selector accepts matches one of them, even without the labels `added`. `None`: a series of
    /// any name may be accepted.
    pub fn covering_patterns(&self, added: &[&str]) -> Option<BTreeSet<String>> {
        let patterns = self.kind.covering_patterns(added)?;
        // A name may contain characters that a pattern must not have.
        let are_valid = patterns.iter().all(|text| Selector::parse(text).is_ok());
        are_valid.then_some(patterns)
    }

    /// Returns whether it accepts a series of another node, which the node has as `stored` and the
    /// reader sees as `shown`. Globs and lists are compared with the former, conditions on labels
    /// and functions of the caller with the latter.
    pub fn matches_shown(&self, stored: &Series, shown: &Series) -> bool {
        self.kind.matches_shown(stored, shown) && (self.includes_remote || !stored.is_remote())
    }
}

impl SelectorKind {
    fn covering_patterns(&self, added: &[&str]) -> Option<BTreeSet<String>> {
        match self {
            SelectorKind::Glob(pattern) if pattern == "*" => None,
            SelectorKind::Glob(pattern) => Some(BTreeSet::from([pattern.clone()])),
            SelectorKind::Matchers(name, matchers) => {
                let is_sent = |matcher: &&Matcher| !added.contains(&matcher.key.as_str());
                let sent = matchers.iter().filter(is_sent);
                let sent: Vec<String> = sent.map(Matcher::text).collect();
                if sent.is_empty() && name == "*" {
                    return None;
                }
                Some(BTreeSet::from([format!("{name}{{{}}}", sent.join(","))]))
            }
            SelectorKind::Name(name) | SelectorKind::Predicate(name, _) => {
                Some(BTreeSet::from([name.to_string()]))
            }
            SelectorKind::Listed { names, texts } => {
                let of_texts = texts.iter().filter_map(|text| text.split('{').next());
                let names = names.iter().map(|name| &**name);
                Some(names.chain(of_texts).map(str::to_owned).collect())
            }
            SelectorKind::PrometheusName(..) | SelectorKind::Filter(_) => None,
            SelectorKind::Any(selectors) => {
                let mut all = BTreeSet::new();
                for selector in selectors {
                    all.append(&mut selector.kind.covering_patterns(added)?);
                }
                Some(all)
            }
        }
    }

    fn matches_shown(&self, stored: &Series, shown: &Series) -> bool {
        match self {
            SelectorKind::Glob(_) => self.matches(stored),
            SelectorKind::Listed { .. } => self.matches(stored) || self.matches(shown),
            SelectorKind::Any(selectors) => {
                let mut kinds = selectors.iter().map(|selector| &selector.kind);
                kinds.any(|kind| kind.matches_shown(stored, shown))
            }
            SelectorKind::Matchers(..)
            | SelectorKind::Name(_)
            | SelectorKind::Predicate(..)
            | SelectorKind::PrometheusName(..)
            | SelectorKind::Filter(_) => self.matches(shown),
        }
    }
}

impl Matcher {
    /// Returns `key="value"`, in the syntax of a pattern.
    fn text(&self) -> String {
        let inner = |anchored: &str| {
            let inner = anchored.strip_prefix(ANCHOR_START);
            let inner = inner.and_then(|rest| rest.strip_suffix(ANCHOR_END));
            inner.unwrap_or(anchored).to_owned()
        };
        let (operator, value) = match &self.op {
            MatchOp::Equal(value) => ("=", value.clone()),
            MatchOp::NotEqual(value) => ("!=", value.clone()),
            MatchOp::RegexMatch(expression) => ("=~", inner(expression.as_str())),
            MatchOp::RegexNoMatch(expression) => ("!~", inner(expression.as_str())),
        };
        let mut text = format!("{}{operator}\"", self.key);
        escape(&mut text, &value);
        text.push('"');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, MetricKind};

    fn series(text: &str) -> Series {
        let family = Arc::new(Family::new("", MetricKind::Gauge, "", 1, ""));
        Series::parse(text, |_| family).expect("valid")
    }

    fn patterns(selector: &Selector) -> Option<Vec<String>> {
        let patterns = selector.covering_patterns(&["host"]);
        patterns.map(|patterns| patterns.into_iter().collect())
    }

    #[test]
    fn patterns_have_all_conditions_but_those_on_the_added_label() {
        let parse = |text: &str| Selector::parse(text).expect("valid");
        let one = |text: &str| Some(vec![text.to_owned()]);
        assert_eq!(patterns(&Selector::all()), None);
        assert_eq!(patterns(&Selector::name("load")), one("load"));
        assert_eq!(patterns(&parse("cpu*")), one("cpu*"));
        let conditions = r#"cpu{a="x\"y",b!="",c=~"1|2",d!~"z"}"#;
        assert_eq!(patterns(&parse(conditions)), one(conditions));
        assert_eq!(
            patterns(&parse(r#"cpu{host="n1",a="1"}"#)),
            one(r#"cpu{a="1"}"#)
        );
        assert_eq!(patterns(&parse(r#"{host="n1"}"#)), None);
        let list = Selector::from_list([r#"b{x="1"}"#, "a", "b"]).expect("valid");
        assert_eq!(patterns(&list), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(patterns(&Selector::any(Vec::new())), Some(Vec::new()));
        assert_eq!(patterns(&Selector::filter(|_| true)), None);
        let either = Selector::any(vec![Selector::name("a"), Selector::all()]);
        assert_eq!(patterns(&either), None);
        assert_eq!(
            patterns(&Selector::name(&format!("*{}*", "?".repeat(300)))),
            None,
            "no valid pattern"
        );
    }

    #[test]
    fn conditions_on_a_label_are_known_in_advance() {
        let accepts = |text: &str, value: &str| {
            let selector = Selector::parse(text).expect("valid");
            selector.may_match_label("host", value)
        };
        assert!(accepts("load", "n1") && accepts(r#"load{a="1"}"#, "n1"));
        assert!(accepts(r#"load{host="n1"}"#, "n1") && !accepts(r#"load{host="n1"}"#, "n2"));
        assert!(accepts(r#"{host=~"n[12]"}"#, "n2") && !accepts(r#"{host!~"n[12]"}"#, "n2"));
        let stated = Selector::name("load").with_label_condition("host", |host| host == "n1");
        assert!(stated.may_match_label("host", "n1") && !stated.may_match_label("host", "n2"));
        assert!(stated.may_match_label("job", "n2"));
        let either = Selector::any(vec![stated, Selector::name("x")]);
        assert!(either.may_match_label("host", "n2"));
        assert!(!Selector::any(Vec::new()).may_match_label("host", "n2"));
    }

    #[test]
    fn lists_name_series_as_the_node_has_them() {
        let (stored, shown) = (series(r#"b{x="1"}"#), series(r#"b{host="n1",x="1"}"#));
        let accepts = |selector: &Selector| selector.matches_shown(&stored, &shown);
        let parse = |text: &str| Selector::parse(text).expect("valid");
        assert!(accepts(
            &Selector::from_list([r#"b{x="1"}"#]).expect("valid")
        ));
        assert!(accepts(
            &Selector::from_list([r#"b{host="n1",x="1"}"#]).expect("valid")
        ));
        assert!(!accepts(
            &Selector::from_list([r#"b{host="n1"}"#]).expect("valid")
        ));
        assert!(accepts(&parse(r#"b{host="n1"}"#)) && !accepts(&parse(r#"b{host!="n1"}"#)));
        assert!(!accepts(&parse("*n1*")) && accepts(&parse("b")));
        assert!(accepts(&Selector::with_predicate("b", |series| series
            .label("host")
            .is_some())));
    }
}
