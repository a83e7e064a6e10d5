//! What a dashboard shows, in few words, so that all panels are made alike. [`super::json`] makes Grafana's form of it.

/// Also the uid under which Grafana knows it, with `pegel-` before it, and the name of its file.
#[derive(Debug)]
pub struct Dashboard {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    /// Besides the data source and the nodes, which every dashboard lets one choose.
    pub variables: &'static [Variable],
    pub rows: &'static [Row],
}

/// Something to choose from at the top of a dashboard.
#[derive(Debug)]
pub enum Variable {
    /// Filled by a question to the data source.
    Query {
        name: &'static str,
        label: &'static str,
        query: &'static str,
        /// A regular expression of the browser: answers that it does not find are left out.
        regex: &'static str,
        /// Chosen at first; `All` allows several.
        chosen: &'static str,
    },
    /// Typed by hand.
    Text {
        name: &'static str,
        label: &'static str,
    },
}

#[derive(Debug)]
pub struct Row {
    pub title: &'static str,
    /// Its panels ask nothing until someone opens it: for what many nodes do not have.
    pub is_closed: bool,
    /// Once for each chosen value of this variable.
    pub repeat: Option<&'static str>,
    pub panels: &'static [Panel],
}

impl Row {
    pub const fn open(title: &'static str, panels: &'static [Panel]) -> Row {
        Row {
            title,
            is_closed: false,
            repeat: None,
            panels,
        }
    }

    pub const fn closed(title: &'static str, panels: &'static [Panel]) -> Row {
        Row {
            is_closed: true,
            ..Row::open(title, panels)
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Panel {
    pub title: &'static str,
    pub about: &'static str,
    /// Grafana's name of the unit.
    pub unit: &'static str,
    pub shape: Shape,
    /// Of the 24 columns of the page.
    pub width: u32,
    pub max: Option<f64>,
    /// From here on yellow, and from here on red.
    pub limits: Option<(f64, f64)>,
    pub queries: &'static [Query],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Lines,
    /// The last value of each node, in large figures.
    Figures,
}

impl Panel {
    pub const fn new(title: &'static str, unit: &'static str, queries: &'static [Query]) -> Panel {
        Panel {
            title,
            about: "",
            unit,
            shape: Shape::Lines,
            width: 12,
            max: None,
            limits: None,
            queries,
        }
    }

    pub const fn about(self, about: &'static str) -> Panel {
        Panel { about, ..self }
    }

    pub const fn figures(self) -> Panel {
        Panel {
            shape: Shape::Figures,
            width: 6,
            ..self
        }
    }

    /// Three of them beside each other.
    pub const fn third(self) -> Panel {
        Panel { width: 8, ..self }
    }

    pub const fn up_to(self, max: f64) -> Panel {
        Panel {
            max: Some(max),
            ..self
        }
    }

    pub const fn limits(self, yellow: f64, red: f64) -> Panel {
        Panel {
            limits: Some((yellow, red)),
            ..self
        }
    }
}

/// One metric, with a line for each node and each value of the labels in `by`.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    pub metric: &'static str,
    pub by: &'static [&'static str],
    /// What the line is called before its node and labels, where a panel has several metrics.
    pub word: &'static str,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The mean of each interval.
    Value,
    /// The highest of each interval: for what is 0 or 1.
    Highest,
    /// A counter's increase per second. A reset leaves a gap, not a spike.
    Rate,
    /// Any metric, each series by itself.
    EachValue,
    EachRate,
}

impl Query {
    const fn new(metric: &'static str, by: &'static [&'static str], what: What) -> Query {
        Query {
            metric,
            by,
            word: "",
            what,
        }
    }

    pub const fn named(self, word: &'static str) -> Query {
        Query { word, ..self }
    }
}

pub const fn value(metric: &'static str, by: &'static [&'static str]) -> Query {
    Query::new(metric, by, What::Value)
}

pub const fn highest(metric: &'static str, by: &'static [&'static str]) -> Query {
    Query::new(metric, by, What::Highest)
}

pub const fn rate(metric: &'static str, by: &'static [&'static str]) -> Query {
    Query::new(metric, by, What::Rate)
}

pub const fn each_value(metric: &'static str, by: &'static [&'static str]) -> Query {
    Query::new(metric, by, What::EachValue)
}

pub const fn each_rate(metric: &'static str, by: &'static [&'static str]) -> Query {
    Query::new(metric, by, What::EachRate)
}
