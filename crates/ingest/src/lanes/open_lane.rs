//! One open lane: its declared series, and what it has contributed so far.

use std::sync::Arc;

use pegel_lane::reader::{LaneError, LaneFile, ProcessState};
use pegel_metric::Millis;

use super::contribution::{LaneContribution, LanePointSeries, OnRefused, join_totals, labels_of};
use super::journal::JournalLane;
use super::totals::LaneTotals;
use crate::senders::Sender;

/// The file is removed this long after its process ended.
const REMOVE_AFTER_MS: Millis = 60_000;
/// If the process is not visible: after this long without a change.
const REMOVE_UNSEEN_AFTER_MS: Millis = 24 * 3_600_000;

/// A lane whose file was opened.
#[derive(Debug)]
pub(super) struct OpenLane {
    pub file: LaneFile,
    /// The index of its directory.
    pub directory: usize,
    pub sender: Arc<Sender>,
    /// The name of the user who owns the file; `None` for the agent's user.
    user: Option<Arc<str>>,
    /// By the index of the series in the lane.
    contributions: Vec<LaneContribution>,
    /// Its journal record, until the lane was read.
    journaled: Option<JournalLane>,
    /// Whether an agent with another journal has counted it so far: this agent counts from its
    /// first reading on.
    is_counted_elsewhere: bool,
    pub has_ended: bool,
    /// Whether it was read to its end after its program ended.
    pub is_drained: bool,
    /// The time since when its process is gone, or nothing changed.
    pub quiet_since: Millis,
    /// The submission to the journal's writer that covers the current counts; `None` if there are
    /// newer ones.
    pub journaled_in: Option<u64>,
    /// Why it is no longer read.
    pub error: Option<String>,
}

impl OpenLane {
    pub(super) fn new(
        mut file: LaneFile,
        directory: usize,
        (sender, user): (Arc<Sender>, Option<Arc<str>>),
        resumed: Option<JournalLane>,
        is_counted_elsewhere: bool,
        now: Millis,
    ) -> OpenLane {
        if let Some(kept) = &resumed {
            file.set_position(kept.position);
        }
        OpenLane {
            file,
            directory,
            sender,
            user,
            contributions: Vec::new(),
            journaled: resumed,
            is_counted_elsewhere,
            has_ended: false,
            is_drained: false,
            quiet_since: now,
            journaled_in: None,
            error: None,
        }
    }

    /// Reads the lane and adds the increase to the totals. Returns whether there was any.
    pub(super) fn update(
        &mut self,
        totals: &mut LaneTotals,
        buffer: &mut Vec<u8>,
        now: Millis,
        refuse: &mut OnRefused<'_>,
    ) -> Result<bool, LaneError> {
        let header = self.file.header().clone();
        let view = self.file.read(buffer)?;
        let mut is_changed = false;
        for index in self.contributions.len()..view.len() {
            let declared = view.series(index)?;
            let labels = labels_of(&declared, &header);
            let owner = (&self.sender, self.user.as_ref());
            let part = match join_totals(totals, owner, &declared, labels, now) {
                Ok(part) => part,
                Err(refusal) => {
                    refuse(&self.sender, refusal);
                    LaneContribution::Refused
                }
            };
            self.contributions.push(part);
            is_changed = true;
        }
        let is_alive = !self.has_ended;
        let mut changed = 0;
        for (index, part) in self.contributions.iter_mut().enumerate() {
            let has_new_value =
                part.update(totals, &self.sender, &view, index, is_alive, now, refuse);
            changed += u64::from(has_new_value);
        }
        // Only the sender's count: the ledger counts the totals over all lanes when they are
        // sampled.
        self.sender.add_received(changed);
        is_changed |= changed > 0;
        self.subtract_counted_elsewhere(totals);
        if is_changed {
            self.journaled_in = None;
            self.quiet_since = now;
        }
        Ok(is_changed)
    }

    /// At the first reading, subtracts what an agent with another journal has counted.
    fn subtract_counted_elsewhere(&mut self, totals: &mut LaneTotals) {
        // The whole lane was read, so this includes the amounts in the journal.
        let mut before = self.journaled.take().unwrap_or_default().counted_elsewhere;
        let is_counted_elsewhere = std::mem::take(&mut self.is_counted_elsewhere);
        if is_counted_elsewhere {
            self.file.skip_points();
        } else if before.is_empty() {
            return;
        }
        for contribution in self
            .contributions
            .iter_mut()
            .flat_map(LaneContribution::contributions_mut)
        {
            let kept = before
                .iter()
                .position(|(number, _)| *number == contribution.number);
            let counted = match kept {
                _ if is_counted_elsewhere => contribution.amount,
                Some(at) => before.swap_remove(at).1,
                None => continue,
            };
            // A lane whose count decreased is not trusted.
            if counted.is_more_than(contribution.amount) {
                continue;
            }
            totals.subtract_amount(contribution.number, counted);
            contribution.counted_elsewhere = counted;
        }
    }

    pub(super) fn point_series(&self, index: usize) -> Option<&LanePointSeries> {
        match self.contributions.get(index) {
            Some(LaneContribution::Points(part)) => Some(part),
            _ => None,
        }
    }

    /// Returns the journal record; `None` until the part that another agent has counted is known.
    pub(super) fn journal_record(&self) -> Option<JournalLane> {
        if self.is_counted_elsewhere {
            return None;
        }
        let mut kept = match &self.journaled {
            // Not read yet: the journal's amounts still hold.
            Some(resumed) => resumed.clone(),
            None => JournalLane::default(),
        };
        for part in self
            .contributions
            .iter()
            .flat_map(LaneContribution::contributions)
        {
            kept.amounts.push((part.number, part.amount));
            if part.counted_elsewhere.value() > 0.0 {
                kept.counted_elsewhere
                    .push((part.number, part.counted_elsewhere));
            }
        }
        Some(JournalLane {
            has_ended: self.has_ended,
            position: self.file.position(),
            ..kept
        })
    }

    /// Removes the lane permanently: its counters stay in the totals, its gauges are removed.
    pub(super) fn remove_from_totals(&mut self, totals: &mut LaneTotals) {
        for (number, amount) in self.journaled.take().unwrap_or_default().counted() {
            totals.add_amount(number, amount, self.quiet_since);
            totals.add_to_base(number, amount);
        }
        for part in self.contributions.drain(..) {
            for contribution in part.contributions() {
                totals.add_to_base(contribution.number, contribution.counted());
                totals.remove_lane(contribution.number);
            }
            if let LaneContribution::Gauge(number, _) = part {
                totals.remove_lane(number);
            }
        }
    }

    /// Ends the lane: its program released it, so its gauges are no longer valid.
    pub(super) fn end(&mut self, totals: &mut LaneTotals) {
        self.has_ended = true;
        self.journaled_in = None;
        for part in &mut self.contributions {
            if let LaneContribution::Gauge(number, _) = *part {
                totals.remove_lane(number);
                *part = LaneContribution::Refused;
            }
        }
    }

    /// Returns whether its file is no longer needed.
    pub(super) fn is_removable(&self, now: Millis) -> bool {
        if !self.has_ended {
            return false;
        }
        let quiet = now - self.quiet_since;
        match self.file.process() {
            ProcessState::Alive => false,
            ProcessState::Gone => quiet >= REMOVE_AFTER_MS,
            ProcessState::NotVisible => quiet >= REMOVE_UNSEEN_AFTER_MS,
        }
    }
}
