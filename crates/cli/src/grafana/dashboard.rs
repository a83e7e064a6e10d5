//! A compact description of dashboards, so that all panels are consistent.
//! [`super::dashboard_json`] converts it to Grafana's JSON.

#[derive(Debug)]
pub(super) struct Dashboard {
    /// The file name; also Grafana's uid, with the prefix `pegel-`.
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    /// Variables besides data source and nodes, which every dashboard has.
    pub variables: &'static [DashboardVariable],
    pub rows: &'static [DashboardRow],
}

/// A selector at the top of a dashboard.
#[derive(Debug)]
pub(super) enum DashboardVariable {
    /// Filled by a query to the data source.
    Query {
        name: &'static str,
        label: &'static str,
        /// For OpenTSDB.
        query: &'static str,
        /// For Prometheus; `None` if its panels do not use the variable.
        promql: Option<&'static str>,
        /// A JavaScript regular expression; results that do not match are left out.
        regex: &'static str,
        /// The initial selection; `All` permits several values.
        initial_value: &'static str,
    },
    /// Typed by hand.
    Text {
        name: &'static str,
        label: &'static str,
    },
}

#[derive(Debug)]
pub(super) struct DashboardRow {
    pub title: &'static str,
    /// A collapsed row sends no queries until it is opened: for hardware that many nodes lack.
    pub is_collapsed: bool,
    /// Repeats the row for each selected value of this variable.
    pub repeat: Option<&'static str>,
    pub panels: &'static [DashboardPanel],
}

impl DashboardRow {
    pub(super) const fn expanded(
        title: &'static str,
        panels: &'static [DashboardPanel],
    ) -> DashboardRow {
        DashboardRow {
            title,
            is_collapsed: false,
            repeat: None,
            panels,
        }
    }

    pub(super) const fn collapsed(
        title: &'static str,
        panels: &'static [DashboardPanel],
    ) -> DashboardRow {
        DashboardRow {
            is_collapsed: true,
            ..DashboardRow::expanded(title, panels)
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DashboardPanel {
    pub title: &'static str,
    pub description: &'static str,
    /// Grafana's name of the unit.
    pub unit: &'static str,
    pub kind: PanelKind,
    /// Width in columns, of 24.
    pub width: u32,
    pub max: Option<f64>,
    /// Lower bounds of yellow and of red.
    pub thresholds: Option<(f64, f64)>,
    /// See [`PanelQuery::parse`].
    pub queries: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PanelKind {
    TimeSeries,
    /// The last value of each node in large digits.
    Stat,
}

/// Returns a chart of half the page's width. `unit` is Grafana's name of the unit;
/// [`PanelQuery::parse`] describes the queries.
pub(crate) const fn panel(
    title: &'static str,
    unit: &'static str,
    queries: &'static [&'static str],
) -> DashboardPanel {
    DashboardPanel {
        title,
        description: "",
        unit,
        kind: PanelKind::TimeSeries,
        width: 12,
        max: None,
        thresholds: None,
        queries,
    }
}

impl DashboardPanel {
    pub(super) const fn with_description(self, description: &'static str) -> DashboardPanel {
        DashboardPanel {
            description,
            ..self
        }
    }

    pub(super) const fn as_stat(self) -> DashboardPanel {
        DashboardPanel {
            kind: PanelKind::Stat,
            width: 6,
            ..self
        }
    }

    /// Sets a third of the page's width.
    pub(super) const fn third_width(self) -> DashboardPanel {
        DashboardPanel { width: 8, ..self }
    }

    pub(super) const fn with_max(self, max: f64) -> DashboardPanel {
        DashboardPanel {
            max: Some(max),
            ..self
        }
    }

    pub(super) const fn with_thresholds(self, yellow: f64, red: f64) -> DashboardPanel {
        DashboardPanel {
            thresholds: Some((yellow, red)),
            ..self
        }
    }
}

/// One metric, with a line for each node and each value of the labels in `by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PanelQuery {
    pub metric: &'static str,
    pub by: Vec<&'static str>,
    /// Suffix of the line's name after node and labels, for panels with several metrics.
    pub legend: &'static str,
    pub mode: PanelQueryMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PanelQueryMode {
    /// The mean of each interval.
    Value,
    /// The maximum of each interval, for metrics of 0 or 1.
    Max,
    /// The increase of a counter per second. A reset leaves a gap, not a spike.
    Rate,
    /// Like `Value` for any metric, with a line for each series.
    EachValue,
    /// Like `Rate`, with a line for each series.
    EachRate,
}

impl PanelQuery {
    /// Returns whether it has a line for each series.
    pub(super) fn is_each(&self) -> bool {
        matches!(
            self.mode,
            PanelQueryMode::EachValue | PanelQueryMode::EachRate
        )
    }

    /// Parses `METRIC [by LABEL, LABEL…] [as LEGEND]`, where the metric may be wrapped in a mode:
    /// `max(METRIC)`, `rate(METRIC)`, `each(METRIC)` or `each_rate(METRIC)`.
    pub(crate) fn parse(text: &'static str) -> PanelQuery {
        let (text, legend) = text.split_once(" as ").unwrap_or((text, ""));
        let (metric, by) = text.split_once(" by ").unwrap_or((text, ""));
        let wrapped = metric
            .strip_suffix(')')
            .and_then(|text| text.split_once('('));
        let (mode, metric) = match wrapped {
            None => (PanelQueryMode::Value, metric),
            Some(("max", metric)) => (PanelQueryMode::Max, metric),
            Some(("rate", metric)) => (PanelQueryMode::Rate, metric),
            Some(("each", metric)) => (PanelQueryMode::EachValue, metric),
            Some(("each_rate", metric)) => (PanelQueryMode::EachRate, metric),
            Some((mode, _)) => panic!("unknown mode {mode} in the query {text}"),
        };
        PanelQuery {
            metric,
            by: by.split(", ").filter(|label| !label.is_empty()).collect(),
            legend,
            mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_have_a_metric_and_may_have_mode_labels_and_legend() {
        let query =
            PanelQuery::parse("rate(node_disk_reads_completed_total) by device, port as read");
        assert_eq!(
            (query.metric, query.mode, query.legend),
            (
                "node_disk_reads_completed_total",
                PanelQueryMode::Rate,
                "read"
            )
        );
        assert_eq!(query.by, ["device", "port"]);
        let query = PanelQuery::parse("node_load1");
        assert_eq!(
            (query.metric, query.mode, query.legend),
            ("node_load1", PanelQueryMode::Value, "")
        );
        assert!(query.by.is_empty());
    }
}
