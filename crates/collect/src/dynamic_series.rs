//! Series of collectors that discover their devices in each pass.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::proc_parse::ProcParseError;

/// The series of a collector whose devices and attributes come and go. A series is declared when it is first set,
/// and retired after a pass that did not set it.
#[derive(Debug)]
pub(crate) struct DynamicSeries {
    slots: CursorMap<Slot>,
    /// One family for all series of a name, created with the first.
    families: Vec<Arc<Family>>,
    key: Vec<u8>,
}

impl DynamicSeries {
    pub(crate) fn new() -> DynamicSeries {
        DynamicSeries {
            slots: CursorMap::new(),
            families: Vec::new(),
            key: Vec::new(),
        }
    }

    /// Starts a pass.
    pub(crate) fn begin_pass(&mut self) {
        self.slots.begin_pass();
    }

    /// Sets a series and declares it if it is new. Cheapest if the order is the same in each pass.
    pub(crate) fn set(
        &mut self,
        out: &mut SampleGroup,
        family: &Family,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), ProcParseError> {
        self.build_key(&family.name, labels);
        let families = &mut self.families;
        let make = || Ok(out.declare(&shared_family(families, family), labels)?);
        let slot = *self.slots.entry(&self.key, make)?;
        out.set(slot, value);
        Ok(())
    }

    /// Like [`set`](DynamicSeries::set), for a family whose name contains `<key>`: `key` is the kernel's name,
    /// which is sanitized for the metric name.
    pub(crate) fn set_keyed(
        &mut self,
        out: &mut SampleGroup,
        base: &Family,
        key: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), ProcParseError> {
        self.build_key(&base.name, labels);
        self.key.push(0);
        self.key.extend_from_slice(key.as_bytes());
        let families = &mut self.families;
        let make = || {
            let family = Family {
                name: base.name.replace("<key>", &sanitize_name(key)).into(),
                help: base.help.replace("<key>", key).into(),
                ..base.clone()
            };
            Ok(out.declare(&shared_family(families, &family), labels)?)
        };
        let slot = *self.slots.entry(&self.key, make)?;
        out.set(slot, value);
        Ok(())
    }

    /// Ends a pass: retires the series that it did not set.
    pub(crate) fn end_pass(&mut self, out: &mut SampleGroup) {
        self.slots.sweep(|slot| out.retire(slot));
    }

    /// Builds the lookup key of a series. Labels of one family always come in the same order.
    fn build_key(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.key.clear();
        self.key.extend_from_slice(name.as_bytes());
        for (key, value) in labels {
            for part in [key, value] {
                self.key.push(0);
                self.key.extend_from_slice(part.as_bytes());
            }
        }
    }
}

fn shared_family(families: &mut Vec<Arc<Family>>, family: &Family) -> Arc<Family> {
    match families.iter().find(|known| known.name == family.name) {
        Some(known) => known.clone(),
        None => {
            families.push(Arc::new(family.clone()));
            families[families.len() - 1].clone()
        }
    }
}

/// Replaces every character that is not valid in a metric name by an underscore.
pub(crate) fn sanitize_name(key: &str) -> String {
    let part = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        }
    };
    key.chars().map(part).collect()
}

/// A gauge of level 3.
pub(crate) const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, unit, 3, help)
}

/// A counter of level 3.
pub(crate) const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, unit, 3, help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    static ONE: Family = gauge("one_volts", "volts", "One.");
    static MANY: Family = counter("many_<key>_total", "", "The counter <key>.");

    #[test]
    fn what_a_pass_does_not_set_is_retired_and_its_slot_used_again() {
        let (mut series, mut group) = (DynamicSeries::new(), SampleGroup::new("x", 3, 1000));
        let mut pass = |chips: &[&str], group: &mut SampleGroup| {
            group.clear();
            series.begin_pass();
            for chip in chips {
                let labels = [("chip", *chip)];
                series.set(group, &ONE, &labels, 1.0).expect("valid");
                series
                    .set_keyed(group, &MANY, "a.b", &labels, 2.0)
                    .expect("valid");
            }
            series.end_pass(group);
            present_series(group)
        };
        let first = pass(&["a", "b"], &mut group);
        assert_eq!(
            first,
            [
                "one_volts{chip=\"a\"} 1",
                "many_a_b_total{chip=\"a\"} 2",
                "one_volts{chip=\"b\"} 1",
                "many_a_b_total{chip=\"b\"} 2",
            ]
        );
        assert_eq!(pass(&["b"], &mut group), first[2..]);
        assert_eq!(pass(&["c", "b"], &mut group).len(), 4);
        assert_eq!(group.members().series.len(), 4);
        let members = group.members().clone();
        let of_many: Vec<&Arc<Family>> = members
            .series
            .iter()
            .map(|series| series.family())
            .filter(|family| family.name == "many_a_b_total")
            .collect();
        assert_eq!(of_many[0].help, "The counter a.b.");
        assert!(Arc::ptr_eq(of_many[0], of_many[1]), "one family for all");
    }
}
