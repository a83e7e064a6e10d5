//! Rule files in Prometheus' format: groups of recording and alerting rules.
//!
//! [`RuleFile::load`] reads a file and checks everything that can be checked without data: keys,
//! names, durations, expressions and templates. Every problem has its place in the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pegel_config::{ConfigError, ConfigProblem, ConfigTree, ConfigValue};

use crate::duration::{self, parse_duration};
use crate::expression::check_expression;
use crate::map_keys::check_keys;
use crate::template::Template;

/// The maximum number of rules in all files of an agent.
pub(crate) const RULES_MAX: usize = 10_000;

/// A checked rule file.
#[derive(Debug, Clone)]
pub struct RuleFile {
    pub path: PathBuf,
    pub groups: Vec<RuleGroupSpec>,
}

/// A group: its rules are evaluated one after the other, at one time.
#[derive(Debug, Clone)]
pub struct RuleGroupSpec {
    pub name: String,
    pub file: PathBuf,
    /// `None`: the interval of the configuration.
    pub interval: Option<Duration>,
    /// How far in the past expressions are evaluated.
    pub query_offset: Duration,
    /// The maximum number of series of a recording rule, and of alerts of an alerting rule; 0 is
    /// no limit.
    pub limit: usize,
    pub rules: Vec<Arc<RuleSpec>>,
}

/// A rule.
#[derive(Debug, Clone)]
pub struct RuleSpec {
    /// The name of the recorded series or of the alert.
    pub name: String,
    pub expression: String,
    pub labels: BTreeMap<String, RuleText>,
    /// `None` for a recording rule.
    pub alert: Option<AlertSpec>,
    pub line: u64,
}

/// The part of a rule that only alerting rules have.
#[derive(Debug, Clone)]
pub struct AlertSpec {
    /// How long the expression must hold before the alert fires (`for`).
    pub hold: Duration,
    /// How long the alert keeps firing after the expression no longer holds.
    pub keep_firing: Duration,
    pub annotations: BTreeMap<String, RuleText>,
}

/// The text of a label or annotation; a template in alerting rules.
#[derive(Debug, Clone)]
pub struct RuleText {
    pub text: String,
    pub(crate) template: Option<Template>,
}

impl RuleFile {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<RuleFile, ConfigError> {
        let text = pegel_config::read_text(path).map_err(|message| ConfigProblem {
            origin: None,
            key: path.display().to_string(),
            message,
            hint: String::new(),
        })?;
        RuleFile::parse(path, &text)
    }

    /// Checks the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<RuleFile, ConfigError> {
        let tree = pegel_config::parse(path, text)?;
        let mut reader = RuleReader {
            path,
            problems: Vec::new(),
        };
        let groups = reader.file(&tree);
        if !reader.problems.is_empty() {
            return Err(ConfigError {
                problems: reader.problems,
            });
        }
        Ok(RuleFile {
            path: path.to_owned(),
            groups,
        })
    }

    pub fn rule_count(&self) -> usize {
        self.groups.iter().map(|group| group.rules.len()).sum()
    }

    /// Describes rules that have the same name and labels as another one of the file. They are
    /// accepted, but most likely a mistake.
    pub fn duplicate_rules(&self) -> Vec<String> {
        let mut seen = BTreeMap::new();
        let mut found = Vec::new();
        for rule in self.groups.iter().flat_map(|group| &group.rules) {
            let labels: Vec<(&String, &String)> = rule
                .labels
                .iter()
                .map(|(name, text)| (name, &text.text))
                .collect();
            let key = (rule.alert.is_some(), &rule.name, labels);
            if let Some(first) = seen.get(&key) {
                let path = self.path.display();
                found.push(format!(
                    "{path}:{}: {} has the same name and labels as the rule in line {first}",
                    rule.line, rule.name
                ));
            } else {
                seen.insert(key, rule.line);
            }
        }
        found
    }
}

impl RuleSpec {
    /// Returns whether another rule is the same in all that its state depends on.
    pub(crate) fn is_same(&self, other: &RuleSpec) -> bool {
        let texts = |map: &BTreeMap<String, RuleText>| -> Vec<(String, String)> {
            let pairs = map.iter();
            pairs
                .map(|(name, text)| (name.clone(), text.text.clone()))
                .collect()
        };
        let timing = |rule: &RuleSpec| { rule.alert.as_ref() }.map(|alert| alert.hold);
        self.name == other.name
            && self.expression == other.expression
            && texts(&self.labels) == texts(&other.labels)
            && timing(self) == timing(other)
    }
}

struct RuleReader<'a> {
    path: &'a Path,
    problems: Vec<ConfigProblem>,
}

const GROUP_KEYS: [&str; 6] = [
    "name",
    "interval",
    "query_offset",
    "limit",
    "labels",
    "rules",
];
const RULE_KEYS: [&str; 7] = [
    "record",
    "alert",
    "expr",
    "for",
    "keep_firing_for",
    "labels",
    "annotations",
];

impl RuleReader<'_> {
    fn problem(&mut self, tree: &ConfigTree, message: impl Into<String>, hint: &str) {
        self.problems.push(ConfigProblem::new(tree, message, hint));
    }

    fn file(&mut self, tree: &ConfigTree) -> Vec<RuleGroupSpec> {
        self.check_keys(tree, &["groups"], "a map with the key groups");
        let items = tree.get("groups").map(|groups| self.items(groups));
        let mut groups: Vec<RuleGroupSpec> = Vec::new();
        for item in items.unwrap_or_default() {
            let Some(group) = self.group(item) else {
                continue;
            };
            if groups.iter().any(|known| known.name == group.name) {
                let message = format!("groupname: {:?} is repeated in the same file", group.name);
                self.problem(item, message, "give every group its own name");
            }
            groups.push(group);
        }
        groups
    }

    fn group(&mut self, tree: &ConfigTree) -> Option<RuleGroupSpec> {
        self.check_keys(tree, &GROUP_KEYS, "a group");
        let name = self.text(tree, "name").unwrap_or_default();
        if name.is_empty() {
            self.problem(tree, "Groupname must not be empty", "set name");
        }
        let interval = self.duration(tree, "interval");
        let query_offset = self.duration(tree, "query_offset");
        let limit = self.limit(tree);
        let common = self.texts(tree, "labels", false);
        let rules = tree.get("rules").map(|rules| self.items(rules));
        let rules: Vec<Arc<RuleSpec>> = rules
            .unwrap_or_default()
            .into_iter()
            .filter_map(|rule| self.rule(rule, &common))
            .map(Arc::new)
            .collect();
        if rules.len() > RULES_MAX {
            self.problem(
                tree,
                format!("the group has more than {RULES_MAX} rules"),
                "",
            );
        }
        Some(RuleGroupSpec {
            name,
            file: self.path.to_owned(),
            interval: interval.filter(|interval| !interval.is_zero()),
            query_offset: query_offset.unwrap_or_default(),
            limit,
            rules,
        })
    }

    fn rule(&mut self, tree: &ConfigTree, common: &BTreeMap<String, RuleText>) -> Option<RuleSpec> {
        self.check_keys(tree, &RULE_KEYS, "a rule");
        let record = self.text(tree, "record").filter(|name| !name.is_empty());
        let alert = self.text(tree, "alert").filter(|name| !name.is_empty());
        let is_alert = alert.is_some();
        if record.is_some() && is_alert {
            self.problem(
                tree,
                "only one of 'record' and 'alert' must be set",
                "write two rules",
            );
        }
        let Some(name) = record.clone().or(alert) else {
            self.problem(tree, "one of 'record' or 'alert' must be set", "");
            return None;
        };
        let expression = self.text(tree, "expr").unwrap_or_default();
        let expression = expression.trim().to_owned();
        match tree.get("expr") {
            Some(place) if !expression.is_empty() => {
                if let Err(error) = check_expression(&expression) {
                    self.problem(place, format!("could not parse expression: {error}"), "");
                }
            }
            place => {
                let place = place.unwrap_or(tree);
                self.problem(place, "field 'expr' must be set in rule", "");
            }
        }
        if let Some(record) = &record {
            self.check_recording(tree, record);
        }
        let hold = self.duration(tree, "for").unwrap_or_default();
        let keep_firing = self.duration(tree, "keep_firing_for").unwrap_or_default();
        let mut labels = common.clone();
        if is_alert {
            // The labels of a group are templates in alerting rules, like those of a rule.
            for text in labels.values_mut() {
                text.template = Template::parse(&text.text).ok();
            }
        }
        labels.extend(self.texts(tree, "labels", is_alert));
        let annotations = self.texts(tree, "annotations", is_alert);
        let line = match &tree.origin {
            pegel_config::ConfigOrigin::File { line, .. } => *line,
            _ => 0,
        };
        Some(RuleSpec {
            name,
            expression,
            labels,
            alert: is_alert.then_some(AlertSpec {
                hold,
                keep_firing,
                annotations,
            }),
            line,
        })
    }

    fn check_recording(&mut self, tree: &ConfigTree, name: &str) {
        for key in ["annotations", "for", "keep_firing_for"] {
            let place = tree.get(key);
            if let Some(place) = place.filter(|place| !matches!(place.value, ConfigValue::Null)) {
                let message = format!("invalid field '{key}' in recording rule");
                self.problem(place, message, "only alerting rules have it");
            }
        }
        if !is_metric_name(name) {
            let place = tree.get("record").unwrap_or(tree);
            let message = format!("invalid recording rule name: {name}");
            self.problem(place, message, "accepted: letters, digits, _ and :");
        }
    }

    fn check_keys(&mut self, tree: &ConfigTree, known: &[&str], expected: &str) {
        check_keys(tree, known, expected, &mut self.problems);
    }

    fn items<'t>(&mut self, tree: &'t ConfigTree) -> Vec<&'t ConfigTree> {
        match &tree.value {
            ConfigValue::List(items) => items.iter().collect(),
            ConfigValue::Null => Vec::new(),
            _ => {
                let message = format!("expected a list, found {}", tree.kind());
                self.problem(tree, message, "");
                Vec::new()
            }
        }
    }

    fn text(&mut self, tree: &ConfigTree, key: &str) -> Option<String> {
        let found = tree.get(key)?;
        match &found.value {
            ConfigValue::Scalar(text) => Some(text.clone()),
            ConfigValue::Null => None,
            _ => {
                let message = format!("expected a text, found {}", found.kind());
                self.problem(found, message, "");
                None
            }
        }
    }

    fn duration(&mut self, tree: &ConfigTree, key: &str) -> Option<Duration> {
        let text = self.text(tree, key)?;
        match parse_duration(&text) {
            Ok(duration) => Some(duration),
            Err(message) => {
                let place = tree.get(key).unwrap_or(tree);
                let problem = ConfigProblem::value(place, message, duration::ACCEPTS);
                self.problems.push(problem);
                None
            }
        }
    }

    fn limit(&mut self, tree: &ConfigTree) -> usize {
        let Some(text) = self.text(tree, "limit") else {
            return 0;
        };
        text.parse().unwrap_or_else(|_| {
            let place = tree.get("limit").unwrap_or(tree);
            self.problem(place, format!("{text:?} is not a whole number"), "");
            0
        })
    }

    fn texts(
        &mut self,
        tree: &ConfigTree,
        key: &str,
        is_template: bool,
    ) -> BTreeMap<String, RuleText> {
        let Some(map) = tree.get(key) else {
            return BTreeMap::new();
        };
        if !matches!(map.value, ConfigValue::Map(_) | ConfigValue::Null) {
            let message = format!("expected a map, found {}", map.kind());
            self.problem(map, message, "");
        }
        let kind = if key == "labels" {
            "label"
        } else {
            "annotation"
        };
        let mut texts = BTreeMap::new();
        for entry in map.value.entries() {
            let text = self.text(map, &entry.key).unwrap_or_default();
            if !is_label_name(&entry.key) {
                self.problem(
                    &entry.value,
                    format!("invalid {kind} name: {}", entry.key),
                    "",
                );
            }
            let template = is_template.then(|| Template::parse(&text)).transpose();
            let template = template.unwrap_or_else(|error| {
                let message = format!("{kind} {:?}: {error}", entry.key);
                self.problem(&entry.value, message, "");
                None
            });
            texts.insert(entry.key.clone(), RuleText { text, template });
        }
        texts
    }
}

fn is_metric_name(name: &str) -> bool {
    let is_part = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | ':');
    !name.is_empty() && name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn is_label_name(name: &str) -> bool {
    is_metric_name(name) && !name.contains(':') && name != "__name__"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RuleFile, String> {
        RuleFile::parse(Path::new("r.yml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_with_all_keys() {
        let file = parse(
            r#"
groups:
  - name: a
    interval: 30s
    query_offset: 5s
    limit: 10
    labels: {team: hpc}
    rules:
      - record: job:x:sum
        expr: sum(x)
        labels: {kind: 3}
      - alert: Hot
        expr: |
          x
            > 1
        for: 5m
        keep_firing_for: 1m
        labels: {severity: page}
        annotations:
          summary: "{{ $labels.l }} is {{ $value }}"
  - name: b
"#,
        )
        .expect("valid");
        let group = &file.groups[0];
        assert_eq!(group.interval, Some(Duration::from_secs(30)));
        assert_eq!(group.query_offset, Duration::from_secs(5));
        assert_eq!((group.limit, file.rule_count()), (10, 2));
        let [record, alert] = &group.rules[..] else {
            panic!("two rules");
        };
        assert_eq!(record.labels["kind"].text, "3");
        assert_eq!(record.labels["team"].text, "hpc");
        assert_eq!(alert.expression, "x\n  > 1");
        assert_eq!(alert.line, 12);
        let spec = alert.alert.as_ref().expect("an alert");
        assert_eq!(spec.hold, Duration::from_secs(300));
        assert_eq!(spec.keep_firing, Duration::from_secs(60));
        assert!(parse("").expect("empty").groups.is_empty());
    }

    #[test]
    fn problems_have_their_place() {
        let rule = |rule: &str| format!("groups:\n- name: g\n  rules:\n  - {rule}\n");
        for (text, expected) in [
            (
                rule("{alert: A}"),
                "r.yml:4:5: groups[0].rules[0]: field 'expr' must be set",
            ),
            (rule("{expr: x}"), "one of 'record' or 'alert' must be set"),
            (
                rule("{record: r, alert: A, expr: x}"),
                "only one of 'record' and 'alert'",
            ),
            (
                rule("{record: r, expr: 'x >'}"),
                "could not parse expression: parse error",
            ),
            (
                rule("{record: r, expr: 'x[5m]'}"),
                "rule result is not a vector or scalar",
            ),
            (
                rule("{record: 'a-b', expr: x}"),
                "invalid recording rule name: a-b",
            ),
            (
                rule("{record: r, expr: x, for: 1m}"),
                "invalid field 'for' in recording rule",
            ),
            (
                rule("{record: r, expr: x, annotations: {a: b}}"),
                "invalid field 'annotations'",
            ),
            (
                rule("{alert: A, expr: x, for: 5}"),
                "not a valid duration string: \"5\"",
            ),
            (
                rule("{alert: A, expr: x, labels: {'a-b': c}}"),
                "invalid label name: a-b",
            ),
            (
                rule("{alert: A, expr: x, labels: {__name__: c}}"),
                "invalid label name: __name__",
            ),
            (
                rule("{alert: A, expr: x, annotations: {a: '{{ nosuch }}'}}"),
                "annotation \"a\": function \"nosuch\" not defined",
            ),
            (
                rule("{alert: A, exp: x}"),
                "r.yml:4:16: groups[0].rules[0].exp: unknown key; did you mean `expr`?",
            ),
            (
                "groups:\n- rules: []\n".to_owned(),
                "Groupname must not be empty",
            ),
            (
                "groups:\n- name: a\n- name: a\n".to_owned(),
                "groupname: \"a\" is repeated",
            ),
            (
                "groups: 3\n".to_owned(),
                "expected a list, found a single value",
            ),
            ("groups:\n- name: [\n".to_owned(), "not valid YAML"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(expected), "{text}{error}");
        }
    }

    #[test]
    fn duplicates_are_noticed() {
        let file = parse(
            "groups:\n- name: g\n  rules:\n  - {record: a, expr: x}\n  - {record: a, expr: y}\n  - {alert: a, expr: y}\n",
        )
        .expect("valid");
        assert_eq!(
            file.duplicate_rules(),
            ["r.yml:5: a has the same name and labels as the rule in line 4"]
        );
    }
}
