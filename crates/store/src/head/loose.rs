//! The points of one loose series in memory: closed runs, then an open tail in order of arrival.

use std::sync::Arc;

use pegel_metric::{Ledger, Millis, Series};

use crate::question::Latest;
use crate::run::{Effort, Owner, Run};

/// Points in a full tail.
const TAIL_ROWS: usize = 256;

#[derive(Debug)]
pub(crate) struct LooseHead {
    closed: Vec<Arc<Run>>,
    tail: Vec<(Millis, f64)>,
    pub latest: Latest,
    pub change: u64,
}

impl Default for LooseHead {
    fn default() -> LooseHead {
        let latest = Latest {
            value: 0.0,
            changed: Millis::MIN,
            seen: Millis::MIN,
        };
        LooseHead {
            closed: Vec::new(),
            tail: Vec::new(),
            latest,
            change: 0,
        }
    }
}

impl LooseHead {
    pub fn append(
        &mut self,
        series: &Arc<Series>,
        (time, value): (Millis, f64),
        change: u64,
        ledger: &Ledger,
    ) {
        if time <= self.latest.seen {
            ledger.out_of_order(1);
            if self.has_point_at(time) {
                ledger.duplicate(1);
            }
        }
        self.put(series, (time, value), change);
    }

    /// Replaces the value of a point, if there is one of that time.
    pub fn overwrite(
        &mut self,
        series: &Arc<Series>,
        (time, value): (Millis, f64),
        change: u64,
    ) -> bool {
        let is_known = time == self.latest.seen || self.has_point_at(time);
        if is_known {
            self.put(series, (time, value), change);
        }
        is_known
    }

    fn put(&mut self, series: &Arc<Series>, (time, value): (Millis, f64), change: u64) {
        self.tail.push((time, value));
        if self.tail.len() >= TAIL_ROWS {
            self.closed
                .push(to_run(series, std::mem::take(&mut self.tail)));
        }
        if time >= self.latest.seen {
            if value.to_bits() != self.latest.value.to_bits() || self.change == 0 {
                self.latest.value = value;
                self.latest.changed = time;
                self.change = change;
            }
            self.latest.seen = time;
        }
    }

    fn has_point_at(&self, time: Millis) -> bool {
        self.tail.iter().any(|(t, _)| *t == time)
            || self.closed.iter().any(|run| {
                run.min <= time
                    && time <= run.max
                    && run
                        .decode_times()
                        .is_ok_and(|times| times.binary_search(&time).is_ok())
            })
    }

    pub fn is_live(&self, now: Millis) -> bool {
        now.saturating_sub(self.latest.seen) <= super::LOOSE_LIVE_MS
    }

    pub fn successor(&self) -> LooseHead {
        LooseHead {
            closed: Vec::new(),
            tail: Vec::new(),
            latest: self.latest,
            change: self.change,
        }
    }

    pub fn closed(&self) -> &[Arc<Run>] {
        &self.closed
    }

    /// The open tail, sorted, the last of equal times.
    pub fn tail(&self) -> Vec<(Millis, f64)> {
        let mut points = self.tail.clone();
        sort_last_wins(&mut points);
        points
    }

    pub fn runs(&self, series: &Arc<Series>) -> impl Iterator<Item = Arc<Run>> + '_ {
        let tail = (!self.tail.is_empty()).then(|| to_run(series, self.tail.clone()));
        self.closed.iter().cloned().chain(tail)
    }

    pub fn bytes(&self) -> usize {
        let closed: usize = self.closed.iter().map(|run| run.bytes()).sum();
        size_of::<LooseHead>() + closed + self.tail.capacity() * size_of::<(Millis, f64)>()
    }
}

fn to_run(series: &Arc<Series>, mut points: Vec<(Millis, f64)>) -> Arc<Run> {
    sort_last_wins(&mut points);
    let times: Vec<Millis> = points.iter().map(|(time, _)| *time).collect();
    let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    let mut run = Run::new(Owner::Series(series.clone()), &times);
    run.add_column(0, &values, None, Effort::Quick);
    run.finish()
}

/// Sorts by time; of points with equal times the one that came last stays.
pub(crate) fn sort_last_wins(points: &mut Vec<(Millis, f64)>) {
    if points.is_sorted_by(|a, b| a.0 < b.0) {
        return;
    }
    points.sort_by_key(|(time, _)| *time);
    points.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 = later.1;
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::sort_last_wins;

    #[test]
    fn the_last_of_equal_times_stays() {
        let mut points = vec![(3, 1.0), (1, 2.0), (3, 3.0), (2, 4.0), (1, 5.0), (3, 6.0)];
        sort_last_wins(&mut points);
        assert_eq!(points, [(1, 5.0), (2, 4.0), (3, 6.0)]);
    }
}
