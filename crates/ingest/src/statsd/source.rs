//! From the table to the store: what changed at each tick, and intervals when they are over.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Millis, Tick};

use super::batch::Shared;
use super::net::Drops;
use super::table::{Change, Handle};
use crate::board::{Board, Place};
use crate::gate::{Gate, with_input_label};
use crate::points::Points;
use crate::pulse::Source;

/// How many entries are looked at while the table is held: some ten microseconds.
const PIECE: usize = 1024;
/// The same where intervals end and percentiles are made.
const CLOSING_PIECE: u32 = 128;

#[derive(Debug)]
pub(crate) struct Published {
    shared: Arc<Shared>,
    drops: Vec<Drops>,
    points: Arc<Points>,
    board: Board,
    /// Where each series of the table stands on the board.
    places: Vec<Option<Place>>,
    changes: Vec<Change>,
    flush: Millis,
    /// The number of the interval that is open.
    interval: Option<Millis>,
    /// The number of intervals that ended.
    closed: u64,
}

impl Published {
    pub fn new(
        shared: Arc<Shared>,
        drops: Vec<Drops>,
        points: Arc<Points>,
        mut board: Board,
        flush: Duration,
        now: Millis,
    ) -> Published {
        board.show_restored(now);
        rename_restored(&mut board, &shared.gate);
        Published {
            shared,
            drops,
            points,
            board,
            places: Vec::new(),
            changes: Vec::new(),
            flush: Millis::try_from(flush.as_millis())
                .unwrap_or(Millis::MAX)
                .max(1),
            interval: None,
            closed: 0,
        }
    }

    /// Renames metrics whose names other inputs claimed.
    fn rename_claimed(&mut self) {
        loop {
            self.add_newcomers();
            let mut table = self.shared.table();
            // The board must have all series before some are removed.
            if table.has_newcomers() {
                continue;
            }
            let claimed = self.shared.gate.owners().take_claimed();
            if claimed.as_ref().is_some_and(Vec::is_empty) {
                return;
            }
            table.rename_claimed(claimed.as_deref(), &self.shared.gate);
            let gone = table.take_gone();
            drop(table);
            self.remove_gone(&gone);
            return rename_restored(&mut self.board, &self.shared.gate);
        }
    }

    /// Totals and gauges that changed.
    fn take_changes(&mut self) {
        self.shared.table().resume_delayed();
        loop {
            self.add_newcomers();
            let more = {
                let mut table = self.shared.table();
                // A newcomer between the two looks has changes that the board has no place for.
                if table.has_newcomers() {
                    continue;
                }
                table.take_changes(PIECE, &mut self.changes)
            };
            self.put_changes();
            if !more {
                return;
            }
        }
    }

    fn add_newcomers(&mut self) {
        loop {
            let newcomers = self.shared.table().take_newcomers();
            if newcomers.is_empty() {
                return;
            }
            let mut resumed = Vec::new();
            for newcomer in newcomers {
                let (place, before) = self.board.add(newcomer.series);
                let at = newcomer.handle as usize;
                if self.places.len() <= at {
                    self.places.resize(at + 1, None);
                }
                self.places[at] = Some(place);
                if let Some(before) = before.filter(|_| newcomer.resumes) {
                    resumed.push((newcomer.entry, newcomer.figure, before));
                }
            }
            for (entry, figure, before) in resumed {
                self.shared.table().resume(entry, figure, before);
            }
        }
    }

    fn put_changes(&mut self) {
        for change in self.changes.drain(..) {
            let Some(Some(place)) = self.places.get(change.handle as usize) else {
                continue;
            };
            match change.value {
                Some(value) => self.board.set(*place, value),
                None => self.board.clear(*place),
            }
        }
    }

    /// Ends the interval of every metric, and takes those off the board that were deleted.
    fn close(&mut self) {
        let mut next = Some(0);
        while let Some(from) = next {
            let gone: Vec<(Handle, usize)> = {
                let mut table = self.shared.table();
                next = table.close(from, CLOSING_PIECE, &mut self.changes);
                table.take_gone()
            };
            self.put_changes();
            self.remove_gone(&gone);
        }
        self.closed += 1;
        // The first interval began before this agent started.
        if self.closed == 2 {
            let table = self.shared.table();
            let figures = table.figures();
            self.board
                .forget_restored(|series| figures.deletes_idle_series(series.name()));
        }
    }

    fn remove_gone(&mut self, gone: &[(Handle, usize)]) {
        if gone.is_empty() {
            return;
        }
        for &(first, length) in gone {
            let end = self.places.len().min(first as usize + length);
            for place in &mut self.places[(first as usize).min(end)..end] {
                if let Some(place) = place.take() {
                    self.board.remove(place);
                }
            }
        }
        self.shared.table().reuse(gone);
    }
}

/// Renames totals from before a restart whose names other inputs own, as their metrics will be renamed.
fn rename_restored(board: &mut Board, gate: &Gate) {
    board.rename_restored(|series| {
        let input = series.family().input;
        let is_owned = gate.owners().is_owned_by_other(series.text(), input);
        is_owned.then(|| with_input_label(series).ok().map(Arc::new))?
    });
}

impl Source for Published {
    fn pass(&mut self, tick: &mut Tick) {
        for drops in &mut self.drops {
            drops.enter(&self.shared.gate);
        }
        self.shared.timed.store(&self.points, tick.time);
        self.rename_claimed();
        self.take_changes();
        let interval = tick.time.div_euclid(self.flush);
        if self
            .interval
            .replace(interval)
            .is_some_and(|open| open != interval)
        {
            self.close();
        }
        self.board.emit(tick);
    }
}
