//! The kinds of data sources, and the query of a panel for each of them.

use serde_json::{Value, json};

use super::dashboard::{PanelQuery, PanelQueryMode};

/// How Grafana queries the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SourceKind {
    /// PromQL; the dashboards also work with a Prometheus that scrapes agents
    Prometheus,
    /// OpenTSDB, for Dragon's dashboards
    Opentsdb,
}

impl SourceKind {
    /// Returns Grafana's name of the plug-in.
    pub(super) fn plugin(self) -> &'static str {
        match self {
            SourceKind::Prometheus => "prometheus",
            SourceKind::Opentsdb => "opentsdb",
        }
    }

    /// Returns the reference to the data source that is selected in a dashboard.
    pub(super) fn reference(self) -> Value {
        json!({"type": self.plugin(), "uid": "${datasource}"})
    }

    /// Returns the queries for marks and phases.
    pub(super) fn annotations(self) -> Value {
        match self {
            SourceKind::Prometheus => json!([
                promql_annotation(
                    "Marks",
                    "blue",
                    r#"last_over_time(pegel_mark{instance=~"$host"}[$__interval])"#,
                    true,
                ),
                promql_annotation(
                    "Phases",
                    "orange",
                    r#"max_over_time(pegel_phase{instance=~"$host"}[$__interval]) or pegel_phase{instance=~"$host"} * 1"#,
                    false,
                ),
            ]),
            // Global annotations come with every metric; this one exists at every level.
            SourceKind::Opentsdb => json!([{
                "name": "Marks and phases", "datasource": self.reference(), "enable": true,
                "hide": false, "iconColor": "blue", "target": "pegel_cpu_seconds_total",
                "isGlobal": true, "fromAnnotations": true,
            }]),
        }
    }

    /// Returns a query of a panel as Grafana stores it.
    pub(super) fn target(self, query: &PanelQuery, id: char) -> Value {
        match self {
            SourceKind::Prometheus => promql_target(query, id),
            SourceKind::Opentsdb => opentsdb_target(query, id),
        }
    }
}

/// Returns an annotation query. `is_time`: the values of the series are the times of the events;
/// otherwise an event lasts as long as its series is above zero.
fn promql_annotation(name: &str, color: &str, expression: &str, is_time: bool) -> Value {
    json!({
        "name": name, "datasource": SourceKind::Prometheus.reference(), "enable": true,
        "hide": false, "iconColor": color, "expr": expression, "step": "5s",
        "useValueForTime": is_time, "titleFormat": "{{text}}",
        "textFormat": "{{user}} {{program}} {{pid}} {{notes}}", "tagKeys": "program,user,rank,jobid",
    })
}

fn promql_target(query: &PanelQuery, id: char) -> Value {
    // A name that is a variable may be that of any metric.
    let selector = match query.metric.starts_with('$') {
        true => format!(r#"{{__name__="{}",instance=~"$host"}}"#, query.metric),
        false => format!(r#"{}{{instance=~"$host"}}"#, query.metric),
    };
    let rate = format!("rate({selector}[$__rate_interval])");
    let labels = [&["instance"][..], &query.by].concat();
    let by = labels.join(", ");
    let expression = match query.mode {
        PanelQueryMode::Value => format!("sum by ({by}) ({selector})"),
        PanelQueryMode::Max => format!("max by ({by}) ({selector})"),
        PanelQueryMode::Rate => format!("sum by ({by}) ({rate})"),
        PanelQueryMode::EachValue => selector,
        PanelQueryMode::EachRate => rate,
    };
    let legend = match query.is_each() {
        // All labels of the series.
        true => "__auto".to_owned(),
        false => line_name(query, &labels, |label| format!("{{{{{label}}}}}")),
    };
    json!({
        "refId": id.to_string(), "datasource": SourceKind::Prometheus.reference(),
        "expr": expression, "legendFormat": legend, "range": true, "instant": false,
        "editorMode": "code", "hide": false,
    })
}

fn opentsdb_target(query: &PanelQuery, id: char) -> Value {
    let is_rate = matches!(query.mode, PanelQueryMode::Rate | PanelQueryMode::EachRate);
    let mut filters = vec![json!({
        "type": "regexp", "tagk": "host", "filter": "^${host:regex}$", "groupBy": true,
    })];
    filters.extend(
        query
            .by
            .iter()
            .map(|key| json!({"type": "wildcard", "tagk": key, "filter": "*", "groupBy": true})),
    );
    let mut target = json!({
        "refId": id.to_string(), "datasource": SourceKind::Opentsdb.reference(),
        "metric": query.metric, "hide": false,
        "aggregator": if query.is_each() { "none" } else { "sum" },
        "downsampleAggregator": match query.mode {
            PanelQueryMode::Value | PanelQueryMode::EachValue => "avg",
            PanelQueryMode::Max => "max",
            PanelQueryMode::Rate | PanelQueryMode::EachRate => "last",
        },
        "downsampleFillPolicy": "none", "disableDownsampling": false,
        // Without a maximum of the counter, Grafana requests that resets be dropped.
        "shouldComputeRate": is_rate, "isCounter": is_rate,
        "filters": filters, "explicitTags": false,
    });
    // Without an alias, Grafana names a line by metric and filtered tags.
    if !query.is_each() {
        let labels = [&["host"][..], &query.by].concat();
        target["alias"] = json!(line_name(query, &labels, |label| format!("$tag_{label}")));
    }
    target
}

/// Returns the name of a line: node and labels as the data source writes them, then the legend.
fn line_name(query: &PanelQuery, labels: &[&str], placeholder: impl Fn(&str) -> String) -> String {
    let mut words: Vec<String> = labels.iter().map(|label| placeholder(label)).collect();
    if !query.legend.is_empty() {
        words.push(query.legend.to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_an_expression() {
        for (query, expression, legend) in [
            (
                "rate(node_disk_reads_completed_total) by device as read",
                r#"sum by (instance, device) (rate(node_disk_reads_completed_total{instance=~"$host"}[$__rate_interval]))"#,
                "{{instance}} {{device}} read",
            ),
            (
                "node_load1",
                r#"sum by (instance) (node_load1{instance=~"$host"})"#,
                "{{instance}}",
            ),
            (
                "each($metric) by $tag",
                r#"{__name__="$metric",instance=~"$host"}"#,
                "__auto",
            ),
        ] {
            let target = SourceKind::Prometheus.target(&PanelQuery::parse(query), 'A');
            assert_eq!(target["expr"], expression);
            assert_eq!(target["legendFormat"], legend);
        }
    }
}
