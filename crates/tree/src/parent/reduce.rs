//! The reduction: children's values go into the window of open ticks; closed ticks become points of
//! reduced families.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, Point, SampleGroup, Series, Slot, Tick};
use pegel_reduction::{
    CellValue, ClosedTick, Partial, PutOutcome, ReducedSeries, ReducedSeriesTable, TickWindow,
    is_reduced_name, reduced_values,
};

/// The most series that are reduced, of all nodes together.
const REDUCED_SERIES_MAX: usize = 200_000;
/// The ticks that may be open: children's clocks may be this many intervals ahead.
const OPEN_TICKS_MAX: usize = 16;
/// How long a series without a child that has it keeps its key.
const KEY_KEPT: Millis = 10 * 60 * 1000;
/// The key of a series that is not reduced.
pub(crate) const NO_KEY: u32 = u32::MAX;

/// The series and open ticks of a parent.
#[derive(Debug)]
pub(crate) struct Reduction {
    pub(crate) table: ReducedSeriesTable,
    window: TickWindow,
}

/// A closed tick with the series of its partial results.
#[derive(Debug)]
pub(crate) struct ReducedTick {
    pub(crate) time: Millis,
    pub(crate) nodes: u32,
    pub(crate) partials: Vec<(ReducedSeries, Partial)>,
}

impl Reduction {
    pub(crate) fn new(interval: Millis) -> Reduction {
        Reduction {
            table: ReducedSeriesTable::new(REDUCED_SERIES_MAX),
            window: TickWindow::new(interval, OPEN_TICKS_MAX),
        }
    }

    /// Returns the key of a series of a child, and whether it is a counter. [`NO_KEY`]: it is not
    /// reduced.
    pub(crate) fn intern(
        &mut self,
        text: &str,
        kind: MetricKind,
        unit: &str,
        help: &str,
    ) -> (u32, bool) {
        let name = text.split('{').next().unwrap_or_default();
        if is_reduced_name(name) {
            return (NO_KEY, false);
        }
        let Some(key) = self.table.intern(text, kind, unit, help) else {
            return (NO_KEY, false);
        };
        let series = self.table.get(key);
        (key, series.is_some_and(ReducedSeries::is_counter))
    }

    pub(crate) fn put(
        &mut self,
        child: u32,
        epoch: u64,
        time: Millis,
        nodes: u32,
        cells: Vec<(u32, CellValue)>,
    ) -> PutOutcome {
        self.window.put(child, epoch, time, nodes, cells)
    }

    /// Closes the ticks that are complete, and those up to `latest`.
    pub(crate) fn close(&mut self, expected: &[u32], latest: Millis) -> Vec<ReducedTick> {
        let closed = self.window.close(expected, latest);
        let with_series = |tick: ClosedTick| {
            let partials = tick.partials.into_iter();
            let partials =
                partials.filter_map(|(key, partial)| Some((self.table.get(key)?.clone(), partial)));
            ReducedTick {
                time: tick.time,
                nodes: tick.nodes,
                partials: partials.collect(),
            }
        };
        closed.into_iter().map(with_series).collect()
    }

    /// Forgets series that no child has.
    pub(crate) fn reclaim(&mut self, now: Millis) {
        self.table.reclaim(now - KEY_KEPT);
    }
}

/// A suffix, and the reduced series; `None` if there can be none.
type SuffixedSeries = (&'static str, Option<Arc<Series>>);

/// Makes points of partial results. Keeps the reduced series of each series.
#[derive(Debug, Default)]
pub(crate) struct ReducedPoints {
    families: HashMap<(String, &'static str), Arc<Family>>,
    series: HashMap<Arc<str>, Vec<SuffixedSeries>>,
}

/// More series than can be alive are kept for a while, then all are made again.
const SERIES_KEPT_MAX: usize = 2 * REDUCED_SERIES_MAX;

impl ReducedPoints {
    /// Appends the points of one partial result.
    pub(crate) fn append(
        &mut self,
        reduced: &ReducedSeries,
        partial: &Partial,
        time: Millis,
        points: &mut Vec<Point>,
    ) {
        self.visit(reduced, partial, &mut |series, value| {
            points.push(Point {
                series: series.clone(),
                time,
                value,
            });
        });
    }

    /// Visits the reduced series of one partial result, with their values.
    fn visit(
        &mut self,
        reduced: &ReducedSeries,
        partial: &Partial,
        visit: &mut dyn FnMut(&Arc<Series>, f64),
    ) {
        if self.series.len() > SERIES_KEPT_MAX {
            self.series.clear();
            self.families.clear();
        }
        let name = reduced.name();
        if !self.series.contains_key(&reduced.text) {
            self.series.insert(reduced.text.clone(), Vec::new());
        }
        let Some(outputs) = self.series.get_mut(&reduced.text) else {
            return;
        };
        for (suffix, value) in reduced_values(name, reduced.kind, partial) {
            let position = outputs.iter().position(|output| output.0 == suffix);
            let position = position.unwrap_or_else(|| {
                let families = &mut self.families;
                let family = families
                    .entry((name.to_owned(), suffix))
                    .or_insert_with(|| Arc::new(reduced_family(reduced, suffix)));
                let text = format!("{name}{suffix}{}", &reduced.text[name.len()..]);
                // A text that a child made up may be no series, or be too long with its suffix.
                let series = Series::parse(&text, |_| family.clone()).ok();
                outputs.push((suffix, series.map(Arc::new)));
                outputs.len() - 1
            });
            if let Some(series) = &outputs[position].1 {
                visit(series, value);
            }
        }
    }
}

/// Makes ticks of a group of closed ticks: a tenth of the work of points.
#[derive(Debug)]
pub(crate) struct ReducedGroup {
    points: ReducedPoints,
    group: SampleGroup,
    slots: HashMap<Arc<Series>, Slot>,
    stale_after: Millis,
    tick: Tick,
}

impl ReducedGroup {
    /// A series without a value for `stale_after` milliseconds has ended.
    pub(crate) fn new(stale_after: Millis) -> ReducedGroup {
        ReducedGroup {
            points: ReducedPoints::default(),
            group: SampleGroup::new(GROUP, 0, stale_after),
            slots: HashMap::new(),
            stale_after,
            tick: Tick::new(Input::Tree),
        }
    }

    /// Returns a closed tick for the store.
    pub(crate) fn tick(&mut self, reduced: &ReducedTick) -> &mut Tick {
        self.group.clear();
        let mut count = 0;
        let (group, slots) = (&mut self.group, &mut self.slots);
        for (series, partial) in &reduced.partials {
            self.points.visit(series, partial, &mut |series, value| {
                count += 1;
                let slot = match slots.get(series) {
                    Some(slot) => *slot,
                    None => {
                        let slot = group.add(series.clone());
                        slots.insert(series.clone(), slot);
                        slot
                    }
                };
                group.set(slot, value);
            });
        }
        self.tick.reset(reduced.time);
        self.group.append_to(&mut self.tick);
        if self.slots.len() > 2 * count + 1000 {
            // Most series ended: the next tick has a group without them.
            self.slots.clear();
            self.group = SampleGroup::new(GROUP, 0, self.stale_after);
        }
        &mut self.tick
    }
}

/// The name of the group of reduced series in the store.
const GROUP: &str = "tree";

/// Returns the family of reduced series. A sum of totals is a gauge: it decreases when a node
/// leaves.
fn reduced_family(reduced: &ReducedSeries, suffix: &'static str) -> Family {
    let what = match suffix.rsplit(':').next().unwrap_or_default() {
        "sum" => "sum",
        "min" => "minimum",
        "max" => "maximum",
        "avg" => "average",
        "count" => "number",
        "p50" => "median",
        _ => "99th percentile",
    };
    let help = reduced.help.trim_end_matches('.');
    let per_second = if suffix.starts_with(":rate") {
        ", per second"
    } else {
        ""
    };
    let unit = match what {
        "number" => String::new(),
        _ => reduced.unit.to_string(),
    };
    Family {
        name: format!("{}{suffix}", reduced.name()).into(),
        kind: MetricKind::Gauge,
        help: format!("{help}{per_second}: {what} over nodes.").into(),
        unit: unit.into(),
        level: 0,
        input: Input::Tree,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_tick_becomes_points_of_reduced_families() {
        let mut reduction = Reduction::new(1000);
        let text = "hits{a=\"b\"}";
        let (key, is_counter) = reduction.intern(text, MetricKind::Counter, "", "Hits.");
        assert!(is_counter);
        assert_eq!(
            reduction.intern("x:sum", MetricKind::Gauge, "", "").0,
            NO_KEY
        );
        for (child, total) in [(1, 1000.0), (2, 500.0), (3, 7.0)] {
            let cell = CellValue::Counter {
                rate: Some(1.0),
                total,
            };
            let outcome = reduction.put(child, 1, 5000, 1, vec![(key, cell)]);
            assert_eq!(outcome, PutOutcome::Open);
        }
        let closed = reduction.close(&[1, 2, 3], 0);
        assert_eq!((closed.len(), closed[0].nodes), (1, 3));
        let mut points = Vec::new();
        let mut maker = ReducedPoints::default();
        for (series, partial) in &closed[0].partials {
            maker.append(series, partial, closed[0].time, &mut points);
        }
        let texts: Vec<_> = points.iter().map(|p| (p.series.text(), p.value)).collect();
        assert_eq!(texts[0], ("hits:sum{a=\"b\"}", 1507.0));
        assert_eq!(texts[1], ("hits:rate:sum{a=\"b\"}", 3.0));
        let family = points[1].series.family();
        assert_eq!(&*family.help, "Hits, per second: sum over nodes.");
        assert_eq!(family.input, Input::Tree);
    }
}
