//! A single series without labels.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, SeriesError, Slot};

/// A series without labels, declared with its first value.
#[derive(Debug)]
pub(crate) struct UnlabelledSeries {
    family: Arc<Family>,
    slot: Option<Slot>,
}

impl UnlabelledSeries {
    pub(crate) fn new(family: &Family) -> UnlabelledSeries {
        UnlabelledSeries {
            family: Arc::new(family.clone()),
            slot: None,
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, out: &mut SampleGroup, value: f64) -> Result<(), SeriesError> {
        let slot = match self.slot {
            Some(slot) => slot,
            None => *self.slot.insert(out.declare(&self.family, &[])?),
        };
        out.set(slot, value);
        Ok(())
    }
}
