//! Checks every sample of a batch against the allowed times and the limit of series, before the
//! writer logs or applies anything. Rejected samples are counted in the ledger by reason.

use std::sync::mpsc::SyncSender;

use pegel_metric::{DropReason, Input, Millis, Point, Tick};

use crate::context::StoreContext;
use crate::{PushError, PushResult};

use super::pending_series::PendingSeries;
use super::queue::UncountedSamples;

/// Samples further ahead of the clock are rejected.
const FUTURE_MAX_MS: Millis = 10 * 60 * 1000;

/// A checked command, reduced to the samples that will be written.
pub(super) enum CheckedCommand {
    /// The flags tell which rows are kept.
    Tick(Tick, Vec<bool>, UncountedSamples),
    /// The points that were accepted.
    Push(
        Input,
        CheckedPoints,
        UncountedSamples,
        PushResult,
        SyncSender<Result<PushResult, PushError>>,
    ),
}

/// Accepted points, with the slots of their series in the head that was active when they were
/// checked: the tables of series are large, and a lookup costs more than adding a point.
pub(super) struct CheckedPoints {
    pub(super) points: Vec<Point>,
    /// One for each point; `None` if the series was new.
    pub(super) slots: Vec<Option<u32>>,
    /// The number of the head.
    pub(super) head: u64,
}

impl CheckedPoints {
    /// Forgets the slots if another head is active.
    pub(super) fn resolve_for(&mut self, head: u64) {
        if self.head != head {
            self.slots.fill(None);
        }
    }
}

/// Checks the commands of one batch.
pub(super) struct CommandCheck<'a> {
    shared: &'a StoreContext,
    pending_series: PendingSeries,
}

impl<'a> CommandCheck<'a> {
    pub(super) fn new(shared: &'a StoreContext) -> CommandCheck<'a> {
        CommandCheck {
            shared,
            pending_series: PendingSeries::default(),
        }
    }

    /// Checks a tick. Rejected rows are counted as dropped, each as a whole.
    pub(super) fn tick(&mut self, tick: Tick, mut unsettled: UncountedSamples) -> CheckedCommand {
        let refused = self.accepted_times().refusal(tick.time);
        let state = self.shared.read();
        let rows = tick.rows().iter().map(|row| {
            let reason = refused.or_else(|| {
                let series_max = self.shared.options.limits.series.get() as usize;
                let fits = self
                    .pending_series
                    .admit_group(&state.head, &row.members, series_max);
                (!fits).then_some(DropReason::SeriesLimit)
            });
            if let Some(reason) = reason {
                self.shared
                    .count_dropped_tick(tick.input, reason, row.present_count());
                unsettled.mark_counted(row.present_count());
            }
            reason.is_none()
        });
        let rows = rows.collect();
        drop(state);
        CheckedCommand::Tick(tick, rows, unsettled)
    }

    /// Checks the points of a push. Rejected points are counted as dropped and reported to the
    /// sender.
    pub(super) fn push(
        &mut self,
        input: Input,
        mut points: Vec<Point>,
        mut unsettled: UncountedSamples,
        reply: SyncSender<Result<PushResult, PushError>>,
    ) -> CheckedCommand {
        let times = self.accepted_times();
        let series_max = self.shared.options.limits.series.get() as usize;
        let state = self.shared.read();
        let mut pushed = PushResult::default();
        let mut slots = Vec::with_capacity(points.len());
        let mut at = 0;
        let mut probable = 0;
        points.retain(|point| {
            let slot = state.head.ungrouped.slot_near(&point.series, probable);
            probable = slot.map_or(probable, |slot| slot + 1);
            let refused = times.refusal(point.time).or_else(|| {
                let pending = &mut self.pending_series;
                let fits =
                    slot.is_some() || pending.admit_series(&state.head, &point.series, series_max);
                (!fits).then_some(DropReason::SeriesLimit)
            });
            match refused {
                None => slots.push(slot),
                Some(reason) => {
                    self.shared.ledger.add_dropped(input, reason, 1);
                    unsettled.mark_counted(1);
                    pushed.refused.push((at, reason));
                }
            }
            at += 1;
            refused.is_none()
        });
        pushed.kept = points.len() as u64;
        let points = CheckedPoints {
            points,
            slots,
            head: state.head.number,
        };
        CheckedCommand::Push(input, points, unsettled, pushed, reply)
    }

    fn accepted_times(&self) -> AcceptedTimes {
        AcceptedTimes {
            first: self.shared.retention_start(),
            last: self.shared.now().saturating_add(FUTURE_MAX_MS),
        }
    }
}

/// The times that samples may have at present.
struct AcceptedTimes {
    first: Millis,
    last: Millis,
}

impl AcceptedTimes {
    /// Returns the reason why a sample of this time is rejected, if it is.
    fn refusal(&self, time: Millis) -> Option<DropReason> {
        if time > self.last {
            Some(DropReason::Future)
        } else if time < self.first {
            Some(DropReason::TooOld)
        } else {
            None
        }
    }
}
