use crate::grafana::dashboard::{Dashboard, Panel, Row, Variable, each_rate, each_value};

/// What the node and the agent have by themselves, and what has a dashboard of its own.
const FOREIGN: &str = "/^(?!node_|pegel_|mpi_|strace_|tau_metric_proxy_|load_average$|used_RAM$|cpu_percent$|num_running_processes$|DeviceUtilization$|DeviceMemoryUtilization$|DevicePowerUsage$)/";

pub const DASHBOARD: Dashboard = Dashboard {
    name: "level-1",
    title: "Pegel / 1 Programs' own metrics",
    about: "What programs send by themselves: through lanes, statsd, POST /api/metrics, put and pegel push. Every series is a line.",
    variables: &[
        Variable::Text {
            name: "prefix",
            label: "Names that begin with",
        },
        Variable::Query {
            name: "metric",
            label: "Metrics",
            query: "metrics($prefix)",
            regex: FOREIGN,
            chosen: "All",
        },
        Variable::Query {
            name: "tag",
            label: "Name lines by",
            query: "suggest_tagk()",
            regex: "",
            chosen: "host",
        },
    ],
    rows: &[Row {
        title: "$metric",
        is_closed: false,
        repeat: Some("metric"),
        panels: &[
            Panel::new("Value", "short", &[each_value("$metric", &["$tag"])])
                .about("As it was sent. With another tag under \"Name lines by\", only series that have it are shown."),
            Panel::new("Change per second", "short", &[each_rate("$metric", &["$tag"])])
                .about("For counters. A restart of the program leaves a gap."),
        ],
    }],
};
