//! Limits how many requests are executed concurrently. Users in `allow_users` share at most half of
//! the slots.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::guard::AccessRights;

#[derive(Debug)]
pub(crate) struct QuerySlots {
    all: Arc<Semaphore>,
    guests: Arc<Semaphore>,
}

/// A slot in use. Released when dropped.
#[derive(Debug)]
pub(crate) struct QuerySlot {
    _one: OwnedSemaphorePermit,
    _for_guests: Option<OwnedSemaphorePermit>,
}

impl QuerySlots {
    pub(crate) fn new(count: usize) -> QuerySlots {
        QuerySlots {
            all: Arc::new(Semaphore::new(count)),
            guests: Arc::new(Semaphore::new((count / 2).max(1))),
        }
    }

    /// Waits for a slot. The agent's user and root wait only for each other; the time limit of a
    /// request bounds every wait.
    pub(crate) async fn take(&self, rights: AccessRights) -> Result<QuerySlot, AcquireError> {
        // Acquire the share first: a user who waits for it must not hold a slot meanwhile.
        let for_guests = match rights {
            AccessRights::None | AccessRights::User => {
                Some(self.guests.clone().acquire_owned().await?)
            }
            AccessRights::Owner => None,
        };
        Ok(QuerySlot {
            _one: self.all.clone().acquire_owned().await?,
            _for_guests: for_guests,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Takes a slot if one is free now.
    fn try_take(slots: &QuerySlots, rights: AccessRights) -> Option<QuerySlot> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(slots.take(rights)).poll(&mut context) {
            Poll::Ready(slot) => Some(slot.expect("never closed")),
            Poll::Pending => None,
        }
    }

    #[test]
    fn guests_leave_half_of_the_slots_to_the_owner() {
        let slots = QuerySlots::new(4);
        let guests: Vec<QuerySlot> = (0..4)
            .map_while(|_| try_take(&slots, AccessRights::User))
            .collect();
        assert_eq!(guests.len(), 2);
        let owners = [AccessRights::Owner; 2].map(|rights| try_take(&slots, rights));
        assert!(owners.iter().all(Option::is_some));
        assert!(try_take(&slots, AccessRights::Owner).is_none());
        drop(guests);
        assert!(try_take(&slots, AccessRights::User).is_some());
    }

    #[test]
    fn a_single_slot_is_for_everyone() {
        let slots = QuerySlots::new(1);
        let slot = try_take(&slots, AccessRights::User);
        assert!(slot.is_some() && try_take(&slots, AccessRights::Owner).is_none());
        drop(slot);
        assert!(try_take(&slots, AccessRights::Owner).is_some());
    }
}
