use std::borrow::Cow;

use crate::Input;

/// How a series behaves over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetricKind {
    /// Only grows, except when its source restarts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// The sender did not say.
    Unknown,
}

impl MetricKind {
    pub const ALL: [MetricKind; 3] = [MetricKind::Counter, MetricKind::Gauge, MetricKind::Unknown];

    /// The word used in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Unknown => "unknown",
        }
    }
}

/// The base unit of a family, empty when it is a plain number.
pub type Unit = Cow<'static, str>;

/// How detailed a metric is: an agent at level N keeps what is at most N.
pub type Level = u8;

/// What series have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Family {
    /// Empty where series of many names share it, as those of programs do: see [`crate::Series::named`].
    pub name: Cow<'static, str>,
    pub kind: MetricKind,
    pub help: Cow<'static, str>,
    pub unit: Unit,
    pub level: Level,
    /// The input that writes these series. No other input writes to them.
    pub input: Input,
}

impl Family {
    /// A family known at compile time, as collectors declare them.
    pub const fn new(
        name: &'static str,
        kind: MetricKind,
        unit: &'static str,
        level: Level,
        help: &'static str,
    ) -> Family {
        Family {
            name: Cow::Borrowed(name),
            kind,
            help: Cow::Borrowed(help),
            unit: Cow::Borrowed(unit),
            level,
            input: Input::Collect,
        }
    }

    /// Returns the same family as written by another input.
    pub const fn of_input(mut self, input: Input) -> Family {
        self.input = input;
        self
    }
}
