//! What may be written: checks of time and of the limit of series, before anything is changed.

use std::sync::mpsc::SyncSender;

use pegel_metric::{Input, Millis, Point, Reason, Tick};

use crate::shared::Shared;
use crate::{PushError, Pushed};

use super::newcomers::Newcomers;
use super::queue::Unsettled;

/// Samples that are further ahead of the clock are refused.
const AHEAD_MAX_MS: Millis = 10 * 60 * 1000;

/// A command that was looked at: what of it is to be written.
pub(super) enum Admitted {
    /// Which rows may be kept.
    Tick(Tick, Vec<bool>, Unsettled),
    /// The points that are left.
    Push(
        Input,
        Vec<Point>,
        Unsettled,
        Pushed,
        SyncSender<Result<Pushed, PushError>>,
    ),
}

/// Looks at the commands of one batch.
pub(super) struct Admission<'a> {
    shared: &'a Shared,
    newcomers: Newcomers,
}

impl<'a> Admission<'a> {
    pub fn new(shared: &'a Shared) -> Admission<'a> {
        Admission {
            shared,
            newcomers: Newcomers::default(),
        }
    }

    pub fn tick(&mut self, tick: Tick, mut unsettled: Unsettled) -> Admitted {
        let refused = self.time_refused(tick.time);
        let state = self.shared.read();
        let rows = tick.rows().iter().map(|row| {
            let reason = refused.or_else(|| {
                let series_max = self.shared.options.series_max;
                let fits = self
                    .newcomers
                    .admit_group(&state.head, &row.members, series_max);
                (!fits).then_some(Reason::SeriesLimit)
            });
            if let Some(reason) = reason {
                self.shared
                    .drop_ticked(tick.input, reason, row.present_count());
                unsettled.settle(row.present_count());
            }
            reason.is_none()
        });
        let rows = rows.collect();
        drop(state);
        Admitted::Tick(tick, rows, unsettled)
    }

    pub fn push(
        &mut self,
        input: Input,
        points: Vec<Point>,
        mut unsettled: Unsettled,
        reply: SyncSender<Result<Pushed, PushError>>,
    ) -> Admitted {
        let state = self.shared.read();
        let mut pushed = Pushed::default();
        let mut kept = Vec::with_capacity(points.len());
        for (at, point) in points.into_iter().enumerate() {
            let refused = self.time_refused(point.time).or_else(|| {
                let series_max = self.shared.options.series_max;
                let fits = self
                    .newcomers
                    .admit_series(&state.head, &point.series, series_max);
                (!fits).then_some(Reason::SeriesLimit)
            });
            match refused {
                Some(reason) => {
                    self.shared.ledger.dropped(input, reason, 1);
                    unsettled.settle(1);
                    pushed.refused.push((at, reason));
                }
                None => kept.push(point),
            }
        }
        pushed.kept = kept.len() as u64;
        Admitted::Push(input, kept, unsettled, pushed, reply)
    }

    fn time_refused(&self, time: Millis) -> Option<Reason> {
        if time > self.shared.now().saturating_add(AHEAD_MAX_MS) {
            Some(Reason::Future)
        } else if time < self.shared.oldest_kept() {
            Some(Reason::TooOld)
        } else {
            None
        }
    }
}
