//! The series of one device, declared lazily.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, SeriesError, Slot};

/// The series of one device, one for each family that it has a value for.
#[derive(Debug)]
pub(crate) struct DeviceSlots {
    slots: Vec<Option<Slot>>,
}

impl DeviceSlots {
    pub(crate) fn new(families: &[Arc<Family>]) -> DeviceSlots {
        DeviceSlots {
            slots: vec![None; families.len()],
        }
    }

    /// Sets the series of the family at `index`; it is declared with its first value.
    pub(crate) fn set(
        &mut self,
        out: &mut SampleGroup,
        families: &[Arc<Family>],
        index: usize,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), SeriesError> {
        let slot = match self.slots[index] {
            Some(slot) => slot,
            None => *self.slots[index].insert(out.declare(&families[index], labels)?),
        };
        out.set(slot, value);
        Ok(())
    }

    pub(crate) fn retire(self, out: &mut SampleGroup) {
        self.slots
            .into_iter()
            .flatten()
            .for_each(|slot| out.retire(slot));
    }
}

/// Wraps static families for sharing between their series.
pub(crate) fn shared_families(families: &[&Family]) -> Vec<Arc<Family>> {
    families
        .iter()
        .map(|&family| Arc::new(family.clone()))
        .collect()
}
