//! Emulates Grafana: the panels of a dashboard with their targets, variables substituted, and both
//! forms of request.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Reads a dashboard's file.
pub(super) fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns all panels except rows, including those of collapsed rows.
pub(super) fn panels(dashboard: &Value) -> Vec<&Value> {
    let outer = dashboard["panels"].as_array().expect("panels");
    let inner = outer.iter().filter_map(|panel| panel["panels"].as_array());
    let all = outer.iter().chain(inner.flatten());
    all.filter(|panel| panel["type"] != "row").collect()
}

/// The values selected at the top of the dashboard.
pub(super) struct DashboardVariables<'a> {
    /// In the variable's `regex` format.
    pub host: &'a str,
    pub metric: &'a str,
    pub tag: &'a str,
}

impl DashboardVariables<'_> {
    fn substitute(&self, text: &str) -> String {
        let text = text
            .replace("${host:regex}", self.host)
            .replace("$metric", self.metric)
            .replace("$tag", self.tag);
        assert!(
            !text.trim_end_matches('$').contains('$'),
            "a variable is left in {text}"
        );
        text
    }

    /// Returns one sub-query, which is the same in both forms.
    fn query(&self, target: &Value) -> Value {
        let text = |key: &str| {
            target[key]
                .as_str()
                .unwrap_or_else(|| panic!("{key}: {target}"))
        };
        assert_eq!(target["disableDownsampling"], false);
        let fill = text("downsampleFillPolicy");
        assert_eq!(fill, "none", "a form of its own");
        let mut filters = target["filters"].clone();
        for filter in filters.as_array_mut().expect("filters") {
            for key in ["tagk", "filter"] {
                filter[key] = json!(self.substitute(filter[key].as_str().expect("a text")));
            }
        }
        let mut query = json!({
            "metric": self.substitute(text("metric")), "aggregator": text("aggregator"),
            "downsample": format!("1s-{}", text("downsampleAggregator")), "filters": filters,
        });
        if target["shouldComputeRate"] == true {
            assert!(target["counterMax"].is_null() && target["counterResetValue"].is_null());
            query["rate"] = json!(true);
            query["rateOptions"] = json!({"counter": target["isCounter"], "dropResets": true});
        }
        query
    }

    /// Returns the request of the browser, up to Grafana 12: all targets at once, milliseconds, no
    /// end.
    pub(super) fn browser_form(&self, panel: &Value, now: u64) -> Value {
        let targets = panel["targets"].as_array().expect("targets");
        json!({
            "start": (now - 900) * 1000,
            "queries": targets.iter().map(|target| self.query(target)).collect::<Vec<_>>(),
            "msResolution": false, "globalAnnotations": true, "showQuery": true,
        })
    }

    /// Returns the requests of the backend: one per target, in seconds.
    pub(super) fn backend_form(&self, target: &Value, now: u64) -> Value {
        json!({"start": now - 900, "end": now, "queries": [self.query(target)]})
    }
}

/// Checks the fields that the browser needs in each element, with its target.
pub(super) fn browser_lines(answer: &Value) -> Vec<(usize, &Map<String, Value>, &Value)> {
    let elements = answer.as_array().expect("a list").iter();
    let lines = elements.map(|element| {
        let index = element["query"]["index"].as_u64().expect("an index");
        let dps = element["dps"].as_object().expect("dps");
        (usize::try_from(index).expect("small"), dps, element)
    });
    lines.collect()
}

/// Checks the types that the backend expects: whole seconds, numbers, string tags.
pub(super) fn check_backend(answer: &Value) -> usize {
    let mut points = 0;
    for element in answer.as_array().expect("a list") {
        assert!(element["metric"].is_string(), "{element}");
        let tags = element["tags"].as_object().expect("tags");
        assert!(tags.values().all(Value::is_string), "{element}");
        let dps = element["dps"].as_object().expect("dps");
        for (time, value) in dps {
            assert!(time.len() == 10 && time.parse::<u64>().is_ok(), "{time}");
            assert!(
                value.is_f64() || value.is_i64() || value.is_u64(),
                "{value}"
            );
        }
        points += dps.len();
    }
    points
}
