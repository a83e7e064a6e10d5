//! `/api/v1/rules` and `/api/v1/alerts`: the rules of the agent and their active alerts.

use axum::response::Response;
use pegel_query::promql::{LabelMatcher, LabelSet, PromqlError};
use serde_json::{Value, json};

use super::parameters::{FormParameters, invalid};
use super::{PrometheusRequest, error_response, success};

/// All groups and rules that the parameters select.
pub(super) async fn rules(request: PrometheusRequest) -> Response {
    let groups = request.request.context.agent.status_source.rule_groups();
    let filter = match RuleFilter::new(&request.parameters) {
        Ok(filter) => filter,
        Err(error) => return error_response(&error),
    };
    success(&json!({"groups": filter.apply(groups)}))
}

/// All pending and firing alerts.
pub(super) async fn alerts(request: PrometheusRequest) -> Response {
    let mut groups = request.request.context.agent.status_source.rule_groups();
    let mut alerts = Vec::new();
    for group in list_mut(&mut groups) {
        for rule in list_mut(&mut group["rules"]) {
            alerts.append(list_mut(&mut rule["alerts"]));
        }
    }
    success(&json!({"alerts": alerts}))
}

/// Which rules a request selects. An empty list of names selects all.
struct RuleFilter<'a> {
    kind: Option<&'static str>,
    names: Vec<&'a str>,
    groups: Vec<&'a str>,
    files: Vec<&'a str>,
    selectors: Vec<Vec<LabelMatcher>>,
    exclude_alerts: bool,
}

impl<'a> RuleFilter<'a> {
    fn new(parameters: &'a FormParameters) -> Result<RuleFilter<'a>, PromqlError> {
        let kind = match parameters.get("type") {
            None => None,
            Some("alert") => Some("alerting"),
            Some("record") => Some("recording"),
            Some(other) => {
                return Err(invalid("type", &format!("not supported value {other:?}")));
            }
        };
        let exclude_alerts = match parameters.get("exclude_alerts") {
            None => false,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some(other) => {
                let message = format!("{other:?} is neither true nor false");
                return Err(invalid("exclude_alerts", &message));
            }
        };
        Ok(RuleFilter {
            kind,
            names: parameters.all("rule_name[]").collect(),
            groups: parameters.all("rule_group[]").collect(),
            files: parameters.all("file[]").collect(),
            selectors: parameters.selectors()?,
            exclude_alerts,
        })
    }

    /// Returns the selected groups. A group without selected rules is left out.
    fn apply(&self, mut groups: Value) -> Value {
        let is_named =
            |names: &[&str], value: &Value| names.is_empty() || names.iter().any(|n| value == n);
        let is_filtered =
            self.kind.is_some() || !self.names.is_empty() || !self.selectors.is_empty();
        list_mut(&mut groups).retain_mut(|group| {
            if !is_named(&self.groups, &group["name"]) || !is_named(&self.files, &group["file"]) {
                return false;
            }
            let rules = list_mut(&mut group["rules"]);
            rules.retain_mut(|rule| {
                if self.exclude_alerts
                    && let Some(fields) = rule.as_object_mut()
                    && fields.contains_key("alerts")
                {
                    fields.insert("alerts".to_owned(), json!([]));
                }
                self.kind.is_none_or(|kind| rule["type"] == kind)
                    && is_named(&self.names, &rule["name"])
                    && self.has_labels(rule)
            });
            !is_filtered || !rules.is_empty()
        });
        groups
    }

    /// Returns whether the labels that the rule sets match any of the selectors.
    fn has_labels(&self, rule: &Value) -> bool {
        if self.selectors.is_empty() {
            return true;
        }
        let pairs = rule["labels"].as_object().into_iter().flatten();
        let labels = LabelSet::new(pairs.map(|(name, value)| (name, value.as_str().unwrap_or(""))));
        let is_match = |selector: &Vec<LabelMatcher>| {
            let mut matchers = selector.iter();
            matchers.all(|matcher| matcher.matches(&labels))
        };
        self.selectors.iter().any(is_match)
    }
}

fn list_mut(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("made an array above")
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    fn groups() -> Value {
        json!([
            {"name": "a", "file": "x.yml", "rules": [
                {"name": "Hot", "type": "alerting", "labels": {"team": "hpc"}, "alerts": [{"state": "firing"}]},
                {"name": "r", "type": "recording"},
            ]},
            {"name": "b", "file": "y.yml", "rules": []},
        ])
    }

    fn filter(query: &'static str) -> Result<Vec<String>, String> {
        let parameters = FormParameters::new(query.as_bytes(), &Uri::from_static("/"));
        let filter = RuleFilter::new(&parameters).map_err(|error| error.to_string())?;
        let groups = filter.apply(groups());
        let groups = groups.as_array().into_iter().flatten();
        let names = groups.map(|group| {
            let rules = group["rules"].as_array().into_iter().flatten();
            let rules: Vec<&str> = rules.filter_map(|rule| rule["name"].as_str()).collect();
            format!(
                "{}:{}",
                group["name"].as_str().unwrap_or(""),
                rules.join(",")
            )
        });
        Ok(names.collect())
    }

    #[test]
    fn rules_are_selected_by_type_name_group_file_and_labels() {
        let selected = |query| filter(query).expect("valid");
        assert_eq!(selected(""), ["a:Hot,r", "b:"]);
        assert_eq!(selected("type=alert"), ["a:Hot"]);
        assert_eq!(selected("type=record"), ["a:r"]);
        assert_eq!(selected("rule_name[]=r&rule_name[]=x"), ["a:r"]);
        assert_eq!(selected("rule_group[]=b"), ["b:"]);
        assert_eq!(selected("file[]=x.yml&type=record"), ["a:r"]);
        assert_eq!(selected("match[]={team=~%22h.*%22}"), ["a:Hot"]);
        assert_eq!(selected("match[]={team=%22x%22}"), [""; 0]);
        assert!(filter("type=x").is_err_and(|error| error.contains("\"type\"")));
        assert!(filter("exclude_alerts=x").is_err());
    }

    #[test]
    fn alerts_can_be_left_out() {
        let parameters = FormParameters::new(b"exclude_alerts=true", &Uri::from_static("/"));
        let filter = RuleFilter::new(&parameters).expect("valid");
        let groups = filter.apply(groups());
        assert_eq!(groups[0]["rules"][0]["alerts"], json!([]));
        assert_eq!(groups[0]["rules"][1].get("alerts"), None);
    }
}
