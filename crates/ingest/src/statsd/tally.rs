//! The books of one sender's lines, until they are entered into the ledger.

use pegel_metric::Reason;

use crate::gate::Gate;
use crate::senders::Sender;

/// received = kept + dropped holds by construction: nothing is counted as received on its own.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub kept: u64,
    dropped: [u64; Reason::ALL.len()],
}

impl Tally {
    #[inline]
    pub fn took(&mut self, result: Result<(), Reason>) {
        match result {
            Ok(()) => self.kept += 1,
            Err(reason) => self.dropped(reason, 1),
        }
    }

    #[cold]
    pub fn dropped(&mut self, reason: Reason, count: u64) {
        self.dropped[reason as usize] += count;
    }

    /// The first reason for which anything was dropped.
    pub fn reason(&self) -> Option<Reason> {
        let mut reasons = Reason::ALL.iter().zip(self.dropped);
        reasons
            .find(|(_, count)| *count > 0)
            .map(|(reason, _)| *reason)
    }

    /// Enters everything on the sender's account and begins anew.
    pub fn settle(&mut self, gate: &Gate, sender: &Sender) {
        let tally = std::mem::take(self);
        let dropped: u64 = tally.dropped.iter().sum();
        if tally.kept + dropped == 0 {
            return;
        }
        gate.received(sender, tally.kept + dropped);
        gate.kept(sender, tally.kept);
        if dropped > 0 {
            for (&reason, count) in Reason::ALL.iter().zip(tally.dropped) {
                if count > 0 {
                    gate.dropped(sender, reason, count);
                }
            }
        }
    }
}
