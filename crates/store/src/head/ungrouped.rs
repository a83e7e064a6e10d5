//! The points of one ungrouped series in memory, in three layers. Of two points at one time the
//! later layer wins:
//!
//! - `sorted`: encoded runs whose times do not overlap, so that one time is looked up in one run;
//! - `tail`: the points after them, sorted; when it is full it becomes the next run;
//! - `late`: points before the end of `sorted`. When they are a quarter of it, they are merged into
//!   it.
//!
//! Adding a point takes logarithmic time, and each is encoded a few times on average, in whatever
//! order points arrive. Whether a late point replaces one of `sorted` is determined when they are
//! merged: an earlier check would have to decode a run.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use pegel_metric::{Millis, Series};

use crate::codec::ROWS_MAX;
use crate::sample_run::{EncodingEffort, SampleRun};

/// Points in a full tail, and in a run.
const RUN_ROWS: usize = 256;
/// Late points are merged when there are at least `LATE_MIN`, and at least one for every
/// `LATE_SHARE` sorted ones.
const LATE_MIN: usize = RUN_ROWS;
const LATE_SHARE: usize = 4;
/// Memory per late point, including its share of the tree's nodes.
const LATE_BYTES: usize = 28;

#[derive(Debug, Default)]
pub(crate) struct UngroupedHead {
    sorted: Arc<Vec<Arc<SampleRun>>>,
    tail: Vec<(Millis, f64)>,
    late: BTreeMap<Millis, f64>,
    /// The number of points in `sorted`, and their bytes.
    sorted_rows: usize,
    sorted_bytes: usize,
}

/// The points of a series: all its runs, and copies of the rest, in order of precedence, lowest
/// first.
#[derive(Debug)]
pub(crate) struct UngroupedPoints {
    pub runs: Arc<Vec<Arc<SampleRun>>>,
    pub tail: Vec<(Millis, f64)>,
    pub late: Vec<(Millis, f64)>,
}

impl UngroupedHead {
    /// Adds a point. Returns whether it is known to replace one of the same time; replacements by
    /// late points are counted later by [`LateMerge::run`] and [`UngroupedHead::late_duplicates`].
    pub(crate) fn put(&mut self, series: &Arc<Series>, (time, value): (Millis, f64)) -> bool {
        if self.tail.last().is_some_and(|(last, _)| *last < time) {
            // Most points are the newest of their series: a search would load the whole tail.
            self.tail.push((time, value));
        } else if self.sorted.last().is_some_and(|last| time <= last.max) {
            return self.late.insert(time, value).is_some();
        } else {
            match self.tail.binary_search_by_key(&time, |(time, _)| *time) {
                Ok(at) => {
                    self.tail[at].1 = value;
                    return true;
                }
                Err(at) => self.tail.insert(at, (time, value)),
            }
        }
        if self.tail.len() >= RUN_ROWS {
            self.close_tail(series);
        }
        false
    }

    /// Returns the time of the newest point.
    pub(crate) fn newest(&self) -> Option<Millis> {
        let tail = self.tail.last().map(|(time, _)| *time);
        tail.or_else(|| self.sorted.last().map(|run| run.max))
    }

    fn close_tail(&mut self, series: &Arc<Series>) {
        let run = to_run(series, &self.tail);
        self.tail = Vec::new();
        self.sorted_rows += run.rows;
        self.sorted_bytes += run.bytes();
        Arc::make_mut(&mut self.sorted).push(run);
    }

    pub(crate) fn has_point_at(&self, time: Millis) -> bool {
        self.late.contains_key(&time)
            || self
                .tail
                .binary_search_by_key(&time, |(time, _)| *time)
                .is_ok()
            || self.is_sorted_at(time)
    }

    fn is_sorted_at(&self, time: Millis) -> bool {
        let at = self.sorted.partition_point(|run| run.max < time);
        self.sorted.get(at).is_some_and(|run| {
            let times = (run.min <= time).then(|| run.decode_times());
            times.is_some_and(|times| times.is_ok_and(|times| times.binary_search(&time).is_ok()))
        })
    }

    /// Counts the late points that replace a sorted one. Decodes the times of each run at most
    /// once.
    pub(crate) fn late_duplicates(&self) -> u64 {
        if self.late.is_empty() {
            return 0;
        }
        let in_run = |run: &Arc<SampleRun>| {
            let mut late = self.late.range(run.min..=run.max).peekable();
            late.peek()?;
            let times = run.decode_times().ok()?;
            let is_known = |time: &Millis| times.binary_search(time).is_ok();
            Some(late.filter(|(time, _)| is_known(time)).count() as u64)
        };
        self.sorted.iter().filter_map(in_run).sum()
    }

    /// Returns whether the late points should be merged now.
    pub(crate) fn needs_merge(&self) -> bool {
        self.late.len() >= LATE_MIN && self.late.len() >= self.sorted_rows / LATE_SHARE
    }

    /// Prepares a merge, which can then run without access to this head.
    pub(crate) fn prepare_merge(&self) -> LateMerge {
        LateMerge {
            sorted: self.sorted.clone(),
            late: self
                .late
                .iter()
                .map(|(time, value)| (*time, *value))
                .collect(),
        }
    }

    /// Applies the result of a merge. Nothing may have been added since it was prepared. Returns
    /// what it replaces, so that the caller can drop that later.
    pub(crate) fn apply_merge(&mut self, merged: MergedRuns) -> UngroupedHead {
        let rows = merged.runs.iter().map(|run| run.rows).sum();
        let bytes = merged.runs.iter().map(|run| run.bytes()).sum();
        UngroupedHead {
            sorted: std::mem::replace(&mut self.sorted, Arc::new(merged.runs)),
            tail: Vec::new(),
            late: std::mem::take(&mut self.late),
            sorted_rows: std::mem::replace(&mut self.sorted_rows, rows),
            sorted_bytes: std::mem::replace(&mut self.sorted_bytes, bytes),
        }
    }

    /// Returns the points of a range, at most `copies_max` of the tail and of the late ones. The
    /// runs may extend beyond it.
    pub(crate) fn points(
        &self,
        range: &RangeInclusive<Millis>,
        copies_max: usize,
    ) -> UngroupedPoints {
        let tail = self.tail.iter().filter(|(time, _)| range.contains(time));
        let late = self.late.range(range.clone()).take(copies_max);
        UngroupedPoints {
            runs: self.sorted.clone(),
            tail: tail.take(copies_max).copied().collect(),
            late: late.map(|(time, value)| (*time, *value)).collect(),
        }
    }

    /// Returns all points as runs, in order of precedence, lowest first.
    pub(crate) fn runs(&self, series: &Arc<Series>) -> Vec<Arc<SampleRun>> {
        let late: Vec<_> = self
            .late
            .iter()
            .map(|(time, value)| (*time, *value))
            .collect();
        let rest = self.tail.chunks(ROWS_MAX).chain(late.chunks(ROWS_MAX));
        let rest = rest.map(|points| to_run(series, points));
        self.sorted.iter().cloned().chain(rest).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<UngroupedHead>()
            + self.sorted_bytes
            + self.tail.capacity() * size_of::<(Millis, f64)>()
            + self.late.len() * LATE_BYTES
    }
}

/// A prepared merge: late points and the runs they fall into.
#[derive(Debug)]
pub(crate) struct LateMerge {
    sorted: Arc<Vec<Arc<SampleRun>>>,
    late: Vec<(Millis, f64)>,
}

/// The result of a merge.
#[derive(Debug)]
pub(crate) struct MergedRuns {
    runs: Vec<Arc<SampleRun>>,
    /// The number of late points that replaced another.
    pub duplicates: u64,
}

impl LateMerge {
    /// Builds the new runs. Runs into which no late point falls are reused.
    pub(crate) fn run(&self, series: &Arc<Series>) -> MergedRuns {
        let mut duplicates = 0;
        let mut made = Vec::with_capacity(self.sorted.len() + self.late.len() / RUN_ROWS + 1);
        let mut points: Vec<(Millis, f64)> = Vec::new();
        let mut late = &self.late[..];
        for (number, run) in self.sorted.iter().enumerate() {
            // Points between two runs go to the first of them.
            let next = self.sorted.get(number + 1);
            let count = next.map_or(late.len(), |next| {
                late.partition_point(|(time, _)| *time < next.min)
            });
            let (fitting, later) = late.split_at(count);
            late = later;
            if fitting.is_empty() {
                drain_runs(series, &mut points, 1, &mut made);
                made.push(run.clone());
            } else {
                let (known, before) = (decode(run), points.len());
                merge_sorted_points(&known, fitting, &mut points);
                duplicates += (known.len() + fitting.len() + before - points.len()) as u64;
                drain_runs(series, &mut points, RUN_ROWS, &mut made);
            }
        }
        points.extend_from_slice(late);
        drain_runs(series, &mut points, 1, &mut made);
        MergedRuns {
            runs: made,
            duplicates,
        }
    }
}

/// Encodes points from the front while at least `least` of them remain.
fn drain_runs(
    series: &Arc<Series>,
    points: &mut Vec<(Millis, f64)>,
    least: usize,
    made: &mut Vec<Arc<SampleRun>>,
) {
    let whole = points.len() / RUN_ROWS * RUN_ROWS;
    let used = if least < RUN_ROWS {
        points.len()
    } else {
        whole
    };
    made.extend(
        points[..used]
            .chunks(RUN_ROWS)
            .map(|chunk| to_run(series, chunk)),
    );
    points.drain(..used);
}

/// Appends two sorted lists merged into one; of two points at one time the one in `stronger` is
/// kept.
fn merge_sorted_points(
    weaker: &[(Millis, f64)],
    stronger: &[(Millis, f64)],
    into: &mut Vec<(Millis, f64)>,
) {
    let mut weaker = weaker.iter().peekable();
    for point in stronger {
        while let Some(earlier) = weaker.next_if(|weak| weak.0 < point.0) {
            into.push(*earlier);
        }
        weaker.next_if(|weak| weak.0 == point.0);
        into.push(*point);
    }
    into.extend(weaker);
}

/// Decodes a run that this process encoded. This cannot fail; if it does, its points are left out.
fn decode(run: &SampleRun) -> Vec<(Millis, f64)> {
    let column = run.columns.first();
    let points = column.and_then(|column| run.decode_points(column).ok());
    points.unwrap_or_default()
}

fn to_run(series: &Arc<Series>, points: &[(Millis, f64)]) -> Arc<SampleRun> {
    SampleRun::from_points(series, points, EncodingEffort::Quick).finish()
}

/// Sorts by time; of points with equal times the last one is kept.
pub(crate) fn sort_keep_last(points: &mut Vec<(Millis, f64)>) {
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
    use super::*;
    use pegel_metric::{Family, MetricKind};

    #[test]
    fn the_last_of_equal_times_stays() {
        let mut points = vec![(3, 1.0), (1, 2.0), (3, 3.0), (2, 4.0), (1, 5.0), (3, 6.0)];
        sort_keep_last(&mut points);
        assert_eq!(points, [(1, 5.0), (2, 4.0), (3, 6.0)]);
    }

    /// A head that merges as the store does, and how many points it encoded for that.
    #[derive(Default)]
    struct MergingHead {
        head: UngroupedHead,
        encoded: usize,
        duplicates: u64,
    }

    impl MergingHead {
        fn put(&mut self, series: &Arc<Series>, point: (Millis, f64)) {
            self.duplicates += u64::from(self.head.put(series, point));
            if self.head.needs_merge() {
                let before = self.head.sorted.clone();
                let merged = self.head.prepare_merge().run(series);
                self.duplicates += merged.duplicates;
                let is_new =
                    |run: &&Arc<SampleRun>| !before.iter().any(|old| Arc::ptr_eq(old, run));
                let new = merged.runs.iter().filter(is_new);
                self.encoded += new.map(|run| run.rows).sum::<usize>();
                self.head.apply_merge(merged);
            }
        }

        fn points(&self) -> Vec<(Millis, f64)> {
            let all = self.head.points(&(Millis::MIN..=Millis::MAX), usize::MAX);
            let mut points: Vec<_> = all.runs.iter().flat_map(|run| decode(run)).collect();
            assert!(points.is_sorted_by(|a, b| a.0 < b.0), "runs do not overlap");
            points.extend(all.tail.into_iter().chain(all.late));
            sort_keep_last(&mut points);
            points
        }
    }

    fn series() -> Arc<Series> {
        let family = Family::new("m", MetricKind::Gauge, "", 1, "");
        Arc::new(Series::new(Arc::new(family), &[]).expect("valid"))
    }

    /// A permutation without a table: 2^16 + 1 is a prime.
    fn shuffled() -> impl Iterator<Item = Millis> {
        (0..65_536_i64).map(|n| (n + 1) * 40_503 % 65_537)
    }

    #[test]
    fn shuffled_points_are_encoded_a_few_times_each() {
        let (series, mut merging) = (series(), MergingHead::default());
        for time in shuffled() {
            merging.put(&series, (time, time as f64));
        }
        assert!(
            merging
                .points()
                .into_iter()
                .eq((1..65_537).map(|n| (n, n as f64)))
        );
        assert!(merging.encoded < 8 * 65_536, "{} encoded", merging.encoded);
        assert!(merging.head.late.len() * LATE_SHARE <= 65_536);
    }

    #[test]
    fn points_in_order_are_never_encoded_again() {
        let (series, mut merging) = (series(), MergingHead::default());
        for time in 0..10_000 {
            merging.put(&series, (time, 0.0));
            // Points that fall into the tail cost the same as points in order.
            merging.put(&series, (time - time % 7, 1.0));
        }
        assert_eq!(merging.encoded, 0);
        assert_eq!(merging.points().len(), 10_000);
    }

    #[test]
    fn every_duplicate_is_noticed_and_replaces() {
        let (series, mut merging) = (series(), MergingHead::default());
        for (round, value) in [(0, 0.0), (1, 1.0), (2, 2.0)] {
            shuffled().for_each(|time| merging.put(&series, (time, value)));
            let counted = merging.duplicates + merging.head.late_duplicates();
            assert_eq!(counted, round * 65_536);
        }
        let expected = (1..65_537).map(|n| (n, 2.0));
        assert!(merging.points().into_iter().eq(expected));
    }

    #[test]
    fn lookups_and_figures_follow() {
        let (series, mut merging) = (series(), MergingHead::default());
        for time in shuffled() {
            merging.put(&series, (time * 10, 0.0));
        }
        let head = &merging.head;
        assert!(head.has_point_at(500) && !head.has_point_at(501));
        let sum: usize = head.sorted.iter().map(|run| run.bytes()).sum();
        assert_eq!(head.sorted_bytes, sum);
        let rows: usize = head.runs(&series).iter().map(|run| run.rows).sum();
        assert!(rows >= 65_536);
    }
}
