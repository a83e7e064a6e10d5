//! The state of groups, rules and alerts for readers, and its form in Prometheus' HTTP API.
//!
//! A status is a copy that the evaluating thread publishes after each evaluation: readers never
//! wait for an expression.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_metric::Millis;
use serde_json::{Value, json};

use crate::alert::{Alert, AlertState};
use crate::delivery::{format_optional_time, format_time, labels_json};
use crate::group::RuleGroup;
use crate::rule_file::{RuleSpec, RuleText};
use crate::rule_state::RuleState;
use crate::template::format_shortest_e;

/// A group after its last evaluation.
#[derive(Debug, Clone)]
pub struct GroupStatus {
    name: String,
    file: String,
    interval: Millis,
    limit: usize,
    evaluation_seconds: f64,
    last_evaluation: Option<Millis>,
    rules: Vec<RuleStatus>,
}

#[derive(Debug, Clone)]
struct RuleStatus {
    spec: Arc<RuleSpec>,
    last_error: Option<String>,
    last_warning: Option<String>,
    last_evaluation: Option<Millis>,
    evaluation_seconds: f64,
    /// Pending and firing alerts.
    alerts: Vec<Alert>,
}

impl GroupStatus {
    pub(crate) fn of(group: &RuleGroup) -> GroupStatus {
        GroupStatus {
            name: group.spec.name.clone(),
            file: group.spec.file.display().to_string(),
            interval: group.interval,
            limit: group.spec.limit,
            evaluation_seconds: group.evaluation_seconds,
            last_evaluation: group.last_evaluation,
            rules: group.rules.iter().map(RuleStatus::of).collect(),
        }
    }

    /// Returns the group as `GET /api/v1/rules` shows it.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "file": self.file,
            "rules": self.rules.iter().map(RuleStatus::to_json).collect::<Vec<_>>(),
            "interval": number(self.interval as f64 / 1_000.0),
            "limit": self.limit,
            "evaluationTime": self.evaluation_seconds,
            "lastEvaluation": format_optional_time(self.last_evaluation),
        })
    }
}

impl RuleStatus {
    fn of(rule: &RuleState) -> RuleStatus {
        let alerts = rule.alerts.values();
        let active = alerts.filter(|alert| alert.state != AlertState::Inactive);
        RuleStatus {
            spec: rule.spec.clone(),
            last_error: rule.last_error.clone(),
            last_warning: rule.last_warning.clone(),
            last_evaluation: rule.last_evaluation,
            evaluation_seconds: rule.evaluation_seconds,
            alerts: active.cloned().collect(),
        }
    }

    fn to_json(&self) -> Value {
        let health = match (&self.last_error, self.last_evaluation) {
            (Some(_), _) => "err",
            (None, Some(_)) => "ok",
            (None, None) => "unknown",
        };
        let mut rule = json!({
            "name": self.spec.name,
            "query": self.spec.expression,
            "health": health,
            "evaluationTime": self.evaluation_seconds,
            "lastEvaluation": format_optional_time(self.last_evaluation),
            "type": if self.spec.alert.is_some() { "alerting" } else { "recording" },
        });
        if let Some(error) = &self.last_error {
            rule["lastError"] = json!(error);
        }
        if let Some(warning) = &self.last_warning {
            rule["warnings"] = json!([warning]);
        }
        let labels = texts(&self.spec.labels);
        match &self.spec.alert {
            None if labels.is_empty() => {}
            None => rule["labels"] = json!(labels),
            Some(alert) => {
                let state = self.alerts.iter().map(|alert| alert.state).max();
                rule["state"] = json!(state.unwrap_or(AlertState::Inactive).as_str());
                rule["duration"] = number(alert.hold.as_secs_f64());
                rule["keepFiringFor"] = number(alert.keep_firing.as_secs_f64());
                rule["labels"] = json!(labels);
                rule["annotations"] = json!(texts(&alert.annotations));
                rule["alerts"] = self.alerts.iter().map(alert_json).collect();
            }
        }
        rule
    }
}

/// Returns an alert as `GET /api/v1/alerts` shows it.
fn alert_json(alert: &Alert) -> Value {
    let mut json = json!({
        "labels": labels_json(&alert.labels),
        "annotations": alert.annotations,
        "state": alert.state.as_str(),
        "activeAt": format_time(alert.active_at),
        "value": format_shortest_e(alert.value),
    });
    if let Some(since) = alert.keep_firing_since {
        json["keepFiringSince"] = json!(format_time(since));
    }
    json
}

/// Writes whole numbers without a fraction, as Go does.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

fn texts(map: &BTreeMap<String, RuleText>) -> BTreeMap<&str, &str> {
    let pairs = map.iter();
    pairs
        .map(|(name, text)| (name.as_str(), text.text.as_str()))
        .collect()
}
