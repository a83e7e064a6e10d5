use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One seat for each connection that is allowed. A connection keeps its seat until it ends.
///
/// Clients that have no right to be here until they show a token get no more than half of the seats, so
/// that the other half is there for those who are known, however many strangers come.
#[derive(Debug, Clone)]
pub(crate) struct Seats {
    all: Arc<Semaphore>,
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
    _for_unknown: Option<OwnedSemaphorePermit>,
}

impl Seats {
    pub fn new(count: usize) -> Seats {
        let count = count.min(Semaphore::MAX_PERMITS);
        Seats {
            all: Arc::new(Semaphore::new(count)),
            for_unknown: Arc::new(Semaphore::new(count.div_ceil(2))),
            count,
        }
    }

    pub fn take(&self, is_known: bool) -> Result<Seat, Taken> {
        let for_unknown = match is_known {
            true => None,
            false => {
                let seat = self.for_unknown.clone().try_acquire_owned();
                Some(seat.map_err(|_| Taken::ForUnknown)?)
            }
        };
        let one = self.all.clone().try_acquire_owned();
        Ok(Seat {
            _one: one.map_err(|_| Taken::All)?,
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
        let strangers: Vec<_> = (0..4).map_while(|_| seats.take(false).ok()).collect();
        assert_eq!((strangers.len(), seats.taken()), (3, 3));
        assert_eq!(seats.take(false).err(), Some(Taken::ForUnknown));
        let known = [seats.take(true), seats.take(true)];
        assert!(known.iter().all(Result::is_ok));
        assert_eq!(seats.take(true).err(), Some(Taken::All));
        drop(strangers);
        assert_eq!(seats.taken(), 2);
        assert!(seats.take(false).is_ok());
    }

    #[test]
    fn a_single_seat_is_for_everyone() {
        let seats = Seats::new(1);
        let seat = seats.take(false).expect("free");
        assert_eq!(seats.take(true).err(), Some(Taken::All));
        drop(seat);
        assert!(seats.take(true).is_ok());
    }
}
