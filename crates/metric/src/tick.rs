//! The containers in which samples travel from the inputs to the store.
//!
//! Collectors write into a [`SampleGroup`]; at each nominal time the groups are copied into a
//! [`Tick`], which goes to the store. Groups that are read at other times go into other ticks.
//! Samples of programs travel as single [`Point`]s. The list of series of a group ([`GroupSeries`])
//! is immutable and shared, so that the store resolves each version once and afterwards only
//! compares pointers. Filling a group and copying it into a tick allocates nothing unless series
//! were declared.

use std::sync::Arc;

use crate::{Family, Input, Level, Millis, Series, SeriesError, unprintable};

/// A single sample with its own time.
#[derive(Debug, Clone)]
pub struct Point {
    pub series: Arc<Series>,
    pub time: Millis,
    pub value: f64,
}

/// The series of a group, in the order of their slots. Immutable: a change creates a new version,
/// so that the store resolves each version once and compares pointers afterwards.
#[derive(Debug)]
pub struct GroupSeries {
    /// The group's name, unique among all groups: the name of its collector.
    pub group: Arc<str>,
    pub series: Vec<Arc<Series>>,
    /// How long the last row stays current if no other follows, in milliseconds.
    pub stale_after: Millis,
}

/// The index of one series in a [`SampleGroup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// The slot of a series above the agent's level: values set there are discarded.
    const DISCARD: Slot = Slot(u32::MAX);
}

/// The series of a collector, declared once, and their current values.
///
/// Values and presence bits are parallel arrays indexed by slot, so that a pass only writes
/// numbers. A series whose slot is not set in a pass is absent from that tick.
#[derive(Debug)]
pub struct SampleGroup {
    level: Level,
    members: Arc<GroupSeries>,
    /// The next list of series, if series were declared since `members` was created.
    next_series: Option<Vec<Arc<Series>>>,
    free: Vec<Slot>,
    values: Vec<f64>,
    present: Vec<u64>,
}

impl SampleGroup {
    /// Creates a group that keeps families up to `level`; values of the others are discarded.
    pub fn new(name: &str, level: Level, stale_after: Millis) -> SampleGroup {
        SampleGroup {
            level,
            members: Arc::new(GroupSeries {
                group: name.into(),
                series: Vec::new(),
                stale_after,
            }),
            next_series: None,
            free: Vec::new(),
            values: Vec::new(),
            present: Vec::new(),
        }
    }

    /// Returns whether families of this level are kept, so that a collector can skip expensive
    /// reads.
    pub fn keeps_level(&self, level: Level) -> bool {
        level <= self.level
    }

    /// Allocates a slot for a new series. Call it once per series, not once per tick. Control and
    /// invisible characters in values of labels are escaped: some values, such as names of
    /// processes, are chosen by any user.
    pub fn declare(
        &mut self,
        family: &Arc<Family>,
        labels: &[(&str, &str)],
    ) -> Result<Slot, SeriesError> {
        if family.level > self.level {
            return Ok(Slot::DISCARD);
        }
        let labels = unprintable::escape_values(labels);
        let labels: Vec<(&str, &str)> =
            labels.iter().map(|(key, value)| (*key, &**value)).collect();
        Ok(self.add(Arc::new(Series::new(family.clone(), &labels)?)))
    }

    /// Like [`declare`](SampleGroup::declare), for an existing series whose level was already
    /// checked.
    pub fn add(&mut self, series: Arc<Series>) -> Slot {
        let next = self
            .next_series
            .get_or_insert_with(|| self.members.series.clone());
        // A series that returns gets its old slot: the list must not contain it twice.
        let returns = |slot: &Slot| next[slot.0 as usize] == series;
        let free = match self.free.iter().position(returns) {
            Some(at) => Some(self.free.swap_remove(at)),
            None => self.free.pop(),
        };
        if let Some(slot) = free {
            next[slot.0 as usize] = series;
            return slot;
        }
        let slot = Slot(u32::try_from(next.len()).expect("a group has fewer than 2^32 series"));
        next.push(series);
        self.values.push(0.0);
        self.present.resize(next.len().div_ceil(64), 0);
        slot
    }

    /// Marks the series as absent from the current pass.
    pub fn unset(&mut self, slot: Slot) {
        let at = slot.0 as usize;
        if let Some(word) = self.present.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Returns the value that was last set, unless it was cleared.
    pub fn get(&self, slot: Slot) -> Option<f64> {
        let at = slot.0 as usize;
        let is_set = self.present.get(at / 64)? >> (at % 64) & 1 == 1;
        is_set.then(|| self.values[at])
    }

    /// Returns the number of slots in use.
    pub fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees the slot of a device that no longer exists. A later `declare` reuses it.
    pub fn retire(&mut self, slot: Slot) {
        if slot != Slot::DISCARD {
            self.unset(slot);
            self.free.push(slot);
        }
    }

    #[inline]
    pub fn set(&mut self, slot: Slot, value: f64) {
        let at = slot.0 as usize;
        if let Some(place) = self.values.get_mut(at) {
            *place = value;
            self.present[at / 64] |= 1 << (at % 64);
        }
    }

    /// Clears the values of the last pass and keeps the series.
    pub fn clear(&mut self) {
        self.present.fill(0);
    }

    /// Returns the current members; the same pointer as long as no series was declared.
    pub fn members(&mut self) -> &Arc<GroupSeries> {
        if let Some(series) = self.next_series.take() {
            self.members = Arc::new(GroupSeries {
                group: self.members.group.clone(),
                series,
                stale_after: self.members.stale_after,
            });
        }
        &self.members
    }

    /// Copies the current values into a tick.
    pub fn append_to(&mut self, tick: &mut Tick) {
        let members = self.members().clone();
        let row = tick.next_row(members);
        row.values.extend_from_slice(&self.values);
        row.present.extend_from_slice(&self.present);
    }
}

/// The values of one group at one time.
#[derive(Debug)]
pub struct GroupRow {
    pub members: Arc<GroupSeries>,
    /// One value for each member; the values of absent members are unspecified.
    pub values: Vec<f64>,
    /// One bit for each member, 64 to a word, lowest first.
    pub present: Vec<u64>,
}

impl GroupRow {
    pub fn is_present(&self, index: usize) -> bool {
        self.present
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub fn present_count(&self) -> u64 {
        self.present
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }
}

/// Rows of one or more groups, all with one time. Its buffers are reused from tick to tick.
#[derive(Debug)]
pub struct Tick {
    pub input: Input,
    pub time: Millis,
    rows: Vec<GroupRow>,
    used: usize,
}

impl Tick {
    pub fn new(input: Input) -> Tick {
        Tick {
            input,
            time: 0,
            rows: Vec::new(),
            used: 0,
        }
    }

    /// Empties the tick and keeps its buffers.
    pub fn reset(&mut self, time: Millis) {
        self.time = time;
        self.used = 0;
    }

    pub fn rows(&self) -> &[GroupRow] {
        &self.rows[..self.used]
    }

    pub fn sample_count(&self) -> u64 {
        self.rows().iter().map(GroupRow::present_count).sum()
    }

    /// Copies an existing row. All its values are marked absent unless they are `current`. Returns
    /// the number of present values.
    pub fn append_row(&mut self, row: &GroupRow, current: bool) -> u64 {
        let copy = self.next_row(row.members.clone());
        copy.values.extend_from_slice(&row.values);
        copy.present.extend_from_slice(&row.present);
        if !current {
            copy.present.fill(0);
        }
        copy.present_count()
    }

    /// Appends a row without values: all series of the group are absent.
    pub fn append_empty(&mut self, members: Arc<GroupSeries>) {
        let row = self.next_row(members);
        row.values.resize(row.members.series.len(), 0.0);
        row.present.resize(row.values.len().div_ceil(64), 0);
    }

    fn next_row(&mut self, members: Arc<GroupSeries>) -> &mut GroupRow {
        if self.used == self.rows.len() {
            self.rows.push(GroupRow {
                members,
                values: Vec::new(),
                present: Vec::new(),
            });
        } else {
            self.rows[self.used].members = members;
        }
        let row = &mut self.rows[self.used];
        row.values.clear();
        row.present.clear();
        self.used += 1;
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricKind;

    static LOAD: Family = Family::new("load", MetricKind::Gauge, "", 2, "Load.");

    #[test]
    fn members_change_only_when_series_do() {
        let family = Arc::new(LOAD.clone());
        let mut group = SampleGroup::new("load", 3, 1000);
        let a = group.declare(&family, &[("d", "a")]).expect("valid");
        let b = group.declare(&family, &[("d", "b")]).expect("valid");
        let first = group.members().clone();
        group.set(a, 1.0);
        let mut tick = Tick::new(Input::Collect);
        tick.reset(5);
        group.append_to(&mut tick);
        assert!(Arc::ptr_eq(&tick.rows()[0].members, &first));
        assert_eq!(
            (tick.rows()[0].is_present(0), tick.rows()[0].is_present(1)),
            (true, false)
        );

        group.clear();
        group.retire(b);
        let c = group.declare(&family, &[("d", "c")]).expect("valid");
        assert_eq!(c, b, "a retired slot is used again");
        let texts: Vec<&str> = group.members().series.iter().map(|s| s.text()).collect();
        assert_eq!(texts, ["load{d=\"a\"}", "load{d=\"c\"}"]);
        assert_eq!(
            first.series[1].text(),
            "load{d=\"b\"}",
            "the old version is untouched"
        );
    }

    #[test]
    fn labels_of_the_node_bring_no_control_characters_to_terminals() {
        let mut group = SampleGroup::new("load", 3, 1000);
        let labels = [("comm", "\u{1b}[31m\u{202e}x")];
        let declared = group.declare(&Arc::new(LOAD.clone()), &labels);
        declared.expect("valid");
        let text = group.members().series[0].text().to_owned();
        assert_eq!(text, r#"load{comm="\\u{1b}[31m\\u{202e}x"}"#);
    }

    #[test]
    fn a_series_that_comes_back_stands_in_the_list_once() {
        let family = Arc::new(LOAD.clone());
        let mut group = SampleGroup::new("load", 3, 1000);
        let [a, b] = ["a", "b"].map(|d| group.declare(&family, &[("d", d)]).expect("valid"));
        group.retire(a);
        group.retire(b);
        assert_eq!(group.declare(&family, &[("d", "a")]), Ok(a));
        let texts: Vec<&str> = group.members().series.iter().map(|s| s.text()).collect();
        assert_eq!(texts, ["load{d=\"a\"}", "load{d=\"b\"}"]);
    }

    #[test]
    fn a_copied_row_has_its_values_only_while_they_are_current() {
        let mut group = SampleGroup::new("load", 3, 1000);
        let slot = group.declare(&Arc::new(LOAD.clone()), &[]).expect("valid");
        group.set(slot, 7.0);
        let (mut from, mut to) = (Tick::new(Input::Collect), Tick::new(Input::Collect));
        from.reset(1);
        group.append_to(&mut from);
        for (current, count) in [(true, 1), (false, 0), (true, 1)] {
            to.reset(2);
            assert_eq!(to.append_row(&from.rows()[0], current), count);
            assert_eq!(to.rows()[0].is_present(0), current);
            assert_eq!(to.rows()[0].values, [7.0]);
            assert!(Arc::ptr_eq(&to.rows()[0].members, group.members()));
        }
    }

    #[test]
    fn what_is_above_the_level_goes_nowhere() {
        let mut group = SampleGroup::new("load", 1, 1000);
        let slot = group.declare(&Arc::new(LOAD.clone()), &[]).expect("valid");
        group.set(slot, 1.0);
        group.retire(slot);
        assert!(group.members().series.is_empty());
    }
}
