use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::guard::AccessRights;

/// One seat for each connection that is allowed. A connection keeps its seat until it ends.
///
/// Clients that have no right to be here until they show a token get no more than half of the seats, so
/// that the other half is there for those who are known, however many strangers come. And some are for the agent's own
/// user and root alone.
///
/// Of their half, unknown clients leave a few seats free: when one of those is taken, the oldest connection on which no
/// token was shown is closed. So connections that say nothing, slowly, do not keep others from `/healthz`.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimit {
    all: Arc<Semaphore>,
    for_non_owners: Arc<Semaphore>,
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
pub(crate) enum LimitReached {
    All,
    ForUnknown,
}

/// Free again when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _one: OwnedSemaphorePermit,
    _for_non_owners: Option<OwnedSemaphorePermit>,
    _for_unknown: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimit {
    pub fn new(count: usize) -> ConnectionLimit {
        let count = count.min(Semaphore::MAX_PERMITS);
        let for_unknown = count.div_ceil(2);
        ConnectionLimit {
            all: Arc::new(Semaphore::new(count)),
            for_non_owners: Arc::new(Semaphore::new(count - count / 16)),
            for_unknown: Arc::new(Semaphore::new(for_unknown)),
            reserve: (for_unknown / 8).max(1).min(for_unknown.saturating_sub(1)),
            unknown: Arc::default(),
            count,
        }
    }

    pub fn acquire(
        &self,
        rights: AccessRights,
        standing: &Arc<Standing>,
    ) -> Result<ConnectionPermit, LimitReached> {
        let for_unknown = match rights {
            AccessRights::None => {
                let seat = self.for_unknown.clone().try_acquire_owned();
                Some(seat.map_err(|_| LimitReached::ForUnknown)?)
            }
            AccessRights::User | AccessRights::Owner => None,
        };
        let for_guests = match rights {
            AccessRights::None | AccessRights::User => {
                let seat = self.for_non_owners.clone().try_acquire_owned();
                Some(seat.map_err(|_| LimitReached::All)?)
            }
            AccessRights::Owner => None,
        };
        let one = self.all.clone().try_acquire_owned();
        let one = one.map_err(|_| LimitReached::All)?;
        if for_unknown.is_some() {
            self.keep_reserve(standing);
        }
        Ok(ConnectionPermit {
            _one: one,
            _for_non_owners: for_guests,
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

    pub fn in_use(&self) -> usize {
        self.count - self.all.available_permits()
    }

    /// Returns when there is no connection left.
    pub async fn wait_until_idle(&self) {
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

    fn take(
        seats: &ConnectionLimit,
        rights: AccessRights,
    ) -> Result<ConnectionPermit, LimitReached> {
        seats.acquire(rights, &Arc::default())
    }

    #[test]
    fn strangers_leave_half_of_the_seats_free() {
        let seats = ConnectionLimit::new(5);
        let strangers: Vec<_> = (0..4)
            .map_while(|_| take(&seats, AccessRights::None).ok())
            .collect();
        assert_eq!((strangers.len(), seats.in_use()), (3, 3));
        assert_eq!(
            take(&seats, AccessRights::None).err(),
            Some(LimitReached::ForUnknown)
        );
        let known = [
            take(&seats, AccessRights::Owner),
            take(&seats, AccessRights::Owner),
        ];
        assert!(known.iter().all(Result::is_ok));
        assert_eq!(
            take(&seats, AccessRights::Owner).err(),
            Some(LimitReached::All)
        );
        drop(strangers);
        assert_eq!(seats.in_use(), 2);
        assert!(take(&seats, AccessRights::None).is_ok());
    }

    #[test]
    fn guests_leave_some_to_the_owner() {
        let seats = ConnectionLimit::new(32);
        let guests: Vec<_> = (0..40)
            .map_while(|_| take(&seats, AccessRights::User).ok())
            .collect();
        assert_eq!(guests.len(), 30);
        assert!(take(&seats, AccessRights::Owner).is_ok());
    }

    #[test]
    fn a_single_seat_is_for_everyone() {
        let seats = ConnectionLimit::new(1);
        let seat = take(&seats, AccessRights::None).expect("free");
        assert_eq!(
            take(&seats, AccessRights::Owner).err(),
            Some(LimitReached::All)
        );
        drop(seat);
        assert!(take(&seats, AccessRights::Owner).is_ok());
    }

    #[test]
    fn the_oldest_unknown_connections_make_room_unless_a_token_was_shown() {
        let seats = ConnectionLimit::new(8);
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
            held.push(seats.acquire(AccessRights::None, standing).expect("free"));
        }
        assert!(!(0..3).any(is_displaced), "one seat is left");
        held.push(
            seats
                .acquire(AccessRights::None, &standings[3])
                .expect("the last"),
        );
        assert!(is_displaced(0), "the oldest");
        // Its connection ends.
        held.remove(0);
        held.push(
            seats
                .acquire(AccessRights::None, &standings[4])
                .expect("free"),
        );
        assert!(is_displaced(2), "the next one was admitted");
        assert!(!is_displaced(1) && !is_displaced(3) && !is_displaced(4));
    }
}
