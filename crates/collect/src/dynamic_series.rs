//! Series of collectors that discover their devices in each pass.

use std::path::Path;
use std::sync::Arc;

use pegel_metric::{Family, Level, SampleGroup, Slot};

use crate::CurrentOperation;
use crate::cursor_map::CursorMap;
use crate::families::keyed_family;
use crate::proc_parse::ProcParseError;

/// The series of a collector whose devices and attributes come and go. A series is declared when it
/// is first set, and retired after a pass that did not set it.
#[derive(Debug, Default)]
pub(crate) struct DynamicSeries {
    slots: CursorMap<Slot>,
    /// One family for all series of a name, created with the first.
    families: Vec<Arc<Family>>,
    key: Vec<u8>,
}

/// Receives the values of one pass.
#[derive(Debug)]
pub(crate) struct SeriesWriter<'a> {
    series: &'a mut DynamicSeries,
    out: &'a mut SampleGroup,
    /// Of a walk: the path that is read.
    operation: Option<&'a CurrentOperation>,
    count: usize,
}

impl DynamicSeries {
    /// Starts a pass, whose values go to `out`.
    pub(crate) fn begin_pass<'a>(&'a mut self, out: &'a mut SampleGroup) -> SeriesWriter<'a> {
        self.slots.begin_pass();
        SeriesWriter {
            series: self,
            out,
            operation: None,
            count: 0,
        }
    }

    /// Like [`begin_pass`](DynamicSeries::begin_pass), for a walk that reports the path it reads.
    pub(crate) fn begin_walk<'a>(
        &'a mut self,
        out: &'a mut SampleGroup,
        operation: &'a CurrentOperation,
    ) -> SeriesWriter<'a> {
        SeriesWriter {
            operation: Some(operation),
            ..self.begin_pass(out)
        }
    }
}

impl SeriesWriter<'_> {
    /// Sets a series and declares it if it is new. Cheapest if the order is the same in each pass.
    pub(crate) fn set(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), ProcParseError> {
        self.set_with(family, "", labels, value, |families| {
            shared_family(families, family, || Arc::new(family.clone()))
        })
    }

    /// Sets the series if there is a value.
    pub(crate) fn set_if_some(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        value: Option<f64>,
    ) -> Result<(), ProcParseError> {
        value.map_or(Ok(()), |value| self.set(family, labels, value))
    }

    /// Like [`set`](SeriesWriter::set), for a family whose name contains `<key>`: `key` is the
    /// kernel's name, which is sanitized for the metric name.
    pub(crate) fn set_keyed(
        &mut self,
        base: &Family,
        key: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), ProcParseError> {
        self.set_with(base, key, labels, value, |families| {
            let help = base.help.replace("<key>", key);
            let family = keyed_family(base, &sanitize_name(key), help);
            shared_family(families, &family, || family.clone())
        })
    }

    /// Sets a series with the value 1 whose labels carry the information: `labels`, then `texts`.
    pub(crate) fn set_info(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        texts: &[(&str, String)],
    ) -> Result<(), ProcParseError> {
        let texts = texts.iter().map(|(label, text)| (*label, &**text));
        let labels: Vec<(&str, &str)> = labels.iter().copied().chain(texts).collect();
        self.set(family, &labels, 1.0)
    }

    fn set_with(
        &mut self,
        base: &Family,
        key: &str,
        labels: &[(&str, &str)],
        value: f64,
        family: impl FnOnce(&mut Vec<Arc<Family>>) -> Arc<Family>,
    ) -> Result<(), ProcParseError> {
        self.count += 1;
        let DynamicSeries {
            slots,
            families,
            key: lookup_key,
        } = &mut *self.series;
        build_lookup_key(lookup_key, &base.name, key, labels);
        let make = || Ok(self.out.declare(&family(families), labels)?);
        let slot = *slots.entry(lookup_key, make)?;
        self.out.set(slot, value);
        Ok(())
    }

    /// Returns whether metrics of this level are kept, so that a collector can skip expensive
    /// reads.
    pub(crate) fn keeps_level(&self, level: Level) -> bool {
        self.out.keeps_level(level)
    }

    /// Sets the path that is read next, reported if the read hangs or fails.
    pub(crate) fn set_current_path(&self, path: &Path) {
        if let Some(operation) = self.operation {
            operation.set(&path.to_string_lossy());
        }
    }

    /// Ends a pass: retires the series that it did not set. Returns the number of values.
    pub(crate) fn end_pass(self) -> usize {
        self.series.slots.sweep(|slot| self.out.retire(slot));
        self.count
    }
}

/// Builds the lookup key of a series. Labels of one family always come in the same order.
fn build_lookup_key(lookup_key: &mut Vec<u8>, name: &str, key: &str, labels: &[(&str, &str)]) {
    lookup_key.clear();
    lookup_key.extend_from_slice(name.as_bytes());
    let labels = labels.iter().flat_map(|(key, value)| [*key, *value]);
    for part in [key].into_iter().chain(labels) {
        lookup_key.push(0);
        lookup_key.extend_from_slice(part.as_bytes());
    }
}

fn shared_family(
    families: &mut Vec<Arc<Family>>,
    family: &Family,
    share: impl FnOnce() -> Arc<Family>,
) -> Arc<Family> {
    match families.iter().find(|known| known.name == family.name) {
        Some(known) => known.clone(),
        None => {
            let family = share();
            families.push(family.clone());
            family
        }
    }
}

/// Replaces every character that is not valid in a metric name by an underscore.
fn sanitize_name(key: &str) -> String {
    key.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    mod table {
        crate::families::families! {
            ONE Gauge 3 "one_volts" "volts" "One.";
            MANY Counter 3 "many_<key>_total" "" "The counter <key>.";
        }
    }

    #[test]
    fn what_a_pass_does_not_set_is_retired_and_its_slot_used_again() {
        let (mut series, mut group) = (DynamicSeries::default(), SampleGroup::new("x", 3, 1000));
        assert_eq!(table::FAMILIES.len(), 2);
        let mut pass = |chips: &[&str], group: &mut SampleGroup| {
            group.clear();
            let mut put = series.begin_pass(group);
            for chip in chips {
                let labels = [("chip", *chip)];
                put.set(&table::ONE, &labels, 1.0).expect("valid");
                put.set_keyed(&table::MANY, "a.b", &labels, 2.0)
                    .expect("valid");
            }
            assert_eq!(put.end_pass(), 2 * chips.len());
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
