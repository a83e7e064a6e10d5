//! Families: the properties that series share. Collectors declare them as statics; inputs of
//! programs create them at run time.

use std::borrow::Cow;

use crate::Input;

/// How a series behaves over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetricKind {
    /// Only increases, except when its source restarts.
    Counter,
    /// May increase and decrease.
    Gauge,
    /// Not specified by the sender.
    Unknown,
}

impl MetricKind {
    pub const ALL: [MetricKind; 3] = [MetricKind::Counter, MetricKind::Gauge, MetricKind::Unknown];

    /// Returns the name used in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Unknown => "unknown",
        }
    }
}

/// The base unit of a family; empty for a plain number.
pub type Unit = Cow<'static, str>;

/// How detailed a metric is: an agent at level N keeps metrics of level N and below.
pub type Level = u8;

/// The properties that series share: kind, help text, unit, level, input and usually their name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Family {
    /// Empty where series of many names share the family, as those of programs do: see
    /// [`crate::Series::named`].
    pub name: Cow<'static, str>,
    pub kind: MetricKind,
    pub help: Cow<'static, str>,
    pub unit: Unit,
    pub level: Level,
    /// The only input that writes these series.
    pub input: Input,
}

impl Family {
    /// Creates a family at compile time, as collectors declare them.
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
