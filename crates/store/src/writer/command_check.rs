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
        Vec<Point>,
        UncountedSamples,
        PushResult,
        SyncSender<Result<PushResult, PushError>>,
    ),
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
        let refused = self.time_refusal(tick.time);
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
        points: Vec<Point>,
        mut unsettled: UncountedSamples,
        reply: SyncSender<Result<PushResult, PushError>>,
    ) -> CheckedCommand {
        let state = self.shared.read();
        let mut pushed = PushResult::default();
        let mut kept = Vec::with_capacity(points.len());
        for (at, point) in points.into_iter().enumerate() {
            let refused = self.time_refusal(point.time).or_else(|| {
                let series_max = self.shared.options.limits.series.get() as usize;
                let fits = self
                    .pending_series
                    .admit_series(&state.head, &point.series, series_max);
                (!fits).then_some(DropReason::SeriesLimit)
            });
            match refused {
                Some(reason) => {
                    self.shared.ledger.add_dropped(input, reason, 1);
                    unsettled.mark_counted(1);
                    pushed.refused.push((at, reason));
                }
                None => kept.push(point),
            }
        }
        pushed.kept = kept.len() as u64;
        CheckedCommand::Push(input, kept, unsettled, pushed, reply)
    }

    /// Returns the reason why a sample of this time is rejected, if it is.
    fn time_refusal(&self, time: Millis) -> Option<DropReason> {
        if time > self.shared.now().saturating_add(FUTURE_MAX_MS) {
            Some(DropReason::Future)
        } else if time < self.shared.retention_start() {
            Some(DropReason::TooOld)
        } else {
            None
        }
    }
}
