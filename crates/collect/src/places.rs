use std::sync::Arc;

use pegel_metric::{Family, Group, SeriesError, Slot};

/// The series of one device, one for each family that it has a value for.
#[derive(Debug)]
pub(crate) struct Places {
    slots: Vec<Option<Slot>>,
}

impl Places {
    pub(crate) fn new(families: &[Arc<Family>]) -> Places {
        Places {
            slots: vec![None; families.len()],
        }
    }

    /// Sets the series of the family at `index`; it is declared with its first value.
    pub(crate) fn set(
        &mut self,
        out: &mut Group,
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

    pub(crate) fn retire(self, out: &mut Group) {
        self.slots
            .into_iter()
            .flatten()
            .for_each(|slot| out.retire(slot));
    }
}

/// Families that are known at compile time, ready to be shared by their series.
pub(crate) fn shared(families: &[&Family]) -> Vec<Arc<Family>> {
    families
        .iter()
        .map(|&family| Arc::new(family.clone()))
        .collect()
}
