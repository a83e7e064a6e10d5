//! Dashboard of level 1: metrics that programs send.

use crate::grafana::dashboard::{Dashboard, DashboardRow, DashboardVariable, panel};

/// Excludes the metrics of node and agent, and those with a dashboard of their own.
const PROGRAM_METRICS_REGEX: &str = "/^(?!node_|pegel_|mpi_|strace_|tau_metric_proxy_|load_average$|used_RAM$|cpu_percent$|num_running_processes$|DeviceUtilization$|DeviceMemoryUtilization$|DevicePowerUsage$)/";

#[rustfmt::skip]
pub(super) const DASHBOARD: Dashboard = Dashboard {
    name: "level-1",
    title: "Pegel / 1 Application metrics",
    description: "Metrics sent by programs through lanes, statsd, POST /api/metrics, put and pegel push. One line per series.",
    variables: &[
        DashboardVariable::Text { name: "prefix", label: "Name prefix" },
        DashboardVariable::Query {
            name: "metric",
            label: "Metrics",
            query: "metrics($prefix)",
            promql: Some("label_values({__name__=~\"$prefix.*\"}, __name__)"),
            regex: PROGRAM_METRICS_REGEX,
            initial_value: "All",
        },
        DashboardVariable::Query {
            name: "tag",
            label: "Name lines by",
            query: "suggest_tagk()",
            promql: None,
            regex: "",
            initial_value: "host",
        },
    ],
    rows: &[
        DashboardRow { repeat: Some("metric"), ..DashboardRow::expanded("$metric", &[
            panel("$metric", "short", &["each($metric) by $tag"])
                .with_description("The value as sent."),
            panel("$metric, change per second", "short", &["each_rate($metric) by $tag"])
                .with_description("For counters. A restart of the program leaves a gap."),
        ]) },
    ],
};
