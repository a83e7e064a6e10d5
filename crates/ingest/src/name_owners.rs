//! The owner of each name: the input that may write it.
//!
//! A series has one input. If two inputs use one name, lanes take precedence over points and
//! pushes, and those over statsd, whose senders over UDP are unknown; among equals the first keeps
//! it. The other input continues under the same name with the label `input`. [`crate::admission`]
//! claims the text of every new series here.
//!
//! A name without the label `user` stays with its input as long as the store may have its samples:
//! otherwise anyone could add to the series of the agent's user by UDP. Names with that label are
//! free at once, as only their user can produce them.
//!
//! statsd has the lowest precedence, so its names, which may be very many, are not stored here: it
//! checks whether a name is free, and at each pass calls [`NameOwners::take_claimed`] to find names
//! that it must give up.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::{Input, Millis};

/// The label of a series whose plain name belongs to another input.
pub const INPUT_LABEL: &str = "input";
/// The most claimed names that are listed for statsd. When there are more, it checks all of its own
/// names.
const CLAIMED_MAX: usize = 65_536;

/// The most names that are kept without a series in use; the ones that were used last stay.
const UNUSED_MAX: usize = 1 << 18;

/// Returns the precedence of an input: the higher one gets the plain name, whichever came first.
fn precedence(input: Input) -> u8 {
    match input {
        Input::Lane => 2,
        Input::Push
        | Input::Put
        | Input::Http
        | Input::Pull
        | Input::Influx
        | Input::Pushgateway
        | Input::Otlp => 1,
        _ => 0,
    }
}

/// The owners of the names of lanes, points and pushes, by the hash of the series' text.
#[derive(Debug, Default)]
pub struct NameOwners {
    hasher: RandomState,
    names: Mutex<HashMap<u64, NameOwner>>,
    /// How often a name in use changed its owner.
    takeovers: AtomicU64,
    is_watched: AtomicBool,
    claimed: Mutex<ClaimedNames>,
}

#[derive(Debug)]
struct NameOwner {
    input: Input,
    /// The number of series in use with this name: several if rules map names to one. 0: only in
    /// the store.
    use_count: u32,
    /// Whether the name stays with its input after its last use.
    is_lasting: bool,
    /// When it was first found unused.
    unused_since: Option<Millis>,
}

impl NameOwner {
    fn new(input: Input, use_count: u32, is_lasting: bool) -> NameOwner {
        NameOwner {
            input,
            use_count,
            is_lasting,
            unused_since: None,
        }
    }
}

#[derive(Debug, Default)]
struct ClaimedNames {
    texts: Vec<Box<str>>,
    is_overflowed: bool,
}

/// A name in use. Released when dropped, unless it was kept.
#[derive(Debug)]
pub(crate) struct NameClaim {
    owners: Arc<NameOwners>,
    hash: u64,
    input: Input,
    is_kept: bool,
}

impl NameClaim {
    /// Keeps the name for its input after its last use: the series was admitted.
    pub(crate) fn make_lasting(&self) {
        if let Some(owner) = self.owners.names().get_mut(&self.hash) {
            owner.is_lasting |= owner.input == self.input;
        }
    }

    /// Leaves the release to [`NameOwners::release`].
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        if !self.is_kept {
            self.owners.release_hash(self.hash, self.input);
        }
    }
}

impl NameOwners {
    /// Claims a name. Fails if another input owns it. Returns no claim for statsd, whose names are
    /// not stored, and for remote write, whose series are a namespace of their own.
    pub(crate) fn claim(
        self: &Arc<NameOwners>,
        text: &str,
        input: Input,
    ) -> Result<Option<NameClaim>, NameTaken> {
        if input == Input::RemoteWrite {
            return Ok(None);
        }
        let hash = self.hasher.hash_one(text);
        let mut names = self.names();
        let owner = names.get_mut(&hash);
        if precedence(input) == 0 {
            return owner.map_or(Ok(None), |_| Err(NameTaken));
        }
        match owner {
            Some(owner) if owner.input == input => {
                owner.use_count += 1;
                owner.unused_since = None;
            }
            Some(owner) if precedence(owner.input) >= precedence(input) => return Err(NameTaken),
            Some(owner) => {
                if owner.use_count > 0 {
                    self.takeovers.fetch_add(1, Ordering::Relaxed);
                }
                *owner = NameOwner::new(input, 1, owner.is_lasting);
                self.record_claim(text);
            }
            None => {
                names.insert(hash, NameOwner::new(input, 1, false));
                self.record_claim(text);
            }
        }
        let owners = self.clone();
        Ok(Some(NameClaim {
            owners,
            hash,
            input,
            is_kept: false,
        }))
    }

    /// Records the owner of a name found in the store after a restart, until
    /// [`NameOwners::forget_unused`].
    pub fn restore_owner(&self, text: &str, input: Input, is_lasting: bool) {
        if precedence(input) > 0 {
            let hash = self.hasher.hash_one(text);
            let owner = NameOwner::new(input, 0, is_lasting);
            self.names().entry(hash).or_insert(owner);
        }
    }

    /// Frees names that no series in use has; lasting ones after `keep`, when the store has no
    /// samples of them.
    pub fn forget_unused(&self, now: Millis, keep: Millis) {
        let mut names = self.names();
        let mut unused = Vec::new();
        names.retain(|_, owner| {
            if owner.use_count > 0 {
                return true;
            }
            let since = *owner.unused_since.get_or_insert(now);
            let stays = owner.is_lasting && now.saturating_sub(since) <= keep;
            if stays {
                unused.push(since);
            }
            stays
        });
        if let Some(surplus) = unused.len().checked_sub(UNUSED_MAX).filter(|n| *n > 0) {
            let (_, &mut latest_freed, _) = unused.select_nth_unstable(surplus - 1);
            names.retain(|_, owner| owner.unused_since.is_none_or(|since| since > latest_freed));
        }
    }

    pub(crate) fn release(&self, text: &str, input: Input) {
        self.release_hash(self.hasher.hash_one(text), input);
    }

    fn release_hash(&self, hash: u64, input: Input) {
        let mut names = self.names();
        // A name that was taken over no longer belongs to this input.
        if let Some(owner) = names.get_mut(&hash).filter(|owner| owner.input == input) {
            owner.use_count = owner.use_count.saturating_sub(1);
            if owner.use_count == 0 && !owner.is_lasting {
                names.remove(&hash);
            }
        }
    }

    /// Returns whether the name belongs to an input other than this one.
    pub fn is_owned_by_other(&self, text: &str, input: Input) -> bool {
        let names = self.names();
        let owner = names.get(&self.hasher.hash_one(text));
        owner.is_some_and(|owner| owner.input != input)
    }

    /// Returns a number that changes whenever a name in use changes its owner.
    pub fn takeovers(&self) -> u64 {
        self.takeovers.load(Ordering::Relaxed)
    }

    /// Starts listing claimed names for [`NameOwners::take_claimed`].
    pub fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Returns the names claimed since the last call, or `None` if there were too many to list.
    pub fn take_claimed(&self) -> Option<Vec<Box<str>>> {
        let claimed = &mut *self.claimed.lock();
        let ClaimedNames {
            texts,
            is_overflowed: are_too_many,
        } = std::mem::take(claimed);
        (!are_too_many).then_some(texts)
    }

    fn record_claim(&self, text: &str) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let mut claimed = self.claimed.lock();
        if claimed.texts.len() < CLAIMED_MAX {
            claimed.texts.push(text.into());
        } else {
            claimed.is_overflowed = true;
        }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<u64, NameOwner>> {
        self.names.lock()
    }
}

/// The error that another input owns the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameTaken;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_own_names_before_points_and_points_before_statsd() {
        let owners = Arc::new(NameOwners::default());
        owners.watch();
        assert!(owners.claim("x", Input::Statsd).is_ok(), "it is free");
        let put = owners.claim("x", Input::Put).expect("before statsd");
        assert!(owners.claim("x", Input::Statsd).is_err());
        assert!(
            owners.claim("x", Input::Http).is_err(),
            "the first of equals"
        );
        assert_eq!(owners.takeovers(), 0);
        let lane = owners.claim("x", Input::Lane).expect("before points");
        assert_eq!(owners.takeovers(), 1);
        assert!(owners.is_owned_by_other("x", Input::Put));
        drop(put);
        assert!(
            owners.claim("x", Input::Put).is_err(),
            "still owned by the lane"
        );
        assert_eq!(owners.take_claimed().expect("few").len(), 2);
        drop(lane);
        assert!(owners.claim("x", Input::Statsd).is_ok(), "free again");
    }

    #[test]
    fn what_the_store_knows_keeps_its_owner_for_a_while() {
        let owners = Arc::new(NameOwners::default());
        owners.restore_owner("x", Input::Put, false);
        assert!(owners.claim("x", Input::Push).is_err());
        assert!(owners.claim("x", Input::Statsd).is_err());
        drop(owners.claim("x", Input::Put).expect("its own"));
        owners.restore_owner("y", Input::Lane, false);
        owners.forget_unused(0, 100);
        assert!(owners.claim("y", Input::Statsd).is_ok());
    }

    #[test]
    fn a_name_stays_with_its_input_as_long_as_the_store_may_have_its_samples() {
        let owners = Arc::new(NameOwners::default());
        let is_free = |text| owners.claim(text, Input::Statsd).is_ok();
        let claim = |text| owners.claim(text, Input::Put).expect("free");
        let claim = |text| claim(text).expect("points claim names");
        owners.restore_owner("restored", Input::Put, true);
        let used = claim("used");
        used.make_lasting();
        drop(used);
        drop(claim("refused"));
        assert!(is_free("refused"), "it was not admitted");
        for now in [0, 100] {
            owners.forget_unused(now, 100);
            assert!(!is_free("used") && !is_free("restored"), "at {now}");
        }
        drop(claim("used"));
        owners.forget_unused(101, 100);
        assert!(!is_free("used") && is_free("restored"));
        owners.forget_unused(202, 100);
        assert!(is_free("used"));
    }

    #[test]
    fn unused_names_have_a_bound_and_the_oldest_are_freed() {
        let owners = Arc::new(NameOwners::default());
        owners.restore_owner("old", Input::Put, true);
        owners.forget_unused(0, Millis::MAX);
        for at in 0..UNUSED_MAX {
            owners.restore_owner(&at.to_string(), Input::Put, true);
        }
        owners.forget_unused(1, Millis::MAX);
        assert_eq!(owners.names().len(), UNUSED_MAX);
        assert!(owners.claim("old", Input::Statsd).is_ok());
    }

    #[test]
    fn claims_beyond_the_list_are_not_lost() {
        let owners = Arc::new(NameOwners::default());
        owners.watch();
        let all: Vec<_> = (0..=CLAIMED_MAX)
            .map(|at| owners.claim(&at.to_string(), Input::Put).expect("free"))
            .collect();
        assert_eq!(owners.take_claimed(), None);
        assert_eq!(owners.take_claimed(), Some(Vec::new()));
        drop(all);
    }
}
