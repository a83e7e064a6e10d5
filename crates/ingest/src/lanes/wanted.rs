//! What a lane asks for.

use pegel_metric::{Input, Kind, Level};

use super::amount::CounterKind;
use crate::gate::Offer;

pub use pegel_lane::Aggregation;

/// What a series is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Counter(CounterKind),
    Gauge(Aggregation),
}

impl Role {
    pub fn kind(self) -> Kind {
        match self {
            Role::Counter(_) => Kind::Counter,
            Role::Gauge(_) => Kind::Gauge,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Role::Counter(CounterKind::Whole) => "counter",
            Role::Counter(CounterKind::Float) => "float_counter",
            Role::Counter(CounterKind::Bucket) => "bucket",
            Role::Gauge(_) => "gauge",
        }
    }

    /// Whether both can stand under one name. How a gauge is summed up is as the first lane said.
    pub fn fits(self, other: Role) -> bool {
        match (self, other) {
            (Role::Gauge(_), Role::Gauge(_)) => true,
            (a, b) => a == b,
        }
    }
}

/// A series that a lane declares.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
    /// The owner of the lane, unless it is the agent's user.
    pub user: Option<&'a str>,
    pub help: &'a str,
    pub level: Level,
    pub role: Role,
}

impl<'a> Wanted<'a> {
    pub fn offer(&self, identity: &'a [(&'a str, &'a str)]) -> Offer<'a> {
        Offer {
            name: self.name,
            labels: self.labels,
            identity,
            kind: self.role.kind(),
            help: self.help,
            level: self.level,
            input: Input::Lane,
        }
    }
}
