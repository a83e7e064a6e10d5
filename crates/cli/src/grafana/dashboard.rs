//! What a dashboard shows, in few words, so that all panels are made alike. [`super::json`] makes Grafana's form of it.

/// Also the uid under which Grafana knows it, with `pegel-` before it, and the name of its file.
#[derive(Debug)]
pub struct Dashboard {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    /// Besides the data source and the nodes, which every dashboard lets one choose.
    pub variables: &'static [DashboardVariable],
    pub rows: &'static [DashboardRow],
}

/// Something to choose from at the top of a dashboard.
#[derive(Debug)]
pub enum DashboardVariable {
    /// Filled by a question to the data source.
    Query {
        name: &'static str,
        label: &'static str,
        query: &'static str,
        /// A regular expression of the browser: answers that it does not find are left out.
        regex: &'static str,
        /// Chosen at first; `All` allows several.
        initial_value: &'static str,
    },
    /// Typed by hand.
    Text {
        name: &'static str,
        label: &'static str,
    },
}

#[derive(Debug)]
pub struct DashboardRow {
    pub title: &'static str,
    /// Its panels ask nothing until someone opens it: for what many nodes do not have.
    pub is_collapsed: bool,
    /// Once for each chosen value of this variable.
    pub repeat: Option<&'static str>,
    pub panels: &'static [DashboardPanel],
}

impl DashboardRow {
    pub const fn expanded(title: &'static str, panels: &'static [DashboardPanel]) -> DashboardRow {
        DashboardRow {
            title,
            is_collapsed: false,
            repeat: None,
            panels,
        }
    }

    pub const fn collapsed(title: &'static str, panels: &'static [DashboardPanel]) -> DashboardRow {
        DashboardRow {
            is_collapsed: true,
            ..DashboardRow::expanded(title, panels)
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct DashboardPanel {
    pub title: &'static str,
    pub description: &'static str,
    /// Grafana's name of the unit.
    pub unit: &'static str,
    pub kind: PanelKind,
    /// Of the 24 columns of the page.
    pub width: u32,
    pub max: Option<f64>,
    /// From here on yellow, and from here on red.
    pub thresholds: Option<(f64, f64)>,
    pub queries: &'static [PanelQuery],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanelKind {
    TimeSeries,
    /// The last value of each node, in large figures.
    Stat,
}

impl DashboardPanel {
    pub const fn new(
        title: &'static str,
        unit: &'static str,
        queries: &'static [PanelQuery],
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

    pub const fn with_description(self, about: &'static str) -> DashboardPanel {
        DashboardPanel {
            description: about,
            ..self
        }
    }

    pub const fn as_stat(self) -> DashboardPanel {
        DashboardPanel {
            kind: PanelKind::Stat,
            width: 6,
            ..self
        }
    }

    /// Three of them beside each other.
    pub const fn third_width(self) -> DashboardPanel {
        DashboardPanel { width: 8, ..self }
    }

    pub const fn with_max(self, max: f64) -> DashboardPanel {
        DashboardPanel {
            max: Some(max),
            ..self
        }
    }

    pub const fn with_thresholds(self, yellow: f64, red: f64) -> DashboardPanel {
        DashboardPanel {
            thresholds: Some((yellow, red)),
            ..self
        }
    }
}

/// One metric, with a line for each node and each value of the labels in `by`.
#[derive(Debug, Clone, Copy)]
pub struct PanelQuery {
    pub metric: &'static str,
    pub by: &'static [&'static str],
    /// What the line is called before its node and labels, where a panel has several metrics.
    pub legend: &'static str,
    pub mode: PanelQueryMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanelQueryMode {
    /// The mean of each interval.
    Value,
    /// The highest of each interval: for what is 0 or 1.
    Max,
    /// A counter's increase per second. A reset leaves a gap, not a spike.
    Rate,
    /// Any metric, each series by itself.
    EachValue,
    EachRate,
}

impl PanelQuery {
    const fn new(
        metric: &'static str,
        by: &'static [&'static str],
        what: PanelQueryMode,
    ) -> PanelQuery {
        PanelQuery {
            metric,
            by,
            legend: "",
            mode: what,
        }
    }

    pub const fn with_legend(self, word: &'static str) -> PanelQuery {
        PanelQuery {
            legend: word,
            ..self
        }
    }
}

pub const fn value(metric: &'static str, by: &'static [&'static str]) -> PanelQuery {
    PanelQuery::new(metric, by, PanelQueryMode::Value)
}

pub const fn max_value(metric: &'static str, by: &'static [&'static str]) -> PanelQuery {
    PanelQuery::new(metric, by, PanelQueryMode::Max)
}

pub const fn rate(metric: &'static str, by: &'static [&'static str]) -> PanelQuery {
    PanelQuery::new(metric, by, PanelQueryMode::Rate)
}

pub const fn each_value(metric: &'static str, by: &'static [&'static str]) -> PanelQuery {
    PanelQuery::new(metric, by, PanelQueryMode::EachValue)
}

pub const fn each_rate(metric: &'static str, by: &'static [&'static str]) -> PanelQuery {
    PanelQuery::new(metric, by, PanelQueryMode::EachRate)
}
