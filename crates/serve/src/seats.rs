use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::guard::Rights;

/// One seat for each connection that is allowed. A connection keeps its seat until it ends.
///
/// Clients that have no right to be here until they show a token get no more than half of the seats, so
/// that the other half is there for those who are known, however many strangers come. And some are for the agent's own
/// user and root alone.
#[derive(Debug, Clone)]
pub(crate) struct Seats {
    all: Arc<Semaphore>,
    for_guests: Arc<Semaphore>,
    for_unknown: Arc<Semaphore>,
    count: usize,
}

/// Which seats are all taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    All,
    ForUnknown,
}

/// Free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    _one: OwnedSemaphorePermit,
    _for_guests: Option<OwnedSemaphorePermit>,
    _for_unknown: Option<OwnedSemaphorePermit>,
}

impl Seats {
    pub fn new(count: usize) -> Seats {
        let count = count.min(Semaphore::MAX_PERMITS);
        Seats {
            all: Arc::new(Semaphore::new(count)),
            for_guests: Arc::new(Semaphore::new(count - count / 16)),
            for_unknown: Arc::new(Semaphore::new(count.div_ceil(2))),
            count,
        }
    }

    pub fn take(&self, rights: Rights) -> Result<Seat, Taken> {
        let for_unknown = match rights {
            Rights::None => {
                let seat = self.for_unknown.clone().try_acquire_owned();
                Some(seat.map_err(|_| Taken::ForUnknown)?)
            }
            Rights::User | Rights::Owner => None,
        };
        let for_guests = match rights {
            Rights::None | Rights::User => {
                let seat = self.for_guests.clone().try_acquire_owned();
                Some(seat.map_err(|_| Taken::All)?)
            }
            Rights::Owner => None,
        };
        let one = self.all.clone().try_acquire_owned();
        Ok(Seat {
            _one: one.map_err(|_| Taken::All)?,
            _for_guests: for_guests,
            _for_unknown: for_unknown,
        })
    }

    pub fn taken(&self) -> usize {
        self.count - self.all.available_permits()
    }

    /// Returns when there is no connection left.
    pub async fn empty(&self) {
        let all = u32::try_from(self.count).unwrap_or(u32::MAX);
        let _ = self.all.acquire_many(all).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_leave_half_of_the_seats_free() {
        let seats = Seats::new(5);
        let strangers: Vec<_> = (0..4)
            .map_while(|_| seats.take(Rights::None).ok())
            .collect();
        assert_eq!((strangers.len(), seats.taken()), (3, 3));
        assert_eq!(seats.take(Rights::None).err(), Some(Taken::ForUnknown));
        let known = [seats.take(Rights::Owner), seats.take(Rights::Owner)];
        assert!(known.iter().all(Result::is_ok));
        assert_eq!(seats.take(Rights::Owner).err(), Some(Taken::All));
        drop(strangers);
        assert_eq!(seats.taken(), 2);
        assert!(seats.take(Rights::None).is_ok());
    }

    #[test]
    fn guests_leave_some_to_the_owner() {
        let seats = Seats::new(32);
        let guests: Vec<_> = (0..40)
            .map_while(|_| seats.take(Rights::User).ok())
            .collect();
        assert_eq!(guests.len(), 30);
        assert!(seats.take(Rights::Owner).is_ok());
    }

    #[test]
    fn a_single_seat_is_for_everyone() {
        let seats = Seats::new(1);
        let seat = seats.take(Rights::None).expect("free");
        assert_eq!(seats.take(Rights::Owner).err(), Some(Taken::All));
        drop(seat);
        assert!(seats.take(Rights::Owner).is_ok());
    }
}
