//! What all lanes amount to, series by series.
//!
//! A counter's total is what lanes that are gone left (its base) plus the last amount of every lane that is
//! known. A gauge is made anew at each pass from the lanes that are alive.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pegel_metric::{Family, Input, Kind, Millis, Series, Tick};

use super::amount::{Amount, CounterKind};
use super::histograms::{HistogramId, Histograms};
use super::journal::KeptSeries;
use crate::board::{Board, Place};
use crate::gate::{Admitted, Gate, Pass, Refusal};
use crate::reserved::{LANE_TYPE_LABEL, USER_LABEL};
use crate::senders::{SAMPLE_BYTES, Sender};

pub use super::wanted::{Aggregation, Role, Wanted};

/// The place of a series in [`Totals`], and its number in the journal.
pub type Number = u32;

#[derive(Debug)]
struct Entry {
    series: Arc<Series>,
    place: Place,
    pass: Pass,
    /// The sender whose lanes contribute: lanes of different users do not add up. `None` until a lane joins.
    user: Option<Arc<Sender>>,
    role: Role,
    /// For a bucket.
    histogram: Option<HistogramId>,
    is_touched: bool,
    /// What lanes that are gone left.
    base: Amount,
    total: Amount,
    /// Published by the agent before this one: what was published was counted, even if the journal of it
    /// was lost.
    before: Option<f64>,
    /// For a gauge: the value of this pass so far, and when it was set.
    gauge: Option<(f64, i64)>,
    /// How many known lanes contribute.
    lanes: u32,
    changed: Millis,
    is_in_journal: bool,
}

#[derive(Debug)]
pub struct Totals {
    gate: Arc<Gate>,
    board: Board,
    entries: Vec<Option<Entry>>,
    free: Vec<Number>,
    by_text: HashMap<Box<str>, Number>,
    /// Counters that may have changed since the last pass: only those are looked at.
    touched: Vec<Number>,
    /// Every pass makes them anew.
    gauges: BTreeSet<Number>,
    histograms: Histograms,
    is_first_pass: bool,
}

impl Totals {
    pub fn new(gate: Arc<Gate>, board: Board) -> Totals {
        Totals {
            gate,
            board,
            entries: Vec::new(),
            free: Vec::new(),
            by_text: HashMap::new(),
            touched: Vec::new(),
            gauges: BTreeSet::new(),
            histograms: Histograms::default(),
            is_first_pass: true,
        }
    }

    /// Adds a lane to the series that it declares. A name in use by another kind of series, or by another user's where a
    /// rule removes the label `user`, gets the label `lane_type`. If a rule sets that label, so that the names still collide,
    /// the series is refused, and the first one keeps the name.
    pub fn join(
        &mut self,
        sender: &Arc<Sender>,
        wanted: &Wanted<'_>,
        now: Millis,
    ) -> Result<Number, Refusal> {
        let lane_type = (LANE_TYPE_LABEL, wanted.role.name());
        let user = wanted.user.map(|user| (USER_LABEL, user));
        let identity: Vec<_> = [lane_type].into_iter().chain(user).collect();
        for identity in [&identity[1..], &identity] {
            let offer = wanted.offer(identity);
            let series = self.gate.name(&offer)?;
            let number = match self.by_text.get(series.text()).copied() {
                Some(number) if self.entry(number).fits(wanted.role, sender) => number,
                Some(_) => continue,
                None => {
                    let Admitted { series, pass, .. } = self.gate.admit(sender, &offer)?;
                    self.add((series, pass), wanted.role, now)
                }
            };
            let entry = self.entry_mut(number);
            entry.lanes += 1;
            entry.user.get_or_insert_with(|| sender.clone());
            return Ok(number);
        }
        Err(Refusal::OtherKind)
    }

    /// Adds a counter from the journal, of the agent's user or of another. Its base is set later.
    pub fn restore(
        &mut self,
        own: &Arc<Sender>,
        others: &Arc<Sender>,
        kept: &KeptSeries,
        now: Millis,
    ) -> Result<Number, Refusal> {
        let family = Family {
            name: Cow::Borrowed(""),
            kind: Kind::Counter,
            help: Cow::Owned(kept.help.clone()),
            unit: Cow::Borrowed(""),
            level: kept.level,
            input: Input::Lane,
        };
        let series = Series::parse(&kept.text, |_| Arc::new(family))?;
        self.gate.check_reserved(series.name())?;
        let sender = match series.labels().any(|(key, _)| key == USER_LABEL) {
            true => others,
            false => own,
        };
        let pass = self.gate.pass(sender, &series)?;
        Ok(self.add((Arc::new(series), pass), Role::Counter(kept.kind), now))
    }

    fn add(&mut self, (series, pass): (Arc<Series>, Pass), role: Role, now: Millis) -> Number {
        let (place, before) = self.board.add(series.clone());
        let zero = match role {
            Role::Counter(kind) => Amount::zero(kind),
            Role::Gauge(_) => Amount::Float(0.0),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as Number
        });
        self.by_text.insert(series.text().into(), number);
        let histogram = match role {
            Role::Counter(CounterKind::Bucket) => Some(self.histograms.add(&series, number)),
            Role::Counter(_) => None,
            Role::Gauge(_) => {
                self.gauges.insert(number);
                None
            }
        };
        let mut entry = Entry {
            series,
            place,
            pass,
            user: None,
            role,
            histogram,
            is_touched: false,
            base: zero,
            total: zero,
            before,
            gauge: None,
            lanes: 0,
            changed: now,
            is_in_journal: false,
        };
        if !self.is_first_pass {
            // Every lane that was there before has been read: what was published and is not known is
            // what lanes left that are gone.
            entry.lift();
        }
        self.entries[number as usize] = Some(entry);
        self.touch(number);
        number
    }

    /// One known lane less.
    pub fn leave(&mut self, number: Number) {
        let entry = self.entry_mut(number);
        entry.lanes = entry.lanes.saturating_sub(1);
        if entry.lanes == 0 && matches!(entry.role, Role::Gauge(_)) {
            self.remove(number);
        }
    }

    /// A lane counted this much more.
    pub fn raise(&mut self, number: Number, by: Amount, now: Millis) {
        let entry = self.entry_mut(number);
        entry.total = entry.total.plus(by);
        entry.changed = now;
        self.touch(number);
    }

    /// Subtracts what an agent with another journal has counted from what was just added. Nothing of it was published.
    pub fn lower(&mut self, number: Number, by: Amount) {
        let entry = self.entry_mut(number);
        entry.total = entry.total.minus(by);
    }

    /// The next pass looks at it.
    fn touch(&mut self, number: Number) {
        let entry = self.entry_mut(number);
        if let Some(id) = entry.histogram {
            self.histograms.touch(id);
        } else if !std::mem::replace(&mut entry.is_touched, true) {
            self.touched.push(number);
        }
    }

    /// What a lane that is gone had contributed is kept without it.
    pub fn keep(&mut self, number: Number, amount: Amount) {
        let entry = self.entry_mut(number);
        entry.base = entry.base.plus(amount);
    }

    /// A base out of the journal.
    pub fn set_base(&mut self, number: Number, base: Amount) {
        let entry = self.entry_mut(number);
        entry.base = base;
        entry.total = entry.total.plus(base);
        self.touch(number);
    }

    /// The value of a gauge in one lane that is alive.
    pub fn gauge(&mut self, number: Number, value: f64, set_ms: i64) {
        let entry = self.entry_mut(number);
        let Role::Gauge(aggregation) = entry.role else {
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

    /// Ends a pass: writes changed values to the board, and changed rows to the tick. Values that exceed what a sender may
    /// write are retried in the next pass.
    pub fn emit(&mut self, tick: &mut Tick) {
        self.emit_counters();
        self.emit_gauges();
        self.emit_histograms();
        self.board.emit(tick);
    }

    fn emit_counters(&mut self) {
        for number in std::mem::take(&mut self.touched) {
            // It may be gone since.
            let Some(entry) = &mut self.entries[number as usize] else {
                continue;
            };
            entry.is_touched = false;
            if self.is_first_pass {
                entry.lift();
            }
            if !matches!(entry.role, Role::Counter(_)) {
                continue;
            }
            if entry.may_write(1) {
                self.board.set(entry.place, entry.total.value());
            } else {
                entry.is_touched = true;
                self.touched.push(number);
            }
        }
        self.is_first_pass = false;
    }

    fn emit_gauges(&mut self) {
        for &number in &self.gauges {
            let Some(entry) = &mut self.entries[number as usize] else {
                continue;
            };
            match entry.gauge.take() {
                Some((value, _)) if value.is_finite() => {
                    if !self.board.has(entry.place, value) && entry.may_write(1) {
                        self.board.set(entry.place, value);
                    }
                }
                _ => self.board.clear(entry.place),
            }
        }
    }

    /// Writes all buckets of a histogram together: they are cumulative.
    fn emit_histograms(&mut self) {
        let mut delayed = Vec::new();
        for buckets in self.histograms.take_changed() {
            let buckets: Vec<Number> = buckets.collect();
            let entries = &self.entries;
            let entry = |number: &Number| entries[*number as usize].as_ref();
            let first = buckets.iter().find_map(entry);
            if first.is_some_and(|first| !first.may_write(buckets.len() as u64)) {
                delayed.extend(first.and_then(|first| first.histogram));
                continue;
            }
            let mut cumulated = Amount::Whole(0);
            for entry in buckets.iter().filter_map(entry) {
                cumulated = cumulated.plus(entry.total);
                self.board.set(entry.place, cumulated.value());
            }
        }
        for id in delayed {
            self.histograms.touch(id);
        }
    }

    /// Forgets counters to which no lane contributes and that did not change since `before`.
    pub fn expire(&mut self, before: Millis) -> usize {
        let is_old = |entry: &Entry| entry.lanes == 0 && entry.changed < before;
        let old: Vec<Number> = (0..self.entries.len())
            .filter(|at| self.entries[*at].as_ref().is_some_and(is_old))
            .map(|at| at as Number)
            .collect();
        for &number in &old {
            self.remove(number);
        }
        old.len()
    }

    fn remove(&mut self, number: Number) {
        let Some(entry) = self.entries[number as usize].take() else {
            return;
        };
        self.board.remove(entry.place);
        self.by_text.remove(entry.series.text());
        self.free.push(number);
        self.gauges.remove(&number);
        if let Some(id) = entry.histogram {
            self.histograms.remove(id, &entry.series);
        }
    }

    /// A counter that the journal does not know yet; it is taken to know it from now on.
    pub fn introduce(&mut self, number: Number) -> Option<KeptSeries> {
        let entry = self.entry_mut(number);
        let Role::Counter(_) = entry.role else {
            return None;
        };
        let is_new = !std::mem::replace(&mut entry.is_in_journal, true);
        is_new.then(|| entry.kept())?
    }

    /// All counters with their bases, for a journal that is written anew.
    pub fn counters(&mut self) -> impl Iterator<Item = (Number, KeptSeries, Amount)> + '_ {
        let entries = self.entries.iter_mut().enumerate();
        entries.filter_map(|(number, entry)| {
            let entry = entry.as_mut()?;
            let kept = entry.kept()?;
            entry.is_in_journal = true;
            Some((number as Number, kept, entry.base))
        })
    }

    fn entry(&self, number: Number) -> &Entry {
        self.entries[number as usize]
            .as_ref()
            .expect("numbers are handed out for entries that stay until their lanes left")
    }

    fn entry_mut(&mut self, number: Number) -> &mut Entry {
        self.entries[number as usize]
            .as_mut()
            .expect("numbers are handed out for entries that stay until their lanes left")
    }
}

impl Entry {
    /// Returns whether lanes of this sender may contribute as this kind of series.
    fn fits(&self, role: Role, sender: &Arc<Sender>) -> bool {
        let is_same = |user: &Arc<Sender>| Arc::ptr_eq(user, sender);
        self.role.fits(role) && self.user.as_ref().is_none_or(is_same)
    }

    /// Charges the sender for this many samples. Returns false if it may not write them now.
    fn may_write(&self, samples: u64) -> bool {
        let sender = self.pass.sender();
        let may_write = sender.take_bytes(samples * SAMPLE_BYTES);
        if !may_write {
            sender.add_delayed(samples);
        }
        may_write
    }

    fn lift(&mut self) {
        let Role::Counter(kind) = self.role else {
            return;
        };
        let Some(before) = self.before.take() else {
            return;
        };
        if before <= self.total.value() {
            return;
        }
        let before = match kind {
            // Shown cumulated: a bucket's own number is not known any more.
            CounterKind::Bucket => return,
            CounterKind::Whole => Amount::Whole(before as u64),
            CounterKind::Float => Amount::Float(before),
        };
        let missing = before.minus(self.total);
        self.base = self.base.plus(missing);
        self.total = self.total.plus(missing);
    }

    fn kept(&self) -> Option<KeptSeries> {
        let Role::Counter(kind) = self.role else {
            return None;
        };
        let family = self.series.family();
        Some(KeptSeries {
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
    use pegel_store::{Options, Store};
    use pegel_testkit::TempDir;

    use super::*;
    use crate::gate::GateSettings;
    use crate::rules::Rules;
    use crate::rules::tests::rule;

    fn wanted<'a>(
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
        kind: CounterKind,
    ) -> Wanted<'a> {
        Wanted {
            name,
            labels,
            user: None,
            help: "",
            level: 1,
            role: Role::Counter(kind),
        }
    }

    fn values(totals: &mut Totals, time: Millis) -> BTreeSet<String> {
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

    fn totals_with(rules: Rules) -> (TempDir, Totals, Arc<Sender>) {
        let dir = TempDir::new();
        let store = Store::open(Options::new(dir.path())).expect("opens");
        let settings = GateSettings {
            level: 3,
            series_max: 1000,
            series_per_sender: 1000,
            text_bytes_max: 1 << 20,
            sender_bytes: 1 << 30,
            rules,
            reserved: Arc::default(),
        };
        let gate = Arc::new(Gate::new(settings, Arc::new(Ledger::default())));
        let sender = gate.sender(Input::Lane, "uid 1");
        let totals = Totals::new(gate, Board::new("lanes", &store, 0));
        (dir, totals, sender)
    }

    #[test]
    fn a_second_kind_is_refused_where_a_rule_sets_the_label_that_would_tell_them_apart() {
        let rule = rule(&[("name", "*"), ("label.lane_type", "fixed")]).expect("a rule");
        let (_dir, mut totals, sender) = totals_with(Rules::new(vec![rule]));
        let mut join = |kind| totals.join(&sender, &wanted("x_total", &[], kind), 0);
        let first = join(CounterKind::Whole).expect("admitted");
        for _ in 0..3 {
            assert_eq!(join(CounterKind::Float), Err(Refusal::OtherKind));
        }
        assert_eq!(join(CounterKind::Whole), Ok(first));
        let values = values(&mut totals, 1000);
        assert!(
            values.iter().eq(["x_total{lane_type=\"fixed\"} 0"]),
            "{values:?}"
        );
    }

    #[test]
    fn a_pass_looks_only_at_what_changed() {
        let (_dir, mut totals, sender) = totals_with(Rules::default());
        let mut join = |name: &str, labels: &[(&str, &str)], kind| {
            let number = totals.join(&sender, &wanted(name, labels, kind), 0);
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
        totals.raise(steps, Amount::Whole(2), 1000);
        totals.raise(steps, Amount::Whole(3), 1000);
        assert_eq!(totals.touched, [steps]);
        totals.raise(low, Amount::Whole(4), 1000);
        assert_eq!(totals.touched, [steps], "a bucket goes with its histogram");
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
