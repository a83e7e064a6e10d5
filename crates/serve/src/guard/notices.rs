//! What the log says about refusals: the first of each kind at once, then at most one a minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Peer;
use crate::refusals::Refusal;

const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Notices {
    /// A handful of kinds at most.
    kinds: Mutex<Vec<Kind>>,
}

#[derive(Debug)]
struct Kind {
    refusal: Refusal,
    said: Instant,
    unsaid: u64,
}

impl Notices {
    pub fn say(&self, refusal: Refusal, peer: &Peer, why: impl FnOnce() -> String) {
        if let Some(unsaid) = self.turn(refusal, Instant::now()) {
            tracing::warn!(%peer, unsaid, "a request was refused: {}", why());
        }
    }

    /// How many of this kind were not said since the last one that was; `None`: not now.
    fn turn(&self, refusal: Refusal, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kind) = kinds.iter_mut().find(|kind| kind.refusal == refusal) else {
            kinds.push(Kind {
                refusal,
                said: now,
                unsaid: 0,
            });
            return Some(0);
        };
        if now.duration_since(kind.said) < PAUSE {
            kind.unsaid += 1;
            return None;
        }
        kind.said = now;
        Some(std::mem::take(&mut kind.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_said_once_a_minute() {
        let notices = Notices::default();
        let now = Instant::now();
        assert_eq!(notices.turn(Refusal::Host, now), Some(0));
        for _ in 0..1000 {
            assert_eq!(notices.turn(Refusal::Host, now + PAUSE / 2), None);
        }
        assert_eq!(notices.turn(Refusal::Origin, now), Some(0), "another kind");
        assert_eq!(notices.turn(Refusal::Host, now + PAUSE), Some(1000));
        assert_eq!(notices.turn(Refusal::Host, now + PAUSE), None);
    }
}
