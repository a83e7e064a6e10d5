//! Makes the messages of ticks for one connection: new series are defined first, then values are
//! encoded as differences. A tick is sent only with credit; others are skipped and counted, and the
//! parent requests them later.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{Millis, Series};
use pegel_tree_protocol::limits::{
    DEFINITION_BYTES_MAX, HELP_BYTES_MAX, NAME_BYTES_MAX, SERIES_MAX,
};
use pegel_tree_protocol::{
    PartialTickEncoder, SeriesDefinition, SeriesDefinitions, Tick, ValueTickEncoder, child_message,
};

use super::UplinkItem;
use crate::figures::TreeCounts;
use crate::messages::shortened;
use crate::tick_reader::{encode_partial, wire_kind};

/// A message with definitions has at most so many, and about so many bytes.
const DEFINITIONS_PER_MESSAGE: usize = 2000;
const DEFINITION_MESSAGE_BYTES: usize = 1 << 20;
/// More credit than this is not kept: a parent cannot process more at once.
const CREDIT_MAX: u32 = 1000;
/// If the clock is set back by more intervals, the connection is opened again: ticks of one stream
/// rise.
const CLOCK_STEP_INTERVALS: Millis = 10;

#[derive(Debug)]
pub(super) struct TickSender {
    credit: u32,
    interval: Millis,
    ids: HashMap<SeriesName, u32>,
    definition_bytes: usize,
    values: ValueTickEncoder,
    partials: PartialTickEncoder,
    last_sent: Option<Millis>,
}

/// The text of a series, shared with its owner.
#[derive(Debug, PartialEq, Eq, Hash)]
enum SeriesName {
    Own(Arc<Series>),
    Reduced(Arc<str>),
}

impl TickSender {
    pub(super) fn new(credit: u32, interval: Millis) -> TickSender {
        TickSender {
            credit: credit.min(CREDIT_MAX),
            interval,
            ids: HashMap::new(),
            definition_bytes: 0,
            values: ValueTickEncoder::new(),
            partials: PartialTickEncoder::new(),
            last_sent: None,
        }
    }

    pub(super) fn grant(&mut self, ticks: u32) {
        self.credit = self.credit.saturating_add(ticks).min(CREDIT_MAX);
    }

    /// Returns whether a tick of this time can be sent.
    fn may_send(&mut self, time: Millis, counts: &TreeCounts) -> bool {
        // A parent with a longer interval gets only its own ticks.
        if time.rem_euclid(self.interval) != 0 || self.last_sent.is_some_and(|last| time <= last) {
            return false;
        }
        if self.credit == 0 {
            counts.ticks_skipped.add(1);
            return false;
        }
        true
    }

    /// Returns the messages of an item. Fails if the connection must be opened again.
    pub(super) fn messages(
        &mut self,
        item: UplinkItem,
        counts: &TreeCounts,
    ) -> Result<Vec<child_message::Kind>, String> {
        let time = match &item {
            UplinkItem::Values { time, .. } => *time,
            UplinkItem::Partials { tick, .. } => tick.time,
        };
        let step = CLOCK_STEP_INTERVALS * self.interval;
        if self.last_sent.is_some_and(|last| last - time > step) {
            return Err("the clock was set back; connecting again".to_owned());
        }
        let mut definitions = DefinitionMessages::default();
        let (time, nodes, values, overview) = match item {
            UplinkItem::Values {
                time,
                values,
                overview,
            } => {
                if !self.may_send(time, counts) {
                    return Ok(Vec::new());
                }
                let mut cells = Vec::with_capacity(values.len());
                for (series, value) in values {
                    let name = SeriesName::Own(series.clone());
                    let define = |id| {
                        let family = series.family();
                        SeriesDefinition {
                            id,
                            text: series.text().to_owned(),
                            kind: wire_kind(family.kind) as i32,
                            unit: shortened(&family.unit, NAME_BYTES_MAX).to_owned(),
                            help: shortened(&family.help, HELP_BYTES_MAX).to_owned(),
                        }
                    };
                    match self.id(name, &mut definitions, define) {
                        Some(id) => cells.push((id, value)),
                        None => counts.refused_series.add(1),
                    }
                }
                self.check_ids(cells.len())?;
                cells.sort_unstable_by_key(|(id, _)| *id);
                (time, 1, self.values.encode(&cells), overview)
            }
            UplinkItem::Partials { tick, overview } => {
                if !self.may_send(tick.time, counts) {
                    return Ok(Vec::new());
                }
                let mut cells = Vec::with_capacity(tick.partials.len());
                for found in &tick.partials {
                    let series = &found.series;
                    let name = SeriesName::Reduced(series.text.clone());
                    let define = |id| SeriesDefinition {
                        id,
                        text: series.text.to_string(),
                        kind: wire_kind(series.kind) as i32,
                        unit: series.unit.to_string(),
                        help: series.help.to_string(),
                    };
                    match self.id(name, &mut definitions, define) {
                        Some(id) => cells.push((id, encode_partial(&found.partial))),
                        None => counts.refused_series.add(1),
                    }
                }
                self.check_ids(cells.len())?;
                cells.sort_unstable_by_key(|(id, _)| *id);
                (
                    tick.time,
                    tick.nodes,
                    self.partials.encode(&cells),
                    overview,
                )
            }
        };
        self.credit -= 1;
        self.last_sent = Some(time);
        counts.ticks_sent.add(1);
        let mut messages = definitions.finish();
        messages.push(child_message::Kind::Tick(Tick {
            time_ms: time,
            nodes,
            values,
            overview: Some(overview),
        }));
        Ok(messages)
    }

    /// Returns the marks of ticks that were computed again.
    pub(super) fn changed(&self, ticks: Vec<Millis>) -> Vec<child_message::Kind> {
        let ticks = ticks.into_iter();
        let of_parent = ticks.filter(|time| time.rem_euclid(self.interval) == 0);
        let marks = of_parent.map(|time_ms| {
            child_message::Kind::Tick(Tick {
                time_ms,
                ..Tick::default()
            })
        });
        marks.collect()
    }

    /// Returns the id of a series, and defines it if it is new. `None`: there are too many.
    fn id(
        &mut self,
        name: SeriesName,
        definitions: &mut DefinitionMessages,
        define: impl FnOnce(u32) -> SeriesDefinition,
    ) -> Option<u32> {
        if let Some(id) = self.ids.get(&name) {
            return Some(*id);
        }
        if self.ids.len() >= SERIES_MAX {
            return None;
        }
        let id = self.ids.len() as u32;
        let definition = define(id);
        let bytes = definition.text.len() + definition.help.len() + definition.unit.len();
        if self.definition_bytes + bytes > DEFINITION_BYTES_MAX {
            return None;
        }
        self.definition_bytes += bytes;
        definitions.add(definition, bytes);
        self.ids.insert(name, id);
        Some(id)
    }

    /// Fails when most of the defined series do not exist any more: a new connection starts with
    /// none.
    fn check_ids(&self, live: usize) -> Result<(), String> {
        let is_full = self.ids.len() >= SERIES_MAX
            || self.definition_bytes > DEFINITION_BYTES_MAX - DEFINITION_MESSAGE_BYTES;
        if is_full && live < self.ids.len() / 2 {
            return Err("too many series ended; connecting again".to_owned());
        }
        Ok(())
    }
}

/// Collects definitions into messages of a limited size.
#[derive(Debug, Default)]
struct DefinitionMessages {
    full: Vec<child_message::Kind>,
    series: Vec<SeriesDefinition>,
    bytes: usize,
}

impl DefinitionMessages {
    fn add(&mut self, definition: SeriesDefinition, bytes: usize) {
        let is_full = self.series.len() >= DEFINITIONS_PER_MESSAGE
            || self.bytes + bytes > DEFINITION_MESSAGE_BYTES;
        if is_full {
            self.close();
        }
        self.bytes += bytes;
        self.series.push(definition);
    }

    fn close(&mut self) {
        if !self.series.is_empty() {
            let series = std::mem::take(&mut self.series);
            self.bytes = 0;
            self.full
                .push(child_message::Kind::Series(SeriesDefinitions { series }));
        }
    }

    fn finish(mut self) -> Vec<child_message::Kind> {
        self.close();
        self.full
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Family, MetricKind};

    use super::*;
    use crate::overview::unknown_overview;

    fn item(time: Millis, names: std::ops::Range<usize>) -> UplinkItem {
        let family = Arc::new(Family::new("", MetricKind::Gauge, "", 0, ""));
        let series = names.map(|index| {
            let series = Series::named(family.clone(), &format!("s{index}"), &[]);
            (Arc::new(series.expect("a name")), 1.0)
        });
        UplinkItem::Values {
            time,
            values: series.collect(),
            overview: unknown_overview(),
        }
    }

    fn kinds(messages: &[child_message::Kind]) -> String {
        let kinds = messages.iter().map(|message| match message {
            child_message::Kind::Series(_) => 's',
            child_message::Kind::Tick(tick) if tick.nodes == 0 => 'c',
            child_message::Kind::Tick(_) => 't',
            _ => '?',
        });
        kinds.collect()
    }

    #[test]
    fn series_are_defined_once_and_ticks_need_credit() {
        let counts = TreeCounts::default();
        let mut sender = TickSender::new(2, 1000);
        let mut send = |item| kinds(&sender.messages(item, &counts).expect("messages"));
        assert_eq!(send(item(1000, 0..4500)), "ssst");
        assert_eq!(send(item(1000, 0..1)), "", "the same tick again");
        assert_eq!(send(item(1500, 0..1)), "", "not a tick of the parent");
        assert_eq!(send(item(2000, 0..4501)), "st");
        assert_eq!(send(item(3000, 0..1)), "", "no credit");
        assert_eq!(kinds(&sender.changed(vec![1000, 1500, 2000])), "cc");
        assert_eq!(
            (counts.ticks_sent.get(), counts.ticks_skipped.get()),
            (2, 1)
        );
        sender.grant(1);
        let sent = sender
            .messages(item(4000, 0..1), &counts)
            .expect("messages");
        assert_eq!(kinds(&sent), "t");
    }

    #[test]
    fn a_clock_that_is_set_back_opens_the_connection_again() {
        let counts = TreeCounts::default();
        let mut sender = TickSender::new(9, 1000);
        sender
            .messages(item(90_000, 0..1), &counts)
            .expect("a tick");
        let little = sender.messages(item(80_000, 0..1), &counts);
        assert!(little.expect("none").is_empty());
        let error = sender.messages(item(70_000, 0..1), &counts);
        assert!(error.expect_err("far back").contains("clock"));
    }
}
