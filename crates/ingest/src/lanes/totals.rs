//! The sums over all lanes, by series.
//!
//! A counter's total is its base (the sum of removed lanes) plus the last amount of every known
//! lane. A gauge is recomputed at each pass from the running lanes. [`super::Lanes`] adds
//! contributions during a pass; [`LaneTotals::emit`] then writes the changed values to the current
//! values and the tick. A counter never decreases, also across restarts.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, Series, Tick};

use super::amount::{CounterAmount, CounterKind};
use super::histograms::{HistogramId, Histograms};
use super::journal::JournalSeries;
use crate::admission::{Admission, AdmissionError, AdmittedSeries, SeriesPermit};
use crate::current_values::{CurrentValues, ValueSlot};
use crate::reserved_names::{LANE_TYPE_LABEL, USER_LABEL};
use crate::senders::{SAMPLE_BYTES, Sender};
use crate::slab::Slab;

pub(super) use super::total_spec::{Aggregation, TotalKind, TotalSeriesSpec};

/// The index of a series in [`LaneTotals`], and its number in the journal.
pub(super) type TotalId = u32;

#[derive(Debug)]
struct TotalSeries {
    series: Arc<Series>,
    slot: ValueSlot,
    pass: SeriesPermit,
    /// The sender whose lanes contribute: lanes of different users are not summed. `None` until a
    /// lane joins.
    user: Option<Arc<Sender>>,
    role: TotalKind,
    /// For a bucket.
    histogram: Option<HistogramId>,
    is_touched: bool,
    /// The sum of removed lanes.
    base: CounterAmount,
    total: CounterAmount,
    /// The total published by the previous agent: it was counted, even if its journal was lost.
    restored: Option<f64>,
    /// For a gauge: the value of this pass so far, and when it was set.
    gauge: Option<(f64, i64)>,
    /// The number of known lanes that contribute.
    lanes: u32,
    changed: Millis,
    is_in_journal: bool,
}

#[derive(Debug)]
pub(super) struct LaneTotals {
    admission: Arc<Admission>,
    values: CurrentValues,
    series: Slab<TotalSeries>,
    by_text: HashMap<Box<str>, TotalId>,
    /// Counters that may have changed since the last pass: only these are checked.
    touched: Vec<TotalId>,
    /// Recomputed at every pass.
    gauges: BTreeSet<TotalId>,
    histograms: Histograms,
    is_first_pass: bool,
}

impl LaneTotals {
    pub(super) fn new(admission: Arc<Admission>, values: CurrentValues) -> LaneTotals {
        LaneTotals {
            admission,
            values,
            series: Slab::default(),
            by_text: HashMap::new(),
            touched: Vec::new(),
            gauges: BTreeSet::new(),
            histograms: Histograms::default(),
            is_first_pass: true,
        }
    }

    /// Adds a lane to the series that it declares. A name in use by another kind of series, or by
    /// another user's where a rule removes the label `user`, gets the label `lane_type`. If a rule
    /// sets that label, so that the names still collide, the series is refused, and the first one
    /// keeps the name.
    pub(super) fn join_lane(
        &mut self,
        sender: &Arc<Sender>,
        wanted: &TotalSeriesSpec<'_>,
        now: Millis,
    ) -> Result<TotalId, AdmissionError> {
        let lane_type = (LANE_TYPE_LABEL, wanted.role.lane_type());
        let user = wanted.user.map(|user| (USER_LABEL, user));
        let identity: Vec<_> = [lane_type].into_iter().chain(user).collect();
        for identity in [&identity[1..], &identity] {
            let offer = wanted.series_spec(identity);
            let series = self.admission.resolve_series(&offer)?;
            let number = match self.by_text.get(series.text()).copied() {
                Some(number) if self.series[number].accepts(wanted.role, sender) => number,
                Some(_) => continue,
                None => {
                    let AdmittedSeries {
                        series,
                        permit: pass,
                        ..
                    } = self.admission.admit(sender, &offer)?;
                    self.add((series, pass), wanted.role, now)
                }
            };
            let entry = &mut self.series[number];
            entry.lanes += 1;
            entry.user.get_or_insert_with(|| sender.clone());
            return Ok(number);
        }
        Err(AdmissionError::OtherKind)
    }

    /// Adds a counter from the journal, charged to the sender of its label `user`. Its base is set
    /// later.
    pub(super) fn restore(
        &mut self,
        sender_of: &mut dyn FnMut(Option<&str>) -> Arc<Sender>,
        kept: &JournalSeries,
        now: Millis,
    ) -> Result<TotalId, AdmissionError> {
        let family = Family {
            name: Cow::Borrowed(""),
            kind: MetricKind::Counter,
            help: Cow::Owned(kept.help.clone()),
            unit: Cow::Borrowed(""),
            level: kept.level,
            input: Input::Lane,
        };
        let series = Series::parse(&kept.text, |_| Arc::new(family))?;
        self.admission.check_reserved(series.name())?;
        let user = series.labels().find(|(key, _)| *key == USER_LABEL);
        let sender = sender_of(user.as_ref().map(|(_, user)| &**user));
        let pass = self.admission.permit_restored(&sender, &series)?;
        Ok(self.add((Arc::new(series), pass), TotalKind::Counter(kept.kind), now))
    }

    fn add(
        &mut self,
        (series, pass): (Arc<Series>, SeriesPermit),
        role: TotalKind,
        now: Millis,
    ) -> TotalId {
        let (place, before) = self.values.add(series.clone(), None);
        let zero = match role {
            TotalKind::Counter(kind) => CounterAmount::zero(kind),
            TotalKind::Gauge(_) => CounterAmount::Float(0.0),
        };
        let mut entry = TotalSeries {
            series: series.clone(),
            slot: place,
            pass,
            user: None,
            role,
            histogram: None,
            is_touched: false,
            base: zero,
            total: zero,
            restored: before,
            gauge: None,
            lanes: 0,
            changed: now,
            is_in_journal: false,
        };
        if !self.is_first_pass {
            // Every lane that existed before has been read: the rest of the published total comes
            // from removed lanes.
            entry.apply_restored();
        }
        let number = self.series.add(entry);
        self.by_text.insert(series.text().into(), number);
        match role {
            TotalKind::Counter(CounterKind::Bucket) => {
                self.series[number].histogram = Some(self.histograms.add(&series, number));
            }
            TotalKind::Counter(_) => {}
            TotalKind::Gauge(_) => {
                self.gauges.insert(number);
            }
        }
        self.touch(number);
        number
    }

    /// Counts one known lane less.
    pub(super) fn remove_lane(&mut self, number: TotalId) {
        let entry = &mut self.series[number];
        entry.lanes = entry.lanes.saturating_sub(1);
        if entry.lanes == 0 && matches!(entry.role, TotalKind::Gauge(_)) {
            self.remove(number);
        }
    }

    /// Adds the increase of a lane.
    pub(super) fn add_amount(&mut self, number: TotalId, by: CounterAmount, now: Millis) {
        let entry = &mut self.series[number];
        entry.total = entry.total.plus(by);
        entry.changed = now;
        self.touch(number);
    }

    /// Subtracts what an agent with another journal has counted from what was just added. Nothing
    /// of it was published.
    pub(super) fn subtract_amount(&mut self, number: TotalId, by: CounterAmount) {
        let entry = &mut self.series[number];
        entry.total = entry.total.minus(by);
    }

    /// Marks a counter for the next pass.
    fn touch(&mut self, number: TotalId) {
        let entry = &mut self.series[number];
        if let Some(id) = entry.histogram {
            self.histograms.touch(id);
        } else if !std::mem::replace(&mut entry.is_touched, true) {
            self.touched.push(number);
        }
    }

    /// Keeps the contribution of a removed lane.
    pub(super) fn add_to_base(&mut self, number: TotalId, amount: CounterAmount) {
        let entry = &mut self.series[number];
        entry.base = entry.base.plus(amount);
    }

    /// Sets a base from the journal.
    pub(super) fn set_base(&mut self, number: TotalId, base: CounterAmount) {
        let entry = &mut self.series[number];
        entry.base = base;
        entry.total = entry.total.plus(base);
        self.touch(number);
    }

    /// Adds the value of a gauge in one running lane.
    pub(super) fn update_gauge(&mut self, number: TotalId, value: f64, set_ms: i64) {
        let entry = &mut self.series[number];
        let TotalKind::Gauge(aggregation) = entry.role else {
            return;
        };
        entry.gauge = Some(match (entry.gauge, aggregation) {
            (None, _) => (value, set_ms),
            (Some((known, at)), Aggregation::Last) if set_ms < at => (known, at),
            (Some(_), Aggregation::Last) => (value, set_ms),
            (Some((known, at)), Aggregation::Min) => (known.min(value), at),
            (Some((known, at)), Aggregation::Max) => (known.max(value), at),
            (Some((known, at)), Aggregation::Sum) => (known + value, at),
        });
    }

    /// Ends a pass: writes changed values to the current values, and changed rows to the tick.
    /// Values beyond the sender's write allowance are retried in the next pass.
    pub(super) fn emit(&mut self, tick: &mut Tick) {
        self.emit_counters();
        self.emit_gauges();
        self.emit_histograms();
        self.values.emit(tick);
    }

    fn emit_counters(&mut self) {
        for number in std::mem::take(&mut self.touched) {
            // It may have been removed since.
            let Some(entry) = self.series.get_mut(number) else {
                continue;
            };
            entry.is_touched = false;
            if self.is_first_pass {
                entry.apply_restored();
            }
            if !matches!(entry.role, TotalKind::Counter(_)) {
                continue;
            }
            if entry.may_write(1) {
                self.values.set(entry.slot, entry.total.value());
            } else {
                entry.is_touched = true;
                self.touched.push(number);
            }
        }
        self.is_first_pass = false;
    }

    fn emit_gauges(&mut self) {
        for &number in &self.gauges {
            let Some(entry) = self.series.get_mut(number) else {
                continue;
            };
            match entry.gauge.take() {
                Some((value, _)) if value.is_finite() => {
                    if !self.values.has_value(entry.slot, value) && entry.may_write(1) {
                        self.values.set(entry.slot, value);
                    }
                }
                _ => self.values.clear(entry.slot),
            }
        }
    }

    /// Writes all buckets of a histogram together: they are cumulative.
    fn emit_histograms(&mut self) {
        let mut delayed = Vec::new();
        for buckets in self.histograms.take_changed() {
            let buckets: Vec<TotalId> = buckets.collect();
            let entries = &self.series;
            let entry = |number: &TotalId| entries.get(*number);
            let first = buckets.iter().find_map(entry);
            if first.is_some_and(|first| !first.may_write(buckets.len() as u64)) {
                delayed.extend(first.and_then(|first| first.histogram));
                continue;
            }
            let mut cumulated = CounterAmount::Whole(0);
            for entry in buckets.iter().filter_map(entry) {
                cumulated = cumulated.plus(entry.total);
                self.values.set(entry.slot, cumulated.value());
            }
        }
        for id in delayed {
            self.histograms.touch(id);
        }
    }

    /// Removes counters to which no lane contributes and that did not change since `before`.
    pub(super) fn expire(&mut self, before: Millis) -> usize {
        let is_old = |entry: &TotalSeries| entry.lanes == 0 && entry.changed < before;
        let old: Vec<TotalId> = (0..self.series.end())
            .filter(|at| self.series.get(*at).is_some_and(is_old))
            .collect();
        for &number in &old {
            self.remove(number);
        }
        old.len()
    }

    fn remove(&mut self, number: TotalId) {
        let Some(entry) = self.series.remove(number) else {
            return;
        };
        self.values.remove(entry.slot);
        self.by_text.remove(entry.series.text());
        self.gauges.remove(&number);
        if let Some(id) = entry.histogram {
            self.histograms.remove(id, &entry.series);
        }
    }

    /// Returns a counter that is not in the journal yet, and marks it as recorded.
    pub(super) fn take_unjournaled(&mut self, number: TotalId) -> Option<JournalSeries> {
        let entry = &mut self.series[number];
        let TotalKind::Counter(_) = entry.role else {
            return None;
        };
        let is_new = !std::mem::replace(&mut entry.is_in_journal, true);
        is_new.then(|| entry.journal_series())?
    }

    /// Returns all counters with their bases, for a rewrite of the journal.
    pub(super) fn counters(
        &mut self,
    ) -> impl Iterator<Item = (TotalId, JournalSeries, CounterAmount)> + '_ {
        self.series.iter_mut().filter_map(|(number, entry)| {
            let kept = entry.journal_series()?;
            entry.is_in_journal = true;
            Some((number, kept, entry.base))
        })
    }
}

impl TotalSeries {
    /// Returns whether lanes of this sender may contribute as this kind of series.
    fn accepts(&self, role: TotalKind, sender: &Arc<Sender>) -> bool {
        let is_same = |user: &Arc<Sender>| Arc::ptr_eq(user, sender);
        self.role.is_compatible(role) && self.user.as_ref().is_none_or(is_same)
    }

    /// Charges the sender for this many samples. Returns false if it may not write them now.
    fn may_write(&self, samples: u64) -> bool {
        let sender = self.pass.sender();
        let may_write = sender.try_charge(samples * SAMPLE_BYTES);
        if !may_write {
            sender.add_delayed(samples);
        }
        may_write
    }

    fn apply_restored(&mut self) {
        let TotalKind::Counter(kind) = self.role else {
            return;
        };
        let Some(before) = self.restored.take() else {
            return;
        };
        if before <= self.total.value() {
            return;
        }
        let before = match kind {
            // Published cumulatively: the bucket's own count is not known.
            CounterKind::Bucket => return,
            CounterKind::Whole => CounterAmount::Whole(before as u64),
            CounterKind::Float => CounterAmount::Float(before),
        };
        let missing = before.minus(self.total);
        self.base = self.base.plus(missing);
        self.total = self.total.plus(missing);
    }

    fn journal_series(&self) -> Option<JournalSeries> {
        let TotalKind::Counter(kind) = self.role else {
            return None;
        };
        let family = self.series.family();
        Some(JournalSeries {
            text: self.series.text().to_owned(),
            help: family.help.to_string(),
            kind,
            level: family.level,
        })
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::Ledger;
    use pegel_store::{Store, StoreOptions};
    use pegel_testkit::TempDir;

    use super::*;
    use crate::admission::AdmissionSettings;

    fn wanted<'a>(
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
        kind: CounterKind,
    ) -> TotalSeriesSpec<'a> {
        TotalSeriesSpec {
            name,
            labels,
            user: None,
            help: "",
            level: 1,
            role: TotalKind::Counter(kind),
        }
    }

    fn values(totals: &mut LaneTotals, time: Millis) -> BTreeSet<String> {
        let mut tick = Tick::new(Input::Programs);
        tick.reset(time);
        totals.emit(&mut tick);
        let mut values = BTreeSet::new();
        for row in tick.rows() {
            for (index, series) in row.members.series.iter().enumerate() {
                if row.is_present(index) {
                    values.insert(format!("{series} {}", row.values[index]));
                }
            }
        }
        values
    }

    fn new_totals() -> (TempDir, LaneTotals, Arc<Sender>) {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.path())).expect("opens");
        let settings = AdmissionSettings::for_tests();
        let admission = Arc::new(Admission::new(settings, Arc::new(Ledger::default())));
        let sender = admission.sender(Input::Lane, "uid 1");
        let totals = LaneTotals::new(admission, CurrentValues::new("lanes", &store, 0));
        (dir, totals, sender)
    }

    #[test]
    fn a_pass_looks_only_at_what_changed() {
        let (_dir, mut totals, sender) = new_totals();
        let mut join = |name: &str, labels: &[(&str, &str)], kind| {
            let number = totals.join_lane(&sender, &wanted(name, labels, kind), 0);
            number.expect("admitted")
        };
        let steps = join("steps_total", &[], CounterKind::Whole);
        join("idle_total", &[], CounterKind::Whole);
        let low = join("size_bucket", &[("le", "1")], CounterKind::Bucket);
        join("size_bucket", &[("le", "2")], CounterKind::Bucket);
        let all = values(&mut totals, 1000);
        let expected = [
            "idle_total 0",
            "size_bucket{le=\"1\"} 0",
            "size_bucket{le=\"2\"} 0",
            "steps_total 0",
        ];
        assert!(all.iter().eq(expected), "{all:?}");
        assert!(totals.touched.is_empty());
        totals.add_amount(steps, CounterAmount::Whole(2), 1000);
        totals.add_amount(steps, CounterAmount::Whole(3), 1000);
        assert_eq!(totals.touched, [steps]);
        totals.add_amount(low, CounterAmount::Whole(4), 1000);
        assert_eq!(
            totals.touched,
            [steps],
            "a bucket is emitted with its histogram"
        );
        let all = values(&mut totals, 2000);
        let expected = [
            "idle_total 0",
            "size_bucket{le=\"1\"} 4",
            "size_bucket{le=\"2\"} 4",
            "steps_total 5",
        ];
        assert!(all.iter().eq(expected), "{all:?}");
        assert!(values(&mut totals, 3000).is_empty(), "nothing changed");
    }
}
