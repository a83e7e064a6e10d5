use std::sync::Arc;

use pegel_metric::{Family, Group, SeriesError, Slot};

/// A series without labels, declared with its first value.
#[derive(Debug)]
pub(crate) struct Single {
    family: Arc<Family>,
    slot: Option<Slot>,
}

impl Single {
    pub(crate) fn new(family: &Family) -> Single {
        Single {
            family: Arc::new(family.clone()),
            slot: None,
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, out: &mut Group, value: f64) -> Result<(), SeriesError> {
        let slot = match self.slot {
            Some(slot) => slot,
            None => *self.slot.insert(out.declare(&self.family, &[])?),
        };
        out.set(slot, value);
        Ok(())
    }
}
