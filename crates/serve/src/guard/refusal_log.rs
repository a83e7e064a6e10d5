//! Logs refusals at a limited rate: the first of each kind at once, then at most one per minute.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::PeerIdentity;
use crate::refusals::ClientRefusal;

const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// One entry per kind of refusal, a handful at most.
    entries: Mutex<Vec<RefusalLogEntry>>,
}

#[derive(Debug)]
struct RefusalLogEntry {
    refusal: ClientRefusal,
    last_logged: Instant,
    suppressed: u64,
}

impl RefusalLog {
    pub(super) fn log(
        &self,
        refusal: ClientRefusal,
        peer: &PeerIdentity,
        reason: impl FnOnce() -> String,
    ) {
        if let Some(suppressed) = self.count_or_suppress(refusal, Instant::now()) {
            tracing::warn!(%peer, suppressed, "request refused: {}", reason());
        }
    }

    /// Returns the number of refusals of this kind that were suppressed since the last one logged;
    /// `None` if this one is suppressed, too.
    fn count_or_suppress(&self, refusal: ClientRefusal, now: Instant) -> Option<u64> {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.iter_mut().find(|entry| entry.refusal == refusal) else {
            entries.push(RefusalLogEntry {
                refusal,
                last_logged: now,
                suppressed: 0,
            });
            return Some(0);
        };
        if now.duration_since(entry.last_logged) < LOG_INTERVAL {
            entry.suppressed += 1;
            return None;
        }
        entry.last_logged = now;
        Some(std::mem::take(&mut entry.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_said_once_a_minute() {
        let log = RefusalLog::default();
        let now = Instant::now();
        assert_eq!(log.count_or_suppress(ClientRefusal::Host, now), Some(0));
        for _ in 0..1000 {
            assert_eq!(
                log.count_or_suppress(ClientRefusal::Host, now + LOG_INTERVAL / 2),
                None
            );
        }
        assert_eq!(
            log.count_or_suppress(ClientRefusal::Origin, now),
            Some(0),
            "another kind"
        );
        assert_eq!(
            log.count_or_suppress(ClientRefusal::Host, now + LOG_INTERVAL),
            Some(1000)
        );
        assert_eq!(
            log.count_or_suppress(ClientRefusal::Host, now + LOG_INTERVAL),
            None
        );
    }
}
