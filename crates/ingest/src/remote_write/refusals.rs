//! Counts the refused samples of a request, and describes them for its sender.

use std::fmt;

use pegel_metric::DropReason;

/// The refused samples of one request, by reason. The first of each reason is described.
#[derive(Debug, Default)]
pub struct RefusedSamples {
    reasons: Vec<RefusedReason>,
}

#[derive(Debug)]
struct RefusedReason {
    reason: DropReason,
    count: u64,
    example: String,
}

impl RefusedSamples {
    /// Counts samples; `describe` is called for the first ones of a reason.
    pub(crate) fn add(
        &mut self,
        reason: DropReason,
        count: u64,
        describe: impl FnOnce() -> String,
    ) {
        if count == 0 {
            return;
        }
        match self.reasons.iter_mut().find(|known| known.reason == reason) {
            Some(known) => known.count += count,
            None => self.reasons.push(RefusedReason {
                reason,
                count,
                example: describe(),
            }),
        }
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        self.reasons.iter().map(|known| (known.reason, known.count))
    }

    pub fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.reasons.iter().map(|known| known.count).sum()
    }

    /// Returns whether the same request would be accepted later, because only a limit on bytes per
    /// second refused it.
    pub fn is_temporary(&self) -> bool {
        let mut reasons = self.reasons.iter();
        !self.is_empty() && reasons.all(|known| known.reason == DropReason::SenderRate)
    }
}

impl fmt::Display for RefusedSamples {
    /// Writes `2 bad_name (duplicate label "a"), 1 too_old (…)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, known) in self.reasons.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            let (count, reason) = (known.count, known.reason.as_str());
            write!(f, "{comma}{count} {reason} ({})", known.example)?;
        }
        Ok(())
    }
}

/// Describes a refusal by the store.
pub(crate) fn of_store(reason: DropReason) -> &'static str {
    match reason {
        DropReason::TooOld => "the timestamp is older than the store's retention",
        DropReason::Future => "the timestamp is more than ten minutes in the future",
        DropReason::SeriesLimit => "the agent has reached its limit of series (limits.series)",
        _ => "the store rejected the sample",
    }
}
