//! The reduction: children's values go into the window of open ticks; closed ticks become points of
//! reduced families.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{
    Family, GroupSeries, Input, MetricKind, Millis, Point, SampleGroup, Series, Slot, Tick,
};
use pegel_reduction::{
    ClosedTick, DueTick, Partial, PutOutcome, ReducedSeries, ReducedSeriesTable, TickCells,
    TickWindow, is_reducible_name, partial_values, reduced_values,
};

/// The most series that are reduced, of all nodes together, whatever `limits.series` is.
const REDUCIBLE_SERIES_MAX: usize = 200_000;
/// The most reduced series of one series: a counter has eight.
const VALUES_MAX: usize = 8;
/// Reduced series may be this part of `limits.series`, as in the store.
const REDUCED_PART: usize = 2;
/// The sender of series that are only known from the past.
const PAST_KEY: u32 = u32::MAX;
/// The key of the first sender of this node's own series. Keys of further ones count down, those of
/// children count up.
pub(crate) const FIRST_SENDER_KEY: u32 = u32::MAX - 1;

/// Returns the most series that are reduced. What they are reduced to leaves room in the store for
/// series of the node and of programs.
fn reducible_series_max(series_max: usize) -> usize {
    let series_max = (series_max / REDUCED_PART / VALUES_MAX).max(1);
    series_max.min(REDUCIBLE_SERIES_MAX)
}
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
    pub(crate) partials: Vec<SeriesPartial>,
}

/// The partial result of a series. The key has this series as long as the pointer is the same.
#[derive(Debug)]
pub(crate) struct SeriesPartial {
    key: u32,
    pub(crate) series: Arc<ReducedSeries>,
    pub(crate) partial: Partial,
}

impl Reduction {
    /// `series_max` is `limits.series` of the store.
    pub(crate) fn new(interval: Millis, series_max: usize) -> Reduction {
        Reduction {
            table: ReducedSeriesTable::new(reducible_series_max(series_max)),
            window: TickWindow::new(interval, OPEN_TICKS_MAX),
        }
    }

    /// Returns the key of a series of a child, and whether it is a counter. [`NO_KEY`]: it is not
    /// reduced.
    pub(crate) fn intern(
        &mut self,
        child: u32,
        text: &str,
        kind: MetricKind,
        unit: &str,
        help: &str,
    ) -> (u32, bool) {
        let name = text.split('{').next().unwrap_or_default();
        if !is_reducible_name(name) {
            return (NO_KEY, false);
        }
        let Some(key) = self.table.intern(child, text, kind, unit, help) else {
            return (NO_KEY, false);
        };
        let series = self.table.get(key);
        (key, series.is_some_and(|series| series.is_counter()))
    }

    /// Returns whether a series of the past is reduced: it is known, or there is room for it as for
    /// one of another child. It keeps its place for a while, so that the answer stays the same.
    pub(crate) fn admits_past(
        &mut self,
        text: &str,
        kind: MetricKind,
        unit: &str,
        help: &str,
        now: Millis,
    ) -> bool {
        let (key, _) = self.intern(PAST_KEY, text, kind, unit, help);
        if key != NO_KEY {
            self.table.release(key, now);
        }
        key != NO_KEY
    }

    pub(crate) fn put(
        &mut self,
        child: u32,
        epoch: u64,
        time: Millis,
        nodes: u32,
        cells: TickCells,
    ) -> PutOutcome {
        self.window.put(child, epoch, time, nodes, cells)
    }

    /// Takes the ticks that are complete, and those up to `latest`.
    pub(crate) fn take_due(&mut self, expected: &[u32], latest: Millis) -> Vec<DueTick> {
        self.window.take_due(expected, latest)
    }

    /// Adds their series to closed ticks.
    pub(crate) fn with_series(&self, closed: Vec<ClosedTick>) -> Vec<ReducedTick> {
        let with_series = |tick: ClosedTick| {
            let partials = tick.partials.into_iter();
            let partials = partials.filter_map(|(key, partial)| {
                let series = self.table.get(key)?.clone();
                Some(SeriesPartial {
                    key,
                    series,
                    partial,
                })
            });
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

/// The families of reduced series, by name and suffix.
#[derive(Debug, Default)]
struct ReducedFamilies(HashMap<(String, &'static str), Arc<Family>>);

impl ReducedFamilies {
    /// Returns a reduced series. `None`: a text that a child made up may be no series, or be too
    /// long with its suffix.
    fn series(&mut self, reduced: &ReducedSeries, suffix: &'static str) -> Option<Arc<Series>> {
        let name = reduced.name();
        let family = { self.0.entry((name.to_owned(), suffix)) }
            .or_insert_with(|| Arc::new(reduced_family(reduced, suffix)));
        let text = format!("{name}{suffix}{}", &reduced.text[name.len()..]);
        Series::parse(&text, |_| family.clone()).ok().map(Arc::new)
    }
}

/// Makes points of the partial results of the past.
#[derive(Debug, Default)]
pub(crate) struct ReducedPoints {
    families: ReducedFamilies,
    /// The reduced series of the series that was appended last, in the order of its values.
    series: Vec<Option<Arc<Series>>>,
    of: Option<Arc<str>>,
}

impl ReducedPoints {
    /// Appends the points of one partial result. Results of one series should follow each other.
    pub(crate) fn append(
        &mut self,
        reduced: &ReducedSeries,
        partial: &Partial,
        time: Millis,
        points: &mut Vec<Point>,
    ) {
        if self.of.as_ref() != Some(&reduced.text) {
            self.of = Some(reduced.text.clone());
            self.series.clear();
        }
        let values = reduced_values(reduced.name(), reduced.kind, partial);
        for (index, (suffix, value)) in values.enumerate() {
            if index == self.series.len() {
                self.series.push(self.families.series(reduced, suffix));
            }
            if let Some(series) = &self.series[index] {
                points.push(Point {
                    series: series.clone(),
                    time,
                    value,
                });
            }
        }
    }
}

/// The group and the slot of a reduced series; `None` if there can be no such series.
type ReducedSlot = Option<(usize, Slot)>;

/// The slots of the reduced series of one series, in the order of its values.
#[derive(Debug)]
struct ReducedSlots {
    of: Arc<ReducedSeries>,
    slots: Vec<ReducedSlot>,
}

/// The most series of a group, and the share of all series that it may have if that is more. A
/// group whose series change is written to the log with all their texts, so that one group of all
/// reduced series would be written again for each process that starts. New series are added to the
/// newest group.
const GROUP_SERIES_MAX: usize = 512;
const GROUP_SHARE_MAX: usize = 16;

/// Makes ticks of groups of closed ticks. Slots are found by the key of a series, so that nothing
/// is hashed from tick to tick.
#[derive(Debug)]
pub(crate) struct ReducedGroups {
    groups: Vec<SampleGroup>,
    by_key: Vec<Option<ReducedSlots>>,
    /// The slots of all series: one that gets another key stays in its group.
    slots: HashMap<Arc<Series>, (usize, Slot)>,
    families: ReducedFamilies,
    stale_after: Millis,
    /// Beyond this number, series that ended are removed at once.
    slots_max: usize,
    /// The groups before most series ended, until the next tick.
    former: Vec<Arc<GroupSeries>>,
    tick: Tick,
}

impl ReducedGroups {
    /// A series without a value for `stale_after` milliseconds has ended. `series_max` is
    /// `limits.series` of the store.
    pub(crate) fn new(stale_after: Millis, series_max: usize) -> ReducedGroups {
        ReducedGroups {
            groups: Vec::new(),
            by_key: Vec::new(),
            slots: HashMap::new(),
            families: ReducedFamilies::default(),
            stale_after,
            slots_max: series_max / REDUCED_PART,
            former: Vec::new(),
            tick: Tick::new(Input::Tree),
        }
    }

    /// Returns a closed tick for the store.
    pub(crate) fn tick(&mut self, reduced: &ReducedTick) -> &mut Tick {
        self.groups.iter_mut().for_each(SampleGroup::clear);
        let mut count = 0;
        for partial in &reduced.partials {
            count += self.set(partial);
        }
        self.tick.reset(reduced.time);
        for group in &mut self.groups {
            group.append_to(&mut self.tick);
        }
        for members in self.former.drain(..).skip(self.groups.len()) {
            self.tick.append_empty(members);
        }
        let slots_max = (2 * count + 1000).min(self.slots_max.max(count));
        if self.slots.len() > slots_max {
            // Most series ended, or they take the room of others: the next tick has groups without
            // them.
            let former = self.groups.iter_mut().map(|group| group.members().clone());
            *self = ReducedGroups {
                former: former.collect(),
                tick: std::mem::replace(&mut self.tick, Tick::new(Input::Tree)),
                slots_max: self.slots_max,
                ..ReducedGroups::new(self.stale_after, 0)
            };
        }
        &mut self.tick
    }

    /// Sets the values of one series, and returns their number.
    fn set(&mut self, found: &SeriesPartial) -> usize {
        let SeriesPartial {
            key,
            series,
            partial,
        } = found;
        let key = *key as usize;
        if key >= self.by_key.len() {
            self.by_key.resize_with(key + 1, || None);
        }
        let known = self.by_key[key].take_if(|known| Arc::ptr_eq(&known.of, series));
        let mut known = known.unwrap_or_else(|| ReducedSlots {
            of: series.clone(),
            slots: Vec::new(),
        });
        let mut count = 0;
        for (index, (suffix, value)) in partial_values(series.kind, partial).enumerate() {
            if index == known.slots.len() {
                known.slots.push(self.slot(series, suffix));
            }
            if let Some((group, slot)) = known.slots[index] {
                self.groups[group].set(slot, value);
                count += 1;
            }
        }
        self.by_key[key] = Some(known);
        count
    }

    fn slot(&mut self, reduced: &ReducedSeries, suffix: &'static str) -> ReducedSlot {
        let series = self.families.series(reduced, suffix)?;
        if let Some(slot) = self.slots.get(&series) {
            return Some(*slot);
        }
        let series_max = GROUP_SERIES_MAX.max(self.slots.len() / GROUP_SHARE_MAX);
        if { self.groups.last() }.is_none_or(|group| group.len() >= series_max) {
            let name = format!("tree-{}", self.groups.len());
            self.groups
                .push(SampleGroup::new(&name, 0, self.stale_after));
        }
        let group = self.groups.len() - 1;
        let slot = self.groups[group].add(series.clone());
        self.slots.insert(series, (group, slot));
        Some((group, slot))
    }
}

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

    fn closed_ticks(reduction: &mut Reduction, expected: &[u32]) -> Vec<ReducedTick> {
        let due = reduction.take_due(expected, 0);
        reduction.with_series(due.iter().map(DueTick::reduce).collect())
    }

    #[test]
    fn a_closed_tick_becomes_points_of_reduced_families() {
        let mut reduction = Reduction::new(1000, 200_000);
        let text = "hits{a=\"b\"}";
        let (key, is_counter) = reduction.intern(1, text, MetricKind::Counter, "", "Hits.");
        assert!(is_counter);
        assert_eq!(
            reduction.intern(1, "x:sum", MetricKind::Gauge, "", "").0,
            NO_KEY
        );
        for (child, total) in [(1, 1000.0), (2, 500.0), (3, 7.0)] {
            let mut cells = TickCells::default();
            cells.add_counter(key, Some(1.0), total);
            let outcome = reduction.put(child, 1, 5000, 1, cells);
            assert_eq!(outcome, PutOutcome::Open);
        }
        let closed = closed_ticks(&mut reduction, &[1, 2, 3]);
        assert_eq!((closed.len(), closed[0].nodes), (1, 3));
        let mut points = Vec::new();
        let mut maker = ReducedPoints::default();
        for found in &closed[0].partials {
            maker.append(&found.series, &found.partial, closed[0].time, &mut points);
        }
        let texts: Vec<_> = points.iter().map(|p| (p.series.text(), p.value)).collect();
        assert_eq!(texts[0], ("hits:sum{a=\"b\"}", 1507.0));
        assert_eq!(texts[1], ("hits:rate:sum{a=\"b\"}", 3.0));
        let family = points[1].series.family();
        assert_eq!(&*family.help, "Hits, per second: sum over nodes.");
        assert_eq!(family.input, Input::Tree);
    }

    /// Reduces gauges of one node that are all equal to `time`. Returns the closed tick for the
    /// store: the reduced series that are present, with their values. The gauges end.
    fn reduced_tick(
        reduction: &mut Reduction,
        groups: &mut ReducedGroups,
        texts: &[&str],
        time: Millis,
    ) -> Vec<(String, f64)> {
        let mut cells = TickCells::default();
        for text in texts {
            let (key, _) = reduction.intern(1, text, MetricKind::Gauge, "", "Help.");
            cells.add_gauge(key, time as f64);
            reduction.table.release(key, 0);
        }
        reduction.put(1, 1, time, 1, cells);
        let closed = closed_ticks(reduction, &[1]);
        reduction.reclaim(KEY_KEPT + time);
        let mut found = Vec::new();
        for row in groups.tick(&closed[0]).rows() {
            let present = (0..row.values.len()).filter(|index| row.is_present(*index));
            found.extend(present.map(|index| {
                let series = &row.members.series[index];
                (series.text().to_owned(), row.values[index])
            }));
        }
        found
    }

    #[test]
    fn what_series_are_reduced_to_is_half_of_all_series() {
        let mut reduction = Reduction::new(1000, 1600);
        let mut define = |sender: u32, count: usize| {
            let texts = (0..count).map(|number| format!("m{sender}_{number}"));
            let keys =
                texts.map(|text| reduction.intern(sender, &text, MetricKind::Counter, "", ""));
            keys.filter(|(key, _)| *key != NO_KEY).count()
        };
        assert_eq!(define(FIRST_SENDER_KEY, 1000), 50, "half of 1600 / 2 / 8");
        assert_eq!(define(FIRST_SENDER_KEY - 1, 1000), 25);
        assert_eq!(define(1, 1000), 13, "a child");
        assert_eq!(define(0, 1000), 12, "the node itself");
        let mut admits_past = |text| reduction.admits_past(text, MetricKind::Counter, "", "", 5);
        assert!(admits_past("m1_0") && !admits_past("another"));
        assert_eq!(reducible_series_max(usize::MAX), REDUCIBLE_SERIES_MAX);
        let partial = Partial::of_counter(Some(1.0), 1.0);
        assert_eq!(
            partial_values(MetricKind::Counter, &partial).count(),
            VALUES_MAX
        );
    }

    #[test]
    fn series_of_the_past_have_a_share_and_are_forgotten() {
        let mut reduction = Reduction::new(1000, 1600);
        let mut admitted = |from: usize, now| {
            let texts = (from..from + 200).map(|number| format!("past{number}"));
            let admitted = texts
                .filter(|text| reduction.admits_past(text, MetricKind::Gauge, "", "", now))
                .count();
            reduction.reclaim(now);
            admitted
        };
        assert_eq!(admitted(0, 0), 50);
        assert_eq!(admitted(0, 1), 50, "the same ones");
        assert_eq!(admitted(1000, 2), 0);
        assert_eq!(admitted(1000, KEY_KEPT + 3), 0, "they were there until now");
        assert_eq!(admitted(1000, KEY_KEPT + 4), 50);
    }

    #[test]
    fn ended_series_make_room_before_they_are_half_of_all() {
        let mut reduction = Reduction::new(1000, 200_000);
        let mut groups = ReducedGroups::new(10_000, 20);
        reduced_tick(&mut reduction, &mut groups, &["a"], 1000);
        reduced_tick(&mut reduction, &mut groups, &["b"], 2000);
        assert_eq!(groups.slots.len(), 0, "14 slots, at most 10");
        let found = reduced_tick(&mut reduction, &mut groups, &["b"], 3000);
        assert_eq!((found.len(), groups.slots.len()), (7, 7));
    }

    #[test]
    fn a_key_that_gets_another_series_gets_its_slots() {
        let mut reduction = Reduction::new(1000, 200_000);
        let mut groups = ReducedGroups::new(10_000, 200_000);
        for (time, text) in [(1000, "a"), (2000, "b"), (3000, "a"), (4000, "a")] {
            let found = reduced_tick(&mut reduction, &mut groups, &[text], time);
            assert_eq!(found.len(), 7);
            let wanted = (format!("{text}:p99"), time as f64);
            assert!(found.contains(&wanted), "{found:?}");
            assert!(found.contains(&(format!("{text}:count"), 1.0)), "{found:?}");
        }
        assert_eq!(groups.slots.len(), 14);
        assert_eq!(groups.groups[0].members().series.len(), 14);
    }

    #[test]
    fn new_series_change_only_the_newest_group_and_ended_ones_are_removed() {
        let mut reduction = Reduction::new(1000, 200_000);
        let mut groups = ReducedGroups::new(10_000, 200_000);
        let names: Vec<String> = (0..300).map(|number| format!("m{number}")).collect();
        let mut texts: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = reduced_tick(&mut reduction, &mut groups, &texts, 1000);
        assert_eq!((found.len(), groups.groups.len()), (2100, 5));
        let members = |groups: &mut ReducedGroups| -> Vec<Arc<GroupSeries>> {
            let groups = groups.groups.iter_mut();
            groups.map(|group| group.members().clone()).collect()
        };
        let before = members(&mut groups);
        texts.push("another");
        let found = reduced_tick(&mut reduction, &mut groups, &texts, 2000);
        assert_eq!(found.len(), 2107);
        let after = members(&mut groups);
        let same = before.iter().zip(&after).map(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(same.collect::<Vec<_>>(), [true, true, true, true, false]);

        // After most series ended, the former groups have a row without values.
        for time in [3000, 4000] {
            let found = reduced_tick(&mut reduction, &mut groups, &["another"], time);
            assert_eq!(found.len(), 7);
        }
        assert_eq!(groups.slots.len(), 7);
        assert_eq!(groups.tick.rows().len(), 5);
        reduced_tick(&mut reduction, &mut groups, &["another"], 5000);
        assert_eq!(groups.tick.rows().len(), 1);
    }
}
