use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::guard::Rights;

/// One seat for each connection that is allowed. A connection keeps its seat until it ends.
///
/// Clients that have no right to be here until they show a token get no more than half of the seats, so
/// that the other half is there for those who are known, however many strangers come. And some are for the agent's own
/// user and root alone.
///
/// Of their half, unknown clients leave a few seats free: when one of those is taken, the oldest connection on which no
/// token was shown is closed. So connections that say nothing, slowly, do not keep others from `/healthz`.
#[derive(Debug, Clone)]
pub(crate) struct Seats {
    all: Arc<Semaphore>,
    for_guests: Arc<Semaphore>,
    for_unknown: Arc<Semaphore>,
    /// Of `for_unknown`: how many stay free.
    reserve: usize,
    /// The connections of unknown clients, oldest first.
    unknown: Arc<Mutex<VecDeque<Weak<Standing>>>>,
    count: usize,
}

/// Whether a connection of an unknown client may be closed to make room for another one.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    is_admitted: AtomicBool,
    displaced: Notify,
}

impl Standing {
    /// The client showed that it has rights: its connection stays.
    pub fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// Returns when the connection is to be closed.
    pub async fn displaced(&self) {
        self.displaced.notified().await;
    }
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
        let for_unknown = count.div_ceil(2);
        Seats {
            all: Arc::new(Semaphore::new(count)),
            for_guests: Arc::new(Semaphore::new(count - count / 16)),
            for_unknown: Arc::new(Semaphore::new(for_unknown)),
            reserve: (for_unknown / 8).max(1).min(for_unknown.saturating_sub(1)),
            unknown: Arc::default(),
            count,
        }
    }

    pub fn take(&self, rights: Rights, standing: &Arc<Standing>) -> Result<Seat, Taken> {
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
        let one = one.map_err(|_| Taken::All)?;
        if for_unknown.is_some() {
            self.keep_reserve(standing);
        }
        Ok(Seat {
            _one: one,
            _for_guests: for_guests,
            _for_unknown: for_unknown,
        })
    }

    /// Notes the connection of an unknown client, and has the oldest one closed if too few seats are left.
    fn keep_reserve(&self, newest: &Arc<Standing>) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let may_go = |standing: &Standing| !standing.is_admitted.load(Ordering::Relaxed);
        unknown.retain(|standing| standing.upgrade().is_some_and(|one| may_go(&one)));
        if self.for_unknown.available_permits() < self.reserve
            && let Some(oldest) = unknown.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.displaced.notify_one();
        }
        unknown.push_back(Arc::downgrade(newest));
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
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn take(seats: &Seats, rights: Rights) -> Result<Seat, Taken> {
        seats.take(rights, &Arc::default())
    }

    #[test]
    fn strangers_leave_half_of_the_seats_free() {
        let seats = Seats::new(5);
        let strangers: Vec<_> = (0..4)
            .map_while(|_| take(&seats, Rights::None).ok())
            .collect();
        assert_eq!((strangers.len(), seats.taken()), (3, 3));
        assert_eq!(take(&seats, Rights::None).err(), Some(Taken::ForUnknown));
        let known = [take(&seats, Rights::Owner), take(&seats, Rights::Owner)];
        assert!(known.iter().all(Result::is_ok));
        assert_eq!(take(&seats, Rights::Owner).err(), Some(Taken::All));
        drop(strangers);
        assert_eq!(seats.taken(), 2);
        assert!(take(&seats, Rights::None).is_ok());
    }

    #[test]
    fn guests_leave_some_to_the_owner() {
        let seats = Seats::new(32);
        let guests: Vec<_> = (0..40)
            .map_while(|_| take(&seats, Rights::User).ok())
            .collect();
        assert_eq!(guests.len(), 30);
        assert!(take(&seats, Rights::Owner).is_ok());
    }

    #[test]
    fn a_single_seat_is_for_everyone() {
        let seats = Seats::new(1);
        let seat = take(&seats, Rights::None).expect("free");
        assert_eq!(take(&seats, Rights::Owner).err(), Some(Taken::All));
        drop(seat);
        assert!(take(&seats, Rights::Owner).is_ok());
    }

    #[test]
    fn the_oldest_unknown_connections_make_room_unless_a_token_was_shown() {
        let seats = Seats::new(8);
        let standings: Vec<Arc<Standing>> = (0..5).map(|_| Arc::default()).collect();
        standings[1].admit();
        let is_displaced = |at: usize| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(standings[at].displaced())
                .poll(&mut context)
                .is_ready()
        };
        let mut held = Vec::new();
        for standing in &standings[..3] {
            held.push(seats.take(Rights::None, standing).expect("free"));
        }
        assert!(!(0..3).any(is_displaced), "one seat is left");
        held.push(seats.take(Rights::None, &standings[3]).expect("the last"));
        assert!(is_displaced(0), "the oldest");
        // Its connection ends.
        held.remove(0);
        held.push(seats.take(Rights::None, &standings[4]).expect("free"));
        assert!(is_displaced(2), "the next one was admitted");
        assert!(!is_displaced(1) && !is_displaced(3) && !is_displaced(4));
    }
}
