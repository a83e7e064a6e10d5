//! The series of devices that a file lists, as a table: one row per device, one column per family.
//!
//! For collectors on the hot path: a pass over the same devices in the same order finds each row
//! with one comparison and then only sets values.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::families::shared_families;
use crate::proc_parse::{ProcParseError, label_value};

#[derive(Debug)]
pub(crate) struct SeriesTable {
    families: Vec<Arc<Family>>,
    /// The slots of each device; `None` until the family has a value.
    rows: CursorMap<Vec<Option<Slot>>>,
}

impl SeriesTable {
    pub(crate) fn new(families: &[&Family]) -> SeriesTable {
        SeriesTable {
            families: shared_families(families),
            rows: CursorMap::new(),
        }
    }

    /// Starts a pass.
    pub(crate) fn begin_pass(&mut self) {
        self.rows.begin_pass();
    }

    /// Sets the row of a device whose only label is its name. `None` leaves a column absent.
    #[inline]
    pub(crate) fn set_device(
        &mut self,
        out: &mut SampleGroup,
        label: &str,
        name: &[u8],
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> Result<(), ProcParseError> {
        let row = self.rows.entry(name, || Ok(Vec::new()))?;
        set_row(row, &self.families, out, values, |family, out| {
            Ok(out.declare(family, &[(label, &label_value(name))])?)
        })
    }

    /// Sets the row of `key`, which has these labels. `None` leaves a column absent.
    pub(crate) fn set(
        &mut self,
        out: &mut SampleGroup,
        key: &[u8],
        labels: &[(&str, &str)],
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> Result<(), ProcParseError> {
        let row = self.rows.entry(key, || Ok(Vec::new()))?;
        set_row(row, &self.families, out, values, |family, out| {
            Ok(out.declare(family, labels)?)
        })
    }

    /// Ends a pass: retires the devices that it did not set.
    pub(crate) fn end_pass(&mut self, out: &mut SampleGroup) {
        self.rows
            .sweep(|row| row.into_iter().flatten().for_each(|slot| out.retire(slot)));
    }
}

#[inline]
fn set_row(
    row: &mut Vec<Option<Slot>>,
    families: &[Arc<Family>],
    out: &mut SampleGroup,
    values: impl IntoIterator<Item = Option<f64>>,
    declare: impl Fn(&Arc<Family>, &mut SampleGroup) -> Result<Slot, ProcParseError>,
) -> Result<(), ProcParseError> {
    row.resize(families.len(), None);
    for ((slot, family), value) in row.iter_mut().zip(families).zip(values) {
        if let Some(value) = value {
            let slot = match *slot {
                Some(slot) => slot,
                None => *slot.insert(declare(family, out)?),
            };
            out.set(slot, value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    mod table {
        crate::families::families! {
            SIZE Gauge 2 "size_bytes" "bytes" "Size.";
            READS Counter 2 "reads_total" "" "Reads.";
        }
    }

    #[test]
    fn a_column_is_declared_with_its_first_value_and_a_device_is_retired() {
        let (mut series, mut group) = (
            SeriesTable::new(table::FAMILIES),
            SampleGroup::new("x", 3, 1000),
        );
        let mut pass = |devices: &[(&str, Option<f64>)], group: &mut SampleGroup| {
            group.clear();
            series.begin_pass();
            for (name, reads) in devices {
                let values = [Some(1.0), *reads];
                let set = series.set_device(group, "device", name.as_bytes(), values);
                set.expect("valid");
            }
            series.end_pass(group);
            present_series(group)
        };
        assert_eq!(
            pass(&[("a", None), ("b", Some(2.0))], &mut group),
            [
                "size_bytes{device=\"a\"} 1",
                "size_bytes{device=\"b\"} 1",
                "reads_total{device=\"b\"} 2"
            ]
        );
        assert_eq!(pass(&[("b", None)], &mut group).len(), 1);
        assert_eq!(pass(&[("a", Some(3.0)), ("b", None)], &mut group).len(), 3);
        assert_eq!(group.members().series.len(), 4, "slots are reused");
    }
}
