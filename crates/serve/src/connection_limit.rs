//! Limits the number of connections, with reserves for known clients.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::guard::AccessRights;

/// The limit on concurrent connections. Each connection holds a [`ConnectionPermit`] until it ends.
///
/// Clients without rights (no token shown yet) get at most half of the permits, so that the other
/// half stays available to known clients however many unknown ones connect. One in 16 is reserved
/// for the agent's own user and root.
///
/// Of their half, unknown clients leave a few permits free: when one of those is taken, the oldest
/// connection without a token is closed. Slow or silent connections therefore cannot block
/// `/healthz` for others.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimit {
    all: Arc<Semaphore>,
    for_non_owners: Arc<Semaphore>,
    for_unknown: Arc<Semaphore>,
    /// How many permits of `for_unknown` stay free.
    reserve: usize,
    /// The connections of unknown clients, oldest first.
    unknown: Arc<Mutex<VecDeque<Weak<EvictionState>>>>,
    count: usize,
}

/// Whether the connection of an unknown client may be closed in favour of a newer one.
#[derive(Debug, Default)]
pub(crate) struct EvictionState {
    is_admitted: AtomicBool,
    displaced: Notify,
}

impl EvictionState {
    /// Marks the client as authenticated: its connection is not displaced.
    pub(crate) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// Resolves when the connection must be closed.
    pub(crate) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

/// Which limit is reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    All,
    ForUnknown,
}

/// The permit of one connection. Released when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _one: OwnedSemaphorePermit,
    _for_non_owners: Option<OwnedSemaphorePermit>,
    _for_unknown: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimit {
    pub(crate) fn new(count: usize) -> ConnectionLimit {
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

    pub(crate) fn acquire(
        &self,
        rights: AccessRights,
        standing: &Arc<EvictionState>,
    ) -> Result<ConnectionPermit, LimitReached> {
        let for_unknown = match rights {
            AccessRights::None => {
                let permit = self.for_unknown.clone().try_acquire_owned();
                Some(permit.map_err(|_| LimitReached::ForUnknown)?)
            }
            AccessRights::User | AccessRights::Owner => None,
        };
        let for_non_owners = match rights {
            AccessRights::None | AccessRights::User => {
                let permit = self.for_non_owners.clone().try_acquire_owned();
                Some(permit.map_err(|_| LimitReached::All)?)
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
            _for_non_owners: for_non_owners,
            _for_unknown: for_unknown,
        })
    }

    /// Registers the connection of an unknown client, and displaces the oldest one if too few
    /// permits are left.
    fn keep_reserve(&self, newest: &Arc<EvictionState>) {
        let mut unknown = self.unknown.lock();
        let is_displaceable =
            |standing: &EvictionState| !standing.is_admitted.load(Ordering::Relaxed);
        unknown.retain(|standing| standing.upgrade().is_some_and(|one| is_displaceable(&one)));
        if self.for_unknown.available_permits() < self.reserve
            && let Some(oldest) = unknown.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.displaced.notify_one();
        }
        unknown.push_back(Arc::downgrade(newest));
    }

    pub(crate) fn in_use(&self) -> usize {
        self.count - self.all.available_permits()
    }

    /// Resolves when no connection is left.
    pub(crate) async fn wait_until_idle(&self) {
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
        limit: &ConnectionLimit,
        rights: AccessRights,
    ) -> Result<ConnectionPermit, LimitReached> {
        limit.acquire(rights, &Arc::default())
    }

    #[test]
    fn strangers_leave_half_of_the_seats_free() {
        let limit = ConnectionLimit::new(5);
        let strangers: Vec<_> = (0..4)
            .map_while(|_| take(&limit, AccessRights::None).ok())
            .collect();
        assert_eq!((strangers.len(), limit.in_use()), (3, 3));
        assert_eq!(
            take(&limit, AccessRights::None).err(),
            Some(LimitReached::ForUnknown)
        );
        let known = [
            take(&limit, AccessRights::Owner),
            take(&limit, AccessRights::Owner),
        ];
        assert!(known.iter().all(Result::is_ok));
        assert_eq!(
            take(&limit, AccessRights::Owner).err(),
            Some(LimitReached::All)
        );
        drop(strangers);
        assert_eq!(limit.in_use(), 2);
        assert!(take(&limit, AccessRights::None).is_ok());
    }

    #[test]
    fn guests_leave_some_to_the_owner() {
        let limit = ConnectionLimit::new(32);
        let guests: Vec<_> = (0..40)
            .map_while(|_| take(&limit, AccessRights::User).ok())
            .collect();
        assert_eq!(guests.len(), 30);
        assert!(take(&limit, AccessRights::Owner).is_ok());
    }

    #[test]
    fn a_single_seat_is_for_everyone() {
        let limit = ConnectionLimit::new(1);
        let permit = take(&limit, AccessRights::None).expect("free");
        assert_eq!(
            take(&limit, AccessRights::Owner).err(),
            Some(LimitReached::All)
        );
        drop(permit);
        assert!(take(&limit, AccessRights::Owner).is_ok());
    }

    #[test]
    fn the_oldest_unknown_connections_make_room_unless_a_token_was_shown() {
        let limit = ConnectionLimit::new(8);
        let standings: Vec<Arc<EvictionState>> = (0..5).map(|_| Arc::default()).collect();
        standings[1].admit();
        let is_displaced = |at: usize| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(standings[at].displaced())
                .poll(&mut context)
                .is_ready()
        };
        let mut held = Vec::new();
        for standing in &standings[..3] {
            held.push(limit.acquire(AccessRights::None, standing).expect("free"));
        }
        assert!(!(0..3).any(is_displaced), "one permit is left");
        held.push(
            limit
                .acquire(AccessRights::None, &standings[3])
                .expect("the last"),
        );
        assert!(is_displaced(0), "the oldest");
        // The displaced connection ends.
        held.remove(0);
        held.push(
            limit
                .acquire(AccessRights::None, &standings[4])
                .expect("free"),
        );
        assert!(is_displaced(2), "the next one was admitted");
        assert!(!is_displaced(1) && !is_displaced(3) && !is_displaced(4));
    }
}
