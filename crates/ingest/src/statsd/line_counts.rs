//! The counts of one sender's lines, until they are added to the ledger.

use pegel_metric::DropReason;

use crate::admission::{Admission, AdmissionError};
use crate::senders::Sender;

/// received = kept + dropped holds by construction: nothing is counted as received on its own.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct LineCounts {
    pub kept: u64,
    dropped: [u64; DropReason::ALL.len()],
    admission_error: Option<AdmissionError>,
}

/// The reason why a line was dropped, in whole or in part.
#[derive(Debug)]
pub struct LineRefusal {
    pub reason: DropReason,
    /// The error of admission, if that refused the metric.
    pub error: Option<AdmissionError>,
}

impl LineCounts {
    #[inline]
    pub(super) fn count_result(&mut self, result: Result<(), DropReason>) {
        match result {
            Ok(()) => self.kept += 1,
            Err(reason) => self.count_dropped(reason, 1),
        }
    }

    #[cold]
    pub(super) fn count_dropped(&mut self, reason: DropReason, count: u64) {
        self.dropped[reason as usize] += count;
    }

    fn first_drop_reason(&self) -> Option<DropReason> {
        let mut reasons = DropReason::ALL.iter().zip(self.dropped);
        reasons
            .find(|(_, count)| *count > 0)
            .map(|(reason, _)| *reason)
    }

    /// Records why a metric was not admitted, for the reply to its sender.
    #[cold]
    pub(super) fn set_admission_error(&mut self, error: Option<AdmissionError>) {
        self.admission_error = error;
    }

    /// Returns the first reason for which a value was dropped, and the error that belongs to it.
    pub(super) fn first_refusal(&self) -> Option<LineRefusal> {
        let reason = self.first_drop_reason()?;
        let error = self.admission_error.clone();
        let error = error.filter(|error| error.reason() == reason);
        Some(LineRefusal { reason, error })
    }

    /// Adds the counts to the ledger and to the sender's account, and resets them.
    pub(super) fn report(&mut self, admission: &Admission, sender: &Sender) {
        let counts = std::mem::take(self);
        let dropped: u64 = counts.dropped.iter().sum();
        if counts.kept + dropped == 0 {
            return;
        }
        admission.count_received(sender, counts.kept + dropped);
        admission.count_kept(sender, counts.kept);
        if dropped > 0 {
            for (&reason, count) in DropReason::ALL.iter().zip(counts.dropped) {
                if count > 0 {
                    admission.count_dropped(sender, reason, count);
                }
            }
        }
    }
}
