//! Alerts as JSON: Alertmanager's API, version 2, and its webhook, version 4.

use std::collections::BTreeMap;

use pegel_metric::Millis;
use pegel_query::promql::LabelSet;
use serde_json::{Map, Value, json};

use crate::alert::{AlertState, DueAlert};
use crate::template::query_escape;

/// How alerts are presented to receivers.
#[derive(Debug, Clone)]
pub(crate) struct AlertPresentation {
    /// Added to alerts that do not have them.
    pub external_labels: LabelSet,
    pub external_url: String,
}

/// Go's zero time: an alert that has not ended.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

impl AlertPresentation {
    /// Returns the body of `POST /api/v2/alerts`.
    pub(crate) fn alertmanager_body(&self, alerts: &[DueAlert]) -> Vec<u8> {
        let list: Vec<Value> = alerts
            .iter()
            .map(|due| {
                let alert = &due.alert;
                json!({
                    "labels": labels_json(&self.labels(due)),
                    "annotations": alert.annotations,
                    "startsAt": format_time(alert.fired_at.unwrap_or(alert.active_at)),
                    "endsAt": format_time(alert.resolved_at.unwrap_or(alert.valid_until)),
                    "generatorURL": self.generator_url(due),
                })
            })
            .collect();
        Value::Array(list).to_string().into_bytes()
    }

    /// Returns the body of a webhook. All alerts have the same `alertname`.
    pub(crate) fn webhook_body(&self, alerts: &[DueAlert]) -> Vec<u8> {
        let is_resolved = |due: &DueAlert| due.alert.state == AlertState::Inactive;
        let status = |resolved: bool| if resolved { "resolved" } else { "firing" };
        let list: Vec<Value> = alerts
            .iter()
            .map(|due| {
                let (alert, labels) = (&due.alert, self.labels(due));
                let ends = alert.resolved_at.map(format_time);
                json!({
                    "status": status(is_resolved(due)),
                    "labels": labels_json(&labels),
                    "annotations": alert.annotations,
                    "startsAt": format_time(alert.fired_at.unwrap_or(alert.active_at)),
                    "endsAt": ends.as_deref().unwrap_or(NO_TIME),
                    "generatorURL": self.generator_url(due),
                    "fingerprint": format!("{:016x}", fingerprint(&labels)),
                })
            })
            .collect();
        let name = alerts
            .first()
            .map_or("", |due| due.alert.labels.get("alertname"));
        let labels = alerts.iter().map(|due| {
            let labels = self.labels(due);
            let pairs = labels.iter();
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        });
        let annotations = alerts.iter().map(|due| due.alert.annotations.clone());
        let body = json!({
            "version": "4",
            "groupKey": format!("{{}}:{{alertname={name:?}}}"),
            "truncatedAlerts": 0,
            "status": status(alerts.iter().all(is_resolved)),
            "receiver": "pegel",
            "groupLabels": {"alertname": name},
            "commonLabels": common(labels),
            "commonAnnotations": common(annotations),
            "externalURL": self.external_url,
            "alerts": list,
        });
        body.to_string().into_bytes()
    }

    fn labels(&self, due: &DueAlert) -> LabelSet {
        // Of two labels with one name the first remains.
        LabelSet::new(due.alert.labels.iter().chain(self.external_labels.iter()))
    }

    fn generator_url(&self, due: &DueAlert) -> String {
        let base = self.external_url.trim_end_matches('/');
        format!(
            "{base}/api/v1/query?query={}",
            query_escape(&due.expression)
        )
    }
}

pub(crate) fn labels_json(labels: &LabelSet) -> Value {
    let pairs = labels.iter();
    let pairs = pairs.map(|(name, value)| (name.to_owned(), Value::from(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// Returns the pairs that all maps have.
fn common(mut maps: impl Iterator<Item = BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let Some(mut shared) = maps.next() else {
        return BTreeMap::new();
    };
    for map in maps {
        shared.retain(|name, value| map.get(name) == Some(value));
    }
    shared
}

/// Formats a time as RFC 3339; a time that cannot be represented is Go's zero time.
pub(crate) fn format_time(time: Millis) -> String {
    let time = jiff::Timestamp::from_millisecond(time);
    time.map_or_else(|_| NO_TIME.to_owned(), |time| time.to_string())
}

/// Formats an optional time; none is Go's zero time.
pub(crate) fn format_optional_time(time: Option<Millis>) -> String {
    time.map_or_else(|| NO_TIME.to_owned(), format_time)
}

/// Returns the fingerprint by which Alertmanager identifies an alert: FNV-1a over its labels.
fn fingerprint(labels: &LabelSet) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (name, value) in labels.iter() {
        for text in [name, value] {
            for byte in text.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::Alert;

    fn due(instance: &str, state: AlertState) -> DueAlert {
        let labels = LabelSet::new([("alertname", "Hot"), ("instance", instance)]);
        let annotations = BTreeMap::from([("summary".to_owned(), "hot".to_owned())]);
        let mut alert = Alert::pending(labels, annotations, 1.0, 1_000);
        alert.state = state;
        alert.fired_at = Some(1_500);
        alert.valid_until = 61_000;
        alert.resolved_at = (state == AlertState::Inactive).then_some(9_000);
        DueAlert {
            alert,
            expression: "x > 1".to_owned(),
            is_news: true,
        }
    }

    fn presentation() -> AlertPresentation {
        AlertPresentation {
            external_labels: LabelSet::new([("node", "n1"), ("instance", "hidden")]),
            external_url: "http://n1:1337/".to_owned(),
        }
    }

    #[test]
    fn alerts_for_alertmanager() {
        let alerts = [due("a", AlertState::Firing), due("b", AlertState::Inactive)];
        let body = presentation().alertmanager_body(&alerts);
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            body,
            json!([
                {
                    "labels": {"alertname": "Hot", "instance": "a", "node": "n1"},
                    "annotations": {"summary": "hot"},
                    "startsAt": "1970-01-01T00:00:01.5Z",
                    "endsAt": "1970-01-01T00:01:01Z",
                    "generatorURL": "http://n1:1337/api/v1/query?query=x+%3E+1",
                },
                {
                    "labels": {"alertname": "Hot", "instance": "b", "node": "n1"},
                    "annotations": {"summary": "hot"},
                    "startsAt": "1970-01-01T00:00:01.5Z",
                    "endsAt": "1970-01-01T00:00:09Z",
                    "generatorURL": "http://n1:1337/api/v1/query?query=x+%3E+1",
                },
            ])
        );
    }

    #[test]
    fn a_webhook_has_common_labels_and_a_status() {
        let alerts = [due("a", AlertState::Firing), due("b", AlertState::Inactive)];
        let body = presentation().webhook_body(&alerts);
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["status"], "firing");
        assert_eq!(body["groupKey"], "{}:{alertname=\"Hot\"}");
        assert_eq!(
            body["commonLabels"],
            json!({"alertname": "Hot", "node": "n1"})
        );
        assert_eq!(body["commonAnnotations"], json!({"summary": "hot"}));
        assert_eq!(body["alerts"][0]["endsAt"], NO_TIME);
        assert_eq!(body["alerts"][1]["status"], "resolved");
        assert_eq!(body["alerts"][1]["endsAt"], "1970-01-01T00:00:09Z");
        let body = presentation().webhook_body(&alerts[1..]);
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["status"], "resolved");
    }
}
