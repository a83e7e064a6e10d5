//! The series of one target: their encoded labels, whether they are sent, and the time of their
//! newest sample.
//!
//! Each segment of the log has its own numbers of series; the table gives a series a slot that
//! stays the same across segments. Slots of series that neither the current nor the previous
//! segment contains are removed from time to time, when a segment begins.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use pegel_metric::{MetricKind, Millis, Series};
use pegel_query::promql::LabelSet;
use pegel_wire::remote_write::{EncodedMetadata, RemoteMetricType, encode_labels};

use super::series_labels::SeriesLabels;
use super::symbols::SymbolTable;

/// The number of unused slots from which on the table is rebuilt.
const UNUSED_MIN: usize = 1024;

/// Whether the samples of a series are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendChoice {
    Sent,
    /// `keep` and `drop` exclude it.
    NotChosen,
    /// Another series has the same labels and precedes it.
    Hidden,
}

/// The state of a series for one target.
#[derive(Debug)]
pub(super) struct SeriesSlot {
    series: Arc<Series>,
    pub choice: SendChoice,
    /// The encoded labels of version 1.0; empty for a series that is not selected.
    pub labels: Arc<[u8]>,
    /// The labels as numbers of symbols, for version 2.0.
    pub symbols: Box<[u32]>,
    pub metadata: EncodedMetadata,
    /// A hash of the labels that is the same in every process.
    pub hash: u32,
    /// The time of the newest sample that was sent or will be.
    pub newest: Millis,
    rank: (u8, bool),
    /// The last segment with this series.
    used: u32,
}

/// The series of one target.
#[derive(Debug)]
pub(super) struct TargetSeries {
    labels: SeriesLabels,
    by_series: HashMap<Arc<Series>, u32>,
    /// The series that is sent, by its labels.
    by_labels: HashMap<Arc<[u8]>, u32>,
    slots: Vec<SeriesSlot>,
    pub symbols: SymbolTable,
    /// Changes when symbols get other numbers.
    numbering: u32,
    uses_symbols: bool,
    segment: u32,
}

impl TargetSeries {
    pub(super) fn new(labels: SeriesLabels, uses_symbols: bool) -> TargetSeries {
        TargetSeries {
            labels,
            by_series: HashMap::new(),
            by_labels: HashMap::new(),
            slots: Vec::new(),
            symbols: SymbolTable::default(),
            numbering: 0,
            uses_symbols,
            segment: 0,
        }
    }

    pub(super) fn slot(&self, number: u32) -> &SeriesSlot {
        &self.slots[number as usize]
    }

    pub(super) fn slot_mut(&mut self, number: u32) -> &mut SeriesSlot {
        &mut self.slots[number as usize]
    }

    /// Returns the number of the current numbering of symbols.
    pub(super) fn numbering(&self) -> u32 {
        self.numbering
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the slot of a series. Called once per segment and series.
    pub(super) fn find(&mut self, series: &Arc<Series>) -> u32 {
        if let Some(number) = self.by_series.get(series) {
            self.slots[*number as usize].used = self.segment;
            return *number;
        }
        let number = self.slots.len() as u32;
        let slot = self.new_slot(series);
        self.by_series.insert(series.clone(), number);
        self.slots.push(slot);
        self.decide(number);
        number
    }

    fn new_slot(&mut self, series: &Arc<Series>) -> SeriesSlot {
        let chosen = self.labels.of(series);
        let mut encoded = Vec::new();
        if let Some(labels) = &chosen {
            encode_labels(labels.iter(), &mut encoded);
        }
        let symbols = match &chosen {
            Some(labels) if self.uses_symbols => symbols_of(&mut self.symbols, labels),
            _ => Box::default(),
        };
        let family = series.family();
        let metadata = match self.uses_symbols && chosen.is_some() {
            true => EncodedMetadata {
                metric_type: metric_type(family.kind),
                help: self.symbols.number(&family.help),
                unit: self.symbols.number(&family.unit),
            },
            false => EncodedMetadata {
                metric_type: RemoteMetricType(0),
                help: 0,
                unit: 0,
            },
        };
        SeriesSlot {
            series: series.clone(),
            choice: match chosen {
                Some(_) => SendChoice::Sent,
                None => SendChoice::NotChosen,
            },
            hash: crc32fast::hash(&encoded),
            labels: encoded.into(),
            symbols,
            metadata,
            newest: Millis::MIN,
            rank: self.labels.node.rank_of(series),
            used: self.segment,
        }
    }

    /// Decides which of two series with the same labels is sent.
    fn decide(&mut self, number: u32) {
        let slot = &self.slots[number as usize];
        if slot.choice == SendChoice::NotChosen {
            return;
        }
        let (rank, newest) = (slot.rank, slot.newest);
        match self.by_labels.entry(slot.labels.clone()) {
            Entry::Vacant(free) => drop(free.insert(number)),
            Entry::Occupied(mut taken) => {
                let other = *taken.get() as usize;
                let newest = newest.max(self.slots[other].newest);
                let (shown, hidden) = match rank < self.slots[other].rank {
                    true => (number as usize, other),
                    false => (other, number as usize),
                };
                taken.insert(shown as u32);
                self.slots[hidden].choice = SendChoice::Hidden;
                self.slots[shown].newest = newest;
            }
        }
    }

    /// Begins a segment. Returns the new numbers of all slots if the table was rebuilt, `u32::MAX`
    /// for those that are gone.
    pub(super) fn begin_segment(&mut self) -> Option<Vec<u32>> {
        self.segment += 1;
        let is_used = |slot: &SeriesSlot| slot.used + 2 > self.segment;
        let used = self.slots.iter().filter(|slot| is_used(slot)).count();
        if self.slots.len() - used <= UNUSED_MIN.max(used / 2) {
            return None;
        }
        let mut moved = Vec::with_capacity(self.slots.len());
        let mut kept = Vec::with_capacity(used);
        for slot in std::mem::take(&mut self.slots) {
            moved.push(match slot.used + 2 > self.segment {
                true => kept.len() as u32,
                false => u32::MAX,
            });
            if slot.used + 2 > self.segment {
                kept.push(slot);
            }
        }
        self.by_series.clear();
        self.by_labels.clear();
        self.symbols = SymbolTable::default();
        self.numbering += 1;
        for (number, old) in kept.into_iter().enumerate() {
            let fresh = self.new_slot(&old.series);
            self.by_series.insert(old.series.clone(), number as u32);
            self.slots.push(SeriesSlot {
                newest: old.newest,
                used: old.used,
                ..fresh
            });
            self.decide(number as u32);
        }
        Some(moved)
    }
}

fn symbols_of(symbols: &mut SymbolTable, labels: &LabelSet) -> Box<[u32]> {
    let texts = labels.iter().flat_map(|(name, value)| [name, value]);
    texts.map(|text| symbols.number(text)).collect()
}

fn metric_type(kind: MetricKind) -> RemoteMetricType {
    RemoteMetricType(match kind {
        MetricKind::Counter => 1,
        MetricKind::Gauge => 2,
        MetricKind::Unknown => 0,
    })
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Family, Input};
    use pegel_query::promql::NodeLabels;

    use super::*;

    fn table() -> TargetSeries {
        let node = Arc::new(NodeLabels {
            job: "node".into(),
            instance: "n1".into(),
        });
        let labels = SeriesLabels {
            node,
            external: Default::default(),
            keep: Vec::new(),
            drop: vec!["debug".parse().expect("valid")],
        };
        TargetSeries::new(labels, true)
    }

    fn series(input: Input, text: &str) -> Arc<Series> {
        let family = |_: &str| {
            Arc::new(Family::new("", MetricKind::Counter, "s", 1, "Help.").of_input(input))
        };
        Arc::new(Series::parse(text, family).expect("valid"))
    }

    #[test]
    fn of_series_with_the_same_labels_the_one_that_promql_shows_is_sent() {
        let mut table = table();
        let choice = |table: &TargetSeries, number| table.slot(number).choice;
        let statsd = table.find(&series(Input::Statsd, "app_depth"));
        assert_eq!(choice(&table, statsd), SendChoice::Sent);
        table.slot_mut(statsd).newest = 7;
        let lane = table.find(&series(Input::Lane, "app.depth"));
        assert_eq!(choice(&table, statsd), SendChoice::Hidden);
        assert_eq!(choice(&table, lane), SendChoice::Sent);
        assert_eq!(table.slot(lane).newest, 7, "times continue");
        let again = table.find(&series(Input::Lane, "app.depth"));
        assert_eq!(again, lane);
        let third = table.find(&series(Input::Statsd, "app-depth"));
        assert_eq!(choice(&table, third), SendChoice::Hidden);
        let dropped = table.find(&series(Input::Push, "debug"));
        assert_eq!(choice(&table, dropped), SendChoice::NotChosen);
        let symbol = |number| table.symbols.text(number);
        let slot = table.slot(lane);
        assert_eq!(
            { slot.symbols.iter() }
                .map(|at| symbol(*at))
                .collect::<Vec<_>>(),
            ["__name__", "app_depth", "instance", "n1", "job", "node"]
        );
        assert_eq!(slot.metadata.metric_type, RemoteMetricType(1));
        assert_eq!(
            (symbol(slot.metadata.help), symbol(slot.metadata.unit)),
            ("Help.", "s")
        );
    }

    #[test]
    fn series_that_are_gone_are_forgotten_and_the_others_keep_their_state() {
        let mut table = table();
        let gone = |n: usize| series(Input::Push, &format!("gone{{n=\"{n}\"}}"));
        for n in 0..UNUSED_MIN + 10 {
            table.find(&gone(n));
        }
        let stays = series(Input::Push, "stays");
        let number = table.find(&stays);
        table.slot_mut(number).newest = 42;
        for _ in 0..2 {
            let moved = table.begin_segment();
            let number = table.find(&stays);
            assert_eq!(table.slot(number).newest, 42);
            if let Some(moved) = moved {
                assert_eq!((table.len(), number), (1, 0));
                assert_eq!(moved.len(), UNUSED_MIN + 11);
                assert_eq!(moved[0], u32::MAX);
                assert_eq!(moved.last(), Some(&0));
                assert_eq!(table.symbols.text(1), "__name__");
                return;
            }
        }
        panic!("not rebuilt");
    }
}
