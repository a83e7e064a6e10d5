//! What Grafana makes of a dashboard: its panels with their targets, variables put in, and the two forms of request.

use std::path::Path;

use serde_json::{Map, Value, json};

/// A dashboard's file.
pub fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All panels but rows, those of closed rows too.
pub fn panels(dashboard: &Value) -> Vec<&Value> {
    let outer = dashboard["panels"].as_array().expect("panels");
    let inner = outer.iter().filter_map(|panel| panel["panels"].as_array());
    let all = outer.iter().chain(inner.flatten());
    all.filter(|panel| panel["type"] != "row").collect()
}

/// What is chosen at the top of the dashboard.
pub struct Chosen<'a> {
    /// As the variable's `regex` format has it.
    pub host: &'a str,
    pub metric: &'a str,
    pub tag: &'a str,
}

impl Chosen<'_> {
    fn put_in(&self, text: &str) -> String {
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

    /// One sub-query. Both forms make the same one.
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
                filter[key] = json!(self.put_in(filter[key].as_str().expect("a text")));
            }
        }
        let mut query = json!({
            "metric": self.put_in(text("metric")), "aggregator": text("aggregator"),
            "downsample": format!("1s-{}", text("downsampleAggregator")), "filters": filters,
        });
        if target["shouldComputeRate"] == true {
            assert!(target["counterMax"].is_null() && target["counterResetValue"].is_null());
            query["rate"] = json!(true);
            query["rateOptions"] = json!({"counter": target["isCounter"], "dropResets": true});
        }
        query
    }

    /// The browser form, up to Grafana 12: all targets at once, milliseconds, no end.
    pub fn browser_form(&self, panel: &Value, now: u64) -> Value {
        let targets = panel["targets"].as_array().expect("targets");
        json!({
            "start": (now - 900) * 1000,
            "queries": targets.iter().map(|target| self.query(target)).collect::<Vec<_>>(),
            "msResolution": false, "globalAnnotations": true, "showQuery": true,
        })
    }

    /// The backend form: a request for each target, in seconds.
    pub fn backend_form(&self, target: &Value, now: u64) -> Value {
        json!({"start": now - 900, "end": now, "queries": [self.query(target)]})
    }
}

/// What the browser form needs of each element, with the target that it belongs to.
pub fn browser_lines(answer: &Value) -> Vec<(usize, &Map<String, Value>, &Value)> {
    let elements = answer.as_array().expect("a list").iter();
    let lines = elements.map(|element| {
        let index = element["query"]["index"].as_u64().expect("an index");
        let dps = element["dps"].as_object().expect("dps");
        (usize::try_from(index).expect("small"), dps, element)
    });
    lines.collect()
}

/// The types of the backend form: whole seconds, numbers, tags that are texts.
pub fn check_backend(answer: &Value) -> usize {
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
