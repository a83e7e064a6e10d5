//! Reads test files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegel_config::{ConfigError, ConfigProblem, ConfigTree, ConfigValue};
use pegel_query::promql::LabelSet;

use super::series_notation::{parse_number, parse_series, parse_values};
use crate::duration::{ACCEPTS, parse_duration};
use crate::map_keys::check_keys;
use crate::rule_file::{RuleFile, RuleGroupSpec};

const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct TestFile {
    path: PathBuf,
    rule_files: Vec<(String, ConfigTree)>,
    pub(super) evaluation_interval: Duration,
    /// The names of groups in the order in which they are evaluated first.
    pub(super) group_order: Vec<String>,
    pub(super) is_fuzzy: bool,
    pub(super) tests: Vec<RuleTest>,
}

#[derive(Debug)]
pub(super) struct RuleTest {
    pub(super) name: String,
    pub(super) interval: Duration,
    pub(super) input: Vec<(LabelSet, Vec<Option<f64>>)>,
    pub(super) external_labels: LabelSet,
    pub(super) external_url: String,
    pub(super) alerts: Vec<AlertTest>,
    pub(super) expressions: Vec<ExpressionTest>,
}

#[derive(Debug)]
pub(super) struct AlertTest {
    pub(super) eval_time: Duration,
    pub(super) name: String,
    pub(super) expected: Vec<ExpectedAlert>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExpectedAlert {
    pub(super) labels: LabelSet,
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct ExpressionTest {
    pub(super) expression: String,
    pub(super) eval_time: Duration,
    pub(super) expected: Vec<(LabelSet, f64)>,
}

impl TestFile {
    pub(super) fn load(path: &Path) -> Result<TestFile, ConfigError> {
        let text = pegel_config::read_text(path).map_err(|message| ConfigProblem {
            origin: None,
            key: path.display().to_string(),
            message,
            hint: String::new(),
        })?;
        let tree = pegel_config::parse(path, &text)?;
        let mut reader = TestReader::default();
        let file = reader.file(path, &tree);
        if reader.problems.is_empty() {
            Ok(file)
        } else {
            Err(ConfigError {
                problems: reader.problems,
            })
        }
    }

    /// Reads the rule files that it names, relative to itself.
    pub(super) fn load_rules(&self) -> Result<Vec<RuleGroupSpec>, ConfigError> {
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let mut groups = Vec::new();
        let mut problems = Vec::new();
        for (pattern, place) in &self.rule_files {
            let paths = match pegel_config::matching_files(dir, pattern) {
                Ok(paths) => paths,
                Err(message) => {
                    problems.push(ConfigProblem::new(place, message, ""));
                    continue;
                }
            };
            for path in paths {
                match RuleFile::load(&path) {
                    Ok(file) => groups.extend(file.groups),
                    Err(error) => problems.extend(error.problems),
                }
            }
        }
        if !problems.is_empty() {
            return Err(ConfigError { problems });
        }
        let position = |name: &String| { self.group_order.iter() }.position(|known| known == name);
        groups.sort_by_key(|group: &RuleGroupSpec| position(&group.name).unwrap_or(usize::MAX));
        Ok(groups)
    }
}

#[derive(Debug, Default)]
struct TestReader {
    problems: Vec<ConfigProblem>,
}

impl TestReader {
    fn file(&mut self, path: &Path, tree: &ConfigTree) -> TestFile {
        let known = [
            "rule_files",
            "evaluation_interval",
            "group_eval_order",
            "tests",
            "fuzzy_compare",
        ];
        self.check_keys(tree, &known);
        let evaluation_interval = self.duration(tree, "evaluation_interval");
        let evaluation_interval =
            { evaluation_interval.filter(|it| !it.is_zero()) }.unwrap_or(DEFAULT_INTERVAL);
        let rule_files = self.items(tree, "rule_files");
        let is_fuzzy = match self.text(tree, "fuzzy_compare").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                let message = format!("{other:?} is neither true nor false");
                self.problem(tree.get("fuzzy_compare").unwrap_or(tree), message);
                false
            }
        };
        TestFile {
            path: path.to_owned(),
            rule_files: rule_files
                .into_iter()
                .filter_map(|item| Some((self.scalar(item)?, item.clone())))
                .collect(),
            evaluation_interval,
            group_order: self
                .items(tree, "group_eval_order")
                .into_iter()
                .filter_map(|item| self.scalar(item))
                .collect(),
            is_fuzzy,
            tests: self
                .items(tree, "tests")
                .into_iter()
                .map(|test| self.test(test, evaluation_interval))
                .collect(),
        }
    }

    fn test(&mut self, tree: &ConfigTree, evaluation_interval: Duration) -> RuleTest {
        let known = [
            "name",
            "interval",
            "input_series",
            "alert_rule_test",
            "promql_expr_test",
            "external_labels",
            "external_url",
        ];
        self.check_keys(tree, &known);
        let interval = self.duration(tree, "interval").filter(|it| !it.is_zero());
        let external = self.map(tree, "external_labels");
        RuleTest {
            name: self.text(tree, "name").unwrap_or_default(),
            interval: interval.unwrap_or(evaluation_interval),
            input: self
                .items(tree, "input_series")
                .into_iter()
                .filter_map(|item| self.input(item))
                .collect(),
            external_labels: LabelSet::new(&external),
            external_url: self.text(tree, "external_url").unwrap_or_default(),
            alerts: self
                .items(tree, "alert_rule_test")
                .into_iter()
                .map(|item| self.alert(item))
                .collect(),
            expressions: self
                .items(tree, "promql_expr_test")
                .into_iter()
                .map(|item| self.expression(item))
                .collect(),
        }
    }

    fn input(&mut self, tree: &ConfigTree) -> Option<(LabelSet, Vec<Option<f64>>)> {
        self.check_keys(tree, &["series", "values"]);
        let series = self.text(tree, "series").unwrap_or_default();
        let values = self.text(tree, "values").unwrap_or_default();
        let series = parse_series(&series);
        let series = series.map_err(|error| self.problem(tree, error)).ok();
        let values = parse_values(&values);
        let values = values.map_err(|error| self.problem(tree, error)).ok();
        Some((series?, values?))
    }

    fn alert(&mut self, tree: &ConfigTree) -> AlertTest {
        self.check_keys(tree, &["eval_time", "alertname", "exp_alerts"]);
        let name = self.text(tree, "alertname").unwrap_or_default();
        if name.is_empty() {
            let message = "an item under alert_rule_test misses required attribute alertname";
            self.problem(tree, message);
        }
        let expected = self.items(tree, "exp_alerts");
        let expected = expected.into_iter().map(|item| {
            self.check_keys(item, &["exp_labels", "exp_annotations"]);
            let mut labels = self.map(item, "exp_labels");
            labels.insert("alertname".to_owned(), name.clone());
            ExpectedAlert {
                labels: LabelSet::new(&labels),
                annotations: self.map(item, "exp_annotations"),
            }
        });
        let expected = expected.collect();
        AlertTest {
            eval_time: self.duration(tree, "eval_time").unwrap_or_default(),
            name,
            expected,
        }
    }

    fn expression(&mut self, tree: &ConfigTree) -> ExpressionTest {
        self.check_keys(tree, &["expr", "eval_time", "exp_samples"]);
        let expected = self.items(tree, "exp_samples");
        let expected = expected.into_iter().filter_map(|item| {
            self.check_keys(item, &["labels", "value", "histogram"]);
            if item.get("histogram").is_some() {
                self.problem(item, "native histograms are not supported");
            }
            let labels = self.text(item, "labels").unwrap_or_default();
            let labels = parse_series(&labels);
            let labels = labels.map_err(|error| self.problem(item, error)).ok();
            let value = self.text(item, "value");
            let value = value.map_or(Some(0.0), |value| {
                let number = parse_number(&value);
                if number.is_none() {
                    self.problem(item, format!("{value:?} is not a number"));
                }
                number
            });
            Some((labels?, value?))
        });
        let expected = expected.collect();
        ExpressionTest {
            expression: self.text(tree, "expr").unwrap_or_default(),
            eval_time: self.duration(tree, "eval_time").unwrap_or_default(),
            expected,
        }
    }

    fn problem(&mut self, tree: &ConfigTree, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new(tree, message, ""));
    }

    fn check_keys(&mut self, tree: &ConfigTree, known: &[&str]) {
        check_keys(tree, known, "a map", &mut self.problems);
    }

    fn items<'t>(&mut self, tree: &'t ConfigTree, key: &str) -> Vec<&'t ConfigTree> {
        let Some(found) = tree.get(key) else {
            return Vec::new();
        };
        match &found.value {
            ConfigValue::List(items) => items.iter().collect(),
            ConfigValue::Null => Vec::new(),
            _ => {
                self.problem(found, format!("expected a list, found {}", found.kind()));
                Vec::new()
            }
        }
    }

    fn scalar(&mut self, tree: &ConfigTree) -> Option<String> {
        match &tree.value {
            ConfigValue::Scalar(text) => Some(text.clone()),
            ConfigValue::Null => None,
            _ => {
                self.problem(tree, format!("expected a text, found {}", tree.kind()));
                None
            }
        }
    }

    fn text(&mut self, tree: &ConfigTree, key: &str) -> Option<String> {
        self.scalar(tree.get(key)?)
    }

    fn duration(&mut self, tree: &ConfigTree, key: &str) -> Option<Duration> {
        let text = self.text(tree, key)?;
        let parsed = parse_duration(&text).map_err(|message| {
            let place = tree.get(key).unwrap_or(tree);
            self.problems
                .push(ConfigProblem::value(place, message, ACCEPTS));
        });
        parsed.ok()
    }

    fn map(&mut self, tree: &ConfigTree, key: &str) -> BTreeMap<String, String> {
        let Some(found) = tree.get(key) else {
            return BTreeMap::new();
        };
        self.check_shape(found);
        let entries = found.value.entries().iter();
        entries
            .filter_map(|entry| Some((entry.key.clone(), self.scalar(&entry.value)?)))
            .collect()
    }

    fn check_shape(&mut self, tree: &ConfigTree) {
        if !matches!(tree.value, ConfigValue::Map(_) | ConfigValue::Null) {
            self.problem(tree, format!("expected a map, found {}", tree.kind()));
        }
    }
}
