//! The series that a metric of each type publishes.

use pegel_metric::MetricKind;
use pegel_wire::statsd::StatsdType;

use super::settings::{IdlePolicy, StatsdSettings};

/// One published number of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistic {
    /// The running total of a counter, the value of a gauge.
    Value,
    /// The growth of a counter in the last interval.
    Increase,
    /// Running totals of a timer.
    Count,
    Sum,
    /// Statistics of a timer's last interval.
    Min,
    Max,
    Percentile(u8),
    /// The number of distinct members of a set in the last interval.
    Members,
}

impl Statistic {
    pub(super) fn kind(self) -> MetricKind {
        match self {
            Statistic::Count | Statistic::Sum => MetricKind::Counter,
            _ => MetricKind::Gauge,
        }
    }

    /// Returns whether it is published at each tick rather than at the end of an interval.
    pub(super) fn is_published_each_tick(self) -> bool {
        matches!(self, Statistic::Value | Statistic::Count | Statistic::Sum)
    }

    /// Returns whether it continues from its value before a restart of the agent.
    pub(super) fn continues_after_restart(self, kind: StatsdType) -> bool {
        // Senders of cumulative totals send them again, from the beginning.
        let adds_up = matches!(kind, StatsdType::Counter | StatsdType::Meter);
        matches!(self, Statistic::Count | Statistic::Sum) || (self == Statistic::Value && adds_up)
    }
}

/// The statistics to publish and to keep, from the configuration.
#[derive(Debug)]
pub(crate) struct StatisticSettings {
    counter: Vec<Statistic>,
    timer: Vec<Statistic>,
    pub percents: Vec<f64>,
    percent_names: Vec<String>,
    idle: [IdlePolicy; 4],
}

impl StatisticSettings {
    pub(super) fn new(keys: &StatsdSettings) -> StatisticSettings {
        let mut percents = keys.percentiles.clone();
        percents.sort_by(|a, b| a.get().total_cmp(&b.get()));
        percents.dedup_by_key(|percent| percent.get());
        percents.truncate(usize::from(u8::MAX));
        let wanted = [
            (keys.timer_count, Statistic::Count),
            (keys.timer_sum, Statistic::Sum),
            (keys.timer_lower, Statistic::Min),
            (keys.timer_upper, Statistic::Max),
        ];
        let wanted = wanted.into_iter().filter(|(is_wanted, _)| *is_wanted);
        let percentiles = (0..percents.len()).map(|at| Statistic::Percentile(at as u8));
        let mut counter = vec![Statistic::Value];
        counter.extend(keys.counter_sum.then_some(Statistic::Increase));
        let of = |own: Option<IdlePolicy>| own.unwrap_or(keys.idle);
        StatisticSettings {
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

    pub(super) fn for_type(&self, kind: StatsdType) -> &[Statistic] {
        match kind {
            StatsdType::Counter | StatsdType::Cumulative | StatsdType::Meter => &self.counter,
            StatsdType::Gauge => &[Statistic::Value],
            StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution => &self.timer,
            StatsdType::Set => &[Statistic::Members],
        }
    }

    /// Returns the suffix that is appended to the name.
    pub(super) fn suffix(&self, figure: Statistic) -> &str {
        match figure {
            Statistic::Value => "",
            Statistic::Increase => ".increase",
            Statistic::Count | Statistic::Members => ".count",
            Statistic::Sum => ".sum",
            Statistic::Min => ".min",
            Statistic::Max => ".max",
            Statistic::Percentile(at) => &self.percent_names[usize::from(at)],
        }
    }

    pub(super) fn series_kind(&self, kind: StatsdType, figure: Statistic) -> MetricKind {
        match (kind, figure) {
            (
                StatsdType::Counter | StatsdType::Cumulative | StatsdType::Meter,
                Statistic::Value,
            ) => MetricKind::Counter,
            (_, figure) => figure.kind(),
        }
    }

    pub(super) fn deletes_idle(&self, kind: StatsdType) -> bool {
        let at = match kind {
            StatsdType::Counter | StatsdType::Cumulative | StatsdType::Meter => 0,
            StatsdType::Gauge => 1,
            StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution => 2,
            StatsdType::Set => 3,
        };
        self.idle[at] == IdlePolicy::Delete
    }

    /// Returns the same for a total of unknown type: no line for it arrived since a restart.
    pub(super) fn deletes_idle_series(&self, name: &str) -> bool {
        let is_timer = [Statistic::Count, Statistic::Sum].map(|figure| self.suffix(figure));
        let is_timer = is_timer.iter().any(|suffix| name.ends_with(suffix));
        self.deletes_idle(if is_timer {
            StatsdType::Timer
        } else {
            StatsdType::Counter
        })
    }

    pub(super) fn counts_increase(&self) -> bool {
        self.counter.contains(&Statistic::Increase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &StatsdSettings, kind: StatsdType) -> Vec<String> {
        let figures = StatisticSettings::new(keys);
        let all = figures.for_type(kind).iter();
        all.map(|figure| figures.suffix(*figure).to_owned())
            .collect()
    }

    #[test]
    fn timers_have_the_figures_that_are_wanted() {
        let mut keys = StatsdSettings::default();
        let all = [".count", ".sum", ".min", ".max", ".p50", ".p90", ".p99"];
        assert_eq!(names(&keys, StatsdType::Timer), all);
        keys.timer_sum = false;
        keys.timer_lower = false;
        keys.percentiles = ["99.9", "50", "99.9"]
            .map(|p| p.parse().expect("valid"))
            .to_vec();
        assert_eq!(
            names(&keys, StatsdType::Histogram),
            [".count", ".max", ".p50", ".p99.9"]
        );
        assert_eq!(names(&keys, StatsdType::Counter), [""]);
        keys.counter_sum = true;
        assert_eq!(names(&keys, StatsdType::Meter), ["", ".increase"]);
    }

    #[test]
    fn each_type_may_be_deleted_by_itself() {
        let mut keys = StatsdSettings {
            idle: IdlePolicy::Delete,
            ..StatsdSettings::default()
        };
        keys.idle_gauges = Some(IdlePolicy::Keep);
        let figures = StatisticSettings::new(&keys);
        let deleted = StatsdType::ALL.map(|kind| figures.deletes_idle(kind));
        assert_eq!(deleted, [true, true, false, true, true, true, true, true]);
    }
}
