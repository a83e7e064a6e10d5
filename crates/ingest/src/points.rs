//! Points with their own times: `POST /api/metrics`, `put`, the rings of lanes. Every one of them is kept.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pegel_metric::{Input, Kind, Level, Millis, Point, Reason, Series};
use pegel_store::{PushError, Store};

use crate::gate::{Admitted, Gate, Offer, Pass, Refusal};
use crate::reserved::USER_LABEL;
use crate::senders::{POINT_BYTES, Sender};

/// A series that nobody wrote to for this long leaves its sender's account.
const UNUSED_MS: Millis = 10 * 60 * 1000;
/// How often to look for such series.
const SWEEP_MS: Millis = 60 * 1000;

/// A point as a program sends it.
#[derive(Debug, Clone, Copy)]
pub struct Offered<'a> {
    pub name: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
    /// What stands in the store as the meaning of the name.
    pub help: &'a str,
    pub level: Level,
    pub time: Millis,
    pub value: f64,
}

/// Why a point was not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointRefusal {
    #[error(transparent)]
    Series(#[from] Refusal),
    #[error("the value is not a finite number")]
    NotFinite,
    #[error("the sender exceeds limits.sender_bytes")]
    SenderRate,
    #[error("the time lies before what the store keeps")]
    TooOld,
    #[error("the time is more than ten minutes ahead")]
    Future,
    #[error("the store did not take it: {}", .0.as_str())]
    Store(Reason),
}

impl PointRefusal {
    fn of(reason: Reason) -> PointRefusal {
        match reason {
            Reason::TooOld => PointRefusal::TooOld,
            Reason::Future => PointRefusal::Future,
            reason => PointRefusal::Store(reason),
        }
    }

    pub fn reason(&self) -> Reason {
        match self {
            PointRefusal::Series(refusal) => refusal.reason(),
            PointRefusal::NotFinite => Reason::BadValue,
            PointRefusal::SenderRate => Reason::SenderRate,
            PointRefusal::TooOld => Reason::TooOld,
            PointRefusal::Future => Reason::Future,
            PointRefusal::Store(reason) => *reason,
        }
    }
}

/// What became of a batch of points. Those that were kept can be read, and survive a kill.
#[derive(Debug, Default)]
pub struct Outcome {
    pub kept: u64,
    /// Which points were refused, by their place in the batch, and why.
    pub refused: Vec<(usize, PointRefusal)>,
}

/// The way of points into the store.
#[derive(Debug)]
pub struct Points {
    gate: Arc<Gate>,
    store: Store,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Series by input, user, and name and labels as they were sent.
    series: HashMap<Box<str>, Entry>,
    swept: Millis,
    /// The number of takeovers when the entries were last checked.
    takeovers: u64,
}

#[derive(Debug)]
struct Entry {
    series: Arc<Series>,
    _pass: Pass,
    used: Millis,
}

impl Points {
    pub fn new(gate: Arc<Gate>, store: Store) -> Points {
        Points {
            gate,
            store,
            known: Mutex::default(),
        }
    }

    /// Stores a batch. Bad points do not spoil the others. Fails only as a whole, when the store takes
    /// nothing at all at this time. Waits for the log: not for async workers.
    pub fn offer(
        &self,
        sender: &Arc<Sender>,
        offered: &[Offered<'_>],
        now: Millis,
    ) -> Result<Outcome, PushError> {
        let mut outcome = Outcome::default();
        let mut points = Vec::with_capacity(offered.len());
        let mut places = Vec::with_capacity(offered.len());
        {
            let mut known = self.known();
            known.sweep(now);
            known.forget_taken_over(&self.gate);
            let mut key = String::new();
            for (place, point) in offered.iter().enumerate() {
                match self.resolve(&mut known, &mut key, sender, point, now) {
                    Ok(series) => {
                        points.push(Point {
                            series,
                            time: point.time,
                            value: point.value,
                        });
                        places.push(place);
                    }
                    Err(refusal) => {
                        self.gate.received(sender, 1);
                        self.gate.dropped(sender, refusal.reason(), 1);
                        outcome.refused.push((place, refusal));
                    }
                }
            }
        }
        if points.is_empty() {
            return Ok(outcome);
        }
        let count = points.len() as u64;
        sender.add_received(count);
        // The store counts what reaches it in the ledger; the sender's account is updated here.
        let pushed = self
            .store
            .push(sender.input, points)
            .inspect_err(|error| sender.add_dropped(error.reason(), count))?;
        outcome.kept = pushed.kept;
        for (at, reason) in pushed.refused {
            sender.add_dropped(reason, 1);
            outcome.refused.push((places[at], PointRefusal::of(reason)));
        }
        outcome.refused.sort_by_key(|(place, _)| *place);
        Ok(outcome)
    }

    fn resolve(
        &self,
        known: &mut Known,
        key: &mut String,
        sender: &Arc<Sender>,
        point: &Offered<'_>,
        now: Millis,
    ) -> Result<Arc<Series>, PointRefusal> {
        if !point.value.is_finite() {
            return Err(PointRefusal::NotFinite);
        }
        if !sender.take_bytes(POINT_BYTES) {
            return Err(PointRefusal::SenderRate);
        }
        write_key(key, sender, point);
        if let Some(entry) = known.series.get_mut(key.as_str())
            && !self.is_taken_from_statsd(&entry.series)
        {
            entry.used = now;
            return Ok(entry.series.clone());
        }
        let identity = sender.user().map(|user| (USER_LABEL, user));
        let offer = Offer {
            name: point.name,
            labels: point.labels,
            identity: identity.as_slice(),
            kind: Kind::Unknown,
            help: point.help,
            level: point.level,
            input: sender.input,
        };
        let Admitted { series, pass, .. } = self.gate.admit(sender, &offer)?;
        let entry = Entry {
            series: series.clone(),
            _pass: pass,
            used: now,
        };
        known.series.insert(key.as_str().into(), entry);
        Ok(series)
    }

    /// Returns whether another input claimed the name of a statsd gauge with times since it was admitted. statsd claims no
    /// names, so that this is no takeover.
    fn is_taken_from_statsd(&self, series: &Series) -> bool {
        let input = series.family().input;
        input == Input::Statsd && self.gate.owners().is_owned_by_other(series.text(), input)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lengths keep names apart that have each other's separators in them.
fn write_key(key: &mut String, sender: &Sender, point: &Offered<'_>) {
    key.clear();
    for part in [sender.input.as_str(), sender.user().unwrap_or_default()] {
        key.push_str(part);
        key.push('\u{1}');
    }
    key.push_str(point.name);
    for (label, value) in point.labels {
        // Writing to a string cannot fail.
        let _ = write!(key, "\u{1}{}\u{1}{label}{value}", label.len());
    }
}

impl Known {
    fn sweep(&mut self, now: Millis) {
        if (now - self.swept).abs() >= SWEEP_MS {
            self.swept = now;
            self.series.retain(|_, entry| now - entry.used < UNUSED_MS);
        }
    }

    /// Forgets series whose names another input took over: their next points get the label `input`.
    fn forget_taken_over(&mut self, gate: &Gate) {
        let takeovers = gate.owners().takeovers();
        if std::mem::replace(&mut self.takeovers, takeovers) != takeovers {
            self.series.retain(|_, entry| {
                let series = &entry.series;
                let input = series.family().input;
                !gate.owners().is_owned_by_other(series.text(), input)
            });
        }
    }
}
