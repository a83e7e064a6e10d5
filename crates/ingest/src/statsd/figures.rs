//! Which series a metric of each type has.

use pegel_metric::Kind;
use pegel_wire::statsd::Type;

use super::settings::{Idle, StatsdKeys};

/// One number that is published about a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// The running total of a counter, the value of a gauge.
    Value,
    /// What a counter gained in the last interval.
    Increase,
    /// Running totals of a timer.
    Count,
    Sum,
    /// Of a timer's last interval.
    Min,
    Max,
    Percentile(u8),
    /// How many different members a set had in the last interval.
    Members,
}

impl Figure {
    pub fn kind(self) -> Kind {
        match self {
            Figure::Count | Figure::Sum => Kind::Counter,
            _ => Kind::Gauge,
        }
    }

    /// Returns whether it is published at each tick rather than at the end of an interval.
    pub fn is_published_each_tick(self) -> bool {
        matches!(self, Figure::Value | Figure::Count | Figure::Sum)
    }

    /// Whether it goes on from where it was before the agent was started anew.
    pub fn resumes(self, kind: Type) -> bool {
        // Those who send their own totals send them again, from the beginning.
        let adds_up = matches!(kind, Type::Counter | Type::Meter);
        matches!(self, Figure::Count | Figure::Sum) || (self == Figure::Value && adds_up)
    }
}

/// What the configuration wants published, and kept.
#[derive(Debug)]
pub(crate) struct Figures {
    counter: Vec<Figure>,
    timer: Vec<Figure>,
    pub percents: Vec<f64>,
    percent_names: Vec<String>,
    idle: [Idle; 4],
}

impl Figures {
    pub fn new(keys: &StatsdKeys) -> Figures {
        let mut percents = keys.percentiles.clone();
        percents.sort_by(|a, b| a.get().total_cmp(&b.get()));
        percents.dedup_by_key(|percent| percent.get());
        percents.truncate(usize::from(u8::MAX));
        let wanted = [
            (keys.timer_count, Figure::Count),
            (keys.timer_sum, Figure::Sum),
            (keys.timer_lower, Figure::Min),
            (keys.timer_upper, Figure::Max),
        ];
        let wanted = wanted.into_iter().filter(|(is_wanted, _)| *is_wanted);
        let percentiles = (0..percents.len()).map(|at| Figure::Percentile(at as u8));
        let mut counter = vec![Figure::Value];
        counter.extend(keys.counter_sum.then_some(Figure::Increase));
        let of = |own: Option<Idle>| own.unwrap_or(keys.idle);
        Figures {
            counter,
            timer: wanted
                .map(|(_, figure)| figure)
                .chain(percentiles)
                .collect(),
            percent_names: percents
                .iter()
                .map(|percent| format!(".p{percent}"))
                .collect(),
            percents: percents.iter().map(|percent| percent.get()).collect(),
            idle: [
                of(keys.idle_counters),
                of(keys.idle_gauges),
                of(keys.idle_timers),
                of(keys.idle_sets),
            ],
        }
    }

    pub fn of(&self, kind: Type) -> &[Figure] {
        match kind {
            Type::Counter | Type::Cumulative | Type::Meter => &self.counter,
            Type::Gauge => &[Figure::Value],
            Type::Timer | Type::Histogram | Type::Distribution => &self.timer,
            Type::Set => &[Figure::Members],
        }
    }

    /// What is appended to the name.
    pub fn suffix(&self, figure: Figure) -> &str {
        match figure {
            Figure::Value => "",
            Figure::Increase => ".increase",
            Figure::Count | Figure::Members => ".count",
            Figure::Sum => ".sum",
            Figure::Min => ".min",
            Figure::Max => ".max",
            Figure::Percentile(at) => &self.percent_names[usize::from(at)],
        }
    }

    pub fn series_kind(&self, kind: Type, figure: Figure) -> Kind {
        match (kind, figure) {
            (Type::Counter | Type::Cumulative | Type::Meter, Figure::Value) => Kind::Counter,
            (_, figure) => figure.kind(),
        }
    }

    pub fn deletes_idle(&self, kind: Type) -> bool {
        let at = match kind {
            Type::Counter | Type::Cumulative | Type::Meter => 0,
            Type::Gauge => 1,
            Type::Timer | Type::Histogram | Type::Distribution => 2,
            Type::Set => 3,
        };
        self.idle[at] == Idle::Delete
    }

    /// The same for a total of unknown type, because no line for it arrived since a restart.
    pub fn deletes_idle_series(&self, name: &str) -> bool {
        let is_timer = [Figure::Count, Figure::Sum].map(|figure| self.suffix(figure));
        let is_timer = is_timer.iter().any(|suffix| name.ends_with(suffix));
        self.deletes_idle(if is_timer { Type::Timer } else { Type::Counter })
    }

    pub fn counts_increase(&self) -> bool {
        self.counter.contains(&Figure::Increase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &StatsdKeys, kind: Type) -> Vec<String> {
        let figures = Figures::new(keys);
        let all = figures.of(kind).iter();
        all.map(|figure| figures.suffix(*figure).to_owned())
            .collect()
    }

    #[test]
    fn timers_have_the_figures_that_are_wanted() {
        let mut keys = StatsdKeys::default();
        let all = [".count", ".sum", ".min", ".max", ".p50", ".p90", ".p99"];
        assert_eq!(names(&keys, Type::Timer), all);
        keys.timer_sum = false;
        keys.timer_lower = false;
        keys.percentiles = ["99.9", "50", "99.9"]
            .map(|p| p.parse().expect("valid"))
            .to_vec();
        assert_eq!(
            names(&keys, Type::Histogram),
            [".count", ".max", ".p50", ".p99.9"]
        );
        assert_eq!(names(&keys, Type::Counter), [""]);
        keys.counter_sum = true;
        assert_eq!(names(&keys, Type::Meter), ["", ".increase"]);
    }

    #[test]
    fn each_type_may_be_deleted_by_itself() {
        let mut keys = StatsdKeys {
            idle: Idle::Delete,
            ..StatsdKeys::default()
        };
        keys.idle_gauges = Some(Idle::Keep);
        let figures = Figures::new(&keys);
        let deleted = Type::ALL.map(|kind| figures.deletes_idle(kind));
        assert_eq!(deleted, [true, true, false, true, true, true, true, true]);
    }
}
