//! One lane as the agent knows it: what it declared, and what it has contributed so far.

use std::sync::Arc;

use pegel_lane::reader::{LaneError, LaneFile, ProcessState};
use pegel_metric::Millis;

use super::amount::Amount;
use super::journal::{KeptLane, LaneId};
use super::part::{Part, PointsPart, Refuse, declare, labels_of};
use super::totals::{Number, Totals};
use crate::senders::Sender;

/// The file goes this long after its process.
const REMOVE_AFTER_MS: Millis = 60_000;
/// Where the process cannot be seen: after this long without change.
const REMOVE_UNSEEN_AFTER_MS: Millis = 24 * 3_600_000;

/// A lane whose file was opened.
#[derive(Debug)]
pub(super) struct KnownLane {
    pub file: LaneFile,
    /// Which of the directories it is in.
    pub directory: usize,
    pub sender: Arc<Sender>,
    /// By the index of the series in the lane.
    parts: Vec<Part>,
    /// What the journal said of it, until it was read.
    resumed: Option<KeptLane>,
    pub has_ended: bool,
    /// Since when its process has been gone, or nothing has changed.
    pub quiet_since: Millis,
    /// Whether the journal has what is here.
    pub is_journaled: bool,
    /// Why it is not read any more.
    pub fault: Option<String>,
}

impl KnownLane {
    pub fn new(
        mut file: LaneFile,
        directory: usize,
        sender: Arc<Sender>,
        resumed: Option<KeptLane>,
        now: Millis,
    ) -> KnownLane {
        if let Some(kept) = &resumed {
            file.set_position(kept.position);
        }
        KnownLane {
            file,
            directory,
            sender,
            parts: Vec::new(),
            resumed,
            has_ended: false,
            quiet_since: now,
            is_journaled: false,
            fault: None,
        }
    }

    pub fn id(&self) -> LaneId {
        self.file.header().id
    }

    /// Reads the lane and adds what is new to the totals. Whether anything was.
    pub fn update(
        &mut self,
        totals: &mut Totals,
        buffer: &mut Vec<u8>,
        now: Millis,
        refuse: &mut Refuse<'_>,
    ) -> Result<bool, LaneError> {
        let header = self.file.header().clone();
        let view = self.file.read(buffer)?;
        let mut is_changed = false;
        for index in self.parts.len()..view.len() {
            let declared = view.series(index)?;
            let labels = labels_of(&declared, &header);
            let part = match declare(totals, &self.sender, &declared, labels, now) {
                Ok(part) => part,
                Err(refusal) => {
                    refuse(&self.sender, refusal);
                    Part::Nothing
                }
            };
            self.parts.push(part);
            is_changed = true;
        }
        // All of it is read anew: what the journal said is in there.
        self.resumed = None;
        let is_alive = !self.has_ended;
        for (index, part) in self.parts.iter_mut().enumerate() {
            is_changed |= part.take(totals, &self.sender, &view, index, is_alive, now, refuse);
        }
        if is_changed {
            self.is_journaled = false;
            self.quiet_since = now;
        }
        Ok(is_changed)
    }

    pub fn points_part(&self, index: usize) -> Option<&PointsPart> {
        match self.parts.get(index) {
            Some(Part::Points(part)) => Some(part),
            _ => None,
        }
    }

    /// For the journal.
    pub fn kept(&self) -> KeptLane {
        let contributions = self.parts.iter().flat_map(Part::all);
        let mut amounts: Vec<(Number, Amount)> = contributions
            .map(|part| (part.number, part.amount))
            .collect();
        // Not read yet: what the journal said still holds.
        amounts.extend(
            self.resumed
                .iter()
                .flat_map(|kept| kept.amounts.iter().copied()),
        );
        KeptLane {
            has_ended: self.has_ended,
            position: self.file.position(),
            amounts,
        }
    }

    /// The lane is gone for good: its counters stay in the totals, its gauges go.
    pub fn leave(&mut self, totals: &mut Totals) {
        for (number, amount) in self
            .resumed
            .take()
            .into_iter()
            .flat_map(|kept| kept.amounts)
        {
            totals.raise(number, amount, self.quiet_since);
            totals.keep(number, amount);
        }
        for part in self.parts.drain(..) {
            for contribution in part.all() {
                totals.keep(contribution.number, contribution.amount);
                totals.leave(contribution.number);
            }
            if let Part::Gauge(number) = part {
                totals.leave(number);
            }
        }
    }

    /// The program let go of it. Its gauges mean nothing any more.
    pub fn end(&mut self, totals: &mut Totals) {
        self.has_ended = true;
        self.is_journaled = false;
        for part in &mut self.parts {
            if let Part::Gauge(number) = *part {
                totals.leave(number);
                *part = Part::Nothing;
            }
        }
    }

    /// Whether its file has no use any more.
    pub fn is_forgotten(&self, now: Millis) -> bool {
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
