//! Rules: rename, label, keep or drop a program's series by its name and labels before it is
//! stored.
//!
//! Admission applies them once to every new series. They are evaluated in order. `keep` and `drop`
//! are final; `rename` and `label` change the series for the rules that follow. A series that no
//! rule decides is kept.

mod pattern;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_config::{ConfigProblem, ConfigTree, ConfigValue, Setting, settings};
use pegel_metric::{Family, MetricKind, Series, glob_matches};

use crate::reserved_names::is_identity_label;

pub use pattern::{CaptureTemplate, Captures, NamePattern, PatternError};

settings! {
    /// A rule for programs' series.
    pub struct RelabelRuleSettings {
        /// Names that the rule matches: *, ?, and captures in braces that rename and label can use.
        name: Option<NamePattern> = None,
        /// Labels that a series must have: patterns with * and ?.
        labels: BTreeMap<String, String> = BTreeMap::new(),
        /// Keep the series as it is, ignoring later rules.
        keep: bool = false,
        /// Drop the series and count it.
        drop: bool = false,
        /// Rename the series.
        rename: Option<CaptureTemplate> = None,
        /// Add labels, or replace them. The agent's own labels (user, input, statsd_type,
        /// lane_type) cannot be set.
        label: BTreeMap<String, CaptureTemplate> = BTreeMap::new(),
    }
}

/// A validated rule.
#[derive(Debug, Clone)]
pub struct RelabelRule(RelabelRuleSettings);

impl Setting for RelabelRule {
    fn accepts() -> String {
        "a rule, such as {name: \"debug.*\", drop: true}".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<RelabelRule> {
        let keys = RelabelRuleSettings::read(tree, problems)?;
        if let Some(message) = validation_error(&keys) {
            problems.push(ConfigProblem::value(tree, message, &RelabelRule::accepts()));
            return None;
        }
        Some(RelabelRule(keys))
    }

    fn to_value(&self) -> ConfigValue {
        self.0.to_value()
    }
}

fn validation_error(keys: &RelabelRuleSettings) -> Option<String> {
    let changes = keys.rename.is_some() || !keys.label.is_empty();
    if keys.name.is_none() && keys.labels.is_empty() {
        return Some("the rule selects no series: set name or labels".to_owned());
    }
    if keys.keep && keys.drop {
        return Some("the rule has both keep and drop: set only one".to_owned());
    }
    if keys.drop && changes {
        return Some("a rule with drop cannot have rename or label".to_owned());
    }
    if !keys.keep && !keys.drop && !changes {
        return Some("the rule has no effect: set keep, drop, rename or label".to_owned());
    }
    let family = Arc::new(Family::new("name", MetricKind::Unknown, "", 0, ""));
    for key in keys.label.keys() {
        if let Err(error) = Series::new(family.clone(), &[(key, "")]) {
            return Some(error.to_string());
        }
        if is_identity_label(key) {
            return Some(format!(
                "the label {key} is reserved for the agent; use another one, such as rule_{key}"
            ));
        }
    }
    let pattern = keys.name.clone().or_else(|| "*".parse().ok())?;
    let templates = keys.rename.iter().chain(keys.label.values());
    let unknown = templates
        .filter_map(|template| template.unknown_capture(&pattern))
        .next();
    unknown.map(|part| format!("the pattern has no capture {{{part}}}"))
}

/// Labels while the rules are applied.
pub type RelabeledLabels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// All rules, in the order of the configuration.
#[derive(Debug, Clone, Default)]
pub struct RelabelRules(Vec<RelabelRule>);

impl RelabelRules {
    pub fn new(rules: Vec<RelabelRule>) -> RelabelRules {
        RelabelRules(rules)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name and the labels to store under, or `None` if the series is dropped.
    pub fn apply<'a>(
        &self,
        name: &'a str,
        mut labels: RelabeledLabels<'a>,
    ) -> Option<(Cow<'a, str>, RelabeledLabels<'a>)> {
        let mut name = Cow::Borrowed(name);
        for RelabelRule(rule) in &self.0 {
            let Some(change) = rule.evaluate(&name, &labels) else {
                continue;
            };
            if rule.drop {
                return None;
            }
            if let Some(new) = change.name {
                name = Cow::Owned(new);
            }
            for (key, value) in change.labels {
                labels.retain(|(known, _)| *known != key);
                labels.push((Cow::Owned(key), Cow::Owned(value)));
            }
            if rule.keep {
                break;
            }
        }
        Some((name, labels))
    }
}

struct RelabelChange {
    name: Option<String>,
    labels: Vec<(String, String)>,
}

impl RelabelRuleSettings {
    /// Returns the effect of the rule on this series, or `None` if the rule does not match.
    fn evaluate(&self, name: &str, labels: &RelabeledLabels<'_>) -> Option<RelabelChange> {
        let has = |(key, pattern): (&String, &String)| {
            let label = labels.iter().find(|(known, _)| known == key);
            label.is_some_and(|(_, value)| glob_matches(pattern, value))
        };
        if !self.labels.iter().all(has) {
            return None;
        }
        let parts = match &self.name {
            Some(pattern) => pattern.captures(name)?,
            None => Vec::new(),
        };
        let fill =
            |(key, template): (&String, &CaptureTemplate)| (key.clone(), template.fill(&parts));
        Some(RelabelChange {
            name: self.rename.as_ref().map(|template| template.fill(&parts)),
            labels: self.label.iter().map(fill).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use pegel_config::{ConfigEntry, ConfigOrigin};

    use super::*;
    use crate::reserved_names::exported;

    /// Builds a rule from a tree as YAML would give it: `key=value`, and `key.inner=value` for
    /// maps.
    fn rule(texts: &[(&str, &str)]) -> Result<RelabelRule, String> {
        let place = ConfigOrigin::Argument("test");
        let mut tree = ConfigTree::empty(place.clone());
        for (path, text) in texts {
            let value = ConfigTree {
                origin: place.clone(),
                path: (*path).to_owned(),
                value: ConfigValue::Scalar((*text).to_owned()),
            };
            let ConfigValue::Map(entries) = &mut tree.value else {
                unreachable!("created as a map")
            };
            let entry = |key: &str, value| ConfigEntry {
                key: key.to_owned(),
                origin: place.clone(),
                value,
            };
            match path.split_once('.') {
                None => entries.push(entry(path, value)),
                Some((outer, inner)) => {
                    let mut map = ConfigTree::empty(place.clone());
                    map.value = ConfigValue::Map(vec![entry(inner, value)]);
                    entries.push(entry(outer, map));
                }
            }
        }
        let mut problems = Vec::new();
        RelabelRule::read(&tree, &mut problems).ok_or_else(|| problems[0].message.clone())
    }

    fn apply(rules: &[&[(&str, &str)]], name: &str, labels: &[(&str, &str)]) -> Option<String> {
        let rules = rules.iter().map(|texts| rule(texts).expect("a rule"));
        let rules = RelabelRules::new(rules.collect());
        let (name, mut labels) = rules.apply(name, exported(labels))?;
        labels.sort();
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Some(format!("{name} {}", labels.join(",")).trim_end().to_owned())
    }

    const RANK: &[(&str, &str)] = &[
        ("name", "flux.{rank:int}.{rest:any}"),
        ("rename", "flux.{rest}"),
        ("label.rank", "{rank}"),
    ];
    const MODULE: &[(&str, &str)] = &[
        ("name", "flux.{module}.{rank:int}.{rest:any}"),
        ("rename", "flux.{module}.{rest}"),
        ("label.rank", "{rank}"),
    ];

    #[test]
    fn the_rank_in_a_name_becomes_a_label() {
        let rules = [RANK, MODULE];
        let applied = |name| apply(&rules, name, &[]);
        assert_eq!(
            applied("flux.3.content-cache.size").as_deref(),
            Some("flux.content-cache.size rank=3")
        );
        assert_eq!(
            applied("flux.kvs.0.cache").as_deref(),
            Some("flux.kvs.cache rank=0")
        );
        assert_eq!(applied("other.3.x").as_deref(), Some("other.3.x"));
    }

    #[test]
    fn keep_comes_before_a_drop_below() {
        let rules: [&[(&str, &str)]; 2] = [
            &[("name", "solver.*"), ("keep", "true")],
            &[("name", "*"), ("drop", "true")],
        ];
        assert_eq!(apply(&rules, "solver.a", &[]).as_deref(), Some("solver.a"));
        assert_eq!(apply(&rules, "noise", &[]), None);
    }

    #[test]
    fn labels_are_matched_and_replaced() {
        let rules: [&[(&str, &str)]; 1] = [&[("labels.env", "te?t*"), ("label.env", "other")]];
        assert_eq!(
            apply(&rules, "a", &[("env", "test-1"), ("x", "y")]).as_deref(),
            Some("a env=other,x=y")
        );
        assert_eq!(apply(&rules, "a", &[("x", "y")]).as_deref(), Some("a x=y"));
    }

    #[test]
    fn rules_without_sense_are_refused() {
        for (texts, message) in [
            (
                &[("drop", "true")][..],
                "the rule selects no series: set name or labels",
            ),
            (
                &[("name", "*")],
                "the rule has no effect: set keep, drop, rename or label",
            ),
            (
                &[("name", "*"), ("drop", "true"), ("keep", "true")],
                "the rule has both keep and drop: set only one",
            ),
            (
                &[("name", "*"), ("drop", "true"), ("rename", "x")],
                "a rule with drop cannot have rename or label",
            ),
            (
                &[("name", "*"), ("label.a b{", "x")],
                "the label key \"a b{\" contains the invalid character '{'",
            ),
            (
                &[("name", "r.*"), ("label.user", "all")],
                "the label user is reserved for the agent; use another one, such as rule_user",
            ),
            (
                &[("name", "r.*"), ("label.statsd-type", "all")],
                "the label statsd-type is reserved for the agent; use another one, such as rule_statsd-type",
            ),
            (
                &[("name", "{a}"), ("rename", "{b}")],
                "the pattern has no capture {b}",
            ),
        ] {
            assert_eq!(rule(texts).expect_err("no rule"), message);
        }
    }
}
